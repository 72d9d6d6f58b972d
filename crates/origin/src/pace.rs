//! When is a large read sent? Pure: sizes and the line's rate go in, a wait comes out.
//!
//! A store answers each read on a connection of its own, and the line gives each of them an equal share: what is asked for
//! in one go comes in one go, all of it at the end. Who reads in order waits for all of it and then asks for the next lot
//! in one go again, and the line lies idle for a round trip each time. So reads are sent one after the other, somewhat
//! faster than the line carries their answers: these come one after the other then, too.

use std::time::Duration;

use types::Distance;

/// A line that became faster is found out, and a queue that somebody waits for is never empty.
const FASTER: f64 = 1.5;
/// Nearer than this a round trip is not worth it.
const FAR: Duration = Duration::from_millis(10);
/// Smaller reads are sent at once: somebody waits for them.
const LARGE: u64 = 256 << 10;

#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// When the line has room for the next one; since any fixed moment.
    next: Duration,
}

impl Pace {
    /// A read of so many bytes is to be sent: after this.
    pub fn wait(&mut self, bytes: u64, distance: Distance, now: Duration) -> Duration {
        if bytes < LARGE || distance.latency < FAR {
            return Duration::ZERO;
        }
        let at = self.next.max(now);
        self.next = at + Duration::from_secs_f64(bytes as f64 / (distance.rate as f64 * FASTER));
        at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LINE: Distance = Distance { latency: Duration::from_millis(200), rate: 100 * MIB };

    #[test]
    fn large_reads_of_a_far_origin_are_sent_one_after_the_other() {
        let mut pace = Pace::default();
        let now = Duration::from_secs(5);
        let waits: Vec<_> = (0..31).map(|_| pace.wait(MIB / 2, LINE, now)).collect();
        assert_eq!(waits[0], Duration::ZERO);
        assert!(waits[30].abs_diff(Duration::from_millis(100)) < Duration::from_millis(1), "{:?}", waits[30]);
        assert!(waits.is_sorted());
        // What was not used is not saved up.
        let later = now + Duration::from_secs(9);
        assert_eq!(pace.wait(MIB, LINE, later), Duration::ZERO);
        assert!(pace.wait(MIB, LINE, later) > Duration::ZERO);
    }

    #[test]
    fn small_ones_and_those_of_a_near_origin_are_sent_at_once() {
        let mut pace = Pace::default();
        let near = Distance { latency: Duration::from_millis(2), ..LINE };
        for _ in 0..100 {
            assert_eq!(pace.wait(MIB, near, Duration::ZERO), Duration::ZERO);
            assert_eq!(pace.wait(64 << 10, LINE, Duration::ZERO), Duration::ZERO);
        }
    }
}
