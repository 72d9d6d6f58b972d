//! The variation of a line's delay, from a seed: a run can be repeated.

use std::time::{Duration, Instant};

/// Uniform over `spread`, centred on the delay it varies.
#[derive(Clone, Debug, Default)]
pub struct Jitter {
    spread: Duration,
    random: SplitMix,
}

impl Jitter {
    /// `spread`: from the earliest to the latest, in one direction.
    pub fn new(spread: Duration, seed: u64) -> Jitter {
        Jitter { spread, random: SplitMix::new(seed) }
    }

    /// `from` plus `delay`, varied; never before `from`.
    pub fn vary(&mut self, from: Instant, delay: Duration) -> Instant {
        if self.spread.is_zero() {
            return from + delay;
        }
        let varied = delay.as_secs_f64() + (self.random.unit() - 0.5) * self.spread.as_secs_f64();
        from + Duration::from_secs_f64(varied.max(0.0))
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for jitter, for which connection breaks next and for what comes first.
#[derive(Clone, Debug, Default)]
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Every order is as likely as any other, but for what 2^64 leaves over.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.draw() % (last as u64 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }

    /// The gap to the next of events that happen `per_hour` times an hour, independently of each other.
    pub fn gap(&mut self, per_hour: f64) -> Duration {
        // 1 - unit() is never 0, so the logarithm is finite; a century is longer than any run.
        let hours = (-(1.0 - self.unit()).ln() / per_hour).clamp(0.0, 876_600.0);
        Duration::from_secs_f64(hours * 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_centred_and_never_before_the_beginning() {
        let (start, delay) = (Instant::now(), Duration::from_millis(10));
        let mut jitter = Jitter::new(Duration::from_millis(4), 1);
        let delays: Vec<f64> =
            (0..10_000).map(|_| jitter.vary(start, delay).duration_since(start).as_secs_f64()).collect();
        let mean = delays.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.010).abs() < 0.0001, "{mean}");
        assert!(delays.iter().all(|d| (0.008..=0.012).contains(d)));
        assert!(delays.iter().any(|d| *d < 0.0085) && delays.iter().any(|d| *d > 0.0115));
        let mut wide = Jitter::new(Duration::from_secs(1), 1);
        assert!((0..100).all(|_| wide.vary(start, delay) >= start));
    }

    #[test]
    fn gaps_have_the_mean_of_their_rate() {
        let mut random = SplitMix::new(7);
        let mean = (0..20_000).map(|_| random.gap(60.0).as_secs_f64()).sum::<f64>() / 20_000.0;
        assert!((mean - 60.0).abs() < 2.0, "once a minute, measured {mean} s");
    }
}
