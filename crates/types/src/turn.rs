//! The right to ask an origin for what nobody waits for.

use std::any::Any;

/// Held from before the question is asked until it is answered. Whoever gives it learns that it is over when it is
/// dropped.
#[derive(Debug, Default)]
pub struct Turn {
    _place: Option<Box<dyn Any + Send + Sync>>,
}

impl Turn {
    /// A turn that gives `place` back when it is over. The default one was not waited for, and nobody counts it.
    pub fn in_place(place: impl Any + Send + Sync) -> Turn {
        Turn { _place: Some(Box::new(place)) }
    }
}
