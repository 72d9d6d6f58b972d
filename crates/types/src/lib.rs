//! The words everyone in Forebay shares: identities, names, ranges, attributes, callers, errors.
//!
//! This crate does no I/O (it reads clocks), knows no protocol and no runtime, and depends on next to nothing.
//! Start with [`ids`] (what a file *is*) and [`error`] (what can go wrong, and may it be retried).

pub mod attr;
pub mod caller;
pub mod change;
pub mod distance;
pub mod error;
pub mod extent_map;
pub mod ids;
pub mod name;
pub mod range;
pub mod supplier;
pub mod timeline;
pub mod turn;
pub mod xattr;

pub use attr::{Attr, FileKind, FsStat, Timestamp, WeakAttr};
pub use caller::Caller;
pub use change::{
    CreateHow, CreateVerifier, Durability, NewNode, SetAttr, Stability, TimeChange, WriteVerifier,
};
pub use distance::Distance;
pub use error::{Error, ErrorKind, OutageReason, Result};
pub use extent_map::{Divide, ExtentMap, RangeSet};
pub use ids::{CacheKey, FileId, JunctionId, NodeId, Version};
pub use name::Name;
pub use range::{BLOCK_SIZE, ByteRange};
pub use supplier::Supplier;
pub use timeline::Timeline;
pub use turn::Turn;
pub use xattr::{SetXattr, XattrName};
