//! Which stripe is copied to this node next, and from whom. Pure: the caller brings the time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use peer::message::FeedReason;
use types::{JunctionId, NodeId};

use crate::copies::HeldStripe;

/// A stripe that lies elsewhere is told again by a later feed; it is not tried more often than this in between.
const TRIES_MAX: u32 = 3;
/// A stripe that is told of again while it is copied waits so long.
const AGAIN: Duration = Duration::from_secs(1);

/// A stripe of which another node holds more than this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullJob {
    pub stripe: HeldStripe,
    pub junction: JunctionId,
    /// Who holds it.
    pub source: NodeId,
    /// How much of it the source holds.
    pub percent: u8,
    pub reason: FeedReason,
    pub tries: u32,
}

/// The stripes that are to be copied, those first of which the source holds most: copies that are whole count, and a stripe that is
/// still being filled there can wait. When it is full the least complete one is dropped: a later look at it tells of it anew. Of one
/// source only so many are copied at once, so that one that is slow leaves the rest to others.
#[derive(Debug)]
pub struct PullQueue {
    max: usize,
    per_source: usize,
    jobs: HashMap<HeldStripe, (PullJob, Place)>,
    /// By source, none of them empty.
    order: HashMap<NodeId, BTreeMap<Place, HeldStripe>>,
    /// With their sources.
    in_flight: HashMap<HeldStripe, NodeId>,
    next: u64,
    dropped: u64,
}

/// First those that need not wait, by completeness; then those that wait, by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    not_before: Duration,
    lacking: u8,
    number: u64,
}

impl PullQueue {
    /// `max` stripes wait at most, and `per_source` of one source are in flight.
    pub fn new(max: usize, per_source: usize) -> PullQueue {
        PullQueue {
            max: max.max(1),
            per_source: per_source.max(1),
            jobs: HashMap::new(),
            order: HashMap::new(),
            in_flight: HashMap::new(),
            next: 0,
            dropped: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What is told again takes the place of what was told before, and keeps the better reason.
    pub fn put(&mut self, mut job: PullJob, now: Duration) {
        if let Some((before, place)) = self.jobs.remove(&job.stripe) {
            self.unplace(before.source, &place);
            job.reason = job.reason.max(before.reason);
        }
        let wait = if self.in_flight.contains_key(&job.stripe) { now + AGAIN } else { Duration::ZERO };
        self.insert(job, wait);
    }

    fn insert(&mut self, job: PullJob, not_before: Duration) {
        let place = Place { not_before, lacking: 100 - job.percent.min(100), number: self.next };
        self.next += 1;
        self.jobs.insert(job.stripe, (job, place));
        self.order.entry(job.source).or_default().insert(place, job.stripe);
        if self.jobs.len() > self.max {
            let last = |(node, order): (&NodeId, &BTreeMap<Place, HeldStripe>)| {
                order.last_key_value().map(|(place, stripe)| (*place, *stripe, *node))
            };
            if let Some((place, stripe, source)) = self.order.iter().filter_map(last).max_by_key(|it| it.0) {
                self.unplace(source, &place);
                self.jobs.remove(&stripe);
                self.dropped += 1;
            }
        }
    }

    fn unplace(&mut self, source: NodeId, place: &Place) {
        if let Some(order) = self.order.get_mut(&source) {
            order.remove(place);
            if order.is_empty() {
                self.order.remove(&source);
            }
        }
    }

    /// The next one, which is in flight until [`PullQueue::finished`] or [`PullQueue::failed`].
    pub fn take(&mut self, now: Duration) -> Option<PullJob> {
        self.wake(now);
        let mut of_source: HashMap<NodeId, usize> = HashMap::new();
        for source in self.in_flight.values() {
            *of_source.entry(*source).or_default() += 1;
        }
        let first = |(source, order): (&NodeId, &BTreeMap<Place, HeldStripe>)| {
            let is_free = of_source.get(source).is_none_or(|busy| *busy < self.per_source);
            let (place, stripe) = order.first_key_value().filter(|_| is_free)?;
            (place.not_before <= now).then_some((*place, *stripe, *source))
        };
        let (place, stripe, source) = self.order.iter().filter_map(first).min_by_key(|it| it.0)?;
        self.unplace(source, &place);
        let (job, _) = self.jobs.remove(&stripe)?;
        self.in_flight.insert(stripe, source);
        Some(job)
    }

    /// Those that have waited long enough get their place by completeness.
    fn wake(&mut self, now: Duration) {
        let waits = Place { not_before: Duration::from_nanos(1), lacking: 0, number: 0 };
        for order in self.order.values_mut() {
            let due = order.range(waits..).take_while(|(place, _)| place.not_before <= now);
            let due: Vec<(Place, HeldStripe)> = due.map(|(place, stripe)| (*place, *stripe)).collect();
            for (place, stripe) in due {
                let is_busy = self.in_flight.contains_key(&stripe);
                let not_before = if is_busy { now + AGAIN } else { Duration::ZERO };
                let Some((_, at)) = self.jobs.get_mut(&stripe) else { continue };
                *at = Place { not_before, ..place };
                order.remove(&place);
                order.insert(*at, stripe);
            }
        }
    }

    pub fn finished(&mut self, stripe: &HeldStripe) {
        self.in_flight.remove(stripe);
    }

    /// It is tried again after `wait`, unless that was the last try or it was told of anew.
    pub fn failed(&mut self, job: PullJob, wait: Duration, now: Duration) {
        self.in_flight.remove(&job.stripe);
        if job.tries + 1 < TRIES_MAX && !self.jobs.contains_key(&job.stripe) {
            self.insert(PullJob { tries: job.tries + 1, ..job }, now + wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::tests::stripe;

    fn job(n: u64, percent: u8) -> PullJob {
        let (junction, source) = (JunctionId(1), NodeId(9));
        PullJob { stripe: stripe(n), junction, source, percent, reason: FeedReason::Read, tries: 0 }
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn order(queue: &mut PullQueue, now: Duration) -> Vec<u64> {
        std::iter::from_fn(|| queue.take(now)).map(|job| job.stripe.index).collect()
    }

    #[test]
    fn the_most_complete_stripe_comes_first_and_of_equal_ones_the_first_that_was_told() {
        let mut queue = PullQueue::new(10, 9);
        [(1, 50), (2, 100), (3, 99), (4, 100)].iter().for_each(|(n, full)| queue.put(job(*n, *full), at(0)));
        queue.put(job(1, 100), at(0));
        assert_eq!(queue.len(), 4);
        assert_eq!(order(&mut queue, at(0)), [2, 4, 1, 3]);
    }

    #[test]
    fn a_full_queue_drops_the_least_complete() {
        let mut queue = PullQueue::new(3, 9);
        [(1, 50), (2, 100), (3, 7), (4, 60), (5, 1)]
            .iter()
            .for_each(|(n, full)| queue.put(job(*n, *full), at(0)));
        assert_eq!(queue.dropped(), 2);
        assert_eq!(order(&mut queue, at(0)), [2, 4, 1]);
    }

    #[test]
    fn a_stripe_is_copied_once_at_a_time_and_what_failed_is_tried_three_times() {
        let mut queue = PullQueue::new(9, 9);
        queue.put(job(1, 100), at(0));
        let first = queue.take(at(0)).expect("it is there");
        queue.put(PullJob { reason: FeedReason::Filled, ..job(1, 100) }, at(0));
        assert_eq!(queue.take(at(999)), None, "it is in flight");
        assert_eq!(queue.take(at(1500)), None, "it still is");
        queue.finished(&first.stripe);
        let again = queue.take(at(2600)).expect("more was told of it");
        assert_eq!(again.reason, FeedReason::Filled);
        queue.failed(again, at(500), at(3000));
        assert_eq!(queue.take(at(3400)), None);
        let second = queue.take(at(3500)).expect("once more");
        queue.failed(second, at(500), at(4000));
        let third = queue.take(at(4500)).expect("once more");
        assert_eq!(third.tries, 2);
        queue.failed(third, at(500), at(5000));
        assert_eq!((queue.take(at(99_000)), queue.len()), (None, 0));
    }

    #[test]
    fn what_waits_holds_up_nothing_that_need_not() {
        let mut queue = PullQueue::new(9, 9);
        queue.put(job(1, 100), at(0));
        let first = queue.take(at(0)).expect("there");
        queue.failed(first, at(10_000), at(0));
        queue.put(job(2, 1), at(0));
        assert_eq!(order(&mut queue, at(1)), [2]);
        assert_eq!(order(&mut queue, at(10_000)), [1]);
    }

    #[test]
    fn a_source_that_is_slow_leaves_room_for_the_others() {
        let mut queue = PullQueue::new(100, 2);
        (0..50).for_each(|n| queue.put(job(n, 100), at(0)));
        let other = NodeId(7);
        (50..53).for_each(|n| queue.put(PullJob { source: other, ..job(n, 1) }, at(0)));
        let taken: Vec<PullJob> = std::iter::from_fn(|| queue.take(at(0))).collect();
        assert_eq!(taken.iter().map(|job| job.stripe.index).collect::<Vec<_>>(), [0, 1, 50, 51]);
        queue.finished(&stripe(50));
        assert_eq!(queue.take(at(0)).map(|job| job.stripe.index), Some(52));
        queue.failed(taken[0], at(10), at(0));
        assert_eq!(order(&mut queue, at(0)), [2], "one of the first source may be copied again");
        // One that is told of by another node is copied from there.
        queue.put(PullJob { source: other, ..job(3, 100) }, at(0));
        queue.finished(&stripe(51));
        assert_eq!(queue.take(at(0)).map(|job| (job.stripe.index, job.source)), Some((3, other)));
    }
}
