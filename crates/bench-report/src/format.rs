//! Numbers as people read them, the same in every output.

use crate::model::Cell;

/// Significant digits of a measured number: more would be noise.
const DIGITS: i32 = 4;
/// A number whose shortest form has no more characters than this is printed exactly: published values stay as they
/// were published.
const SHORT: usize = 9;
const MISSING: &str = "\u{2013}";

/// `12.35`, `1280`, `11428.571`, `0.000123`, `1.2e-9`.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let shortest = format!("{value}");
    let magnitude = value.abs().log10().floor() as i32;
    if !(-5..15).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    if shortest.len() <= SHORT {
        return shortest;
    }
    let decimals = (DIGITS - 1 - magnitude).max(0) as usize;
    format!("{value:.decimals$}")
}

/// To so many decimals.
pub fn round(value: f64, decimals: i32) -> f64 {
    let factor = 10_f64.powi(decimals);
    (value * factor).round() / factor
}

/// A number with so many decimals, and never as minus zero.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| b == b'0' || b == b'.') => rest.to_owned(),
        _ => text,
    }
}

/// A number with the decimals that `like` has with its four digits, so that an interval lines up with its median.
fn aligned(value: f64, like: f64) -> String {
    let magnitude = if like == 0.0 { 0 } else { like.abs().log10().floor() as i32 };
    if !value.is_finite() || !(-5..15).contains(&magnitude) {
        return number(value);
    }
    let decimals = (DIGITS - 1 - magnitude).max(0) as usize;
    fixed(value, decimals)
}

/// `12.35 [12.10, 12.61]`
pub fn interval(value: f64, interval: Option<(f64, f64)>) -> String {
    let shown = aligned(value, value);
    match interval {
        Some((low, high)) => format!("{shown} [{}, {}]", aligned(low, value), aligned(high, value)),
        None => shown,
    }
}

/// Without line breaks and other control characters: a text from a file, for a terminal.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// With its first letter as at the beginning of a sentence.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// `1.50 GiB`, `312 B`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = bytes.max(1).ilog(1024);
    let (scaled, unit) = (bytes as f64 / 1024_f64.powi(power as i32), UNITS[power as usize]);
    if power == 0 { format!("{bytes} B") } else { format!("{scaled:.2} {unit}") }
}

/// `1 234 567`, with thin spaces from five digits on.
pub fn count(count: u64) -> String {
    let mut digits = count.to_string();
    let length = digits.len();
    for before_end in (3..length).step_by(3).filter(|_| length >= 5) {
        digits.insert(length - before_end, '\u{202f}');
    }
    digits
}

/// `+9.8 %`
pub fn percent_change(fraction: f64) -> String {
    format!("{:+.1} %", fraction * 100.0)
}

/// A probability: `0.032`, `< 0.001`.
pub fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// A probability in a sentence: `p = 0.032`, `p < 0.001`.
pub fn p_value(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") }
}

/// Seconds of wall time: `42 s`, `3 min 5 s`, `2 h 10 min`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return MISSING.to_owned();
    }
    if seconds < 60.0 {
        return format!("{} s", number((seconds * 10.0).round() / 10.0));
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours == 0 { format!("{minutes} min {rest} s") } else { format!("{hours} h {minutes} min") }
}

/// What a table shows: `12.35 [12.10, 12.61]`, `12.35 (n = 3)`, a dash for what is missing.
pub fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(value) => number(*value),
        Cell::Count(value) => count(*value),
        Cell::Bytes(value) => bytes(*value),
        Cell::Estimate { median, interval: None, n } => format!("{} (n = {n})", aligned(*median, *median)),
        Cell::Estimate { median, interval, .. } => self::interval(*median, *interval),
        Cell::Missing(_) => MISSING.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_numbers_have_four_digits_and_published_ones_all_of_theirs() {
        let cases = [
            (12.345678901, "12.35"),
            (104.64, "104.64"),
            (11428.571, "11428.571"),
            (123456.78901234, "123457"),
            (0.000123456789, "0.0001235"),
            (1.23456e-9, "1.23e-9"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (1e300, "1.00e300"),
            (f64::NAN, "not a number"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn cells_show_their_doubt() {
        let estimate = |interval, n| cell(&Cell::Estimate { median: 12.3456, interval, n });
        assert_eq!(estimate(Some((9.87654, 13.0)), 6), "12.35 [9.88, 13.00]");
        assert_eq!(estimate(None, 3), "12.35 (n = 3)");
        assert_eq!(cell(&Cell::missing("why")), "\u{2013}");
        assert_eq!(cell(&Cell::Bytes(1610612736)), "1.50 GiB");
        assert_eq!(cell(&Cell::Bytes(1023)), "1023 B");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
        assert_eq!(cell(&Cell::Count(1234567)), "1\u{202f}234\u{202f}567");
        assert_eq!(count(9999), "9999");
    }

    #[test]
    fn durations_are_read_and_not_counted() {
        assert_eq!(duration(4.24), "4.2 s");
        assert_eq!(duration(185.2), "3 min 5 s");
        assert_eq!(duration(7800.0), "2 h 10 min");
        assert_eq!(duration(-1.0), MISSING);
    }

    #[test]
    fn there_is_no_minus_zero() {
        assert_eq!(
            (fixed(-0.04, 1), fixed(-0.06, 1), fixed(0.0, 0)),
            ("0.0".into(), "-0.1".into(), "0".into())
        );
        assert_eq!(interval(3.0, Some((-0.0001, 4.0))), "3.000 [0.000, 4.000]");
        assert_eq!(number(-0.0), "0");
    }
}
