//! A file has another version because of what we did to its attributes.

use std::time::Duration;

use namespace::Found;
use types::{FileId, Result};

use crate::Vfs;
use crate::pending::Held;
use crate::read::key_of;

/// Longest wait for what is being written; then the caller is told to try again.
const PATIENCE: Duration = Duration::from_secs(10);

impl Vfs {
    /// If bytes of the file are pending: nothing of it is sent until the guard is dropped.
    pub(crate) async fn hold(&self, id: FileId) -> Result<Option<Held>> {
        let Some(file) = self.pending.get(id) else { return Ok(None) };
        tokio::time::timeout(PATIENCE, file.hold()).await.map_err(|_| Vfs::busy(id))
    }

    /// The file is `new` now. If it was `old` before, and nobody else changed it: bytes up to the smaller of the two sizes
    /// are the same, those between are zeros, and the cache keeps what it has.
    pub(crate) async fn renewed(&self, old: Option<&Found>, new: &Found, held: Option<Held>) {
        let Ok(new) = key_of(new) else { return }; // no file
        if let Some(Ok(old)) = old.map(key_of)
            && old != new
        {
            self.cache.succeed(old, new, Vec::new(), Vec::new()).await;
        }
        if let Some(held) = held {
            held.is_now(new);
        }
    }
}
