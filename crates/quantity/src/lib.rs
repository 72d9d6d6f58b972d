//! Quantities as people write them on command lines and in configuration files: sizes, durations, rates, addresses.
//!
//! Each has a function or `FromStr` that refuses what it cannot read in one line, which says what would be right. What
//! stands in a configuration file is a type that implements `Deserialize` ([`Size`], [`TimeSpan`], [`Address`]).

mod address;
mod duration;
mod rate;
mod size;

use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};

pub use address::{Address, address};
pub use duration::{TimeSpan, duration};
pub use rate::ByteRate;
pub use size::{Size, size};

/// A configuration value that is parsed from a string, so that the error stands at its line.
pub fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

/// A number that is not negative, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn durations_and_sizes_take_fractions() {
        assert_eq!(duration("69.5ms"), Ok(Duration::from_micros(69_500)));
        assert_eq!(duration("1.9ms"), Ok(Duration::from_micros(1_900)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(size("1.5GiB"), Ok(3 << 29));
        for wrong in ["30", "", "-3s", "ms", "1.2.3s", "half an hour"] {
            assert!(duration(wrong).is_err_and(|e| e.contains("69.5ms")), "{wrong}");
        }
        for wrong in ["-1", "GiB", "1 gigabyte", "99999999TiB"] {
            assert!(size(wrong).is_err_and(|e| e.contains("512MiB")), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_durations_are_read_as_written() {
        for (text, bytes) in [
            ("4096", 4096),
            ("20GiB", 20 << 30),
            ("64 MiB", 64 << 20),
            ("1GB", 1_000_000_000),
            ("1.5GiB", 3 << 29),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("2h", 7_200_000)] {
            assert_eq!(text.parse(), Ok(TimeSpan(Duration::from_millis(ms))), "{text}");
        }
        for wrong in ["", "GiB", "-1GiB", "20 gigabytes", "99999999999TiB"] {
            assert!(wrong.parse::<Size>().is_err_and(|e| e.contains("20GiB")), "{wrong}");
        }
        for wrong in ["30", "s", "half an hour"] {
            assert!(wrong.parse::<TimeSpan>().is_err_and(|e| e.contains("30s")), "{wrong}");
        }
        assert_eq!(Size(3 << 29).to_string(), "1.5 GiB");
    }
}
