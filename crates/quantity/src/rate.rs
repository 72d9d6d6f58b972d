//! Rates. A rate always says whether it counts bits or bytes: the field mixes the two up by a factor of eight.

use std::fmt;
use std::str::FromStr;

use crate::split;

/// Bytes per second. `1Gbit`, `100 Mbit/s`, `125MB/s`, `20MiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRate(pub u64);

impl ByteRate {
    pub fn from_bits(bits_per_second: u64) -> ByteRate {
        ByteRate(bits_per_second / 8)
    }

    pub fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteRate {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteRate, String> {
        let wrong = || {
            format!(
                "\"{text}\" is no rate; write a number and a unit, for example 1Gbit, 100Mbit/s or 125MB/s"
            )
        };
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        let (factor, per_byte) = match unit {
            "bit" => (1.0, 8.0),
            "kbit" | "Kbit" => (1e3, 8.0),
            "Mbit" => (1e6, 8.0),
            "Gbit" => (1e9, 8.0),
            "B" => (1.0, 1.0),
            "kB" | "KB" => (1e3, 1.0),
            "MB" => (1e6, 1.0),
            "GB" => (1e9, 1.0),
            "KiB" => (1_024.0, 1.0),
            "MiB" => (1_048_576.0, 1.0),
            "GiB" => (1_073_741_824.0, 1.0),
            _ => return Err(wrong()),
        };
        let bytes = number * factor / per_byte;
        if !(1.0..=1e12).contains(&bytes) {
            return Err(format!("{text}: a rate is from 8 bit/s to 8000 Gbit/s"));
        }
        Ok(ByteRate(bytes as u64))
    }
}

/// `1 Gbit/s (125 MB/s)`
impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64 * 8.0;
        let (scaled, unit) = match bits {
            1e9.. => (bits / 1e9, "Gbit/s"),
            1e6.. => (bits / 1e6, "Mbit/s"),
            _ => (bits / 1e3, "kbit/s"),
        };
        write!(f, "{} {unit} ({} MB/s)", short(scaled), short(self.0 as f64 / 1e6))
    }
}

/// Three digits, without zeros at the end.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_says_bits_or_bytes() {
        for (text, bytes) in [
            ("1Gbit", 125_000_000),
            ("100 Mbit/s", 12_500_000),
            ("1.5Mbit", 187_500),
            ("125MB/s", 125_000_000),
            ("20MiB/s", 20 << 20),
        ] {
            assert_eq!(text.parse(), Ok(ByteRate(bytes)), "{text}");
        }
        for wrong in ["", "1G", "Gbit", "-1Gbit", "1 furlong/s", "0Gbit", "1e9bit", "99999999Gbit"] {
            assert!(wrong.parse::<ByteRate>().is_err(), "{wrong}");
        }
        assert_eq!(ByteRate(125_000_000).to_string(), "1 Gbit/s (125 MB/s)");
    }
}
