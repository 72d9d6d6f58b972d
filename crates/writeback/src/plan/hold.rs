//! Operations that are looked at, or taken out to be given up.

use std::collections::BTreeSet;

use types::FileId;

use super::depend::leans_on;
use super::{FlushPlan, Parked, Pending};

impl FlushPlan {
    pub fn get(&self, sequence: u64) -> Option<&Pending> {
        self.pending.get(&sequence)
    }

    /// In the order of their sequences.
    pub fn all(&self) -> impl Iterator<Item = &Pending> {
        self.pending.values()
    }

    pub fn refusal(&self, sequence: u64) -> Option<&Parked> {
        self.refused.get(&sequence).or_else(|| self.parked.get(&sequence))
    }

    /// The operations that it waits for.
    pub fn waits_for(&self, sequence: u64) -> Vec<u64> {
        self.depend.blockers(sequence).collect()
    }

    /// Those of them that are here, and all that make no sense without them.
    pub fn with_dependents(&self, sequences: &[u64]) -> BTreeSet<u64> {
        let mut ways: Vec<u64> = sequences.iter().copied().filter(|it| self.contains(*it)).collect();
        let mut all = BTreeSet::new();
        while let Some(sequence) = ways.pop() {
            if !all.insert(sequence) {
                continue;
            }
            let Some(earlier) = self.pending.get(&sequence) else { continue };
            ways.extend(self.depend.followers(sequence).filter(|follower| {
                self.pending.get(follower).is_some_and(|later| leans_on(&later.operation, &earlier.operation))
            }));
        }
        all
    }

    /// One of them is on its way.
    pub fn is_any_running(&self, sequences: &BTreeSet<u64>) -> bool {
        sequences.iter().any(|sequence| self.running.contains(sequence))
    }

    /// None of them is taken up before [`FlushPlan::let_go`]; what waits for them goes on waiting. Returns the refusals among
    /// them.
    pub fn hold_back(&mut self, sequences: &BTreeSet<u64>) -> Vec<Parked> {
        self.held.extend(sequences);
        for queue in self.queues.values_mut() {
            queue.ready.retain(|sequence| !sequences.contains(sequence));
            queue.asked.retain(|sequence| !sequences.contains(sequence));
        }
        sequences.iter().filter_map(|sequence| self.parked.remove(sequence)).collect()
    }

    pub fn let_go(&mut self, sequences: &BTreeSet<u64>, parked: Vec<Parked>) {
        for sequence in sequences {
            self.held.remove(sequence);
        }
        for refusal in parked.into_iter().filter(|it| self.pending.contains_key(&it.sequence)) {
            self.parked.insert(refusal.sequence, refusal);
        }
        for sequence in sequences {
            let waits = self.parked.contains_key(sequence) || !self.contains(*sequence);
            if !waits && self.depend.is_free(*sequence) {
                self.make_ready(*sequence);
            }
        }
    }

    /// The operations on an object, but for these.
    pub fn others_on(&self, object: FileId, but: &BTreeSet<u64>) -> Vec<Pending> {
        let chain = self.chains.get(&object).into_iter().flatten();
        let others = chain.filter(|sequence| !but.contains(sequence));
        others.filter_map(|sequence| self.pending.get(sequence).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use types::{JunctionId, Name, Timestamp};

    use super::*;
    use crate::index::Position;
    use crate::operation::{Action, Attributes, JournalOperation, NewObject, Rename};
    use crate::plan::{FlushMoment, FlushPolicy};
    use crate::sabotage::Sabotage;

    const TOP: FileId = FileId([1; 16]);

    fn id(number: u8) -> FileId {
        FileId([number; 16])
    }

    fn name(name: &'static str) -> Name {
        Name::new(name.as_bytes()).unwrap()
    }

    fn make(given: &'static str, number: u8, what: NewObject) -> Action {
        Action::Make { dir: TOP, name: name(given), id: id(number), what, set: Attributes::default() }
    }

    fn write(number: u8) -> Action {
        Action::Write { file: id(number), offset: 0, size_before: 0, base: None }
    }

    fn moved(from: &'static str, to: &'static str, number: u8) -> Action {
        let (is_dir, base, replaced) = (true, None, None);
        let (from, to) = (name(from), name(to));
        Action::Rename(Rename {
            from_dir: TOP,
            from,
            to_dir: TOP,
            to,
            object: id(number),
            is_dir,
            base,
            replaced,
        })
    }

    fn plan(actions: Vec<Action>) -> FlushPlan {
        let policy = FlushPolicy { delay: Duration::ZERO, ..FlushPolicy::default() };
        let mut plan = FlushPlan::new(HashMap::from([(JunctionId(1), policy)]), Sabotage::default());
        for (sequence, action) in (1..).zip(actions) {
            let (junction, acknowledged, since) = (JunctionId(1), Timestamp::default(), Timestamp::default());
            plan.add(Pending {
                sequence,
                operation: JournalOperation { junction, acknowledged, since, action },
                position: Position::default(),
                acknowledged: Duration::ZERO,
                in_doubt: false,
                recovered: false,
                carried: false,
            });
        }
        plan
    }

    fn now() -> FlushMoment {
        FlushMoment { steady: Duration::from_secs(10), time_of_day: Duration::ZERO }
    }

    #[test]
    fn what_makes_no_sense_without_an_operation_goes_with_it_and_nothing_else() {
        let plan = plan(vec![
            make("d", 2, NewObject::Directory),
            make("f", 3, NewObject::File),
            write(3),
            moved("d", "e", 2),
            make("g", 4, NewObject::Directory),
            moved("g", "h", 4),
            Action::Remove { dir: TOP, name: name("f"), object: id(3), links: 0, base: None },
            make("f", 5, NewObject::File),
        ]);
        assert_eq!(plan.with_dependents(&[3]), BTreeSet::from([3, 7, 8]));
        assert_eq!(plan.with_dependents(&[1]), BTreeSet::from([1, 4]), "moves of other directories stay");
        assert_eq!(plan.with_dependents(&[8, 99]), BTreeSet::from([8]));
    }

    #[test]
    fn what_is_held_back_is_not_taken_up_until_it_is_let_go() {
        let mut plan = plan(vec![make("f", 3, NewObject::File), write(3), make("g", 4, NewObject::File)]);
        let held = BTreeSet::from([2]);
        let parked = plan.hold_back(&held);
        let taken: Vec<_> =
            std::iter::from_fn(|| plan.next(now(), false)).map(|unit| unit.sequences).collect();
        assert_eq!(taken, [vec![1], vec![3]]);
        plan.done(&[1]);
        assert!(plan.next(now(), false).is_none());
        plan.let_go(&held, parked);
        assert_eq!(plan.next(now(), false).map(|unit| unit.sequences), Some(vec![2]));
    }
}
