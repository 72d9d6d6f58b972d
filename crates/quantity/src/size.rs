//! Numbers of bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer};

use crate::{parsed, split};

/// Bytes: `4096`, `64KiB`, `1.5GiB` (powers of 1024), `1MB` (powers of 1000).
pub fn size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("\"{text}\" is no size; write a number and a unit, for example 512MiB, 20GiB or 1GB");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "K" | "KiB" => 1_024.0,
        "M" | "MiB" => 1_048_576.0,
        "G" | "GiB" => 1_073_741_824.0,
        "T" | "TiB" => 1_099_511_627_776.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return Err(wrong()),
    };
    let bytes = number * factor;
    if bytes > 1e18 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// Bytes: `20GiB`, `512M` (powers of 1024), `1GB` (powers of 1000), `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        size(text).map(Size)
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

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        parsed(deserializer)
    }
}
