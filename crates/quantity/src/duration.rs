//! Durations.

use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer};

use crate::{parsed, split};

/// `250us`, `1.9ms`, `30s`, `5m`, `2h`; `0` needs no unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("\"{text}\" is no duration; write a number and a unit, for example 250us, 69.5ms, 30s or 2h")
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(wrong()),
    };
    // To the nanosecond, so that 69.5 ms is not 69.499999 ms.
    let nanos = (seconds * 1e9).round();
    if nanos > 1e18 {
        return Err(wrong());
    }
    Ok(Duration::from_nanos(nanos as u64))
}

/// `500ms`, `30s`, `5m`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeSpan, String> {
        duration(text).map(TimeSpan)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
        parsed(deserializer)
    }
}
