//! How far ahead? As far as the origin is away: bytes of a round trip, not a number of doublings.

use std::time::Duration;

use types::{BLOCK_SIZE, Distance};

/// Round trips' worth of bytes that are wanted ahead: one is on the line, one hides that a reader takes its bytes in
/// bursts and that the next request starts its trip only then.
const ROUND_TRIPS: u64 = 2;
/// Time that a part takes here besides its trip: to be written, checked and handed out.
const PROCESSING: Duration = Duration::from_millis(5);
/// A near origin deserves this much for all readers together: calls worth their cost.
const TOTAL_MIN: u64 = 4 << 20;
/// A reader's share never falls below a call that is worth its cost.
pub const SHARE_MIN: u64 = 8 * BLOCK_SIZE;

/// Bytes ahead for one of `streams` readers that share the line to an origin; `farthest` is the operator's word.
pub fn share(distance: Distance, streams: usize, farthest: u64) -> u64 {
    let total = distance.bytes_in(distance.latency + PROCESSING).saturating_mul(ROUND_TRIPS).max(TOTAL_MIN);
    (total / streams.max(1) as u64).max(SHARE_MIN).min(farthest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_window_is_what_the_line_holds() {
        let table = [
            // Milliseconds, Mbit/s, readers, the window in KiB.
            (1, 1_000, 1, 4096),
            (70, 1_000, 1, 18_310),
            (221, 1_000, 1, 55_175),
            (221, 10_000, 1, 262_144), // the operator's word
            (221, 100, 1, 5_517),
            (221, 1_000, 64, 862),
            (2, 1_000, 64, 512),
            (221, 1, 1, 4096),
        ];
        for (latency, mbit, streams, expected) in table {
            let distance = Distance { latency: Duration::from_millis(latency), rate: mbit * 125_000 };
            let kib = share(distance, streams, 256 * MIB) / 1024;
            assert!(kib.abs_diff(expected) <= 1, "{latency} ms, {mbit} Mbit/s, {streams}: {kib} KiB");
        }
    }

    #[test]
    fn the_operator_has_the_last_word() {
        let far = Distance { latency: Duration::from_secs(1), rate: u64::MAX };
        assert_eq!(share(far, 1, 600 << 10), 600 << 10);
        assert_eq!(share(far, 1000, 100 << 10), 100 << 10);
        assert_eq!(share(far, 0, 0), 0);
    }
}
