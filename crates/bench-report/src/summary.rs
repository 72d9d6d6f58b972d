//! Repetitions of one quantity, summed up: the median, how sure it is, the noise, and what could be seen above it.
//!
//! The interval is that of order statistics: it assumes nothing about the distribution of run times, whose right tail
//! is long. Its price is that fewer than six repetitions have none: even the whole range of five covers the true
//! median in only 93.75 % of all cases.

pub use crate::distribution::median;
use crate::distribution::{ALPHA, fair_binomial_cdf, sorted, student_t_quantile};
use crate::format;
use crate::model::{Cell, Measure, Point};
use crate::significance::kendall;

/// Below it a median has no 95 % interval.
pub const REPETITIONS_MIN: usize = 6;
/// Probability with which the minimum detectable effect would be detected: the usual one.
const POWER: f64 = 0.8;
/// The rank test needs 3/pi more samples than the t test for the same power, if the noise is normal.
const RANK_TEST_EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;
/// A trend is warned of when chance makes one in so many measures. Stricter than elsewhere, as every measure is asked.
const DRIFT_ALPHA: f64 = 0.01;
/// A trend of less than this fraction is none that anybody acts on, however sure it is.
const DRIFT_MIN: f64 = 0.02;

/// A cell with the median and, from six repetitions on, its interval. Nothing measured is a missing value, not 0.
pub fn estimate(values: &[f64]) -> Cell {
    match median(values) {
        Some(median) => Cell::Estimate { median, interval: median_interval(values), n: values.len() },
        None if values.is_empty() => Cell::missing("not measured"),
        None => Cell::missing("not a finite number"),
    }
}

/// The same for a plot: a point with an error bar. None if nothing was measured.
pub fn point(x: f64, values: &[f64]) -> Option<Point> {
    Some(Point { x, y: median(values)?, interval: median_interval(values) })
}

/// The same as [`estimate`]; where nothing was measured, the cell says why not.
pub fn estimate_or(values: &[f64], why_not: impl Into<String>) -> Cell {
    if values.is_empty() { Cell::missing(why_not) } else { estimate(values) }
}

/// The order statistics that enclose the true median in at least 95 % of all cases; None below six.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values)?;
    let n = sorted.len();
    // The largest number of values to leave out at each end.
    let outside = (0..n / 2).take_while(|&k| 2.0 * fair_binomial_cdf(k, n) <= ALPHA).last()?;
    Some((*sorted.get(outside)?, *sorted.get(n - 1 - outside)?))
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64).filter(|m| m.is_finite())
}

/// Standard deviation / mean, as a fraction; None below two values or at a mean of zero.
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    if values.len() < 2 || mean == 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt() / mean.abs()).filter(|cv| cv.is_finite())
}

/// The noise of a set-up, from groups of repetitions of things that were each the same (A/A): the coefficient of
/// variation pooled over the groups, as a fraction. None if no group has two values.
pub fn noise_floor<'a>(groups: impl IntoIterator<Item = &'a [f64]>) -> Option<f64> {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for group in groups {
        if let Some(cv) = coefficient_of_variation(group) {
            let weight = (group.len() - 1) as f64;
            squares += weight * cv * cv;
            freedom += weight;
        }
    }
    (freedom > 0.0).then(|| (squares / freedom).sqrt())
}

/// The smallest relative change that a comparison of two runs of `n` repetitions each finds four times out of five,
/// when single repetitions vary by `noise` (a coefficient of variation). None below four, where nothing can be found.
pub fn minimum_detectable_effect(noise: f64, n: usize) -> Option<f64> {
    if n < 4 || !noise.is_finite() || noise < 0.0 {
        return None;
    }
    let freedom = (2 * (n - 1)) as f64;
    let quantiles = student_t_quantile(1.0 - ALPHA / 2.0, freedom) + student_t_quantile(POWER, freedom);
    Some(quantiles * noise * (2.0 / (RANK_TEST_EFFICIENCY * n as f64)).sqrt())
}

/// A quantity that changed while it was measured: the median hides it, so it is said.
pub struct Drift {
    /// From the first to the last repetition, along the median slope, as a fraction of the median.
    pub change: f64,
    /// Of a trend at least so strong by chance.
    pub p: f64,
}

/// A trend over the repetitions in the order they were measured (Mann-Kendall, Theil-Sen). Of more than some hundred,
/// over the means of so many blocks.
pub fn drift(values: &[f64]) -> Option<Drift> {
    const BLOCKS: usize = 200;
    let median_value = median(values).filter(|m| *m != 0.0)?;
    let blocks: Vec<f64> = values.chunks(values.len().div_ceil(BLOCKS)).filter_map(mean).collect();
    let values = blocks.as_slice();
    let p = kendall(values)?;
    if p > DRIFT_ALPHA {
        return None;
    }
    let slopes: Vec<f64> = values
        .iter()
        .enumerate()
        .flat_map(|(i, a)| values.iter().enumerate().skip(i + 1).map(move |(j, b)| (b - a) / (j - i) as f64))
        .collect();
    let change = median(&slopes)? * (values.len() - 1) as f64 / median_value.abs();
    (change.abs() >= DRIFT_MIN).then_some(Drift { change, p })
}

pub fn drift_warning(measure: &Measure) -> Option<String> {
    let drift = drift(&measure.values)?;
    Some(format!(
        "{}: changed by {:+.1} % over its {} repetitions ({}): not in a steady state, so its median is between \
         what it was and what it became",
        measure.name,
        drift.change * 100.0,
        measure.values.len(),
        format::p_value(drift.p),
    ))
}

#[cfg(test)]
mod tests;
