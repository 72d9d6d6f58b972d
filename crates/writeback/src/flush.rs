//! The engine that brings operations to the origin: it takes units from the plan, carries several out at once, and marks
//! them as done.
//!
//! - [`Flusher`]: what the rest of the tier holds; [`FlushHandle`]: a flush that was asked for
//! - [`FlushEngine`]: what all units share. `Carry` (`carry.rs` and below) carries one unit out: `content.rs` objects and
//!   their bytes, `sending.rs` parts of files, `foreign_write.rs` what others wrote between them, `naming.rs` names,
//!   `undo.rs` and `together.rs` what its owner took back
//! - `discard.rs`: operations that an operator gives up; `entries.rs`: what is needed of the journal; `clock.rs`; `metrics.rs`
//!
//! The way of a unit: `next` takes it from the plan, `carry` carries it out, [`FlushTarget::flushed`] shows the origin's state
//! in its place, `mark` makes the journal forget it. Begin with `FlushEngine::carry`.
//!
//! Invariants: it never holds up those who append, since adding to the plan takes a lock for a moment. An outage is waited
//! out, for ever; what the origin refuses is parked, told once, and tried again now and then, and only what depends on it
//! waits. An entry is marked as done after the origin has it and `FlushTarget::flushed` was told, the entries of a unit
//! in their order: so a crash leaves the last of them, never one whose predecessor of the same object would be carried
//! out after it. And nothing begins before the marks of what it waited for are durable: so a crash never brings back an
//! operation whose followers may be at the origin already, where it could not be told from a new one (a name is taken
//! away, given to the same file again, and taken away once more by what came back).

mod carry;
mod clock;
mod discard;
mod entries;
mod metrics;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use types::{Error, ErrorKind, FileId, JunctionId, Result, Version};

pub use clock::{FlushClock, SystemClock};
pub use discard::{UnflushedEntry, Waits, Withheld};
pub use metrics::FlushMetrics;

use carry::{Carry, together};
use entries::Entries;

use crate::conflict::{Alarm, AlarmKind};
use crate::flush_target::{FlushTarget, Flushed, TargetPresence};
use crate::index::Position;
use crate::journal::{Journal, RecoveredEntry};
use crate::operation::JournalOperation;
use crate::plan::{FlushPlan, FlushPolicy, FlushUnit, Parked, Pending, Scope};
use crate::sabotage::{Bug, Sabotage};

/// An outage is probed after this, then after twice as long, and so on.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// Looks in a row after each of which what it was about had vanished; then the unit is parked.
const LOOKS_AGAIN: u32 = 2;
/// What the origin refuses is tried again after this: somebody may have made room or given a right.
const PARKED_FOR: Duration = Duration::from_secs(60);
/// Parts of one junction on their way, but for the first of each unit. So their bytes in memory are bounded (1 MiB each), and
/// large files end one after the other: while the origin stores one, the line carries the next.
const PARTS_TOGETHER: usize = 128;
/// Between two looks at all that waits, for the gauges; a window that opens is noticed within this too.
const NOTE_EVERY: Duration = Duration::from_secs(5);
/// Between two looks at a plan that has nothing due, whatever it says.
const LOOK_LEAST: Duration = Duration::from_millis(5);

pub struct FlushConfig {
    /// In conflict names.
    pub host: String,
    /// Units on their way at once.
    pub parallel_max: usize,
    pub policies: HashMap<JunctionId, FlushPolicy>,
}

impl FlushConfig {
    pub fn new(host: impl Into<String>) -> FlushConfig {
        // Small files at 200 ms: 64 at a time are some hundred per second, and few for an origin's server.
        FlushConfig { host: host.into(), parallel_max: 64, policies: HashMap::new() }
    }
}

/// What all units share.
pub(crate) struct FlushEngine {
    plan: Mutex<FlushPlan>,
    entries: Arc<dyn Entries>,
    target: Arc<dyn FlushTarget>,
    clock: Arc<dyn FlushClock>,
    config: FlushConfig,
    sabotage: Sabotage,
    metrics: FlushMetrics,
    /// Something new to look at.
    bell: Notify,
    /// Counts units that came to an end, in whatever way.
    ended: watch::Sender<u64>,
    /// Nothing more is taken up.
    stopping: AtomicBool,
    /// Nothing is under way any more.
    stopped: watch::Sender<bool>,
    outages: Mutex<HashMap<JunctionId, u32>>,
    /// By the first sequence of a unit: attempts so far in which what it is about vanished.
    looks_again: Mutex<HashMap<u64, u32>>,
    /// For the parts of its units.
    turns: Mutex<HashMap<JunctionId, Arc<Semaphore>>>,
    /// Alarms of operations that are not done, with the version that each spoke of: none is raised twice.
    told: Mutex<HashMap<(u64, AlarmKind, FileId), Option<Version>>>,
}

/// Dropping it stops the flush where it is: the journal has what is not done.
pub struct Flusher {
    shared: Arc<FlushEngine>,
    task: JoinHandle<()>,
}

/// What waits to be flushed.
#[derive(Clone, Debug, Default)]
pub struct FlushBacklog {
    pub operations: usize,
    pub parked: Vec<Parked>,
}

impl Flusher {
    /// With what the journal had at its open, decoded; needs a runtime.
    pub fn start(
        journal: Arc<Journal>,
        target: Arc<dyn FlushTarget>,
        clock: Arc<dyn FlushClock>,
        config: FlushConfig,
        recovered: Vec<(RecoveredEntry, JournalOperation)>,
    ) -> Flusher {
        let shared = Arc::new(FlushEngine::new(journal, target, clock, config, Sabotage::default()));
        for (entry, operation) in recovered {
            shared.recover(&entry, operation);
        }
        let task = tokio::spawn(run(shared.clone()));
        Flusher { shared, task }
    }

    /// An operation that is durable and shown to clients. Those on the same object or name come in their order.
    pub fn add(&self, sequence: u64, operation: JournalOperation, position: Position, age: Duration) {
        self.shared.add(sequence, operation, position, age);
    }

    /// Flush without delay and outside of windows what is there now.
    pub fn flush(&self, scope: &Scope) -> FlushHandle {
        let sequences = {
            let mut plan = self.shared.plan();
            plan.end_pauses(scope, self.shared.clock.now().steady);
            plan.ask(scope)
        };
        self.shared.bell.notify_one();
        FlushHandle { shared: self.shared.clone(), sequences }
    }

    /// What is written to one more junction, or to one that comes again, is flushed too.
    pub fn serve(&self, junction: JunctionId, policy: FlushPolicy) {
        self.shared.plan().serve(junction, policy);
        self.shared.bell.notify_one();
    }

    /// Somebody heard of the junction's origin after an outage: what waits for it is tried soon. (Not at once: where some
    /// calls are answered and others are not, outages end and begin with each.)
    pub fn answers_again(&self, junction: JunctionId) {
        let soon = self.shared.clock.now().steady + BACK_OFF_MIN;
        self.shared.plan().hold_at_most(junction, soon);
        self.shared.bell.notify_one();
    }

    /// From now on. False: nothing of this junction is written back.
    pub fn set_policy(&self, junction: JunctionId, policy: FlushPolicy) -> bool {
        let is_known = self.shared.plan().set_policy(junction, policy);
        self.shared.bell.notify_one();
        is_known
    }

    pub fn waiting(&self) -> FlushBacklog {
        let plan = self.shared.plan();
        FlushBacklog { operations: plan.len(), parked: plan.parked().cloned().collect() }
    }

    /// Bytes of one junction that the origin does not have yet, and for how long the oldest operation has waited.
    pub fn load(&self, junction: JunctionId) -> (u64, Option<Duration>) {
        let now = self.shared.clock.now().steady;
        let (bytes, oldest) = self.shared.plan().load(Some(junction));
        (bytes, oldest.map(|oldest| now.saturating_sub(oldest)))
    }

    pub fn metrics(&self) -> &FlushMetrics {
        &self.shared.metrics
    }

    /// Take nothing more up. Returns when what is under way has ended, or after `patience`: what is cut short then is
    /// done again after the next start, which cannot tell it from others' work.
    pub async fn stop(&self, patience: Duration) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.bell.notify_one();
        let mut stopped = self.shared.stopped.subscribe();
        let _ = tokio::time::timeout(patience, stopped.wait_for(|stopped| *stopped)).await;
        self.task.abort();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A flush that was asked for. Dropping it changes nothing but who waits.
pub struct FlushHandle {
    shared: Arc<FlushEngine>,
    sequences: Vec<u64>,
}

impl FlushHandle {
    /// Returns when all operations that were there at the call are at the origin, or are refused there: with these.
    /// An outage is waited out.
    pub async fn wait(self) -> Vec<Parked> {
        let mut ended = self.shared.ended.subscribe();
        loop {
            ended.borrow_and_update();
            if let Some(parked) = self.outcome() {
                return parked;
            }
            if ended.changed().await.is_err() {
                return Vec::new();
            }
        }
    }

    fn outcome(&self) -> Option<Vec<Parked>> {
        let plan = self.shared.plan();
        let left: Vec<u64> = self.sequences.iter().copied().filter(|it| plan.contains(*it)).collect();
        let left: HashSet<u64> = left.into_iter().collect();
        let parked: Vec<Parked> =
            plan.parked().filter(|parked| left.contains(&parked.sequence)).cloned().collect();
        let settled = plan.all_wait_for_parked(&left);
        settled.then_some(parked)
    }
}

impl FlushEngine {
    pub(crate) fn new(
        entries: Arc<dyn Entries>,
        target: Arc<dyn FlushTarget>,
        clock: Arc<dyn FlushClock>,
        config: FlushConfig,
        sabotage: Sabotage,
    ) -> FlushEngine {
        let plan = Mutex::new(FlushPlan::new(config.policies.clone(), sabotage));
        let (outages, turns, told) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (bell, ended) = (Notify::new(), watch::channel(0).0);
        let (stopping, stopped) = (AtomicBool::new(false), watch::channel(false).0);
        let metrics = FlushMetrics::default();
        FlushEngine {
            plan,
            entries,
            target,
            clock,
            config,
            sabotage,
            metrics,
            bell,
            ended,
            stopping,
            stopped,
            outages,
            looks_again: Mutex::default(),
            turns,
            told,
        }
    }

    fn plan(&self) -> MutexGuard<'_, FlushPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, sequence: u64, operation: JournalOperation, position: Position, age: Duration) {
        let acknowledged = self.clock.now().steady.saturating_sub(age);
        let (in_doubt, recovered, carried) = (false, false, false);
        self.enter(Pending { sequence, operation, position, acknowledged, in_doubt, recovered, carried });
    }

    /// What the journal had at its open. A stamp of the future is of another time line, and counts from now.
    pub(crate) fn recover(&self, entry: &RecoveredEntry, operation: JournalOperation) {
        let acknowledged = Duration::from_millis(entry.written_ms).min(self.clock.now().steady);
        let (sequence, position) = (entry.sequence, entry.position);
        let (in_doubt, recovered, carried) = (false, true, false);
        self.enter(Pending { sequence, operation, position, acknowledged, in_doubt, recovered, carried });
    }

    fn enter(&self, pending: Pending) {
        self.plan().add(pending);
        self.bell.notify_one();
    }

    pub(crate) fn next(&self) -> Option<FlushUnit> {
        self.plan().next(self.clock.now(), self.entries.is_filling())
    }

    /// That an object is gone is only believed of the storage that the origin always was; of another one it is an outage.
    pub(crate) async fn look(&self, object: FileId) -> Result<TargetPresence> {
        let seen = self.target.look(object).await?;
        if seen == TargetPresence::Gone {
            self.vouch(object).await?;
        }
        Ok(seen)
    }

    /// Before anything is taken for done or lost because it is not there.
    pub(crate) async fn vouch(&self, object: FileId) -> Result<()> {
        match self.sabotage.is(Bug::FlushToReplaced) {
            true => Ok(()),
            false => self.target.vouch(object).await,
        }
    }

    /// Looks at all that waits, and so not with each unit.
    fn note(&self, noted: &mut Option<Duration>) {
        let now = self.clock.now();
        if noted.is_none_or(|noted| now.steady.saturating_sub(noted) >= NOTE_EVERY) {
            self.metrics.note(&self.plan(), now);
            *noted = Some(now.steady);
        }
    }

    fn idle_for(&self) -> Duration {
        let idle = self.plan().idle_for(self.clock.now()).unwrap_or(NOTE_EVERY);
        idle.clamp(LOOK_LEAST, NOTE_EVERY)
    }

    /// Whatever happens, the plan knows of it afterwards.
    pub(crate) async fn carry(&self, mut unit: FlushUnit) {
        match self.carry_and_mark(&mut unit).await {
            Ok(()) => {
                self.outages().remove(&unit.junction);
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                told.retain(|(sequence, ..), _| unit.sequences.binary_search(sequence).is_err());
                drop(told);
                self.forget_looks(&unit.sequences);
                let mut plan = self.plan();
                plan.done(&unit.sequences);
                if unit.frees_room() {
                    plan.room_was_made(unit.junction, self.clock.now().steady);
                }
            }
            Err(error) if passes(&error) || self.may_look_again(&unit, &error) => self.hold(&unit, &error),
            Err(error) => self.park(&unit, error),
        }
        self.ended.send_modify(|count| *count += 1);
        self.bell.notify_one();
    }

    /// What is at the origin is not carried there again if only the mark fails: the journal may have given up its bytes.
    async fn carry_and_mark(&self, unit: &mut FlushUnit) -> Result<()> {
        if self.sabotage.is(Bug::DoneBeforeApplied) {
            self.mark(unit).await?;
        }
        if !unit.carried {
            let policy = self.plan().policy(unit.junction).conflict;
            let mut outcomes = Vec::new();
            for part in together::inner_first(self, unit, policy).await? {
                tracing::debug!("flush {} {:?}: {:?}", part.object, part.sequences, part.work);
                let flushed = Carry::new(self, part, policy).out().await?;
                tracing::debug!("flushed {} {:?}: {:?}", part.object, part.sequences, flushed.found);
                outcomes.push(flushed);
            }
            // All of them with the first: a name that one of them took from another never leads to that one again.
            let mut sequences = unit.sequences.clone();
            for outcome in outcomes {
                let sequences = std::mem::take(&mut sequences);
                self.target.flushed(&Flushed { sequences, ..outcome }).await;
            }
            unit.carried = true;
            // Who finds it done finds it counted.
            self.metrics.flushed(unit);
        }
        self.mark(unit).await
    }

    async fn mark(&self, unit: &FlushUnit) -> Result<()> {
        let mut sequences = unit.sequences.clone();
        if self.sabotage.is(Bug::DoneBackwards) {
            sequences.reverse();
        }
        self.entries.done(&sequences).await?;
        if self.sabotage.is(Bug::BeginOnUnsynced) {
            return Ok(());
        }
        self.entries.done_synced().await
    }

    /// Held while a unit has so many parts on their way.
    pub(crate) async fn turn(&self, junction: JunctionId, parts: usize) -> OwnedSemaphorePermit {
        let turns = {
            let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(junction).or_insert_with(|| Arc::new(Semaphore::new(PARTS_TOGETHER))).clone()
        };
        let parts = u32::try_from(parts.min(PARTS_TOGETHER)).unwrap_or(u32::MAX);
        turns.acquire_many_owned(parts).await.expect("never closed")
    }

    fn outages(&self) -> MutexGuard<'_, HashMap<JunctionId, u32>> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is about was there when it was looked at, and not when it was to be changed. The next look tells what is to
    /// become of it; but that may go on.
    fn may_look_again(&self, unit: &FlushUnit, error: &Error) -> bool {
        if !matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) {
            return false;
        }
        let mut all = self.looks_again();
        let looks = all.entry(unit.sequences[0]).or_default();
        *looks = looks.saturating_add(1);
        *looks <= LOOKS_AGAIN
    }

    fn forget_looks(&self, sequences: &[u64]) {
        self.looks_again().retain(|sequence, _| sequences.binary_search(sequence).is_err());
    }

    fn looks_again(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.looks_again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, unit: &FlushUnit, error: &Error) {
        self.metrics.retries.inc();
        let now = self.clock.now().steady;
        let mut outages = self.outages();
        let tries = outages.entry(unit.junction).or_default();
        // What fails together fails once.
        if *tries == 0 || !self.plan().is_held(unit.junction, now) {
            *tries = tries.saturating_add(1);
        }
        let back_off = BACK_OFF_MIN.saturating_mul(1 << (*tries - 1).min(10)).min(BACK_OFF_MAX);
        tracing::info!("flush of file {} waits for {back_off:?}: {error}", unit.object);
        self.plan().hold(unit, now + back_off);
    }

    fn park(&self, unit: &FlushUnit, error: Error) {
        // Its looks stay counted: the next attempt does not hold up the junction for them again.
        self.metrics.retries.inc();
        let again_at = self.clock.now().steady + PARKED_FOR;
        self.plan().park(unit, &error, again_at);
        let (kind, junction, object) = (AlarmKind::Parked, unit.junction, unit.object);
        let (sequences, why) = (unit.sequences.clone(), error.to_string());
        self.raise(Alarm { kind, junction, object, place: None, beside: None, sequences, why }, None);
    }

    /// Unless an earlier attempt said the same. `seen`: the version that is concerned; of another one it was not said.
    fn raise(&self, alarm: Alarm, seen: Option<Version>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_news = |sequence: &u64| {
            let before = told.insert((*sequence, alarm.kind, alarm.object), seen);
            before != Some(seen)
        };
        let news = alarm.sequences.iter().filter(|sequence| is_news(sequence)).count();
        drop(told);
        if news == 0 {
            return;
        }
        tracing::warn!("{alarm}");
        self.metrics.raised(alarm.kind);
        self.target.alarm(alarm);
    }
}

/// Worth trying again by itself: an outage, an answer that did not come, a change in between two looks.
fn passes(error: &Error) -> bool {
    error.is_retryable() || matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::VersionChanged)
}

async fn run(shared: Arc<FlushEngine>) {
    let mut units = JoinSet::new();
    let mut noted = None;
    loop {
        shared.note(&mut noted);
        let stopping = shared.stopping.load(Ordering::SeqCst);
        if stopping && units.is_empty() {
            shared.stopped.send_replace(true);
            return;
        }
        while !stopping && units.len() < shared.config.parallel_max {
            let Some(unit) = shared.next() else { break };
            let shared = shared.clone();
            units.spawn(async move { shared.carry(unit).await });
        }
        let idle = shared.idle_for();
        tokio::select! {
            Some(ended) = units.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            () = shared.bell.notified() => {}
            () = tokio::time::sleep(idle) => {}
        }
    }
}

#[cfg(test)]
mod tests;
