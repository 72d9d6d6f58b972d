//! Copies yield to readers: how fast copies are sent while readers are served by the same node. Pure: the caller brings the time.
//!
//! What readers get is taken off the repair rate, for both may share one link. A tenth of what readers get is left to copies, or a
//! tenth of the repair rate where that is more, so that they are made under load, too. So on a link that carries twice the repair
//! rate or more, readers who want all of it get nine tenths. Such a copy spares the readers a fetch only if they want the file: of the
//! tenth, copies of files that no reader of another node wants at present get a fifth.

use std::time::Duration;

/// What readers get is measured over so long.
const WINDOW: Duration = Duration::from_millis(500);
/// Of what readers get, and of the repair rate, one part in so many is left to copies.
const LEAST: u64 = 10;
/// The same for copies of files that readers do not want at present.
const LEAST_UNREAD: u64 = 50;

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

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRates {
    /// For all copies.
    pub all: u64,
    /// Of that, for copies of files that no reader of another node wants at present.
    pub unread: u64,
}

impl RepairYield {
    pub fn new(rate: u64) -> RepairYield {
        RepairYield { rate, since: Duration::ZERO, served: 0, readers: 0 }
    }

    /// `served`: all bytes that readers have got so far.
    pub fn rates(&mut self, served: u64, now: Duration) -> CopyRates {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= WINDOW {
            let bytes = u128::from(served.saturating_sub(self.served));
            let readers = bytes * 1_000_000 / elapsed.as_micros().max(1);
            self.readers = u64::try_from(readers).unwrap_or(u64::MAX);
            (self.since, self.served) = (now, served);
        }
        let left = self.rate.saturating_sub(self.readers);
        let more = self.readers.max(self.rate);
        let at_least = |parts| if self.rate == 0 { 0 } else { left.max(more / parts) };
        CopyRates { all: at_least(LEAST), unread: at_least(LEAST_UNREAD) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// The rates of copies a second later, when readers got so much in it.
    fn after(readers: u64, repair: u64) -> CopyRates {
        let mut copies = RepairYield::new(repair);
        copies.rates(7 * MB, Duration::from_secs(9));
        copies.rates(7 * MB + readers, Duration::from_secs(10))
    }

    #[test]
    fn what_readers_get_is_taken_off_down_to_a_tenth_and_a_fiftieth_for_files_that_nobody_reads() {
        let rates = |all, unread| CopyRates { all, unread };
        assert_eq!(after(0, 25 * MB), rates(25 * MB, 25 * MB));
        assert_eq!(after(MB, 25 * MB), rates(24 * MB, 24 * MB));
        assert_eq!(after(20 * MB, 25 * MB), rates(5 * MB, 5 * MB));
        assert_eq!(after(25 * MB, 25 * MB), rates(25 * MB / 10, MB / 2));
        assert_eq!(after(45 * MB, 25 * MB), rates(45 * MB / 10, 45 * MB / 50));
        assert_eq!(after(45 * MB, 0), rates(0, 0), "none are made");
    }

    /// What readers get of a link in the end when they take all that copies leave of it, and copies are sent as fast as they may.
    fn left_to_readers(link: u64, repair: u64, rate_of: fn(CopyRates) -> u64) -> u64 {
        let mut copies = RepairYield::new(repair);
        // They share it by half, as TCP does, when the readers begin.
        let (mut served, mut readers) = (0, link - repair.min(link / 2));
        for second in 1..20 {
            served += readers;
            readers = link - rate_of(copies.rates(served, Duration::from_secs(second))).min(link / 2);
        }
        readers
    }

    #[test]
    fn on_a_link_of_twice_the_rate_greedy_readers_get_nine_tenths_and_more_while_copies_are_of_other_files() {
        for (link, repair) in [(50 * MB, 25 * MB), (1250 * MB, 125 * MB), (400 * MB, 100 * MB)] {
            let readers = left_to_readers(link, repair, |rates| rates.all);
            assert!(readers >= link * 89 / 100, "{readers} of {link}");
            let readers = left_to_readers(link, repair, |rates| rates.unread);
            assert!(readers >= link * 97 / 100, "{readers} of {link}");
        }
    }

    #[test]
    fn it_is_measured_over_a_while_and_a_clock_that_stands_still_divides_by_nothing() {
        let mut copies = RepairYield::new(10 * MB);
        assert_eq!(copies.rates(u64::MAX, Duration::ZERO).all, 10 * MB);
        assert_eq!(copies.rates(MB, WINDOW).all, 8 * MB);
        assert_eq!(copies.rates(9 * MB, WINDOW + WINDOW / 2).all, 8 * MB, "not yet");
        assert_eq!(copies.rates(0, 3 * WINDOW).all, 10 * MB, "nor does a count that runs backwards hurt");
    }
}
