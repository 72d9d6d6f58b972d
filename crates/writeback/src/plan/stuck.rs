//! What the origin refuses: tried again now and then, and at once when its owner did something that may undo it.

use std::collections::HashSet;
use std::time::Duration;

use types::{Error, ErrorKind, JunctionId};

use super::{FlushPlan, FlushUnit, Parked};

/// Between two times that all of a junction that found no room is tried again because something was removed there.
const ROOM_EVERY: Duration = Duration::from_secs(1);

impl FlushPlan {
    /// The origin refuses it: tried again at `again_at`; what depends on it waits, and nothing else does.
    pub fn park(&mut self, unit: &FlushUnit, error: &Error, again_at: Duration) {
        self.give_back(unit);
        let rooms = self.queues.get(&unit.junction).map_or(0, |queue| queue.rooms);
        // It may have been a moment too early.
        let is_tried_again = is_of_room(error) && rooms != unit.rooms;
        for sequence in &unit.sequences {
            let Some(pending) = self.pending.get(sequence) else { continue };
            let object = pending.operation.object();
            let parked = Parked { sequence: *sequence, object, error: error.clone(), again_at };
            // What is at the origin is not refused: only its mark failed.
            if !unit.carried {
                self.refused.insert(*sequence, parked.clone());
            }
            if is_tried_again {
                continue;
            }
            self.parked.insert(*sequence, parked);
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

    /// Something was removed at the origin: what found no room there is tried again, at once if it was asked for.
    pub fn room_was_made(&mut self, junction: JunctionId, now: Duration) {
        let queue = self.queues.entry(junction).or_default();
        queue.rooms += 1;
        let again_at = queue.room_tried.map_or(now, |tried| now.max(tried + ROOM_EVERY));
        let is_here = |it: &&mut Parked| {
            is_of_room(&it.error)
                && self.pending.get(&it.sequence).is_some_and(|it| it.operation.junction == junction)
        };
        for parked in self.parked.values_mut().filter(is_here) {
            let is_asked = self.asked.contains(&parked.sequence);
            parked.again_at = parked.again_at.min(if is_asked { now } else { again_at });
            queue.room_tried = Some(again_at);
        }
        self.unpark(now);
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
        if unit.is_some_and(|unit| unit.sequences.iter().any(|it| !self.refused.contains_key(it))) {
            self.parked.remove(&head);
            self.make_ready(head);
        }
    }

    /// The origin refuses it, or it waits for something.
    pub(super) fn is_stuck(&self, sequence: u64) -> bool {
        self.refused.contains_key(&sequence) || !self.depend.is_free(sequence)
    }
}

fn is_of_room(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::QuotaExceeded)
}
