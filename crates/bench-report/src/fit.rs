//! Straight lines through measurements: time against distance, with the doubt about each coefficient.
//!
//! The slope of seconds over seconds of round trip is a count: the serial round trips of the job. The fit with three
//! terms, T = a + n * RTT + bytes / BW, separates them from the time that the bytes take; a term that did not vary in
//! the measurements is not fitted, and two that varied together are refused instead of told apart by luck.

use crate::distribution::{CONFIDENCE, extremes, student_t_quantile};
use crate::model::Cell;

/// Two predictors whose correlation leaves less than this share of their variance are not told apart.
const SEPARATE_MIN: f64 = 1e-6;
/// A predictor that varies by less than this fraction of its mean does not vary.
const VARIATION_MIN: f64 = 1e-9;

/// A fitted number and its 95 % interval, None where the points leave no degree of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficient {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
}

/// y = intercept + slope * x, by ordinary least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedLine {
    pub intercept: Coefficient,
    pub slope: Coefficient,
    /// Share of the variance of y that the line explains.
    pub r2: f64,
    pub n: usize,
}

/// One measured job of the fit with three terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    pub rtt_seconds: f64,
    pub bytes: f64,
    pub seconds: f64,
}

/// T = fixed + round_trips * RTT + bytes / bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistanceModel {
    /// Seconds.
    pub fixed: Coefficient,
    /// A count; None if the round trip did not vary.
    pub round_trips: Option<Coefficient>,
    /// Seconds for each byte, the inverse of the bandwidth; None if the bytes did not vary.
    pub seconds_per_byte: Option<Coefficient>,
    pub r2: f64,
    pub n: usize,
}

/// None of fewer than two points, of points at the same x, and of what is not finite.
pub fn line(points: &[(f64, f64)]) -> Option<FittedLine> {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let fitted = least_squares(&[&x], &y).filter(|_| varies(&x))?;
    let slope = fitted.slopes.first().copied()?;
    Some(FittedLine { intercept: fitted.intercept, slope, r2: fitted.r2, n: points.len() })
}

/// The fit with three terms; two where only one of round trip and bytes varied. None if neither did, if both did so together that
/// their shares cannot be told apart, of too few observations and of what is not finite.
pub fn distance(observations: &[Observation]) -> Option<DistanceModel> {
    let column = |of: fn(&Observation) -> f64| observations.iter().map(of).collect::<Vec<_>>();
    let (rtt, bytes, seconds) = (column(|o| o.rtt_seconds), column(|o| o.bytes), column(|o| o.seconds));
    let (rtt_varies, bytes_vary) = (varies(&rtt), varies(&bytes));
    let mut predictors: Vec<&[f64]> = Vec::new();
    predictors.extend(rtt_varies.then_some(&rtt[..]));
    predictors.extend(bytes_vary.then_some(&bytes[..]));
    let fitted = least_squares(&predictors, &seconds)?;
    let mut slopes = fitted.slopes.into_iter();
    Some(DistanceModel {
        fixed: fitted.intercept,
        round_trips: if rtt_varies { slopes.next() } else { None },
        seconds_per_byte: if bytes_vary { slopes.next() } else { None },
        r2: fitted.r2,
        n: observations.len(),
    })
}

impl FittedLine {
    pub fn predict(&self, x: f64) -> f64 {
        self.intercept.value + self.slope.value * x
    }
}

impl DistanceModel {
    /// Bytes a second; None if it was not fitted, or if more bytes did not clearly take longer.
    pub fn bandwidth(&self) -> Option<f64> {
        let slope = self.seconds_per_byte?;
        let resolved = slope.value > 0.0 && slope.interval.is_none_or(|(low, _)| low > 0.0);
        resolved.then(|| slope.value.recip())
    }
}

impl Coefficient {
    /// Whose variance is `factor` times that of the residuals.
    fn new(value: f64, variance: Option<f64>, factor: f64, freedom: usize) -> Coefficient {
        let interval = variance.map(|v| {
            let standard_error = (v * factor).max(0.0).sqrt();
            let half = student_t_quantile(0.5 + CONFIDENCE / 2.0, freedom as f64) * standard_error;
            (value - half, value + half)
        });
        Coefficient { value, interval }
    }

    /// From so many points.
    pub fn cell(self, n: usize) -> Cell {
        Cell::Estimate { median: self.value, interval: self.interval, n }
    }

    /// In another unit: seconds per second to seconds per millisecond, say.
    pub fn times(self, factor: f64) -> Coefficient {
        let interval = self.interval.map(|(low, high)| {
            let (a, b) = (low * factor, high * factor);
            (a.min(b), a.max(b))
        });
        Coefficient { value: self.value * factor, interval }
    }
}

struct Fitted {
    intercept: Coefficient,
    slopes: Vec<Coefficient>,
    r2: f64,
}

/// Least squares for one or two predictors, centred, so that round trips of milliseconds and bytes by the billion lose no
/// digits.
fn least_squares(predictors: &[&[f64]], y: &[f64]) -> Option<Fitted> {
    let n = y.len();
    let freedom = n.checked_sub(predictors.len() + 1)?;
    let (inverse, slopes) = solve(predictors, y)?;
    let means: Vec<f64> = predictors.iter().map(|x| mean(x)).collect();
    let intercept = mean(y) - slopes.iter().zip(&means).map(|(b, m)| b * m).sum::<f64>();
    let residuals = residuals(predictors, y, intercept, &slopes);
    if !intercept.is_finite() || !residuals.is_finite() {
        return None;
    }
    let variance = (freedom > 0).then(|| residuals / freedom as f64);
    // Of the mean, and of the slopes carried to x = 0.
    let mut carried = (n as f64).recip();
    for (row, a) in inverse.iter().zip(&means) {
        carried += row.iter().zip(&means).map(|(v, b)| v * a * b).sum::<f64>();
    }
    let diagonal = inverse.iter().enumerate().map(|(i, row)| row.get(i).copied().unwrap_or(f64::NAN));
    let total = product(y, y);
    Some(Fitted {
        intercept: Coefficient::new(intercept, variance, carried, freedom),
        slopes: slopes
            .iter()
            .zip(diagonal)
            .map(|(b, v)| Coefficient::new(*b, variance, v, freedom))
            .collect(),
        // A level line through level points explains all there is.
        r2: if total > 0.0 { (1.0 - residuals / total).clamp(0.0, 1.0) } else { 1.0 },
    })
}

/// The inverse of the matrix of the predictors' products, and the slopes.
fn solve(predictors: &[&[f64]], y: &[f64]) -> Option<(Vec<Vec<f64>>, Vec<f64>)> {
    match predictors {
        [x] => {
            let xx = product(x, x);
            Some((vec![vec![xx.recip()]], vec![product(x, y) / xx]))
        }
        [x, z] => {
            let (xx, zz, xz) = (product(x, x), product(z, z), product(x, z));
            let determinant = xx * zz - xz * xz;
            if determinant.is_nan() || determinant < SEPARATE_MIN * xx * zz {
                return None;
            }
            let (xy, zy) = (product(x, y), product(z, y));
            let inverse =
                vec![vec![zz / determinant, -xz / determinant], vec![-xz / determinant, xx / determinant]];
            Some((inverse, vec![(zz * xy - xz * zy) / determinant, (xx * zy - xz * xy) / determinant]))
        }
        _ => None,
    }
}

/// Sum of the squares of what the fit leaves over.
fn residuals(predictors: &[&[f64]], y: &[f64], intercept: f64, slopes: &[f64]) -> f64 {
    let at = |v: &[f64], i: usize| v.get(i).copied().unwrap_or(f64::NAN);
    let fitted = |i| intercept + slopes.iter().zip(predictors).map(|(b, x)| b * at(x, i)).sum::<f64>();
    y.iter().enumerate().map(|(i, y)| (y - fitted(i)).powi(2)).sum()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sum of the products around the means.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let (a_mean, b_mean) = (mean(a), mean(b));
    a.iter().zip(b).map(|(a, b)| (a - a_mean) * (b - b_mean)).sum()
}

fn varies(values: &[f64]) -> bool {
    let (low, high) = extremes(values.iter().copied());
    high - low > VARIATION_MIN * high.abs().max(low.abs())
}

#[cfg(test)]
mod tests;
