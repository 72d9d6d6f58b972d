//! Rates, durations and sizes as people write them on the bench's command lines. A rate always says whether it counts
//! bits or bytes: the field mixes the two up by a factor of eight.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// Bytes per second. `1Gbit`, `100 Mbit/s`, `125MB/s`, `20MiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    pub fn from_bits(bits_per_second: u64) -> Rate {
        Rate(bits_per_second / 8)
    }

    pub fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
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
        Ok(Rate(bytes as u64))
    }
}

/// `1 Gbit/s (125 MB/s)`
impl fmt::Display for Rate {
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

/// `127.0.0.1:2049`, `[::1]:2049`, `localhost:2049`, or `:2049` for every address of this machine. A name is looked up when it is
/// read, and its first IPv4 address is taken where it has one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = |why: &str| {
        format!(
            "\"{text}\" is no address: {why}; write HOST:PORT such as 127.0.0.1:2049, [::1]:2049 or localhost:2049, or :2049 \
             for every address of this machine"
        )
    };
    let Some((host, port)) = text.rsplit_once(':') else { return Err(wrong("it has no port")) };
    let port: u16 = port.parse().map_err(|_| wrong("the port must be a number up to 65535"))?;
    if host.is_empty() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    if host.contains(':') {
        return Err(wrong("an IPv6 address stands in brackets"));
    }
    let found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|e| wrong(&format!("the name {host}: {e}")))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| wrong(&format!("the name {host} has no address")))
}

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

/// A number that is not negative, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
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
            assert_eq!(text.parse(), Ok(Rate(bytes)), "{text}");
        }
        for wrong in ["", "1G", "Gbit", "-1Gbit", "1 furlong/s", "0Gbit", "1e9bit", "99999999Gbit"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
        assert_eq!(Rate(125_000_000).to_string(), "1 Gbit/s (125 MB/s)");
    }

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
}
