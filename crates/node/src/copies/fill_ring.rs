//! The stripes that were filled here and that nobody was told of yet. Pure: the caller brings the time.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use types::JunctionId;

use crate::copies::HeldStripe;

/// In the order of their first fill, each stripe once. When it is full the oldest ones are forgotten: the next scan finds them.
#[derive(Debug)]
pub struct FillRing {
    max: usize,
    filled: VecDeque<NotedFill>,
    waiting: HashSet<HeldStripe>,
    /// Stripes that were forgotten.
    dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedFill {
    pub stripe: HeldStripe,
    pub junction: JunctionId,
    at: Duration,
}

impl FillRing {
    pub fn new(max: usize) -> FillRing {
        FillRing { max: max.max(1), filled: VecDeque::new(), waiting: HashSet::new(), dropped: 0 }
    }

    pub fn note(&mut self, stripe: HeldStripe, junction: JunctionId, at: Duration) {
        if !self.waiting.insert(stripe) {
            return;
        }
        if self.filled.len() >= self.max
            && let Some(oldest) = self.filled.pop_front()
        {
            self.waiting.remove(&oldest.stripe);
            self.dropped += 1;
        }
        self.filled.push_back(NotedFill { stripe, junction, at });
    }

    /// Takes out those that were noted at `until` at the latest, `max` at most.
    pub fn take(&mut self, until: Duration, max: usize) -> Vec<NotedFill> {
        let due = self.filled.iter().take(max).take_while(|fill| fill.at <= until).count();
        let taken: Vec<NotedFill> = self.filled.drain(..due).collect();
        for fill in &taken {
            self.waiting.remove(&fill.stripe);
        }
        taken
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::tests::stripe;

    const JUNCTION: JunctionId = JunctionId(1);

    #[test]
    fn a_stripe_that_is_filled_in_parts_is_told_once_and_again_when_more_comes() {
        let mut ring = FillRing::new(10);
        let at = Duration::from_secs;
        (0..5).for_each(|second| ring.note(stripe(1), JUNCTION, at(second)));
        ring.note(stripe(2), JUNCTION, at(5));
        assert_eq!(ring.take(at(4), 9).iter().map(|fill| fill.stripe).collect::<Vec<_>>(), [stripe(1)]);
        ring.note(stripe(1), JUNCTION, at(6));
        let rest: Vec<_> = ring.take(at(9), 9).iter().map(|fill| fill.stripe).collect();
        assert_eq!(rest, [stripe(2), stripe(1)]);
        assert!(ring.take(at(99), 9).is_empty() && ring.dropped() == 0);
    }

    #[test]
    fn a_full_ring_forgets_the_oldest_and_says_how_many() {
        let mut ring = FillRing::new(3);
        (0..5).for_each(|n| ring.note(stripe(n), JUNCTION, Duration::ZERO));
        assert_eq!(ring.dropped(), 2);
        assert_eq!(ring.take(Duration::ZERO, 2).len(), 2, "no more than asked for");
        assert_eq!(ring.take(Duration::ZERO, 9)[0].stripe, stripe(4));
        ring.note(stripe(0), JUNCTION, Duration::ZERO);
        assert_eq!(ring.take(Duration::ZERO, 9).len(), 1, "what was forgotten can be noted again");
    }
}
