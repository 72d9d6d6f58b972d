//! The median, and the distributions that intervals and tests need: normal, Student's t, binomial with p = 1/2.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

/// Two-sided, of every interval and test here.
pub const CONFIDENCE: f64 = 0.95;
/// What is called significant.
pub const ALPHA: f64 = 1.0 - CONFIDENCE;

/// None without values, or if one is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(lower + (upper - lower) / 2.0)
}

/// None without values, or if one is not finite.
pub(crate) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// The smallest and the largest; infinite where there is none.
pub(crate) fn extremes(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let outside = (f64::INFINITY, f64::NEG_INFINITY);
    values.into_iter().fold(outside, |(low, high), value| (low.min(value), high.max(value)))
}

/// P(Z <= z).
pub fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// The z with P(Z <= z) = `p`, for 0 < p < 1.
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// With more degrees of freedom Student's t is the normal distribution, to four digits and more.
const FREEDOM_MAX: f64 = 10_000.0;

/// The t with P(T <= t) = `p` with `freedom` degrees of freedom, which must be positive, for 0 < p < 1.
pub fn student_t_quantile(p: f64, freedom: f64) -> f64 {
    if freedom > FREEDOM_MAX {
        return normal_quantile(p);
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |distribution| distribution.inverse_cdf(p))
}

/// P(X <= k) of n fair coins.
pub fn fair_binomial_cdf(k: usize, n: usize) -> f64 {
    Binomial::new(0.5, n as u64).map_or(f64::NAN, |distribution| distribution.cdf(k as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() < tolerance, "{a} is not {b}");
    }

    /// Against printed tables.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        close(student_t_quantile(0.975, 1.0), 12.7062, 1e-4);
        close(student_t_quantile(0.975, 2.0), 4.302653, 1e-6);
        close(student_t_quantile(0.975, 10.0), 2.228139, 1e-6);
        close(student_t_quantile(0.8, 14.0), 0.868055, 1e-6);
        close(student_t_quantile(0.025, 30.0), -2.042272, 1e-6);
        close(student_t_quantile(0.975, FREEDOM_MAX), student_t_quantile(0.975, 1e9), 1e-3);
        close(normal_quantile(0.975), 1.959964, 1e-6);
        close(normal_quantile(0.5), 0.0, 1e-9);
    }

    #[test]
    fn tails_are_those_of_the_tables() {
        close(normal_cdf(1.0), 0.841344746, 1e-8);
        close(normal_cdf(-3.0), 0.001349898, 1e-8);
        close(fair_binomial_cdf(0, 5), 0.03125, 1e-12);
        close(fair_binomial_cdf(4, 20), 0.005908966, 1e-9);
        close(fair_binomial_cdf(20, 20), 1.0, 1e-12);
    }
}
