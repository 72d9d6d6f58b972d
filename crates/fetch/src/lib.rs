//! Where `namespace` (which version is this file now?) and `cache` (its bytes) meet: bytes of the version that a file has are
//! brought here from its origin, when they are asked for and before.
//!
//! - [`OriginSource`] (`source.rs`): what the cache asks for bytes that it lacks; [`key_of`]: the version that a file has now
//! - [`at_origin()`] (`at_origin.rs`): a call to an object's origin, with a stale reference healed
//! - [`VersionChain`] (`version_chain.rs`): which version of a file follows which by our own doing
//! - [`Prefetcher`] (`prefetch.rs`): files that will be read next are fetched ahead; `metrics.rs`: what that cost and brought
//! - [`Warmer`] (`warm.rs`): whole trees, on the operator's order; [`TreeWalk`] (`walk.rs`): the files below a path
//!
//! The way of bytes: somebody asks the cache for a [`cache::CacheKey`], with an [`OriginSource`] for what is not there; that
//! calls [`at_origin()`], and the origin answers with bytes of that version or with `VersionChanged`.
//!
//! Invariants: nothing here knows callers, permission or what a write policy keeps, but for [`DirtyFiles`]: a file whose origin
//! lacks bytes is not fetched before it is asked for. Begin with `source.rs`.

mod at_origin;
mod metrics;
mod prefetch;
mod source;
mod version_chain;
mod walk;
mod warm;

use types::{FileId, JunctionId};

pub use at_origin::at_origin;
pub use prefetch::Prefetcher;
pub use source::{OriginSource, ReadAhead, key_of};
pub use version_chain::{BytesChanged, VersionChain, relabel};
pub use walk::TreeWalk;
pub use warm::{OnlyCopies, WarmMode, WarmOrder, WarmProgress, Warmer};

/// Knows which files have bytes here that their origin lacks.
pub trait DirtyFiles: Send + Sync {
    fn has_dirty_bytes(&self, junction: JunctionId, file: FileId) -> bool;
}
