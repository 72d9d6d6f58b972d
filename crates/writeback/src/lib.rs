//! The journal of what clients wrote and the origin does not have yet, and the overlay that lays it over clean bytes.
//!
//! An entry is opaque here: an encoded operation and perhaps file contents, under a sequence number. Knows nothing of
//! files' names, of caches, of origins or of who flushes; `vfs` joins all that.
//!
//! Start with `journal.rs` (what users call), then `log.rs` (the same without waiting), `scan.rs` and `recovery.rs`
//! (what counts after a crash), `dirty.rs` (the overlay of one file). Bytes on disk: docs/design/journal-format.md.

mod dirty;
mod disk;
mod index;
mod journal;
mod log;
mod metrics;
mod quota;
#[cfg(test)]
mod random;
mod recovery;
mod replica;
mod sabotage;
mod scan;
mod segment;
mod state;
mod step;

pub use dirty::{Overlay, Piece};
pub use index::Position;
pub use journal::{Config, Journal, Recovered, RecoveredEntry, Ticket};
pub use log::Compacted;
pub use metrics::Metrics;
pub use recovery::Damage;
pub use replica::{Entry, Replica};
pub use segment::{DATA_MAX, HEAD_MAX};
pub use step::{Hook, Step, abort_at};

/// A segment's offsets are 32 bits on disk, and its Done records should not have to wait for a terabyte.
pub const SEGMENT_SIZE_MAX: u32 = 1 << 30;
