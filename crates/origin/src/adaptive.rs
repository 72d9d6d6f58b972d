//! How many reads may an origin have at once? Pure: what calls took goes in, a number comes out.
//!
//! More while all room is used and answers come in time; less, once per round trip, when they come late (a queue
//! somewhere: more calls would only make it longer) or not at all. Also: when is an answer so late that the call is
//! worth sending again?

use std::time::Duration;

/// An answer is late when it took this many times the least latency, and then some: two windows of read-ahead on a full
/// line are not late.
const LATE_TIMES: u32 = 4;
const LATE_EXTRA: Duration = Duration::from_millis(250);
const LESS_WHEN_LATE: f64 = 0.9;
const LESS_WHEN_FAILED: f64 = 0.6;
/// Weight of a new answer in the mean and in the mean deviation: TCP's (RFC 6298).
const MEAN_GAIN: f64 = 1.0 / 8.0;
const SPREAD_GAIN: f64 = 1.0 / 4.0;
/// A straggler is this many mean deviations above the mean, and twice the mean.
const STRAGGLER_SPREADS: f64 = 6.0;
/// Answers before the mean means anything.
const ANSWERS_MIN: u64 = 20;
/// One call of this many may be sent again: the bytes fetched twice stay well below one in a hundred.
const AGAIN_SHARE: u64 = 200;
const AGAIN_EXTRA: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotBounds {
    pub least: usize,
    pub most: usize,
}

#[derive(Clone, Debug)]
pub struct Adaptive {
    bounds: SlotBounds,
    limit: f64,
    /// Never less since: before it grows by one call per answer (doubling in a round trip), after it by one call per
    /// round trip.
    was_less: bool,
    /// Not less again before.
    hold_until: Duration,
    mean: f64,
    spread: f64,
    answers: u64,
    again: u64,
}

impl Adaptive {
    pub fn new(start: usize, bounds: SlotBounds) -> Adaptive {
        let limit = start.clamp(bounds.least, bounds.most) as f64;
        Adaptive {
            bounds,
            limit,
            was_less: false,
            hold_until: Duration::ZERO,
            mean: 0.0,
            spread: 0.0,
            answers: 0,
            again: 0,
        }
    }

    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// An answer took `took`; `least` is the origin's latency, `used` the calls under way with it.
    pub fn answered(&mut self, took: Duration, least: Duration, used: usize, now: Duration) {
        let seconds = took.as_secs_f64();
        if self.answers == 0 {
            (self.mean, self.spread) = (seconds, seconds / 2.0);
        }
        self.answers += 1;
        self.spread += (seconds - self.mean).abs().mul_add(SPREAD_GAIN, -self.spread * SPREAD_GAIN);
        self.mean += (seconds - self.mean) * MEAN_GAIN;
        if took > least * LATE_TIMES + LATE_EXTRA {
            // With little under way, it is not our queue that makes it late.
            if used * 2 >= self.limit() {
                self.less(LESS_WHEN_LATE, took, now);
            }
        } else if used + 1 >= self.limit() {
            self.limit += if self.was_less { 1.0 / self.limit } else { 1.0 };
            self.limit = self.limit.min(self.bounds.most as f64);
        }
    }

    /// The origin did not answer, or said that it is busy.
    pub fn failed(&mut self, least: Duration, now: Duration) {
        self.less(LESS_WHEN_FAILED, least, now);
    }

    fn less(&mut self, factor: f64, round_trip: Duration, now: Duration) {
        if now >= self.hold_until {
            self.limit = (self.limit * factor).max(self.bounds.least as f64);
            self.was_less = true;
            self.hold_until = now + round_trip;
        }
    }

    /// After how long is a call worth sending again? `None`: not now.
    pub fn straggles_after(&self) -> Option<Duration> {
        let may = self.answers >= ANSWERS_MIN && self.again * AGAIN_SHARE < self.answers;
        let after = (self.mean + STRAGGLER_SPREADS * self.spread).max(self.mean * 2.0);
        may.then(|| Duration::from_secs_f64(after.clamp(0.0, 3600.0)) + AGAIN_EXTRA)
    }

    /// A call is about to be sent again; false if others were quicker to use the allowance.
    pub fn take_again(&mut self) -> bool {
        let may = self.answers >= ANSWERS_MIN && self.again * AGAIN_SHARE < self.answers;
        self.again += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SlotBounds = SlotBounds { least: 8, most: 1024 };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// An origin that serves `rate` calls per second, `rtt` away, with all room used: the limit after `seconds`.
    fn settle(rate: f64, rtt: f64, seconds: f64) -> usize {
        let mut adaptive = Adaptive::new(128, BOUNDS);
        let mut now = 0.0;
        while now < seconds {
            let used = adaptive.limit();
            // Little's law: what is under way beyond the line's own waits in a queue.
            let took = rtt.max(used as f64 / rate);
            now += 1.0 / rate;
            let took = Duration::from_secs_f64(took);
            let now = Duration::from_secs_f64(now);
            adaptive.answered(took, Duration::from_secs_f64(rtt), used, now);
        }
        adaptive.limit()
    }

    #[test]
    fn the_limit_holds_what_fills_the_line_and_no_endless_queue() {
        for (rate, rtt) in [(240.0, 0.221), (240.0, 0.002), (2400.0, 0.221), (24.0, 0.07), (2000.0, 0.07)] {
            let limit = settle(rate, rtt, 60.0) as f64;
            let fills = (rate * rtt).min(1000.0);
            let late = rate * (rtt * 4.0 + 0.25);
            assert!(limit >= fills, "{rate}/s at {rtt} s: {limit} do not fill it ({fills})");
            assert!(
                limit <= late.max(8.0) * 1.3 + 2.0,
                "{rate}/s at {rtt} s: {limit} queue (late at {late})"
            );
        }
    }

    #[test]
    fn room_that_is_not_used_does_not_grow() {
        let mut adaptive = Adaptive::new(128, BOUNDS);
        for n in 0..10_000 {
            adaptive.answered(ms(10), ms(10), 3, ms(n));
        }
        assert_eq!(adaptive.limit(), 128);
    }

    #[test]
    fn a_burst_of_failures_counts_once_and_many_bursts_leave_the_least() {
        let mut adaptive = Adaptive::new(100, BOUNDS);
        for _ in 0..50 {
            adaptive.failed(ms(70), ms(1000));
        }
        assert_eq!(adaptive.limit(), 60);
        for n in 0..100 {
            adaptive.failed(ms(70), ms(2000 + n * 100));
        }
        assert_eq!(adaptive.limit(), BOUNDS.least);
    }

    #[test]
    fn only_a_few_stragglers_are_sent_again() {
        let mut adaptive = Adaptive::new(100, BOUNDS);
        assert_eq!(adaptive.straggles_after(), None, "nothing is known yet");
        for n in 0..1000 {
            adaptive.answered(ms(70 + n % 5), ms(70), 10, ms(n * 10));
        }
        let after = adaptive.straggles_after().expect("known by now");
        assert!(after > ms(140) && after < ms(300), "{after:?}");
        let sent = (0..1000).filter(|_| adaptive.take_again()).count();
        assert_eq!(sent, 5, "one in {AGAIN_SHARE}");
        assert_eq!(adaptive.straggles_after(), None);
    }
}
