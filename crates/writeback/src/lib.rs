//! Acknowledged changes that the origin does not have yet: the journal keeps them, the overlay shows them, and the flush
//! brings them to the origin. Nothing here knows `namespace`, caches or what is behind [`FlushTarget`]; `vfs` joins all that.
//!
//! The cast:
//! - [`Journal`] (`journal.rs`): entries, opaque, that are durable once `synced` says so; `log.rs` is the same without
//!   waiting, over segments (`segment.rs`) on a disk (`disk.rs`). [`Replica`]: the border to a second node
//! - `scan.rs`, `recovery.rs`: what counts after a crash; `state.rs`, `covered.rs`, `bond.rs`: small files that tell what must
//!   be there; `crash_points.rs`, `sabotage.rs`: where tests kill the process, and which bugs they plant
//! - [`JournalOperation`] (`operation.rs`): what an entry means. [`LocalIds`]: ids of what is made here
//! - [`DirtyNames`] (`names.rs`, pure): names and attributes over the origin's; [`Overlay`] (`dirty.rs`, pure): the bytes of
//!   one file
//! - `FlushPlan` (`plan.rs`, pure): which operations may be flushed now, and as what; [`Flusher`] (`flush.rs`) carries them out
//! - `conflict.rs` (pure): what is done about foreign changes
//! - [`FlushTarget`] (`flush_target.rs`): where things are flushed to
//!
//! The way of a change:
//! 1. At start: [`Journal::open`]; each [`RecoveredEntry`] becomes a [`JournalOperation`] by `decode`, goes into [`DirtyNames`]
//!    with `apply`, in order, and all of them into [`Flusher::start`] with the `FlushTarget`.
//! 2. A change: look at it through `DirtyNames` (`lookup`, `attr`, `overlay`), choose the id of what is made from
//!    [`LocalIds`], take `since` from `DirtyNames` and `base` from what is known of the origin. Append `operation.encode()`
//!    with the data, `DirtyNames::apply`, and when `synced` says that it is durable, answer the client (of an UNSTABLE write
//!    before) and give it to [`Flusher::add`]. Changes of the same name or object are applied and given one after another.
//! 3. [`FlushTarget::flushed`]: show the origin's state, then `DirtyNames::flushed`. Local ids stay good as aliases: handles
//!    were given out with them.
//! 4. [`Flusher::flush`] with a [`Scope`], and `wait`.
//!
//! Invariants: what was acknowledged is in the journal until the origin has it. After a failed write or sync the journal
//! takes nothing until it is opened anew. Nothing is flushed before the marks of what it waited for are durable. An alarm is
//! raised before what it tells of is done.
//!
//! Begin with `operation.rs`, `names.rs` and `plan.rs` for what is shown and flushed, with `journal.rs` and `log.rs` for what
//! is kept. Bytes on disk: docs/design/journal-format.md.

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
    DroppedOperations, FlushAnswer, FlushTarget, Flushed, OwnFlush, TargetObject, TargetPresence,
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
