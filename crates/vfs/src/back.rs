//! Junctions that are written `back`: what clients are told is done is in the journal, shown from there, and goes to the
//! origin by itself.
//!
//! An operation is looked at through what is shown (`shown.rs`), appended to the journal, shown, and acknowledged when the
//! journal has it on the disk (`journal.rs`); then it is the flush's (`writeback`), which reaches the origin through
//! `home.rs`. `names.rs` and `bytes.rs` are the calls of clients, `admin.rs` those of the operator.

mod admin;
mod alarms;
mod bytes;
mod dropping;
mod home;
mod interrupted_renames;
mod journal;
mod lay;
mod locks;
mod names;
pub(crate) mod overlay;
mod stopped;
mod waiting;
mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use writeback::{AlarmKind, FlushPolicy, Hook};

pub use admin::Flushing;
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
