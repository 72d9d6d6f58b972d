//! Draws from a Zipf distribution without a table: rejection-inversion (Hormann and Derflinger, 1996).
//!
//! A rank comes from inverting the integral of 1 / x^theta and is accepted nearly always; ranks are 1..=n.

/// Far beyond what the acceptance rate (above 70 % everywhere) ever needs.
const ATTEMPTS_MAX: u64 = 64;

pub struct Zipf {
    n: f64,
    theta: f64,
    /// The integral's values at the ends.
    low: f64,
    high: f64,
    /// Ranks closer than this to the drawn point need no further test.
    sure: f64,
}

impl Zipf {
    /// `n` of at least 1.
    pub fn new(n: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { n: n.max(1) as f64, theta, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.n + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    fn integral(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        // The quotient loses its digits near theta = 1; the logarithm is its limit.
        if exponent.abs() < 1e-9 { x.ln() } else { (exponent * x.ln()).exp_m1() / exponent }
    }

    fn inverse(&self, y: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        if exponent.abs() < 1e-9 {
            return y.exp();
        }
        ((y * exponent).max(-1.0).ln_1p() / exponent).exp()
    }

    /// A rank from 0 on; `uniform(i)` gives the i-th number of [0, 1) that this draw may use.
    pub fn rank(&self, uniform: impl Fn(u64) -> f64) -> u64 {
        for attempt in 0..ATTEMPTS_MAX {
            let u = self.high + uniform(attempt) * (self.low - self.high);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.sure || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::mix_all;

    fn uniform(seed: u64, draw: u64) -> impl Fn(u64) -> f64 {
        move |attempt| (mix_all(&[seed, draw, attempt]) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn frequencies_follow_the_law() {
        const DRAWS: u64 = 200_000;
        for theta in [0.5, 0.99, 1.0, 1.5] {
            let (n, zipf) = (50_u64, Zipf::new(50, theta));
            let mut counts = vec![0_u64; n as usize];
            for draw in 0..DRAWS {
                counts[zipf.rank(uniform(5, draw)) as usize] += 1;
            }
            let sum: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            for (rank, count) in counts.iter().enumerate() {
                let wanted = (rank as f64 + 1.0).powf(-theta) / sum * DRAWS as f64;
                // Five standard deviations of a binomial count; the draws are fixed, so this never wavers.
                let room = 5.0 * wanted.sqrt() + 5.0;
                assert!(
                    (*count as f64 - wanted).abs() < room,
                    "theta {theta} rank {rank}: {count} of {wanted}"
                );
            }
        }
    }

    #[test]
    fn the_smallest_and_the_largest_sets_work() {
        for n in [1, 2, 1 << 40] {
            let zipf = Zipf::new(n, 0.99);
            assert!((0..1000).all(|draw| zipf.rank(uniform(1, draw)) < n));
        }
    }
}
