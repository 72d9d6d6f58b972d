//! The clock of a process: microseconds since it began to count.

use std::time::{Duration, Instant};

/// The zero of this process's clock.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(Instant);

impl Epoch {
    pub fn new() -> Epoch {
        // An hour ago, so that a schedule that lies a little before the start has a number, too.
        Epoch(Instant::now().checked_sub(Duration::from_secs(3600)).unwrap_or_else(Instant::now))
    }

    pub fn now_us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub fn at(self, us: u64) -> Instant {
        self.0.checked_add(Duration::from_micros(us)).unwrap_or(self.0)
    }
}
