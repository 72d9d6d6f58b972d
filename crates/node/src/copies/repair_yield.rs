//! Copies yield to readers: how fast copies are sent while readers are served by the same node. Pure: the caller brings the time.
//!
//! What readers get is taken off the repair rate, for both may share one link. A tenth of what readers get is left to copies, or a
//! tenth of the repair rate where that is more, so that they are made under load, too. So on a link that carries twice the repair
//! rate or more, readers who want all of it get nine tenths.

use std::time::Duration;

/// What readers get is measured over so long.
const WINDOW: Duration = Duration::from_millis(500);
/// Of what readers get, and of the repair rate, one part in so many is left to copies.
const LEAST: u64 = 10;

#[derive(Debug)]
pub struct RepairYield {
    /// Bytes per second, while nobody reads.
    rate: u64,
    since: Duration,
    /// All that readers had got at that time.
    served: u64,
    /// Bytes per second that readers got in the last window.
    readers: u64,
}

impl RepairYield {
    pub fn new(rate: u64) -> RepairYield {
        RepairYield { rate, since: Duration::ZERO, served: 0, readers: 0 }
    }

    /// Bytes per second for copies. `served`: all bytes that readers have got so far.
    pub fn rate(&mut self, served: u64, now: Duration) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= WINDOW {
            let bytes = u128::from(served.saturating_sub(self.served));
            let readers = bytes * 1_000_000 / elapsed.as_micros().max(1);
            self.readers = u64::try_from(readers).unwrap_or(u64::MAX);
            (self.since, self.served) = (now, served);
        }
        let left = self.rate.saturating_sub(self.readers);
        if self.rate == 0 { 0 } else { left.max(self.readers / LEAST).max(self.rate / LEAST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// The rate of copies a second later, when readers got so much in it.
    fn after(readers: u64, repair: u64) -> u64 {
        let mut copies = RepairYield::new(repair);
        copies.rate(7 * MB, Duration::from_secs(9));
        copies.rate(7 * MB + readers, Duration::from_secs(10))
    }

    #[test]
    fn what_readers_get_is_taken_off_down_to_a_tenth() {
        assert_eq!(after(0, 25 * MB), 25 * MB);
        assert_eq!(after(MB, 25 * MB), 24 * MB);
        assert_eq!(after(20 * MB, 25 * MB), 5 * MB);
        assert_eq!(after(25 * MB, 25 * MB), 25 * MB / 10);
        assert_eq!(after(45 * MB, 25 * MB), 45 * MB / 10);
        assert_eq!(after(45 * MB, 0), 0, "none are made");
    }

    /// Readers take what copies leave of a link; copies are sent as fast as they may.
    #[test]
    fn on_a_link_of_twice_the_rate_greedy_readers_get_nine_tenths() {
        for (link, repair) in [(50 * MB, 25 * MB), (1250 * MB, 125 * MB), (400 * MB, 100 * MB)] {
            let mut copies = RepairYield::new(repair);
            // They share it by half, as TCP does, when the readers begin.
            let (mut served, mut readers) = (0, link - repair.min(link / 2));
            for second in 1..20 {
                served += readers;
                readers = link - copies.rate(served, Duration::from_secs(second)).min(link / 2);
            }
            assert!(readers >= link * 89 / 100, "{readers} of {link}");
        }
    }

    #[test]
    fn it_is_measured_over_a_while_and_a_clock_that_stands_still_divides_by_nothing() {
        let mut copies = RepairYield::new(10 * MB);
        assert_eq!(copies.rate(u64::MAX, Duration::ZERO), 10 * MB);
        assert_eq!(copies.rate(MB, WINDOW), 8 * MB);
        assert_eq!(copies.rate(9 * MB, WINDOW + WINDOW / 2), 8 * MB, "not yet");
        assert_eq!(copies.rate(0, 3 * WINDOW), 10 * MB, "nor does a count that runs backwards hurt");
    }
}
