//! The fleet's time: the coordinator's clock, as each member knows it, with the bound of its error.
//!
//! Each clock counts nanoseconds of the monotonic clock since the process joined. A member learns the difference by
//! exchanges of four times: sent (member), received and answered (coordinator), arrived (member). The true difference
//! lies within half the round trip of the middle, whatever the two directions cost: that is the bound, and the
//! exchange with the smallest one is used. An older one counts for less, as clocks drift.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Quartz is specified within 50 parts in a million; two of them may run apart at twice that.
const DRIFT: u64 = 10_000; // one part in this many
/// Exchanges remembered: half a minute of heartbeats, or a few barriers.
const EXCHANGES: usize = 32;

/// An instant in the fleet's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetInstant {
    /// Since the coordinator's clock began.
    pub at: Duration,
    /// The true time lies within this, both ways.
    pub error_bound: Duration,
}

/// The distance in time at which the ranks really left a barrier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    pub name: String,
    /// From the first rank to the last.
    pub spread: Duration,
    /// The clocks may make the spread wrong by this much, both ways.
    pub error_bound: Duration,
}

impl Skew {
    /// From when each rank left, in their order.
    pub fn of(name: &str, woke: &[FleetInstant]) -> Skew {
        let times = || woke.iter().map(|woke| woke.at);
        let spread = times().max().unwrap_or_default() - times().min().unwrap_or_default();
        // The first and the last may both be wrong, each by its own bound; the two worst are the bound of all pairs.
        let mut errors: Vec<Duration> = woke.iter().map(|woke| woke.error_bound).collect();
        errors.sort_unstable_by(|a, b| b.cmp(a));
        let error_bound = errors.iter().take(2).sum();
        Skew { name: name.to_owned(), spread, error_bound }
    }
}

/// Times of one question and its answer, all in one unit: `sent` and `arrived` of the asker's clock, `received` and `answered`
/// of the other's. Those of a member are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub sent: u64,
    pub received: u64,
    pub answered: u64,
    pub arrived: u64,
}

#[derive(Clone, Copy)]
struct Estimate {
    /// Member's time at which it was made.
    at: u64,
    /// The coordinator's clock less the member's.
    offset: i128,
    error: u64,
    round_trip: u64,
}

pub struct FleetClock {
    epoch: Instant,
    estimates: Mutex<VecDeque<Estimate>>,
    /// The coordinator's own process: nothing to estimate.
    exact: bool,
}

impl Exchange {
    /// Nothing from times that cannot be.
    fn estimate(&self) -> Option<Estimate> {
        let away = self.arrived.checked_sub(self.sent)?;
        let there = self.answered.checked_sub(self.received)?;
        let round_trip = away.checked_sub(there)?;
        let offset = (i128::from(self.received) - i128::from(self.sent) + i128::from(self.answered)
            - i128::from(self.arrived))
            / 2;
        // Rounded up, and never zero: nanoseconds were cut off.
        Some(Estimate { at: self.arrived, offset, error: round_trip / 2 + 1, round_trip })
    }
}

impl FleetClock {
    /// Of a member that learns the coordinator's time by exchanges.
    pub fn starting_at(epoch: Instant) -> FleetClock {
        FleetClock { epoch, estimates: Mutex::default(), exact: false }
    }

    /// Of the coordinator's own process.
    pub fn exact(epoch: Instant) -> FleetClock {
        FleetClock { epoch, estimates: Mutex::default(), exact: true }
    }

    /// Nanoseconds of this process's clock.
    pub fn local(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.epoch))
    }

    fn estimates(&self) -> MutexGuard<'_, VecDeque<Estimate>> {
        self.estimates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn learn(&self, exchange: Exchange) {
        let Some(estimate) = exchange.estimate() else { return };
        let mut estimates = self.estimates();
        estimates.push_back(estimate);
        if estimates.len() > EXCHANGES {
            estimates.pop_front();
        }
    }

    /// The shortest round trip seen lately, in nanoseconds: how long a message takes when nothing is in its way.
    pub fn round_trip(&self) -> u64 {
        self.estimates().iter().map(|e| e.round_trip).min().unwrap_or(0)
    }

    /// `instant` in the fleet's time. Before the first exchange the error has no bound.
    pub fn stamp(&self, instant: Instant) -> FleetInstant {
        let local = self.local(instant);
        let (offset, error) = self.best(local);
        let at = u64::try_from((i128::from(local) + offset).max(0)).unwrap_or(u64::MAX);
        FleetInstant { at: Duration::from_nanos(at), error_bound: Duration::from_nanos(error) }
    }

    /// When this process's clock shows what the fleet's does at `at` nanoseconds, seen from `now`.
    pub fn instant_of(&self, at: u64, now: Instant) -> Instant {
        let (offset, _) = self.best(self.local(now));
        let local = u64::try_from((i128::from(at) - offset).max(0)).unwrap_or(0);
        self.epoch.checked_add(Duration::from_nanos(local)).unwrap_or(now)
    }

    fn best(&self, local: u64) -> (i128, u64) {
        if self.exact {
            return (0, 0);
        }
        let aged = |e: &Estimate| e.error.saturating_add(local.abs_diff(e.at) / DRIFT);
        let estimates = self.estimates();
        let best = estimates.iter().min_by_key(|e| aged(e));
        best.map_or((0, u64::MAX), |e| (e.offset, aged(e)))
    }
}

pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coordinator whose clock is `offset` ahead; `there` and `back` nanoseconds away.
    fn exchange(sent: u64, offset: u64, there: u64, back: u64) -> Exchange {
        let received = sent + there + offset;
        let answered = received + 50;
        Exchange { sent, received, answered, arrived: answered - offset + back }
    }

    #[test]
    fn the_true_offset_lies_within_the_bound_whatever_the_directions_cost() {
        for (there, back) in [(1000, 1000), (10, 90_000), (90_000, 10), (0, 0)] {
            let epoch = Instant::now();
            let clock = FleetClock::starting_at(epoch);
            clock.learn(exchange(1_000_000, 7_000_000, there, back));
            let stamp = clock.stamp(epoch + Duration::from_nanos(1_100_000));
            let error = stamp.at.abs_diff(Duration::from_nanos(8_100_000));
            assert!(error <= stamp.error_bound, "{there} {back}: {error:?} of {stamp:?}");
            assert!(stamp.error_bound <= Duration::from_nanos((there + back) / 2 + 20));
        }
    }

    #[test]
    fn the_shortest_exchange_counts_until_it_is_old() {
        let epoch = Instant::now();
        let clock = FleetClock::starting_at(epoch);
        clock.learn(exchange(1000, 500, 100, 100));
        clock.learn(exchange(5000, 900, 40_000, 40_000));
        assert_eq!(clock.stamp(epoch + Duration::from_nanos(6000)).at, Duration::from_nanos(6500));
        // Ten seconds later a drift of 1 ms is possible, so that the newer, longer one is better.
        clock.learn(exchange(10_000_000_000, 900, 40_000, 40_000));
        let late = clock.stamp(epoch + Duration::from_nanos(10_000_100_000));
        assert_eq!(late.at, Duration::from_nanos(10_000_100_900));
    }

    #[test]
    fn an_instant_goes_to_the_fleets_time_and_back() {
        let epoch = Instant::now();
        let clock = FleetClock::starting_at(epoch);
        clock.learn(exchange(1000, 77_000, 100, 100));
        let instant = epoch + Duration::from_micros(300);
        let at = nanoseconds(clock.stamp(instant).at);
        assert_eq!(clock.instant_of(at, instant), instant);
    }

    #[test]
    fn times_that_cannot_be_are_not_learnt() {
        let epoch = Instant::now();
        let clock = FleetClock::starting_at(epoch);
        clock.learn(Exchange { sent: 10, received: 5, answered: 4, arrived: 20 });
        clock.learn(Exchange { sent: 10, received: 5, answered: 500, arrived: 20 });
        clock.learn(Exchange { sent: 10, received: 0, answered: u64::MAX, arrived: 9 });
        assert_eq!(clock.stamp(epoch).error_bound, Duration::from_nanos(u64::MAX));
        clock.learn(Exchange { sent: 0, received: u64::MAX, answered: u64::MAX, arrived: u64::MAX });
        let _ = (clock.stamp(epoch), clock.instant_of(u64::MAX, epoch), clock.instant_of(0, epoch));
    }

    #[test]
    fn the_skew_is_from_the_first_to_the_last_with_the_two_worst_errors() {
        let woke = [(1_000_000, 0), (1_000_300, 7), (1_000_100, 5)].map(|(at, error)| FleetInstant {
            at: Duration::from_nanos(at),
            error_bound: Duration::from_nanos(error),
        });
        let skew = Skew::of("go", &woke);
        assert_eq!((skew.spread, skew.error_bound), (Duration::from_nanos(300), Duration::from_nanos(12)));
        assert_eq!(skew.name, "go");
        assert_eq!(Skew::of("alone", &woke[..1]).spread, Duration::ZERO);
    }
}
