//! Junctions that are written `back`: a change is done when the journal has it, in its file or, as the caller was promised or
//! the junction's setting has it, on this machine's disk ([`Durability`]); it goes to the origin by itself later.
//!
//! - `Back` (`journal.rs`): the writer of all such junctions; operations on their way into the journal and to the flush.
//!   `writer.rs` says which of its methods serve which call; `names.rs` and `bytes.rs` are the calls
//! - `Unsynced` (`unsynced.rs`): what is in the journal's file and perhaps not on its disk
//! - `DirtyOverlay` (`overlay.rs`): names, attributes and bytes over what `namespace` and `cache` know, and what each
//!   altered object was at its origin
//! - `Locks` (`locks.rs`): changes of one name or object go one after the other
//! - `BackFlushTarget` (`flush_target.rs`): where the flush (crate `writeback`) brings operations to
//! - `CacheFiller` (`lay.rs`): what was flushed becomes clean cache
//! - `interrupted_renames.rs`: at the start, where an interrupted flush left what it had begun to rename
//! - `admin.rs`, `alarms.rs`, `waiting.rs`, `dropping.rs`, `stopped.rs`: what an operator asks and is told
//!
//! The way of a change: its names and objects are locked; what is there is looked at through the overlay; the operation is
//! appended to the journal and applied to the overlay, and is acknowledged then, or when the journal is synced up to it
//! (`acknowledge`; of a write its [`Stability`](types::Stability) decides). It is given to the flush when it is synced. The
//! flush carries it out at `BackFlushTarget`, which takes it out of the overlay.
//!
//! Invariants: what is in the overlay is in the journal. The flush gets operations in their order, and only durable ones.
//! Names are locked before objects. Begin with `names.rs`.

mod admin;
mod alarms;
mod bytes;
mod dropping;
mod flush_target;
mod interrupted_renames;
mod journal;
mod lay;
mod locks;
mod names;
pub(crate) mod overlay;
mod stopped;
mod unsynced;
mod waiting;
mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use types::Durability;
use writeback::{AlarmKind, FlushPolicy, Hook};

pub use admin::FlushRequest;
pub use dropping::Dropping;
pub use stopped::{StoppedJournal, StoppedTier};
pub use waiting::{WaitingFilter, WaitingOperation};

pub(crate) use journal::Back;

/// How the junctions with the policy `back` are journalled and flushed.
#[derive(Clone)]
pub struct Journaling {
    /// Of the journal, and of nothing else; it holds what the origins do not have yet.
    pub dir: PathBuf,
    /// Bytes that the journal may take on the disk.
    pub size_max: u64,
    /// Of this machine, for conflict names.
    pub host: String,
    /// Seconds east of UTC at a time since 1970, of the clock that windows speak of.
    pub utc_offset: fn(i64) -> i32,
    /// By path of the junction.
    pub flush: HashMap<String, FlushPolicy>,
    /// Likewise; what is not named promises [`Durability::Always`].
    pub durability: HashMap<String, Durability>,
    /// Go on with what can be read of a journal that is not what it was, and without one that is missing or another one.
    pub accept_damage: bool,
    /// The file, beside the cache, that says which journal belongs to it.
    pub bond: Option<PathBuf>,
    /// Told each step of the journal.
    pub hook: Option<Hook>,
}

/// What the origins do not have yet.
#[derive(Clone, Debug, Default)]
pub struct Unflushed {
    /// Of each junction with the policy `back`, by path.
    pub junctions: Vec<JunctionLoad>,
    /// Absent: nothing is written `back`.
    pub journal: Option<JournalLoad>,
    /// What the origins refuse, one sentence each.
    pub refused: Vec<String>,
    /// What was to be told since the start; of many, the newest.
    pub alarms: Vec<Raised>,
    /// Counts all of them that are conflicts: ours beside theirs, over theirs, or dropped.
    pub conflicts: u64,
}

#[derive(Clone, Debug)]
pub struct JunctionLoad {
    pub path: String,
    /// Of data.
    pub dirty_bytes: u64,
    /// Since the oldest operation that is not flushed was acknowledged.
    pub oldest: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct JournalLoad {
    pub dir: PathBuf,
    pub operations: u64,
    pub used_bytes: u64,
    pub size_max: u64,
    /// A write or a sync failed: nothing is taken before a restart.
    pub failed: bool,
    /// Places where it is not what it was; while there are any, nothing is taken.
    pub damaged: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Raised {
    /// By the wall clock of then, for people to see.
    pub at: SystemTime,
    /// From which its age is counted.
    pub raised: Instant,
    pub kind: AlarmKind,
    /// Names the file by its path, as far as it is known.
    pub text: String,
}
