//! How fast copies are made: a token bucket. Pure: the caller brings the time.

use std::time::Duration;

/// In any time `t` at most `burst + rate * t` bytes are let through, and one request more. Requests are let through in the order in
/// which they came.
#[derive(Debug)]
pub struct RepairBucket {
    /// Bytes per second.
    rate: u64,
    /// Bytes.
    burst: u64,
    /// When all that was let through so far has been paid for.
    paid_at: Duration,
}

impl RepairBucket {
    /// `rate` 0: nothing is let through.
    pub fn new(rate: u64, burst: u64) -> RepairBucket {
        RepairBucket { rate, burst, paid_at: Duration::ZERO }
    }

    /// From now on; what was let through before is paid for at the rate of that time.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Takes `bytes`, and returns how long to wait before they are sent. `None`: for ever.
    pub fn take(&mut self, bytes: u64, now: Duration) -> Option<Duration> {
        if self.rate == 0 {
            return None;
        }
        let due = self.paid_at.max(now.saturating_sub(time_of(self.burst, self.rate)));
        self.paid_at = due.saturating_add(time_of(bytes, self.rate));
        Some(due.saturating_sub(now))
    }

    /// Takes `bytes` if they may be sent now.
    pub fn try_take(&mut self, bytes: u64, now: Duration) -> bool {
        let is_free = self.rate > 0 && self.paid_at <= now;
        is_free && self.take(bytes, now).is_some()
    }
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_let_through_in_a_second_is_the_rate_and_the_burst_once() {
        for (rate, size) in [(10 * MIB, MIB), (10 * MIB, 64 << 10), (MIB, 4 * MIB), (125_000_000, MIB)] {
            let mut bucket = RepairBucket::new(rate, MIB);
            let (mut now, mut sent) = (Duration::from_secs(5), 0);
            let begun = now;
            while now - begun < Duration::from_secs(20) {
                now += bucket.take(size, now).expect("there is a rate");
                sent += size;
                let most = MIB + size + ((now - begun).as_secs_f64() * rate as f64) as u64 + 1;
                assert!(sent <= most, "{sent} of {most} after {:?}", now - begun);
            }
            assert!(sent >= 19 * rate, "it is used: {sent}");
        }
    }

    #[test]
    fn a_pause_saves_up_a_burst_and_no_more() {
        let mut bucket = RepairBucket::new(MIB, MIB);
        let now = Duration::from_secs(3600);
        let sent = (0..).take_while(|_| bucket.try_take(64 << 10, now)).count() as u64 * (64 << 10);
        assert!((MIB..=MIB + (64 << 10)).contains(&sent), "{sent}");
        assert!(!bucket.try_take(1, now) && bucket.try_take(1, now + Duration::from_millis(100)));
    }

    #[test]
    fn without_a_rate_nothing_is_let_through() {
        let mut bucket = RepairBucket::new(0, MIB);
        assert_eq!(bucket.take(1, Duration::from_secs(9)), None);
        assert!(!bucket.try_take(1, Duration::from_secs(9)));
    }
}
