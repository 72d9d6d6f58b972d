//! What clients were told is done and the origin does not have yet: kept, shown, and brought home.
//!
//! Knows nothing of `namespace`, of caches or of what is behind [`Home`]; `vfs` joins all that:
//!
//! 1. At start: [`Journal::open`]; each [`RecoveredEntry`] becomes an [`Operation`] by `decode`, goes into [`Names`] with
//!    `apply`, in order, and all of them into [`Flusher::start`] with the `Home`.
//! 2. A change: look at it through `Names` (`lookup`, `lay_over`, `attr`, `overlay`), choose the id of what is made from
//!    [`LocalIds`], take `since` from `Names` and `base` from what is known of the origin. Append `operation.encode()`
//!    with the data, `Names::apply`, and when `synced` says that it is durable, answer the client and give it to
//!    [`Flusher::add`]. Changes of the same name or object are applied and given one after another.
//! 3. [`Home::flushed`]: show the origin's state, then `Names::flushed`. Local ids stay good as aliases: handles were
//!    given out with them.
//! 4. [`Flusher::flush`] with a [`Scope`], and `wait`.
//!
//! Start with `journal.rs` (entries, opaque), then `log.rs` (the same without waiting), `scan.rs` and `recovery.rs` (what
//! counts after a crash), `dirty.rs` (the bytes of one file); then `operation.rs`, `names.rs`, `plan.rs`, `flush.rs`,
//! `conflict.rs`, and `home.rs`, the border. Bytes on disk: docs/design/journal-format.md.

mod bond;
mod conflict;
mod covered;
mod dirty;
mod disk;
mod flush;
mod home;
mod index;
mod journal;
mod local;
mod log;
mod metrics;
mod names;
mod operation;
mod plan;
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

pub use bond::journal_is_owed;
pub use conflict::{Alarm, AlarmKind, ConflictPolicy, conflict_name};
pub use dirty::{Overlay, Piece};
pub use flush::{
    Clock, FlushConfig, FlushMetrics, Flusher, Flushing, Listed, SystemClock, Waiting, Waits, Withheld,
};
pub use home::{Flushed, Found, GivenUp, Home, Own, Seen, Told};
pub use index::Position;
pub use journal::{Config, Journal, Recovered, RecoveredEntry, Ticket};
pub use local::{LocalIds, verifier_of};
pub use log::Compacted;
pub use metrics::Metrics;
pub use names::{Local, Lookup, Names};
pub use operation::{Action, Attributes, NewObject, Operation, Rename, Replaced, TARGET_MAX};
pub use plan::{Content, FlushPolicy, Moment, Parked, Pending, Scope, Window};
pub use recovery::Damage;
pub use replica::{Entry, Replica};
pub use segment::{DATA_MAX, HEAD_MAX};
pub use step::{Hook, Step, abort_at};

/// A segment's offsets are 32 bits on disk, and its Done records should not have to wait for a terabyte.
pub const SEGMENT_SIZE_MAX: u32 = 1 << 30;
