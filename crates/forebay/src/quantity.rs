//! Sizes and durations as people write them, as configuration values. They are read as the bench reads them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};

/// Bytes: `20GiB`, `512M` (powers of 1024), `1GB` (powers of 1000), `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        bench::quantity::size(text).map(Size)
    }
}

/// As people read it: `1.5 GiB`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.into_iter().find(|(_, shift)| self.0 >= 1 << shift) {
            Some((unit, shift)) => write!(f, "{:.1} {unit}", self.0 as f64 / (1_u64 << shift) as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// `500ms`, `30s`, `5m`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        bench::quantity::duration(text).map(Span)
    }
}

/// A configuration value that is parsed from a string, so that the error stands at its line.
pub fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        parsed(deserializer)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        parsed(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
        for wrong in ["", "GiB", "-1GiB", "20 gigabytes", "99999999999TiB"] {
            assert!(wrong.parse::<Size>().is_err_and(|e| e.contains("20GiB")), "{wrong}");
        }
        for wrong in ["30", "s", "half an hour"] {
            assert!(wrong.parse::<Span>().is_err_and(|e| e.contains("30s")), "{wrong}");
        }
        assert_eq!(Size(3 << 29).to_string(), "1.5 GiB");
    }
}
