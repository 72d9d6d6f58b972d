//! A file that is being made, and that nobody sees before it has its name.

use crate::{Identity, Reference};

/// A draft, as its origin knows it. It ends with the process that began it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// What [`write`](crate::Origin::write) takes, `Unstable` only, until the draft is published or discarded. Every
    /// other call says `Stale`.
    pub reference: Reference,
    /// That of the file, once it has its name.
    pub identity: Identity,
}
