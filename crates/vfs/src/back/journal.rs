//! Operations on their way into the journal and from there to the flush.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::bytes::Bytes;
use arc_swap::ArcSwap;
use cache::{Cache, CacheKey};
use fetch::VersionChain;
use namespace::{Found, Namespace};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::{error, warn};
use types::{Attr, Durability, Error, ErrorKind, FileId, JunctionId, Result, Timestamp, Version};
use writeback::{
    Action, FlushConfig, FlushPolicy, Flusher, Journal, JournalOperation, LocalIds, Position, RecoveredEntry,
    SystemClock,
};

use super::Journaling;
use super::alarms::Alarms;
use super::flush_target::{BackFlushTarget, FlushNote};
use super::interrupted_renames;
use super::locks::Locks;
use super::overlay::{CleanBase, DirtyOverlay, ObjectToFlush};
use super::unsynced::Unsynced;
use crate::change_results::AttrsAround;
use crate::kernel_cache::tell_changed;
use crate::leaving::Leaving;
use crate::{WritePolicy, Writing};

/// A writer waits so long for room in a full journal, and is then told to try again.
const ROOM_PATIENCE: Duration = Duration::from_secs(20);

/// Everything about junctions that are written `back`.
pub struct Back {
    pub overlay: Arc<DirtyOverlay>,
    pub journal: Arc<Journal>,
    pub flusher: Arc<Flusher>,
    pub locks: Locks,
    pub ids: LocalIds,
    pub alarms: Arc<Alarms>,
    pub dir: PathBuf,
    found: tokio::sync::watch::Receiver<bool>,
    /// Directories that change their parents go one after the other: two at once could make a circle.
    pub moves: tokio::sync::Mutex<()>,
    namespace: Arc<Namespace>,
    /// In the journal's file, and not yet given to the flush.
    unsynced: Arc<Unsynced<(JournalOperation, Position)>>,
    /// Of the junctions that are served, what they promise at least.
    durability: ArcSwap<HashMap<JunctionId, Durability>>,
    leaving: Arc<Leaving>,
    syncing: JoinHandle<()>,
    /// One for each junction; they end with it.
    resuming: Mutex<JoinSet<()>>,
    last_stamp: Mutex<Timestamp>,
}

impl Drop for Back {
    fn drop(&mut self) {
        self.syncing.abort();
    }
}

/// An operation that is in the journal and shown, and not yet durable.
pub struct Recorded {
    pub sequence: u64,
    pub around: Vec<AttrsAround>,
}

impl Back {
    /// Reads the journal on this thread; needs a runtime.
    pub fn open(
        namespace: &Arc<Namespace>,
        cache: &Arc<Cache>,
        writing: &Writing,
        journaling: Journaling,
        (version_chain, leaving): (&Arc<VersionChain>, &Arc<Leaving>),
    ) -> Result<Back> {
        let mut config = writeback::Config::new(&journaling.dir);
        config.size_max = journaling.size_max;
        config.hook = journaling.hook.clone();
        config.timeline = namespace.clock().clone();
        config.bond = journaling.bond.clone();
        config.accept_other = journaling.accept_damage;
        let (journal, recovered) = Journal::open(config)?;
        if journaling.accept_damage && !journal.damage().is_empty() {
            journal.damage().iter().for_each(|damage| warn!("the journal's damage is accepted: {damage}"));
            journal.accept_damage()?;
        }
        let recovered: Vec<_> = recovered.map(decoded).collect::<Result<_>>()?;
        check_junctions(namespace, writing, &journaling, &recovered)?;
        let overlay = Arc::new(DirtyOverlay::new(version_chain.clone()));
        for (entry, operation) in &recovered {
            let expected = overlay.expect(known_of(namespace, operation, true));
            overlay.apply((entry.sequence, operation, entry.position), &[]);
            expected.applied();
        }
        let (journal, alarms) = (Arc::new(journal), Arc::new(Alarms::default()));
        let (found, ready) = tokio::sync::watch::channel(false);
        let operations = recovered.iter().map(|(_, operation)| operation.clone()).collect();
        tokio::spawn(interrupted_renames::find(namespace.clone(), operations, found));
        let home = BackFlushTarget::new(
            namespace.clone(),
            cache.clone(),
            overlay.clone(),
            journal.clone(),
            alarms.clone(),
            ready.clone(),
        );
        let flusher = Flusher::start(
            journal.clone(),
            Arc::new(home),
            Arc::new(SystemClock::new(namespace.clock().clone(), journaling.utc_offset)),
            flush_config(namespace, &journaling),
            recovered,
        );
        let flusher = Arc::new(flusher);
        let unsynced = Arc::new(Unsynced::new());
        let syncing = tokio::spawn(sync_in_time(journal.clone(), flusher.clone(), unsynced.clone()));
        let back = Back {
            overlay,
            journal,
            flusher,
            locks: Locks::new(),
            ids: LocalIds::new()?,
            alarms,
            dir: journaling.dir,
            found: ready,
            moves: tokio::sync::Mutex::default(),
            namespace: namespace.clone(),
            unsynced,
            durability: ArcSwap::default(),
            leaving: leaving.clone(),
            syncing,
            resuming: Mutex::default(),
            last_stamp: Mutex::default(),
        };
        for junction in namespace.junctions() {
            if journaling.flush.contains_key(&junction.path) {
                back.resume_after_outages(junction.id, namespace.recoveries(junction.id)?);
            }
            if let Some(durability) = journaling.durability.get(&junction.path) {
                back.set_durability(junction.id, *durability);
            }
        }
        Ok(back)
    }

    /// The flush of the junction goes on when an outage is over, whoever notices that.
    pub fn resume_after_outages(&self, junction: JunctionId, recoveries: watch::Receiver<()>) {
        let resume = resume_on(recoveries, junction, self.flusher.clone());
        let mut resuming = self.resuming.lock().unwrap_or_else(PoisonError::into_inner);
        while resuming.try_join_next().is_some() {} // of junctions that are gone
        resuming.spawn(resume);
    }

    /// It is known where the origin has what was renamed before the start.
    pub fn are_all_found(&self) -> bool {
        *self.found.borrow()
    }

    /// Returns when it is.
    pub async fn all_found(&self) {
        let _ = self.found.clone().wait_for(|found| *found).await; // an error: it is over
    }

    /// The wall clock's, never twice the same.
    pub fn stamp(&self) -> Timestamp {
        let now = self.namespace.clock().wall();
        let mut last = self.last_stamp.lock().unwrap_or_else(PoisonError::into_inner);
        *last = next_stamp(*last, now);
        *last
    }

    /// The origin's version that lies below what is shown of an object.
    pub fn base(&self, id: FileId) -> Option<Version> {
        match self.overlay.altered(id) {
            Some(ObjectToFlush { below: CleanBase::Version(key), .. }) => Some(key.version),
            Some(ObjectToFlush { below: CleanBase::Nothing, .. }) => None,
            _ => known_version(&self.namespace, id),
        }
    }

    /// Appends, and shows to clients. The caller holds the locks of all that the operation concerns, and has looked at
    /// it under these.
    pub async fn record(
        &self,
        junction: JunctionId,
        (now, action): (Timestamp, Action),
        data: Bytes,
        around: &[FileId],
    ) -> Result<Recorded> {
        let _inside = self.leaving.enter(junction).await?;
        let mut operation = JournalOperation { junction, acknowledged: now, since: now, action };
        operation.since = self.overlay.since(operation.object(), now);
        // Who waits for room waits for the flush, which may give the object another version: with its directory.
        let expected = self.overlay.expect(known_of(&self.namespace, &operation, false));
        let entry = self.journal.append(operation.encode(), data, Instant::now() + ROOM_PATIENCE).await;
        let ticket = entry.map_err(|e| match e.kind() {
            // It is not the client's disk that is full: there is room again when something was flushed.
            ErrorKind::NoSpace => {
                Error::new(ErrorKind::Busy, "wait for room in", "the journal").with_source(e)
            }
            _ => e,
        })?;
        tracing::debug!("recorded {}: {:?}", ticket.sequence, operation.action);
        let origin = |id: &FileId| Some((*id, self.namespace.getattr_known(*id).ok().map(|it| *it.attr())));
        let around: Vec<(FileId, Option<Attr>)> = around.iter().filter_map(origin).collect();
        let around = self.unsynced.add(ticket.sequence, || {
            let changes = self.overlay.apply((ticket.sequence, &operation, ticket.position), &around);
            expected.applied();
            ((operation.clone(), ticket.position), changes)
        });
        self.tell(&operation);
        Ok(Recorded { sequence: ticket.sequence, around })
    }

    /// Fronts whose clients keep what they were told.
    fn tell(&self, operation: &JournalOperation) {
        let replaced = match &operation.action {
            Action::Rename(rename) => rename.replaced.as_ref().map(|replaced| replaced.object),
            _ => None,
        };
        let dirs = match &operation.action {
            Action::Make { dir, .. }
            | Action::Link { dir, .. }
            | Action::Remove { dir, .. }
            | Action::Rmdir { dir, .. } => [Some(*dir), None],
            Action::Rename(rename) => [Some(rename.from_dir), Some(rename.to_dir)],
            _ => [None, None],
        };
        let changed = [Some(operation.object()), replaced].into_iter().chain(dirs).flatten();
        changed.for_each(|id| tell_changed(&self.namespace, id));
    }

    /// From now on.
    pub fn set_durability(&self, junction: JunctionId, durability: Durability) {
        self.durability.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(junction, durability);
            Arc::new(all)
        });
    }

    /// What the junction promises at least.
    pub fn durability(&self, junction: JunctionId) -> Durability {
        self.durability.load().get(&junction).copied().unwrap_or(Durability::Always)
    }

    /// Returns when whoever was promised this may be told that the entry's change is made.
    pub async fn acknowledge(&self, junction: JunctionId, promised: Durability, sequence: u64) -> Result<()> {
        match promised.max(self.durability(junction)) {
            Durability::Always => self.durable(sequence).await,
            Durability::Fsync => Ok(()),
        }
    }

    /// Returns when all that is shown is on the disk. It is the flush's to know then, also what nobody has asked to be synced.
    pub async fn all_durable(&self) -> Result<()> {
        match self.unsynced.last() {
            Some(last) => self.durable(last).await,
            None => Ok(()),
        }
    }

    /// Returns when the entry and all before it are on the disk.
    pub async fn durable(&self, sequence: u64) -> Result<()> {
        durable(&self.journal, &self.flusher, &self.unsynced, sequence).await
    }
}

async fn durable(
    journal: &Journal,
    flusher: &Flusher,
    unsynced: &Unsynced<(JournalOperation, Position)>,
    sequence: u64,
) -> Result<()> {
    journal.synced(sequence).await?;
    unsynced.pass(sequence, |sequence, (operation, position), age| {
        flusher.add(sequence, operation, position, age);
    });
    Ok(())
}

/// Has synced what nobody waits for, until the journal takes nothing any more: it says so to everybody.
async fn sync_in_time(
    journal: Arc<Journal>,
    flusher: Arc<Flusher>,
    unsynced: Arc<Unsynced<(JournalOperation, Position)>>,
) {
    let failed = unsynced.sync_in_time(|last| durable(&journal, &flusher, &unsynced, last)).await;
    error!("sync the journal: {failed}");
}

/// An outage is over as soon as anybody is answered: the flush need not find that out by itself.
async fn resume_on(mut recoveries: watch::Receiver<()>, junction: JunctionId, flusher: Arc<Flusher>) {
    while recoveries.changed().await.is_ok() {
        flusher.answers_again(junction);
    }
}

/// Of two that come together the second is later. Where the clock was set back, times follow it as on any file system.
fn next_stamp(last: Timestamp, now: Timestamp) -> Timestamp {
    let set_back = now.seconds < last.seconds.saturating_sub(SET_BACK_S);
    if set_back { now } else { now.max(last.next()) }
}

/// A clock that is slewed is not set back.
const SET_BACK_S: i64 = 1;

pub(super) fn decoded(entry: Result<RecoveredEntry>) -> Result<(RecoveredEntry, JournalOperation)> {
    let entry = entry?;
    let operation = JournalOperation::decode(&entry.head)?;
    Ok((entry, operation))
}

/// For what no flush brings home.
fn way_out(journaling: &Journaling) -> String {
    let cache = journaling
        .bond
        .as_deref()
        .and_then(std::path::Path::parent)
        .filter(|dir| !dir.as_os_str().is_empty());
    let cache = cache.unwrap_or(std::path::Path::new("."));
    let at = match journaling.dir == cache.join("journal") {
        true => cache.display().to_string(),
        false => format!("{} --journal {}", cache.display(), journaling.dir.display()),
    };
    format!(
        "or look at them with forebay journal list --cache {at}, and give them up (exported) with forebay journal drop --all --cache {at}"
    )
}

/// Operations that an origin does not have must not be forgotten because their junction is not configured any more.
fn check_junctions(
    namespace: &Namespace,
    writing: &Writing,
    journaling: &Journaling,
    recovered: &[(RecoveredEntry, JournalOperation)],
) -> Result<()> {
    let policies = writing.policies(&namespace.junctions());
    let mut unflushed: HashMap<JunctionId, usize> = HashMap::new();
    for (_, operation) in recovered {
        *unflushed.entry(operation.junction).or_default() += 1;
    }
    unflushed.retain(|junction, _| policies.get(junction) != Some(&WritePolicy::Back));
    let Some((junction, count)) = unflushed.into_iter().next() else { return Ok(()) };
    let dir = journaling.dir.display();
    let give_up = way_out(journaling);
    let known = namespace.junctions().into_iter().find(|known| known.id == junction);
    let message = match known {
        Some(known) => format!(
            "the journal in {dir} holds {count} operations that the origin of {} does not have yet; start with \
             write = \"back\" for it, run forebay flush --wait, then change its policy; {give_up}",
            known.path
        ),
        None => format!(
            "the journal in {dir} holds {count} operations for a junction that is not there any more; configure it as \
             it was (the same path and URL) with write = \"back\", run forebay flush --wait, then take it away; {give_up}"
        ),
    };
    Err(Error::new(ErrorKind::Config, "write back:", message))
}

fn flush_config(namespace: &Namespace, journaling: &Journaling) -> FlushConfig {
    let mut config = FlushConfig::new(journaling.host.clone());
    for junction in namespace.junctions() {
        if let Some(policy) = journaling.flush.get(&junction.path) {
            let policy = FlushPolicy { whole_files: junction.whole_files, ..policy.clone() };
            config.policies.insert(junction.id, policy);
        }
    }
    config
}

fn known_version(namespace: &Namespace, id: FileId) -> Option<Version> {
    match namespace.getattr_known(id).ok()? {
        Found::Node(node) => Some(node.version()),
        Found::Virtual { .. } => None,
    }
}

/// What the objects of an operation are at the origin, as it found them; after a restart (`again`), some operations before
/// it may have been flushed.
pub(super) fn known_of(
    namespace: &Namespace,
    operation: &JournalOperation,
    again: bool,
) -> Vec<(FileId, ObjectToFlush)> {
    let replaced = match &operation.action {
        Action::Rename(rename) => rename.replaced.map(|replaced| (replaced.object, replaced.base)),
        _ => None,
    };
    let of = |(id, base): (FileId, Option<Version>)| {
        let record = match namespace.getattr_known(id) {
            Ok(Found::Node(node)) => Some(node),
            _ => None,
        };
        let own = again.then(|| FlushNote::of(namespace, id).ok()?.version).flatten();
        let known = record.as_ref().map(|node| node.version());
        let base = [own, base].into_iter().flatten().find(|it| Some(*it) == known).or(base);
        let size_before = match &operation.action {
            Action::Write { size_before, .. } | Action::Truncate { size_before, .. } => Some(*size_before),
            _ => None,
        };
        // Of another version than the one that is known, only who changed the size knows what it was.
        let known_size = record.as_ref().filter(|_| base == known).map(|node| node.attr().size);
        let below = match base.zip(known_size.or(size_before)) {
            Some((version, size)) => CleanBase::Version(CacheKey { file: id, version, size }),
            None if base.is_none() && record.is_none() && id.is_made_here() => CleanBase::Nothing,
            None => CleanBase::Unknown,
        };
        let place = record
            .as_ref()
            .and_then(|node| Some((node.parent(), types::Name::new(node.name().clone()).ok()?)));
        let names = place.iter().cloned().collect();
        (id, ObjectToFlush { junction: operation.junction, below, place, names, last_write: 0 })
    };
    [Some((operation.object(), operation.base())), replaced].into_iter().flatten().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_and_follow_a_clock_that_is_set_back() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(next_stamp(at(100, 5), at(100, 9)), at(100, 9));
        assert_eq!(next_stamp(at(100, 5), at(100, 5)), at(100, 6));
        assert_eq!(next_stamp(at(100, 5), at(99, 900)), at(100, 6), "a tick back");
        assert_eq!(next_stamp(at(100, 5), at(98, 900)), at(98, 900), "set back");
        assert_eq!(next_stamp(at(400_000_000, 5), at(100, 0)), at(100, 0), "ten years ahead, and back");
    }
}
