//! Clocks: microseconds since a process began to count, and what the clock of another process is ahead of ours.

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

/// One question for the time: ours when it was sent, theirs, ours when the answer came. Microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub sent: u64,
    pub theirs: u64,
    pub received: u64,
}

impl Exchange {
    pub fn round_trip(self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// Theirs less ours, and how wrong that can be at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    pub ahead_us: i64,
    pub error_us: u64,
}

impl Offset {
    /// From the shortest exchange: the other clock was read somewhere within it, so half of it is the doubt.
    pub fn of(exchanges: &[Exchange]) -> Option<Offset> {
        let best = exchanges.iter().min_by_key(|exchange| exchange.round_trip())?;
        let half = best.round_trip() / 2;
        let ours = signed(best.sent.saturating_add(half));
        Some(Offset { ahead_us: signed(best.theirs).saturating_sub(ours), error_us: half.saturating_add(1) })
    }

    pub fn to_theirs(self, ours: u64) -> u64 {
        ours.saturating_add_signed(self.ahead_us)
    }

    pub fn to_ours(self, theirs: u64) -> u64 {
        theirs.saturating_add_signed(self.ahead_us.saturating_neg())
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_exchange_tells_the_offset() {
        let exchange = |sent, theirs, received| Exchange { sent, theirs, received };
        let offset =
            Offset::of(&[exchange(0, 5_000, 9_000), exchange(10_000, 11_050, 10_100)]).expect("some");
        assert_eq!(offset, Offset { ahead_us: 1_000, error_us: 51 });
        assert_eq!(offset.to_ours(offset.to_theirs(123_456)), 123_456);
        assert_eq!(Offset::of(&[]), None);
        let behind = Offset::of(&[exchange(5_000, 100, 5_000)]).expect("some");
        assert_eq!(behind.to_theirs(4_000), 0, "nothing is before the beginning of a clock");
    }
}
