//! What a line is like, and lines that have names.

use std::str::FromStr;
use std::time::Duration;

use quantity::ByteRate;
use types::{Error, ErrorKind, Result};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Round trip that is added; each direction has half of it. Default 0.
    pub rtt: Duration,
    /// Width of the variation of a round trip; each direction varies by half of it, around its delay. A stream is never
    /// reordered, so in a dense one the delay is rather the longest of the recent ones. Default 0.
    pub jitter: Duration,
    /// Bandwidth of each direction, shared by all connections. Default: what this machine can carry.
    pub rate: Option<ByteRate>,
    /// Bandwidth of each direction of one connection. Default: none of its own.
    pub rate_per_connection: Option<ByteRate>,
    /// Most bytes of one connection on the line in one direction: it carries this much in a round trip. Default: a
    /// round trip of `rate` and a quarter, plus 1 MiB, 64 MiB at most and where there is no rate; so the queue never
    /// adds much to the delay.
    pub window: Option<u64>,
    /// Connections at once; more are turned away. Default 1024: two sockets each, within what a process may open.
    pub connections_max: usize,
    /// Most bytes on the line, all connections and both directions together; their memory. Default 1 GiB.
    pub in_flight_max: u64,
    pub drops: Drops,
    /// Of jitter and random cuts. Default 1.
    pub seed: u64,
}

/// Connections that are cut (reset at both ends), as a bad line's would be. Default: none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drops {
    /// All connections, every so often.
    pub every: Option<Duration>,
    /// One connection, chosen at random, so many times an hour on average.
    pub per_hour: Option<f64>,
    /// Each connection, when it has carried so many bytes, both directions together.
    pub after_bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rtt: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            rate_per_connection: None,
            window: None,
            connections_max: 1024,
            in_flight_max: 1 << 30,
            drops: Drops::default(),
            seed: 1,
        }
    }
}

/// Longest round trip: a geostationary satellite is 0.6 s; beyond a minute it is a mistyped unit.
const RTT_MAX: Duration = Duration::from_secs(60);
const WINDOW_MAX: u64 = 64 << 20;
const WINDOW_EXTRA: u64 = 1 << 20;

impl Config {
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::Config, "relay:", what));
        if self.rtt > RTT_MAX {
            return wrong(format!("a round trip of {:?} is too long; give {RTT_MAX:?} at most", self.rtt));
        }
        if self.jitter > self.rtt {
            return wrong(format!("jitter {:?} is more than the round trip {:?}", self.jitter, self.rtt));
        }
        if self.connections_max == 0 || self.in_flight_max == 0 || self.window == Some(0) {
            return wrong("connections, bytes in flight and window are at least 1".to_owned());
        }
        if self.drops.every.is_some_and(|every| every.is_zero()) {
            return wrong("drop-every 0 would let nothing through; give for example 30s".to_owned());
        }
        match self.drops.per_hour {
            Some(rate) if !(rate.is_finite() && rate > 0.0) => {
                wrong(format!("drops per hour {rate} should be above 0"))
            }
            _ => Ok(()),
        }
    }

    /// Most bytes of one connection on the line in one direction.
    pub fn window(&self) -> u64 {
        self.window.unwrap_or_else(|| match self.rate {
            Some(rate) => {
                let round_trip = rate.0 as f64 * self.rtt.as_secs_f64() * 1.25;
                (round_trip as u64).saturating_add(WINDOW_EXTRA).min(WINDOW_MAX)
            }
            None => WINDOW_MAX,
        })
    }

    /// Receive buffer of the relay's sockets where there is a rate: what waits in it is delay that no line has. 20 ms of
    /// the line, so that it never runs dry. `None`: as the system sees fit.
    pub fn receive_buffer(&self) -> Option<usize> {
        let rate = [self.rate, self.rate_per_connection].into_iter().flatten().min()?;
        Some(usize::try_from(rate.0 / 50).unwrap_or(usize::MAX).clamp(64 << 10, 4 << 20))
    }
}

/// A line with a name: round trip and bandwidth of each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    pub name: &'static str,
    pub rtt: Duration,
    pub rate: ByteRate,
}

const fn profile(name: &'static str, rtt_us: u64, mbit: u64) -> Profile {
    Profile { name, rtt: Duration::from_micros(rtt_us), rate: ByteRate(mbit * 125_000) }
}

impl Profile {
    /// The first four are round numbers for what the words mean; vFXT's round trips are those published by the render
    /// study (East US, West US, West India, Southeast Asia), its 8 Gbit/s the network limit of its origin's machine.
    pub const ALL: [Profile; 8] = [
        profile("campus", 500, 10_000),
        profile("metro", 5_000, 10_000),
        profile("continental", 35_000, 1_000),
        profile("atlantic", 80_000, 1_000),
        profile("vfxt-1.9", 1_900, 8_000),
        profile("vfxt-69.5", 69_500, 8_000),
        profile("vfxt-194", 194_000, 8_000),
        profile("vfxt-221", 221_000, 8_000),
    ];

    pub fn config(&self) -> Config {
        Config { rtt: self.rtt, rate: Some(self.rate), ..Config::default() }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Profile, String> {
        Profile::ALL.into_iter().find(|p| p.name == name).ok_or_else(|| {
            let names = Profile::ALL.map(|p| p.name).join(", ");
            format!("there is no profile \"{name}\"; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_by_what_the_line_holds() {
        let far =
            Config { rtt: Duration::from_millis(100), rate: Some(ByteRate(12_500_000)), ..Config::default() };
        assert_eq!(far.window(), 1_562_500 + (1 << 20));
        assert_eq!(Config::default().window(), 64 << 20);
        let fast = Config { rate: Some(ByteRate(u64::MAX)), ..far };
        assert_eq!(fast.window(), 64 << 20);
    }

    #[test]
    fn profiles_are_found_by_name() {
        let far: Profile = "vfxt-69.5".parse().expect("it exists");
        assert_eq!(far.rtt, Duration::from_micros(69_500));
        assert!("moon".parse::<Profile>().is_err_and(|e| e.contains("vfxt-221")));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused_in_one_line() {
        let drops = |drops| Config { drops, ..Config::default() };
        for wrong in [
            Config { rtt: Duration::from_secs(70), ..Config::default() },
            Config { jitter: Duration::from_secs(1), ..Config::default() },
            Config { window: Some(0), ..Config::default() },
            Config { connections_max: 0, ..Config::default() },
            drops(Drops { every: Some(Duration::ZERO), ..Drops::default() }),
            drops(Drops { per_hour: Some(-1.0), ..Drops::default() }),
        ] {
            let error = wrong.check().expect_err("it makes no sense");
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!error.to_string().contains('\n'));
        }
    }
}
