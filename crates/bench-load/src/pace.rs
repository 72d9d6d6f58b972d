//! When something is done: as soon as a worker is free, or on a schedule that does not wait for anybody.
//!
//! A closed loop measures how much N workers get done; its latencies say nothing that its rate does not. An open
//! loop measures how long callers wait who come when they come: its latency counts from the moment that the
//! schedule names, so a target that stalls for a second is seen by everybody who would have come in that second,
//! not by the one who happened to be inside.

use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::data::mix_all;
use crate::locked;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPace {
    /// Each worker goes on when its last touch is done.
    Closed {
        /// Seconds that a worker rests after each touch. Default 0.
        think_s: f64,
        stagger: Option<Stagger>,
    },
    /// The fleet together starts so many touches a second, whether or not earlier ones are done. Workers are what
    /// may be under way at the same time: with too few of them touches wait, and that wait is measured.
    Open { per_second: f64, arrivals: Arrivals },
}

impl Default for LoadPace {
    fn default() -> LoadPace {
        LoadPace::Closed { think_s: 0.0, stagger: None }
    }
}

/// Clients start in groups: client c of the fleet at (c / group) x every.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stagger {
    /// Clients that start together.
    pub group: u32,
    pub every_s: f64,
}

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// At random, as from many callers who do not know of each other.
    Poisson,
}

impl LoadPace {
    /// Whether it makes sense; one line that says what would.
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(ErrorKind::Config, "pace", why));
        // An hour between two touches is a slip of the pen.
        let rest = |seconds: f64| (0.0..=3600.0).contains(&seconds);
        match *self {
            LoadPace::Closed { think_s, .. } if !rest(think_s) => wrong("think time should be 0 to 3600 s"),
            LoadPace::Closed { stagger: Some(s), .. } if !rest(s.every_s) || s.group == 0 => {
                wrong("a stagger is a group of 1 client or more every 0 to 3600 s")
            }
            LoadPace::Open { per_second, .. } if !(0.001..=1e6).contains(&per_second) => {
                wrong("the rate should be 0.001 to 1000000 touches a second")
            }
            _ => Ok(()),
        }
    }

    /// When a client may begin, after the start of the phase.
    pub fn start_of(&self, client: u32) -> Duration {
        match self {
            LoadPace::Closed { stagger: Some(stagger), .. } => {
                let group = f64::from(client / stagger.group.max(1));
                Duration::try_from_secs_f64(group * stagger.every_s).unwrap_or(Duration::MAX)
            }
            _ => Duration::ZERO,
        }
    }
}

/// The start times of an open loop, taken one by one by whoever is free.
pub struct ArrivalSchedule {
    interval_s: f64,
    arrivals: Arrivals,
    seed: u64,
    /// How many were taken, and the last one's seconds after the start; a float of these is exact to a nanosecond for a month.
    taken: Mutex<(u64, f64)>,
}

impl ArrivalSchedule {
    /// `per_second` is the rate of this process; other seeds, other random arrivals.
    pub fn new(per_second: f64, arrivals: Arrivals, seed: u64) -> ArrivalSchedule {
        let taken = Mutex::new((0, 0.0));
        ArrivalSchedule { interval_s: 1.0 / per_second.max(1e-9), arrivals, seed, taken }
    }

    /// The next start, after the start of the phase.
    pub fn take(&self) -> Duration {
        let mut taken = locked(&self.taken);
        let (count, at_s) = &mut *taken;
        let gap = match self.arrivals {
            // The first at once, so that n intervals hold n starts.
            Arrivals::Constant => *count as f64 * self.interval_s - *at_s,
            Arrivals::Poisson => {
                let uniform = (mix_all(&[self.seed, *count]) >> 11) as f64 / (1_u64 << 53) as f64;
                -(1.0 - uniform).ln() * self.interval_s
            }
        };
        *at_s += gap;
        *count += 1;
        Duration::try_from_secs_f64(*at_s).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_schedule_is_even_and_does_not_drift() {
        let schedule = ArrivalSchedule::new(300.0, Arrivals::Constant, 0);
        let times: Vec<Duration> = (0..30_001).map(|_| schedule.take()).collect();
        assert_eq!(times[0], Duration::ZERO);
        assert!((times[30_000].as_secs_f64() - 100.0).abs() < 1e-6, "{:?}", times[30_000]);
        assert!(times.windows(2).all(|w| (w[1] - w[0]).as_secs_f64() - 1.0 / 300.0 < 1e-6));
    }

    #[test]
    fn a_poisson_schedule_has_the_rate_and_the_scatter_of_one() {
        let schedule = ArrivalSchedule::new(100.0, Arrivals::Poisson, 7);
        let times: Vec<f64> = (0..20_000).map(|_| schedule.take().as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Mean and standard deviation of an exponential distribution are the same.
        assert!((mean * 100.0 - 1.0).abs() < 0.03, "mean {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "deviation {}", variance.sqrt());
    }

    #[test]
    fn clients_start_in_groups() {
        let stagger = Some(Stagger { group: 5, every_s: 7.0 });
        let pace = LoadPace::Closed { think_s: 0.0, stagger };
        assert_eq!([0, 4, 5, 499].map(|c| pace.start_of(c).as_secs()), [0, 0, 7, 693]);
    }

    #[test]
    fn nonsense_is_refused() {
        let open = |per_second| LoadPace::Open { per_second, arrivals: Arrivals::Constant };
        for pace in [
            open(0.0),
            open(-1.0),
            open(f64::NAN),
            open(f64::INFINITY),
            LoadPace::Closed { think_s: -1.0, stagger: None },
            LoadPace::Closed { think_s: f64::NAN, stagger: None },
            LoadPace::Closed { think_s: 0.0, stagger: Some(Stagger { group: 0, every_s: 1.0 }) },
        ] {
            assert_eq!(pace.check().expect_err("nonsense").kind(), ErrorKind::Config, "{pace:?}");
        }
    }
}
