//! What clients were told is done and the origin does not have yet: kept, shown, and brought home.
//!
//! Knows nothing of `namespace`, of caches or of what is behind [`FlushTarget`]; `vfs` joins all that:
//!
//! 1. At start: [`Journal::open`]; each [`RecoveredEntry`] becomes an [`JournalOperation`] by `decode`, goes into [`DirtyNames`] with
//!    `apply`, in order, and all of them into [`Flusher::start`] with the `FlushTarget`.
//! 2. A change: look at it through `DirtyNames` (`lookup`, `lay_over`, `attr`, `overlay`), choose the id of what is made from
//!    [`LocalIds`], take `since` from `DirtyNames` and `base` from what is known of the origin. Append `operation.encode()`
//!    with the data, `DirtyNames::apply`, and when `synced` says that it is durable, answer the client and give it to
//!    [`Flusher::add`]. Changes of the same name or object are applied and given one after another.
//! 3. [`FlushTarget::flushed`]: show the origin's state, then `DirtyNames::flushed`. Local ids stay good as aliases: handles were
//!    given out with them.
//! 4. [`Flusher::flush`] with a [`Scope`], and `wait`.
//!
//! Start with `journal.rs` (entries, opaque), then `log.rs` (the same without waiting), `scan.rs` and `recovery.rs` (what
//! counts after a crash), `dirty.rs` (the bytes of one file); then `operation.rs`, `names.rs`, `plan.rs`, `flush.rs`,
//! `conflict.rs`, and `target.rs`, the border. Bytes on disk: docs/design/journal-format.md.

mod bond;
mod conflict;
mod covered;
mod crash_points;
mod dirty;
mod disk;
mod flush;
mod flush_target;
#[cfg(fuzzing)]
pub mod fuzz;
mod index;
mod journal;
mod local_ids;
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

pub use bond::journal_is_owed;
pub use conflict::{Alarm, AlarmKind, ConflictPolicy, conflict_name};
pub use crash_points::{Hook, JournalStep, abort_at};
pub use dirty::{DirtyPiece, Overlay};
pub use flush::{
    FlushBacklog, FlushClock, FlushConfig, FlushHandle, FlushMetrics, Flusher, SystemClock, UnflushedEntry,
    Waits, Withheld,
};
pub use flush_target::{
    ChangeAnswer, DroppedOperations, FlushTarget, Flushed, OwnFlush, TargetObject, TargetPresence,
};
pub use index::Position;
pub use journal::{Config, Journal, Recovered, RecoveredEntry, Ticket};
pub use local_ids::{LocalIds, verifier_of};
pub use log::Compacted;
pub use metrics::Metrics;
pub use names::{DirtyNames, Local, Lookup};
pub use operation::{Action, Attributes, JournalOperation, NewObject, Rename, ReplacedObject, TARGET_MAX};
pub use plan::{ContentChange, FlushMoment, FlushPolicy, FlushWindow, Parked, Pending, Scope};
pub use recovery::Damage;
pub use replica::{JournalEntry, Replica};
pub use segment::{DATA_MAX, HEAD_MAX};

/// A segment's offsets are 32 bits on disk, and its Done records should not have to wait for a terabyte.
pub const SEGMENT_SIZE_MAX: u32 = 1 << 30;
