//! The median, and the distributions that intervals and tests need: normal, Student's t, binomial with p = 1/2.
//!
//! Quantiles are found by bisection of the distribution function: some hundred evaluations, which nobody notices
//! in a report, and nothing to get wrong.

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

/// P(Z <= z).
pub fn normal_cdf(z: f64) -> f64 {
    let tail = normal_upper_tail(z.abs());
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// P(Z > z) for z >= 0: by its series near the middle, by its continued fraction far out.
fn normal_upper_tail(z: f64) -> f64 {
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 4.0 {
        let (mut term, mut sum) = (z, z);
        for odd in (3..200).step_by(2) {
            term *= z * z / f64::from(odd);
            sum += term;
        }
        return 0.5 - density * sum;
    }
    density / (1..100).rev().fold(z, |below, k| z + f64::from(k) / below)
}

/// The z with P(Z <= z) = `p`, for 0 < p < 1.
pub fn normal_quantile(p: f64) -> f64 {
    quantile(p, normal_cdf)
}

/// P(T <= t) with `freedom` degrees of freedom.
pub fn student_t_cdf(t: f64, freedom: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The t with P(T <= t) = `p`, for 0 < p < 1.
pub fn student_t_quantile(p: f64, freedom: f64) -> f64 {
    quantile(p, |t| student_t_cdf(t, freedom))
}

/// P(X <= k) of n fair coins.
pub fn fair_binomial_cdf(k: usize, n: usize) -> f64 {
    if k >= n {
        return 1.0;
    }
    let ln_total = n as f64 * 2f64.ln();
    let ln_choose = |i: usize| {
        ln_gamma(n as f64 + 1.0) - ln_gamma(i as f64 + 1.0) - ln_gamma((n - i) as f64 + 1.0) - ln_total
    };
    (0..=k).map(|i| ln_choose(i).exp()).sum::<f64>().min(1.0)
}

fn quantile(p: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (-1.0, 1.0);
    // One degree of freedom has very long tails; 2^60 is beyond any level used here.
    for _ in 0..60 {
        if cdf(low) > p {
            low *= 2.0;
        }
        if cdf(high) < p {
            high *= 2.0;
        }
    }
    for _ in 0..120 {
        let middle = 0.5 * (low + high);
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Lanczos' approximation (g = 7, nine terms): 15 digits for x > 0.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.5203681218851,
        -1259.1392167224028,
        771.3234287776531,
        -176.6150291621406,
        12.507343278686905,
        -0.13857109526572012,
        9.984369578019572e-6,
        1.5056327351493116e-7,
    ];
    let x = x - 1.0;
    let base = x + 7.5;
    let series =
        TERMS.iter().enumerate().fold(0.9999999999998099, |sum, (i, term)| sum + term / (x + i as f64 + 1.0));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * base.ln() - base + series.ln()
}

/// I_x(a, b), by the continued fraction.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let ln_beta = ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    let front = (a * x.ln() + b * (-x).ln_1p() - ln_beta).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a) / b
    }
}

/// Lentz' evaluation of the continued fraction of the incomplete beta function.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            result *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
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
        close(normal_quantile(0.975), 1.959964, 1e-6);
        close(normal_quantile(0.5), 0.0, 1e-9);
    }

    #[test]
    fn tails_are_those_of_the_tables() {
        close(normal_cdf(1.0), 0.841344746, 1e-8);
        close(normal_cdf(-3.0), 0.001349898, 1e-8);
        close(student_t_cdf(2.0, 5.0), 0.949030, 1e-6);
        close(fair_binomial_cdf(0, 5), 0.03125, 1e-12);
        close(fair_binomial_cdf(4, 20), 0.005908966, 1e-9);
        close(fair_binomial_cdf(20, 20), 1.0, 1e-12);
    }
}
