//! The stripes of which copies are missing, as far as this node counts them; the alarm. Pure: the caller brings the time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use types::{BLOCK_SIZE, JunctionId};

use crate::copies::HeldStripe;
use crate::copies::standing::{Lack, LackReason, Standing};

/// The first look after one that found a stripe incomplete comes after so long; each later one after twice the time, up to the most.
const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_MOST: Duration = Duration::from_secs(8);
/// A node is told again of a stripe that it lacks after this time.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Stripes with fewer copies than the junction wants, of those that this node counts. Each node counts those of which it is the
/// first to hold all that there is; the sum over the nodes is the cluster's. What is missing at a node whose cache is full is no part
/// of it, for nothing is to be done about that: a cache that is in use is full, and lets go what was not read for long
/// (`Metrics::copies_no_room_bytes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderReplicated {
    pub stripes: u64,
    /// To be copied, over all copies.
    pub bytes: u64,
    /// How long the first of them has been incomplete.
    pub lasting: Duration,
}

/// What is known of incomplete stripes, one by one up to a number, and what a walk over all stripes found.
#[derive(Debug)]
pub struct CopyLedger {
    max: usize,
    /// A stripe that is behind for longer than this raises the alarm.
    patience: Duration,
    stripes: HashMap<HeldStripe, Incomplete>,
    /// Found by the walk under way, and by the last one that came to its end.
    walking: WalkCounts,
    walked: WalkCounts,
    /// A walk found incomplete stripes that were all completed since: the next one will count anew.
    wants_walk: bool,
}

#[derive(Clone, Debug, Default)]
pub struct WalkCounts {
    /// Stripes by how many whole copies they have.
    pub by_copies: BTreeMap<usize, u64>,
    /// Incomplete ones for which there was no room in the ledger.
    beyond: BTreeMap<JunctionId, Beyond>,
    /// Bytes that nodes lack whose caches are full.
    pub no_room_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Beyond {
    stripes: u64,
    bytes: u64,
    /// Of these, what a node of the map is to copy.
    to_copy: u64,
    since: Duration,
}

#[derive(Clone, Debug)]
struct Incomplete {
    junction: JunctionId,
    since: Duration,
    /// `None`: it was just filled, and nobody has looked yet.
    missing: Option<u64>,
    /// Of these, what a node of the map is to copy.
    to_copy: u64,
    /// It is missing for a reason that no feed mends soon.
    is_lost: bool,
    /// It raised the alarm, and keeps it up until it is whole.
    is_alarming: bool,
    look_at: Duration,
    wait: Duration,
    told_at: Option<Duration>,
}

impl CopyLedger {
    pub fn new(max: usize, patience: Duration) -> CopyLedger {
        CopyLedger {
            max,
            patience,
            stripes: HashMap::new(),
            walking: WalkCounts::default(),
            walked: WalkCounts::default(),
            wants_walk: false,
        }
    }

    /// A stripe was filled here, and others were told: whether they have it is looked at a little later. `false`: there is no room
    /// for it, so the next walk finds out.
    pub fn watch(&mut self, stripe: HeldStripe, junction: JunctionId, now: Duration) -> bool {
        let has_room = self.stripes.len() < self.max;
        if let Some(known) = self.stripes.get_mut(&stripe) {
            (known.look_at, known.wait) = (known.look_at.min(now + LOOK_FIRST), LOOK_FIRST);
            known.told_at = Some(now);
        } else if has_room {
            self.stripes.insert(stripe, Incomplete { told_at: Some(now), ..Incomplete::new(junction, now) });
        }
        has_room
    }

    /// A stripe that nobody has looked at is looked at a little later, if there is room for it; else the next walk finds it.
    pub fn look_soon(&mut self, stripe: HeldStripe, junction: JunctionId, now: Duration) {
        if self.stripes.len() < self.max {
            self.stripes.entry(stripe).or_insert_with(|| Incomplete::new(junction, now));
        }
    }

    /// Takes in what a look at a stripe found. `true`: the nodes that are behind are to be told.
    pub fn record(
        &mut self,
        stripe: HeldStripe,
        junction: JunctionId,
        standing: &Standing,
        now: Duration,
    ) -> bool {
        let Standing::Ours { lacks, .. } = standing else {
            self.complete(&stripe);
            return false;
        };
        let missing = bytes_lacking(lacks, |why| why != LackReason::NoRoom);
        if missing == 0 {
            self.complete(&stripe);
            return false;
        }
        if !self.stripes.contains_key(&stripe) {
            if self.stripes.len() >= self.max {
                return true;
            }
            self.stripes.insert(stripe, Incomplete::new(junction, now));
        }
        let Some(known) = self.stripes.get_mut(&stripe) else { return true };
        if known.missing != Some(missing) {
            known.wait = LOOK_FIRST;
        }
        (known.junction, known.missing) = (junction, Some(missing));
        known.to_copy = bytes_lacking(lacks, is_to_copy);
        known.is_lost = lacks.iter().any(|lack| lack.why == LackReason::Silent);
        known.look_at = now + known.wait;
        known.wait = (known.wait * 2).min(LOOK_MOST);
        let is_told = known.told_at.is_some_and(|told| now < told + TELL_AGAIN);
        if !is_told {
            known.told_at = Some(now);
        }
        !is_told
    }

    fn complete(&mut self, stripe: &HeldStripe) {
        self.stripes.remove(stripe);
    }

    /// A new walk begins: what the one under way has found so far does not count.
    pub fn begin_walk(&mut self) {
        self.walking = WalkCounts::default();
        self.wants_walk = false;
    }

    /// Takes in what the walk found of a stripe, after [`CopyLedger::record`].
    pub fn count(&mut self, stripe: &HeldStripe, junction: JunctionId, standing: &Standing, now: Duration) {
        let Standing::Ours { copies, lacks } = standing else { return };
        *self.walking.by_copies.entry(*copies).or_default() += 1;
        self.walking.no_room_bytes += bytes_lacking(lacks, |why| why == LackReason::NoRoom);
        let missing = bytes_lacking(lacks, |why| why != LackReason::NoRoom);
        if missing > 0 {
            self.wants_walk = true;
            if !self.stripes.contains_key(stripe) {
                let before = self.walked.beyond.get(&junction).map_or(now, |before| before.since);
                let none = Beyond { stripes: 0, bytes: 0, to_copy: 0, since: before };
                let beyond = self.walking.beyond.entry(junction).or_insert(none);
                (beyond.stripes, beyond.bytes) = (beyond.stripes + 1, beyond.bytes + missing);
                beyond.to_copy += bytes_lacking(lacks, is_to_copy);
            }
        }
    }

    pub fn end_walk(&mut self) {
        self.walked = std::mem::take(&mut self.walking);
    }

    /// A walk found incomplete stripes, and all that were known one by one are complete by now: another one counts anew, and finds
    /// those that had no room here.
    pub fn wants_walk(&self) -> bool {
        self.wants_walk && self.stripes.is_empty()
    }

    /// The stripes to look at now, `max` at most, those first that have waited longest: none waits for ever behind others that
    /// stay incomplete.
    pub fn due(&self, now: Duration, max: usize) -> Vec<(HeldStripe, JunctionId)> {
        let due = self.stripes.iter().filter(|(_, known)| known.look_at <= now);
        let mut due: Vec<_> = due.map(|(stripe, known)| (known.look_at, *stripe, known.junction)).collect();
        due.sort_unstable_by_key(|(look_at, ..)| *look_at);
        due.into_iter().take(max).map(|(_, stripe, junction)| (stripe, junction)).collect()
    }

    /// Nodes have come or gone: all is looked at as soon as may be.
    pub fn look_at_all(&mut self, now: Duration) {
        self.stripes.values_mut().for_each(|known| {
            (known.look_at, known.wait, known.told_at) = (now, LOOK_FIRST, None);
        });
    }

    pub fn walked(&self) -> &WalkCounts {
        &self.walked
    }

    pub fn missing_bytes(&self) -> u64 {
        let beyond: u64 = self.walked.beyond.values().map(|beyond| beyond.bytes).sum();
        beyond + self.stripes.values().filter_map(|known| known.missing).sum::<u64>()
    }

    /// Of the missing bytes, those that nodes of the map are to copy: what a drain waits for.
    pub fn to_copy_bytes(&self) -> u64 {
        let beyond: u64 = self.walked.beyond.values().map(|beyond| beyond.to_copy).sum();
        beyond + self.stripes.values().map(|known| known.to_copy).sum::<u64>()
    }

    /// The junctions that have stripes with too few copies: those that a node keeps which does not answer, and those that are
    /// behind for longer than the patience. A stripe that has raised the alarm keeps it up until it is complete.
    pub fn alarm(&mut self, now: Duration) -> BTreeMap<JunctionId, UnderReplicated> {
        let mut alarm = BTreeMap::new();
        let mut raise = |junction, stripes, bytes, since: Duration| {
            let none = UnderReplicated { stripes: 0, bytes: 0, lasting: Duration::ZERO };
            let raised = alarm.entry(junction).or_insert(none);
            raised.stripes += stripes;
            raised.bytes += bytes;
            raised.lasting = raised.lasting.max(now.saturating_sub(since));
        };
        for known in self.stripes.values_mut() {
            let Some(missing) = known.missing else { continue };
            let is_late = now.saturating_sub(known.since) >= self.patience;
            known.is_alarming |= known.is_lost || is_late;
            if known.is_alarming {
                raise(known.junction, 1, missing, known.since);
            }
        }
        for (junction, beyond) in &self.walked.beyond {
            raise(*junction, beyond.stripes, beyond.bytes, beyond.since);
        }
        alarm
    }
}

impl Incomplete {
    fn new(junction: JunctionId, now: Duration) -> Incomplete {
        Incomplete {
            junction,
            since: now,
            missing: None,
            to_copy: 0,
            is_lost: false,
            is_alarming: false,
            look_at: now + LOOK_FIRST,
            wait: LOOK_FIRST,
            told_at: None,
        }
    }
}

/// What is lacking for reasons that count.
fn bytes_lacking(lacks: &[Lack], counts: impl Fn(LackReason) -> bool) -> u64 {
    lacks.iter().filter(|lack| counts(lack.why)).map(|lack| lack.blocks * BLOCK_SIZE).sum()
}

/// A node is to copy it: one that answers; one that did not say what it holds, and is asked again; and a silent one, which comes back, or
/// is out after a while, and then another one is to copy it.
fn is_to_copy(why: LackReason) -> bool {
    matches!(why, LackReason::Behind | LackReason::Unknown | LackReason::Silent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::tests::stripe;

    const JUNCTION: JunctionId = JunctionId(1);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lacking(why: LackReason, blocks: u64) -> Standing {
        Standing::Ours { copies: 1, lacks: vec![Lack { node: None, blocks, why }] }
    }

    fn whole() -> Standing {
        Standing::Ours { copies: 2, lacks: vec![] }
    }

    #[test]
    fn a_silent_node_raises_the_alarm_at_once_and_a_slow_one_when_patience_is_over() {
        let mut ledger = CopyLedger::new(10, PATIENCE);
        assert!(ledger.record(stripe(1), JUNCTION, &lacking(LackReason::Behind, 2), at(0)));
        assert!(ledger.alarm(at(29)).is_empty());
        let raised = UnderReplicated { stripes: 1, bytes: 2 * BLOCK_SIZE, lasting: at(30) };
        assert_eq!(ledger.alarm(at(30))[&JUNCTION], raised);
        ledger.record(stripe(2), JUNCTION, &lacking(LackReason::Silent, 1), at(31));
        assert_eq!((ledger.alarm(at(31))[&JUNCTION].stripes, ledger.missing_bytes()), (2, 3 * BLOCK_SIZE));
        // The node is out of the map, and another one is to keep the stripe: it is no less missing.
        ledger.record(stripe(2), JUNCTION, &lacking(LackReason::Behind, 1), at(32));
        assert_eq!(ledger.alarm(at(32))[&JUNCTION].stripes, 2);
        ledger.record(stripe(1), JUNCTION, &whole(), at(33));
        ledger.record(stripe(2), JUNCTION, &Standing::Others, at(33));
        assert!(ledger.alarm(at(33)).is_empty() && ledger.missing_bytes() == 0, "it clears by itself");
    }

    #[test]
    fn what_is_to_be_copied_is_told_apart_from_what_nobody_can_copy_now() {
        let mut ledger = CopyLedger::new(2, PATIENCE);
        ledger.record(stripe(1), JUNCTION, &lacking(LackReason::Behind, 2), at(0));
        ledger.record(stripe(2), JUNCTION, &lacking(LackReason::NoNode, 9), at(0));
        assert_eq!((ledger.missing_bytes(), ledger.to_copy_bytes()), (11 * BLOCK_SIZE, 2 * BLOCK_SIZE));
        for why in [LackReason::Silent, LackReason::Unknown] {
            ledger.record(stripe(1), JUNCTION, &lacking(why, 2), at(1));
            assert_eq!(ledger.to_copy_bytes(), 2 * BLOCK_SIZE, "{why:?}");
        }
        ledger.begin_walk();
        for (index, why) in [(3, LackReason::Silent), (4, LackReason::NoNode), (5, LackReason::NoRoom)] {
            ledger.record(stripe(index), JUNCTION, &lacking(why, 1), at(3));
            ledger.count(&stripe(index), JUNCTION, &lacking(why, 1), at(3));
        }
        assert_eq!(ledger.to_copy_bytes(), 2 * BLOCK_SIZE);
        ledger.end_walk();
        assert_eq!(ledger.to_copy_bytes(), 3 * BLOCK_SIZE, "those that the ledger has no room for, too");
        ledger.record(stripe(1), JUNCTION, &whole(), at(4));
        assert_eq!(ledger.to_copy_bytes(), BLOCK_SIZE);
    }

    #[test]
    fn what_is_just_filled_is_looked_at_soon_and_raises_nothing_before() {
        let mut ledger = CopyLedger::new(1, Duration::ZERO);
        assert!(ledger.watch(stripe(1), JUNCTION, at(10)));
        assert!(!ledger.watch(stripe(2), JUNCTION, at(10)), "it is bounded");
        assert!(ledger.alarm(at(10)).is_empty() && ledger.due(at(10), 9).is_empty());
        assert_eq!(ledger.due(at(11), 9), [(stripe(1), JUNCTION)]);
    }

    #[test]
    fn a_stripe_that_stays_incomplete_is_looked_at_less_often_and_told_again_after_ten_seconds() {
        let mut ledger = CopyLedger::new(9, PATIENCE);
        let (mut now, mut told, mut looks) = (0, Vec::new(), Vec::new());
        while now < 60 {
            if now == 0 || !ledger.due(at(now), 9).is_empty() {
                looks.push(now);
                if ledger.record(stripe(1), JUNCTION, &lacking(LackReason::Behind, 1), at(now)) {
                    told.push(now);
                }
            }
            now += 1;
        }
        assert_eq!(looks[..5], [0, 1, 3, 7, 15]);
        assert_eq!(told[..2], [0, 15]);
        ledger.look_at_all(at(60));
        assert_eq!(ledger.due(at(60), 9).len(), 1, "nodes have come or gone");
    }

    #[test]
    fn of_many_that_stay_incomplete_each_is_looked_at_in_its_turn() {
        let mut ledger = CopyLedger::new(100, PATIENCE);
        (0..100).for_each(|n| assert!(ledger.watch(stripe(n), JUNCTION, at(0))));
        let mut looked = std::collections::HashSet::new();
        // Fewer in each second than come due again.
        for second in 1..=30 {
            for (one, _) in ledger.due(at(second), 5) {
                looked.insert(one);
                ledger.record(one, JUNCTION, &lacking(LackReason::NoNode, 1), at(second));
            }
        }
        assert_eq!(looked.len(), 100);
    }

    #[test]
    fn what_has_no_room_in_the_ledger_is_counted_by_the_walk_and_found_by_the_next() {
        let mut ledger = CopyLedger::new(2, Duration::ZERO);
        ledger.begin_walk();
        for n in 0..5 {
            let standing = lacking(LackReason::Behind, 1);
            assert!(ledger.record(stripe(n), JUNCTION, &standing, at(0)));
            ledger.count(&stripe(n), JUNCTION, &standing, at(0));
        }
        let (full, standing) = (stripe(9), lacking(LackReason::NoRoom, 4));
        assert!(!ledger.record(full, JUNCTION, &standing, at(0)));
        ledger.count(&full, JUNCTION, &standing, at(0));
        ledger.end_walk();
        assert_eq!((ledger.walked().by_copies[&1], ledger.walked().no_room_bytes), (6, 4 * BLOCK_SIZE));
        assert_eq!(ledger.alarm(at(0))[&JUNCTION].stripes, 5, "a full cache raises no alarm");
        assert!(!ledger.wants_walk());
        (0..2).for_each(|n| assert!(!ledger.record(stripe(n), JUNCTION, &whole(), at(1))));
        assert!(ledger.wants_walk());
        ledger.begin_walk();
        (0..5).for_each(|n| ledger.count(&stripe(n), JUNCTION, &whole(), at(2)));
        ledger.end_walk();
        assert!(ledger.alarm(at(2)).is_empty() && !ledger.wants_walk());
        assert_eq!(ledger.walked().by_copies[&2], 5);
    }
}
