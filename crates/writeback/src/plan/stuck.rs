//! What the origin refuses: tried again now and then, and at once when its owner did something that may undo it.

use std::collections::HashSet;
use std::time::Duration;

use types::{Error, ErrorKind, JunctionId};

use super::{Parked, Plan, Unit};

/// Between two times that all of a junction that found no room is tried again because something was removed there.
const ROOM_EVERY: Duration = Duration::from_secs(1);

impl Plan {
    /// The origin refuses it: tried again at `again_at`; what depends on it waits, and nothing else does.
    pub fn park(&mut self, unit: &Unit, error: &Error, again_at: Duration) {
        self.give_back(unit);
        for sequence in &unit.sequences {
            if let Some(pending) = self.pending.get(sequence) {
                let object = pending.operation.object();
                let parked = Parked { sequence: *sequence, object, error: error.clone(), again_at };
                self.parked.insert(*sequence, parked);
            }
            // What is at the origin is not refused: only its mark failed.
            if !unit.carried {
                self.refused.insert(*sequence);
            }
            if let Some(queue) = self.queues.get_mut(&unit.junction) {
                queue.ready.remove(sequence);
                queue.asked.remove(sequence);
            }
        }
        self.look_behind(&unit.sequences);
    }

    /// At those whose time has come.
    pub(super) fn unpark(&mut self, now: Duration) {
        let due = self.parked.values().filter(|parked| parked.again_at <= now).map(|parked| parked.sequence);
        for sequence in due.collect::<Vec<_>>() {
            self.parked.remove(&sequence);
            if self.depend.is_free(sequence) || self.head_of(sequence) == Some(sequence) {
                self.make_ready(sequence);
            }
        }
    }

    /// Something was removed at the origin: what found no room there is tried again.
    pub fn room_was_made(&mut self, junction: JunctionId, now: Duration) {
        let no_room =
            |it: &&mut Parked| matches!(it.error.kind(), ErrorKind::NoSpace | ErrorKind::QuotaExceeded);
        let queue = self.queues.entry(junction).or_default();
        let again_at = queue.room_tried.map_or(now, |tried| now.max(tried + ROOM_EVERY));
        let mut found = false;
        for parked in self.parked.values_mut().filter(no_room) {
            let is_here = |it: &super::Pending| it.operation.junction == junction;
            if self.pending.get(&parked.sequence).is_some_and(is_here) {
                parked.again_at = parked.again_at.min(again_at);
                found = true;
            }
        }
        if found {
            queue.room_tried = Some(again_at);
        }
    }

    /// The first that waits of those on the same object.
    pub(super) fn head_of(&self, sequence: u64) -> Option<u64> {
        let object = self.pending.get(&sequence)?.operation.object();
        self.chains.get(&object)?.first().copied()
    }

    /// All that waits for these may have a way around them now.
    pub(super) fn look_behind(&mut self, sequences: &[u64]) {
        if self.refused.is_empty() {
            return;
        }
        let mut seen: HashSet<u64> = sequences.iter().copied().collect();
        let mut ways: Vec<u64> = sequences.to_vec();
        while let Some(sequence) = ways.pop() {
            ways.extend(self.depend.followers(sequence).filter(|waiting| seen.insert(*waiting)));
        }
        let heads: HashSet<u64> = seen.into_iter().filter_map(|sequence| self.head_of(sequence)).collect();
        heads.into_iter().for_each(|head| self.look_for_way_out(head));
    }

    /// A head that is stuck is ready if with what follows it there is something to try that was not refused yet.
    pub(super) fn look_for_way_out(&mut self, head: u64) {
        if self.head_of(head) != Some(head) || self.is_taken(head) || !self.is_stuck(head) {
            return;
        }
        let Some(pending) = self.pending.get(&head) else { return };
        let is_due = |_: &_| true;
        let is_running = |sequence| self.is_taken(sequence);
        let unit = self.around(pending, true, &is_due, &is_running).form_stuck(pending);
        if unit.is_some_and(|unit| unit.sequences.iter().any(|it| !self.refused.contains(it))) {
            self.parked.remove(&head);
            self.make_ready(head);
        }
    }

    /// The origin refuses it, or it waits for something.
    pub(super) fn is_stuck(&self, sequence: u64) -> bool {
        self.refused.contains(&sequence) || !self.depend.is_free(sequence)
    }
}
