//! From values to pixels, and where to put the ticks: whole steps of 1, 2 or 5, decades on a logarithmic axis, and
//! powers of two where all values are such (file sizes).

use crate::distribution::extremes;
use crate::format;

/// More labels than this do not fit beside each other.
const TICKS_MAX: usize = 7;
const POWERS_MAX: usize = 12;
const UNPLACED: (f64, f64) = (0.0, 1.0);

pub struct AxisScale {
    logarithmic: bool,
    low: f64,
    high: f64,
    /// Pixels of `low` and of `high`.
    pixels: (f64, f64),
    pub ticks: Vec<(f64, String)>,
}

impl AxisScale {
    /// Over finite `values`; linear if a logarithmic one cannot show them all, because one is not positive. With
    /// `from_zero` a linear scale begins at zero, as lengths of bars must.
    pub fn new(values: &[f64], logarithmic: bool, from_zero: bool) -> AxisScale {
        let (low, high) = extremes(values.iter().copied());
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        if logarithmic && low > 0.0 {
            return AxisScale::logarithmic(values, low, high);
        }
        // A scale that nearly reaches zero anyway shows it.
        let from_zero = from_zero || low.abs() < 0.3 * high;
        let (low, high) = if from_zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        let step = if counts(values) { step(high - low).max(1.0) } else { step(high - low) };
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        // At most one more at each end than fit between.
        let ticks = (0..=(last - first).min(20.0) as i32)
            .map(|i| (first + f64::from(i)) * step)
            .map(|value| (value, linear_label(value, decimals)))
            .collect();
        AxisScale { logarithmic: false, low: first * step, high: last * step, pixels: UNPLACED, ticks }
    }

    fn logarithmic(values: &[f64], low: f64, high: f64) -> AxisScale {
        let powers = powers_of_two(values);
        if !powers.is_empty() {
            let ticks = powers.iter().map(|v| (*v, label(*v))).collect();
            let (low, high) = if low < high { (low, high) } else { (low / 2.0, high * 2.0) };
            return AxisScale { logarithmic: true, low, high, pixels: UNPLACED, ticks };
        }
        let decades = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let all: Vec<f64> = (decades.0 - 1..=decades.1 + 1)
            .flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)))
            .collect();
        // A value may lie on its tick but for rounding.
        let from = all.iter().copied().filter(|t| *t <= low * (1.0 + 1e-9)).fold(low / 2.0, f64::max);
        let to = all.iter().copied().filter(|t| *t >= high * (1.0 - 1e-9)).fold(f64::INFINITY, f64::min);
        let to = if to.is_finite() { to } else { high };
        let (from, to) = if to > from * 1.01 { (from, to) } else { (from / 2.0, to * 2.0) };
        let inside = |t: &f64| *t >= from * (1.0 - 1e-9) && *t <= to * (1.0 + 1e-9);
        let fine: Vec<f64> = all.into_iter().filter(inside).collect();
        let ticks = if fine.len() <= TICKS_MAX + 2 {
            fine
        } else {
            let every = (decades.1 - decades.0).div_euclid(TICKS_MAX as i32 + 1) + 1;
            (decades.0 - 1..=decades.1)
                .filter(|d| d % every == 0)
                .map(|d| 10f64.powi(d))
                .filter(inside)
                .collect()
        };
        let ticks = ticks.into_iter().map(|v| (v, label(v))).collect();
        AxisScale { logarithmic: true, low: from, high: to, pixels: UNPLACED, ticks }
    }

    /// Say which pixels its lower and its upper end have.
    pub fn place(&mut self, low: f64, high: f64) {
        self.pixels = (low, high);
    }

    /// The pixel of a value, clamped to the scale.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// The ticks with their pixels.
    pub fn placed(&self) -> impl Iterator<Item = (f64, &String)> {
        self.ticks.iter().map(|(value, tick)| (self.at(*value), tick))
    }

    /// Where bars stand: zero, or the lower end of a scale without it.
    pub fn floor(&self) -> f64 {
        if self.logarithmic { self.low } else { 0f64.clamp(self.low, self.high) }
    }
}

/// 1, 2 or 5 times a power of ten, with at most [`TICKS_MAX`] steps in the span.
fn step(span: f64) -> f64 {
    let rough = span / TICKS_MAX as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(power * 10.0);
    if step.is_finite() && step > 0.0 { step } else { 1.0 }
}

/// Whole numbers: halves between them mean nothing.
fn counts(values: &[f64]) -> bool {
    values.len() > 1 && values.iter().all(|v| v.fract() == 0.0)
}

/// The distinct values, thinned, if there are three and all are powers of two.
fn powers_of_two(values: &[f64]) -> Vec<f64> {
    let mut distinct: Vec<f64> = values.to_vec();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    let all = distinct.iter().all(|v| v.log2().fract() == 0.0);
    if !all || distinct.len() < 3 {
        return Vec::new();
    }
    let every = distinct.len().div_ceil(POWERS_MAX);
    distinct.into_iter().step_by(every).collect()
}

fn linear_label(value: f64, decimals: usize) -> String {
    // Not -0, which a step below zero can make.
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    match decimals {
        0 if value.abs() < 1e15 => {
            let sign = if value < 0.0 { "\u{2212}" } else { "" };
            format!("{sign}{}", format::count(value.abs() as u64))
        }
        _ => format!("{value:.decimals$}"),
    }
}

fn label(value: f64) -> String {
    if value >= 1.0 && value.fract() == 0.0 && value < 1e7 {
        format::count(value as u64)
    } else if (1e-4..1.0).contains(&value) {
        format!("{:.*}", (-value.log10().floor()) as usize, value)
    } else {
        format::number(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], logarithmic: bool) -> Vec<String> {
        AxisScale::new(values, logarithmic, true).ticks.into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn ticks_are_whole_steps_around_all_values() {
        assert_eq!(
            labels(&[497.0, 1280.0], false),
            ["0", "200", "400", "600", "800", "1000", "1200", "1400"]
        );
        assert_eq!(
            labels(&[0.1, 0.35], false),
            ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30", "0.35"]
        );
        assert_eq!(labels(&[-3.0, 5.0], false), ["\u{2212}4", "\u{2212}2", "0", "2", "4", "6"]);
        assert_eq!(labels(&[1.0, 2.0, 3.0], false), ["0", "1", "2", "3"], "no half replicas");
        assert_eq!(labels(&[0.0, 100_000.0], false).last().map(String::as_str), Some("100\u{202f}000"));
    }

    #[test]
    fn logarithmic_ticks_are_decades_halves_or_powers_of_two() {
        assert_eq!(labels(&[1.9, 221.0], true), ["1", "2", "5", "10", "20", "50", "100", "200", "500"]);
        assert_eq!(
            labels(&[0.01, 90_000.0], true),
            ["0.01", "0.1", "1", "10", "100", "1000", "10\u{202f}000", "100\u{202f}000"]
        );
        assert_eq!(labels(&[1.0, 2.0, 64.0, 1024.0], true), ["1", "2", "64", "1024"]);
        assert_eq!(labels(&[0.0, 10.0], true)[0], "0", "zero has no logarithm: linear");
    }

    #[test]
    fn every_value_has_its_place_on_the_scale() {
        for values in [
            vec![],
            vec![0.0],
            vec![5.0],
            vec![-2.0],
            vec![1e-300, 1e300],
            vec![3.0, 3.0],
            vec![f64::MAX, f64::MIN],
        ] {
            for logarithmic in [false, true] {
                let mut scale = AxisScale::new(&values, logarithmic, true);
                scale.place(10.0, 20.0);
                for value in values.iter().chain([&scale.floor()]) {
                    let pixel = scale.at(*value);
                    assert!((10.0..=20.0).contains(&pixel), "{values:?} {value}: {pixel}");
                }
                assert!(scale.ticks.len() <= 22, "{values:?}: {} ticks", scale.ticks.len());
            }
        }
        let mut scale = AxisScale::new(&[0.0, 10.0], false, true);
        scale.place(0.0, 100.0);
        assert_eq!((scale.at(0.0), scale.at(5.0), scale.at(10.0)), (0.0, 50.0, 100.0));
    }
}
