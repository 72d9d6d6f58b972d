//! Which operations may be flushed now, and as what. Pure: the flush asks for the next unit with the clocks in hand, and
//! says what became of it.
//!
//! - [`FlushPlan`]: all operations that wait. [`Pending`] is one of them, [`Parked`] one that the origin refuses
//! - `depend.rs`: which operation must wait for which; [`FlushUnit`] (`unit.rs`): what is flushed at once
//! - [`FlushPolicy`] (`pace.rs`): when an operation is due; `hold.rs`: operations that an operator looks at or gives up
//! - `stuck.rs`: what the origin refuses, tried again; `undo.rs`, `retract.rs`: how its owner undoes it
//! - `attempt.rs`: what an attempt before a crash may have done
//!
//! The way of an operation: [`FlushPlan::add`]; it is ready once nothing that it waits for is left; [`FlushPlan::next`] forms
//! a unit around it when it is due; then the unit is `done`, `hold` (tried again soon) or `park`.
//!
//! Invariants: no unit begins before the marks of what it waits for are durable, but for one that goes ahead of what the
//! origin refuses, and touches nothing that this touches. Of one object, one unit is under way. Begin with `depend.rs`.

mod attempt;
mod depend;
mod hold;
mod pace;
mod retract;
mod stuck;
mod undo;
mod unit;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use types::{Error, FileId, JunctionId};

pub use pace::{FlushMoment, FlushPolicy, FlushWindow};
pub use unit::{ContentChange, FlushUnit, FlushWork, Making, Retract};

use depend::Depend;
use pace::{ClientPriority, FlushRateBucket};
use unit::{Most, UnitContext};

use crate::index::Position;
use crate::operation::{Action, JournalOperation};
use crate::sabotage::Sabotage;

/// An operation that is not flushed.
#[derive(Clone, Debug)]
pub struct Pending {
    pub sequence: u64,
    pub operation: JournalOperation,
    /// Of its data.
    pub position: Position,
    /// When it was acknowledged, by [`FlushMoment::steady`]: the operation's own time is the wall clock's, for what is shown.
    pub acknowledged: Duration,
    /// It may be at the origin, in part or as a whole: it was there before this start, or was tried without an answer.
    pub in_doubt: bool,
    /// It was there before this start. It may have gone ahead of what it waits for then.
    pub recovered: bool,
    /// It is at the origin, and all that is missing is that the journal keeps that: its bytes may be given up there.
    pub carried: bool,
}

/// Which operations a flush is asked for; what these wait for goes first.
#[derive(Clone, Debug)]
pub enum Scope {
    All,
    Junction(JunctionId),
    /// On these objects, and in these directories.
    Objects(HashSet<FileId>),
}

impl Scope {
    fn contains(&self, operation: &JournalOperation) -> bool {
        match self {
            Scope::All => true,
            Scope::Junction(junction) => operation.junction == *junction,
            Scope::Objects(objects) => {
                let mut dirs = operation.action.dirs().into_iter().flatten();
                objects.contains(&operation.object()) || dirs.any(|dir| objects.contains(&dir))
            }
        }
    }
}

/// An operation that the origin refuses.
#[derive(Clone, Debug)]
pub struct Parked {
    pub sequence: u64,
    pub object: FileId,
    pub error: Error,
    pub again_at: Duration,
}

#[derive(Default)]
struct Queue {
    policy: FlushPolicy,
    bucket: Option<FlushRateBucket>,
    /// Wait for nothing but their time.
    ready: BTreeSet<u64>,
    /// Of these, those that a flush was asked for.
    asked: BTreeSet<u64>,
    /// The origin is out of reach: nothing is tried before then.
    held_until: Duration,
    /// When what found no room was tried again last because room was made.
    room_tried: Option<Duration>,
    /// Counts the times that room was made.
    rooms: u64,
}

#[derive(Default)]
pub struct FlushPlan {
    pending: BTreeMap<u64, Pending>,
    depend: Depend,
    /// The operations on each object.
    chains: HashMap<FileId, BTreeSet<u64>>,
    queues: HashMap<JunctionId, Queue>,
    running: HashSet<u64>,
    parked: BTreeMap<u64, Parked>,
    /// Tried once or more, and refused each time, as it was told last; also while it is tried again. Not kept over a
    /// restart, after which they are tried as all others.
    refused: HashMap<u64, Parked>,
    asked: HashSet<u64>,
    /// Objects that an attempt before this start may have retracted, of which not all operations are in doubt.
    perhaps_retracted: HashSet<FileId>,
    /// Not to be taken up: somebody is about to give them up.
    held: HashSet<u64>,
    clients: ClientPriority,
    sabotage: Sabotage,
}

impl FlushPlan {
    pub fn new(policies: HashMap<JunctionId, FlushPolicy>, sabotage: Sabotage) -> FlushPlan {
        let queue = |policy: FlushPolicy| {
            let bucket = policy.bytes_per_second.map(FlushRateBucket::new);
            Queue { policy, bucket, ..Queue::default() }
        };
        let queues = policies.into_iter().map(|(junction, policy)| (junction, queue(policy))).collect();
        FlushPlan { queues, depend: Depend::new(sabotage), sabotage, ..FlushPlan::default() }
    }

    /// Operations on the same name or object come in the order of their sequences; others in any.
    pub fn add(&mut self, pending: Pending) {
        let sequence = pending.sequence;
        if !pending.recovered {
            self.clients.note_written(pending.acknowledged);
        }
        self.depend.add(sequence, &pending.operation);
        let in_doubt = pending.in_doubt || pending.recovered && self.may_have_begun(&pending);
        let pending = Pending { in_doubt, ..pending };
        for object in pending.operation.objects() {
            self.chains.entry(object).or_default().insert(sequence);
        }
        let is_write = matches!(pending.operation.action, Action::Write { .. });
        let objects: Vec<FileId> = pending.operation.objects().collect();
        self.pending.insert(sequence, pending);
        self.note_retracted(sequence);
        if self.depend.is_free(sequence) {
            self.make_ready(sequence);
        } else if !self.refused.is_empty() && !is_write {
            let heads = objects.iter().filter_map(|object| self.chains.get(object)?.first().copied());
            heads.collect::<Vec<_>>().into_iter().for_each(|head| self.look_for_way_out(head));
        }
    }

    /// Before a crash. What waits for operations on something else did so then: their marks would be durable. But for what
    /// may have gone ahead of them, since these were refused.
    fn may_have_begun(&self, pending: &Pending) -> bool {
        let of_one_unit =
            |other: &Pending| other.in_doubt && other.operation.object() == pending.operation.object();
        let passed = |other: &Pending| undo::may_pass(&pending.operation, &other.operation, self.sabotage);
        let mut blockers = self.depend.blockers(pending.sequence);
        blockers.all(|blocker| {
            self.pending.get(&blocker).is_some_and(|other| of_one_unit(other) || passed(other))
        })
    }

    fn make_ready(&mut self, sequence: u64) {
        // One that went ahead is on its way before it is free.
        let is_taken = self.is_taken(sequence);
        let Some(pending) = self.pending.get(&sequence).filter(|_| !is_taken) else { return };
        let queue = self.queues.entry(pending.operation.junction).or_default();
        queue.ready.insert(sequence);
        if self.asked.contains(&sequence) {
            queue.asked.insert(sequence);
        }
    }

    fn is_ready(&self, sequence: u64) -> bool {
        let junction = self.pending.get(&sequence).map(|pending| pending.operation.junction);
        let queue = junction.and_then(|junction| self.queues.get(&junction));
        queue.is_some_and(|queue| queue.ready.contains(&sequence))
    }

    /// One more junction, or one that comes again.
    pub fn serve(&mut self, junction: JunctionId, policy: FlushPolicy) {
        let queue = self.queues.entry(junction).or_default();
        queue.bucket = policy.bytes_per_second.map(FlushRateBucket::new);
        queue.policy = policy;
    }

    /// From now on. Whether the origin commits whole files is its nature, and stays.
    pub fn set_policy(&mut self, junction: JunctionId, policy: FlushPolicy) -> bool {
        let Some(queue) = self.queues.get_mut(&junction) else { return false };
        queue.bucket = policy.bytes_per_second.map(FlushRateBucket::new);
        queue.policy = FlushPolicy { whole_files: queue.policy.whole_files, ..policy };
        true
    }

    pub fn policy(&self, junction: JunctionId) -> FlushPolicy {
        self.queues.get(&junction).map(|queue| queue.policy.clone()).unwrap_or_default()
    }

    /// What is to be flushed next, of what is due. `filling`: the journal needs room, and no operation is too young.
    pub fn next(&mut self, now: FlushMoment, filling: bool) -> Option<FlushUnit> {
        self.unpark(now.steady);
        loop {
            let first = self.queues.values().filter_map(|queue| self.first_due(queue, now, filling)).min()?;
            if let Some(unit) = self.take(first, now, filling) {
                return Some(unit);
            }
        }
    }

    fn first_due(&self, queue: &Queue, now: FlushMoment, filling: bool) -> Option<u64> {
        let empty = queue.bucket.is_some_and(|bucket| bucket.opens() > now.steady);
        if queue.held_until > now.steady || empty {
            return None;
        }
        if let Some(asked) = queue.asked.first() {
            return Some(*asked);
        }
        let first = queue.ready.first().filter(|_| queue.policy.is_open(now))?;
        let acknowledged = self.pending.get(first)?.acknowledged;
        let is_due = || self.opens(queue, acknowledged, now).is_zero();
        (filling || is_due()).then_some(*first)
    }

    /// How long until an operation may begin that nobody asked for.
    fn opens(&self, queue: &Queue, acknowledged: Duration, now: FlushMoment) -> Duration {
        let young = queue.policy.age_left(acknowledged, now);
        let due_for = now.steady.saturating_sub(acknowledged.saturating_add(queue.policy.delay));
        young.max(self.clients.opens(due_for, now.steady).saturating_sub(now.steady))
    }

    fn is_due(&self, pending: &Pending, now: FlushMoment, filling: bool) -> bool {
        let Some(queue) = self.queues.get(&pending.operation.junction) else { return filling };
        // What was tried together is tried together again, whoever asked for it then.
        self.asked.contains(&pending.sequence)
            || pending.in_doubt
            || filling
            || queue.policy.is_old_enough(pending.acknowledged, now)
    }

    /// `None`: it waits again.
    fn take(&mut self, first: u64, now: FlushMoment, filling: bool) -> Option<FlushUnit> {
        let unit = self.form(first, now, filling);
        let junction = self.pending[&first].operation.junction;
        let taken = unit.as_ref().map_or(std::slice::from_ref(&first), |unit| &unit.sequences);
        if let Some(queue) = self.queues.get_mut(&junction) {
            for sequence in taken {
                queue.ready.remove(sequence);
                queue.asked.remove(sequence);
            }
            if let (Some(unit), Some(bucket)) = (&unit, &mut queue.bucket) {
                bucket.take(unit.bytes, now.steady);
            }
        }
        let rooms = self.queues.get(&junction).map_or(0, |queue| queue.rooms);
        let unit = FlushUnit { rooms, ..unit? };
        self.running.extend(&unit.sequences);
        self.clients.note_begun(now.steady);
        unit.sequences.iter().for_each(|sequence| drop(self.parked.remove(sequence)));
        Some(unit)
    }

    fn form(&self, first: u64, now: FlushMoment, filling: bool) -> Option<FlushUnit> {
        let unit = self.form_of_now(first, now, filling)?;
        Some(self.with_attempt(unit, &self.pending[&first]))
    }

    fn form_of_now(&self, first: u64, now: FlushMoment, filling: bool) -> Option<FlushUnit> {
        let pending = &self.pending[&first];
        let is_due = |pending: &Pending| self.is_due(pending, now, filling);
        let is_running = |sequence| self.is_taken(sequence);
        if self.is_stuck(first) && self.head_of(first) == Some(first) {
            let around = self.around(pending, true, &|_| true, &is_running);
            if let Some(unit) = around.form_stuck(pending) {
                return Some(unit.each(|part| {
                    if let (FlushWork::Retract(retract), Some(first)) =
                        (&mut part.work, part.sequences.first())
                    {
                        retract.makes_room = self.refused.contains_key(first);
                    }
                }));
            }
        } else if self.is_left_by_attempt(pending) {
            // What an attempt left of it goes: the attempt is not made again for that.
            let around = self.around(pending, true, &is_due, &is_running);
            if let Some(unit) = around.retract(pending) {
                return Some(around.in_doubt_of_start(unit));
            }
        }
        let is_free = self.depend.is_free(first);
        is_free.then(|| self.around(pending, false, &is_due, &is_running).form(pending))
    }

    /// It is on its way, or somebody is about to give it up.
    fn is_taken(&self, sequence: u64) -> bool {
        self.running.contains(&sequence) || self.held.contains(&sequence)
    }

    /// Its owner took the object away in the end. Before a start what waits for others has not begun, but for a directory
    /// that was retracted in one unit with those.
    fn is_left_by_attempt(&self, pending: &Pending) -> bool {
        let object = pending.operation.object();
        let last = self.chains.get(&object).and_then(|chain| self.pending.get(chain.last()?));
        let by_itself = |last: &&Pending| last.operation.object() == object;
        let Some(last) = last.filter(by_itself) else { return false };
        let perhaps_begun = pending.in_doubt || pending.recovered && undo::is_of_directory(&last.operation);
        perhaps_begun && !pending.carried && undo::ends(object, &last.operation)
    }

    /// `whole`: all operations on the object, however many they are and whatever they carry.
    fn around<'a>(
        &'a self,
        first: &Pending,
        whole: bool,
        due: &'a dyn Fn(&Pending) -> bool,
        is_running: &'a dyn Fn(u64) -> bool,
    ) -> UnitContext<'a> {
        let most = Most::of(whole || self.policy(first.operation.junction).whole_files);
        let chain = self.chains.get(&first.operation.object());
        let chain = chain
            .into_iter()
            .flat_map(|chain| chain.range(first.sequence..))
            .copied()
            .take_while(|sequence| !self.pending[sequence].carried && !self.held.contains(sequence))
            .take(if whole { usize::MAX } else { most.operations })
            .collect();
        let (pending, chains, depend, sabotage) = (&self.pending, &self.chains, &self.depend, self.sabotage);
        UnitContext { pending, chain, chains, depend, due, is_running, most, sabotage }
    }

    /// They are at the origin, or came to nothing, and the journal knows.
    pub fn done(&mut self, sequences: &[u64]) {
        for sequence in sequences {
            self.running.remove(sequence);
            self.parked.remove(sequence);
            self.refused.remove(sequence);
            self.asked.remove(sequence);
            if let Some(pending) = self.pending.remove(sequence) {
                if let Some(queue) = self.queues.get_mut(&pending.operation.junction) {
                    queue.ready.remove(sequence);
                    queue.asked.remove(sequence);
                }
                for object in pending.operation.objects() {
                    if let Some(chain) = self.chains.get_mut(&object) {
                        chain.remove(sequence);
                        if chain.is_empty() {
                            self.chains.remove(&object);
                            self.perhaps_retracted.remove(&object);
                        }
                    }
                }
            }
        }
        // With something refused, who waited for these may have a way around that now.
        let waited = |sequence: &u64| self.depend.followers(*sequence).collect::<Vec<_>>();
        let behind: Vec<u64> = match self.refused.is_empty() {
            true => Vec::new(),
            false => sequences.iter().flat_map(waited).collect(),
        };
        for sequence in sequences {
            for free in self.depend.remove(*sequence) {
                self.make_ready(free);
            }
        }
        self.look_behind(&behind);
    }

    /// The junction's origin is out of reach, and is not tried.
    pub fn is_held(&self, junction: JunctionId, now: Duration) -> bool {
        self.queues.get(&junction).is_some_and(|queue| queue.held_until > now)
    }

    /// The origin could not be reached: nothing of that junction is tried before `until`.
    pub fn hold(&mut self, unit: &FlushUnit, until: Duration) {
        self.give_back(unit);
        let queue = self.queues.entry(unit.junction).or_default();
        queue.held_until = queue.held_until.max(until);
    }

    /// Somebody reached the origin again: it is tried at `at`, and not later.
    pub fn hold_at_most(&mut self, junction: JunctionId, at: Duration) {
        if let Some(queue) = self.queues.get_mut(&junction) {
            queue.held_until = queue.held_until.min(at);
        }
    }

    /// Who asks for whole junctions may know that their origins are back. (Who asks for files is a client, and many.)
    pub fn end_pauses(&mut self, scope: &Scope, now: Duration) {
        let is_meant = |junction: &JunctionId| match scope {
            Scope::All => true,
            Scope::Junction(meant) => meant == junction,
            Scope::Objects(_) => false,
        };
        for (_, queue) in self.queues.iter_mut().filter(|(junction, _)| is_meant(junction)) {
            queue.held_until = queue.held_until.min(now);
        }
    }

    /// Not done; whether some of it arrived, nobody knows.
    fn give_back(&mut self, unit: &FlushUnit) {
        for sequence in &unit.sequences {
            self.running.remove(sequence);
            if let Some(pending) = self.pending.get_mut(sequence) {
                pending.in_doubt = true;
                pending.carried |= unit.carried;
            }
            if self.depend.is_free(*sequence) {
                self.make_ready(*sequence);
            }
        }
        // It may have gone ahead of what it waits for.
        if let Some(first) = unit.sequences.first() {
            self.make_ready(*first);
        }
    }

    /// Flush these and what they wait for as soon as can be, parked ones too. Returns all of them.
    pub fn ask(&mut self, scope: &Scope) -> Vec<u64> {
        let wanted = self.pending.values().filter(|pending| scope.contains(&pending.operation));
        let mut ways: Vec<u64> = wanted.map(|pending| pending.sequence).collect();
        let mut asked = BTreeSet::new();
        while let Some(sequence) = ways.pop() {
            if asked.insert(sequence) {
                ways.extend(self.depend.blockers(sequence));
            }
        }
        for sequence in &asked {
            self.asked.insert(*sequence);
            let was_parked = self.parked.remove(sequence).is_some();
            let is_free = self.depend.is_free(*sequence);
            let goes_ahead = was_parked || self.is_ready(*sequence);
            if (is_free || goes_ahead) && !self.running.contains(sequence) {
                self.make_ready(*sequence);
            }
        }
        asked.into_iter().collect()
    }

    /// How long until there may be something to do, if nothing happens meanwhile and no window opens.
    pub fn idle_for(&self, now: FlushMoment) -> Option<Duration> {
        let parked = self.parked.values().map(|parked| parked.again_at.saturating_sub(now.steady));
        let queues = self.queues.values().filter_map(|queue| {
            let first = self.pending.get(queue.ready.first()?)?;
            let young = match queue.asked.is_empty() {
                true => self.opens(queue, first.acknowledged, now),
                false => Duration::ZERO,
            };
            let opens = queue.bucket.map_or(Duration::ZERO, |bucket| bucket.opens());
            let shut = queue.asked.is_empty() && !queue.policy.is_open(now);
            let young = if shut { Duration::MAX } else { young };
            Some(young.max(opens.max(queue.held_until).saturating_sub(now.steady)))
        });
        parked.chain(queues).min()
    }

    /// None of them can go on before something that is parked does.
    pub fn all_wait_for_parked(&self, sequences: &HashSet<u64>) -> bool {
        let mut seen = HashSet::new();
        let mut ways: Vec<u64> = sequences.iter().copied().collect();
        while let Some(sequence) = ways.pop() {
            if !seen.insert(sequence) || self.parked.contains_key(&sequence) || !self.contains(sequence) {
                continue;
            }
            let before = ways.len();
            ways.extend(self.depend.blockers(sequence));
            if ways.len() == before {
                return false;
            }
        }
        true
    }

    pub fn contains(&self, sequence: u64) -> bool {
        self.pending.contains_key(&sequence)
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// All that waits, each with what it waits for.
    #[cfg(test)]
    pub fn waiting_for(&self) -> Vec<(u64, Vec<u64>)> {
        self.pending.keys().map(|sequence| (*sequence, self.depend.blockers(*sequence).collect())).collect()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Refused by the origin, and not tried at the moment.
    pub fn parked(&self) -> impl Iterator<Item = &Parked> {
        self.parked.values()
    }

    /// Bytes of data and the first acknowledgement, of one junction or of all.
    pub fn load(&self, junction: Option<JunctionId>) -> (u64, Option<Duration>) {
        let concerned = |pending: &&Pending| junction.is_none_or(|it| pending.operation.junction == it);
        let of = self.pending.values().filter(concerned);
        of.fold((0, None), |(bytes, oldest), pending| {
            let acknowledged = pending.acknowledged;
            let oldest = Some(oldest.map_or(acknowledged, |oldest: Duration| oldest.min(acknowledged)));
            (bytes + u64::from(pending.position.data_length), oldest)
        })
    }
}

#[cfg(test)]
mod tests;
