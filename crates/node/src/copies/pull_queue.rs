//! Which stripe is copied to this node next. Pure: the caller brings the time.

use std::collections::{BTreeMap, HashMap, HashSet};
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
/// still being filled there can wait. When it is full the least complete one is dropped: a later look at it tells of it anew.
#[derive(Debug)]
pub struct PullQueue {
    max: usize,
    jobs: HashMap<HeldStripe, (PullJob, Place)>,
    order: BTreeMap<Place, HeldStripe>,
    in_flight: HashSet<HeldStripe>,
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
    pub fn new(max: usize) -> PullQueue {
        PullQueue {
            max: max.max(1),
            jobs: HashMap::new(),
            order: BTreeMap::new(),
            in_flight: HashSet::new(),
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
            self.order.remove(&place);
            job.reason = job.reason.max(before.reason);
        }
        let wait = if self.in_flight.contains(&job.stripe) { now + AGAIN } else { Duration::ZERO };
        self.insert(job, wait);
    }

    fn insert(&mut self, job: PullJob, not_before: Duration) {
        let place = Place { not_before, lacking: 100 - job.percent.min(100), number: self.next };
        self.next += 1;
        self.jobs.insert(job.stripe, (job, place));
        self.order.insert(place, job.stripe);
        if self.jobs.len() > self.max
            && let Some((_, last)) = self.order.pop_last()
        {
            self.jobs.remove(&last);
            self.dropped += 1;
        }
    }

    /// The next one, which is in flight until [`PullQueue::finished`] or [`PullQueue::failed`].
    pub fn take(&mut self, now: Duration) -> Option<PullJob> {
        self.wake(now);
        let (place, stripe) = self.order.first_key_value()?;
        if place.not_before > now {
            return None;
        }
        let (place, stripe) = (*place, *stripe);
        self.order.remove(&place);
        let (job, _) = self.jobs.remove(&stripe)?;
        self.in_flight.insert(stripe);
        Some(job)
    }

    /// Those that have waited long enough get their place by completeness.
    fn wake(&mut self, now: Duration) {
        let waits = Place { not_before: Duration::from_nanos(1), lacking: 0, number: 0 };
        let due = self.order.range(waits..).take_while(|(place, _)| place.not_before <= now);
        let due: Vec<(Place, HeldStripe)> = due.map(|(place, stripe)| (*place, *stripe)).collect();
        for (place, stripe) in due {
            let is_busy = self.in_flight.contains(&stripe);
            let not_before = if is_busy { now + AGAIN } else { Duration::ZERO };
            let Some((_, at)) = self.jobs.get_mut(&stripe) else { continue };
            *at = Place { not_before, ..place };
            self.order.remove(&place);
            self.order.insert(Place { not_before, ..place }, stripe);
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
        let mut queue = PullQueue::new(10);
        [(1, 50), (2, 100), (3, 99), (4, 100)].iter().for_each(|(n, full)| queue.put(job(*n, *full), at(0)));
        queue.put(job(1, 100), at(0));
        assert_eq!(queue.len(), 4);
        assert_eq!(order(&mut queue, at(0)), [2, 4, 1, 3]);
    }

    #[test]
    fn a_full_queue_drops_the_least_complete() {
        let mut queue = PullQueue::new(3);
        [(1, 50), (2, 100), (3, 7), (4, 60), (5, 1)]
            .iter()
            .for_each(|(n, full)| queue.put(job(*n, *full), at(0)));
        assert_eq!(queue.dropped(), 2);
        assert_eq!(order(&mut queue, at(0)), [2, 4, 1]);
    }

    #[test]
    fn a_stripe_is_copied_once_at_a_time_and_what_failed_is_tried_three_times() {
        let mut queue = PullQueue::new(9);
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
        let mut queue = PullQueue::new(9);
        queue.put(job(1, 100), at(0));
        let first = queue.take(at(0)).expect("there");
        queue.failed(first, at(10_000), at(0));
        queue.put(job(2, 1), at(0));
        assert_eq!(order(&mut queue, at(1)), [2]);
        assert_eq!(order(&mut queue, at(10_000)), [1]);
    }
}
