//! How far an origin is: what decides how many bytes must be on the way for its line to be full.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// From a call to its answer when nothing queues.
    pub latency: Duration,
    /// Bytes per second that the origin and the line to it give when kept busy.
    pub rate: u64,
}

impl Distance {
    /// What is believed of an origin that nobody has measured: half a continent away, on a line of 1 Gbit/s. Believing
    /// too little costs round trips, believing too much a queue that the first measurement ends.
    pub const UNKNOWN: Distance = Distance { latency: Duration::from_millis(50), rate: 125_000_000 };

    /// Bytes that fit on the line in `time`.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        let bytes = u128::from(self.rate) * time.as_micros() / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
