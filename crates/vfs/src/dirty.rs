//! Files of which some bytes are not at their origin, or on their way to it.

use std::sync::{Arc, OnceLock};

use types::FileId;

use crate::back::shown::Shown;
use crate::pending::Pending;

/// Such files are fetched for nobody but who reads them, and he looks at what is below first: while we write, the origin
/// may show a version before it has all bytes of it, for the kernel notes the time of a write before the bytes.
#[derive(Clone)]
pub struct Dirty {
    pending: Arc<Pending>,
    shown: Arc<OnceLock<Arc<Shown>>>,
}

impl Dirty {
    pub fn new(pending: &Arc<Pending>) -> Dirty {
        Dirty { pending: pending.clone(), shown: Arc::default() }
    }

    /// Something is written `back` from now on.
    pub fn shown_by(&self, shown: &Arc<Shown>) {
        let _ = self.shown.set(shown.clone()); // there is one
    }

    pub fn has(&self, id: FileId) -> bool {
        self.pending.get(id).is_some() || self.shown.get().is_some_and(|shown| shown.has_bytes(id))
    }
}
