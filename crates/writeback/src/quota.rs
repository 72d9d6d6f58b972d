//! How fast writers may go while the journal fills. Pure.

use std::time::Duration;

/// Longest delay of one append: a writer that waits longer looks hung.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Nanoseconds per byte at a fill (in thousandths), linear in between. Half of the quota is free of any delay, so that
/// a burst that fits costs nothing; then the price doubles and doubles, so that writers are down to the speed of a
/// far origin before the last segment is reached, and never stand still at a wall that they did not see coming.
///
/// | fill | ns/B | one writer |
/// |---|---|---|
/// | 50 % | 0 | as fast as the disk |
/// | 60 % | 4 | 250 MB/s |
/// | 70 % | 10 | 100 MB/s |
/// | 80 % | 40 | 25 MB/s |
/// | 90 % | 200 | 5 MB/s |
/// | 97 % | 1,000 | 1 MB/s |
/// | 100 % | 4,000 | 250 kB/s; then it waits for room |
const PRICE: [(u64, u64); 7] =
    [(500, 0), (600, 4), (700, 10), (800, 40), (900, 200), (970, 1_000), (1_000, 4_000)];

/// The delay before `bytes` more are appended to a journal with `used` of `max` bytes.
pub fn delay(used: u64, max: u64, bytes: u64) -> Duration {
    let fill = (u128::from(used) * 1000 / u128::from(max.max(1))).min(1000) as u64;
    let price = PRICE.windows(2).find(|pair| fill <= pair[1].0).map_or(PRICE[6].1, |pair| {
        let ((low, cheap), (high, dear)) = (pair[0], pair[1]);
        let above = fill.saturating_sub(low);
        // In micro-units: the first steps are below one nanosecond a byte.
        cheap * 1000 + (dear - cheap) * 1000 * above / (high - low)
    });
    Duration::from_nanos(bytes.saturating_mul(price) / 1000).min(DELAY_MAX)
}

/// Should the live entries of the oldest segment move, so that it can leave? While there is room, they are probably
/// flushed before it is needed. Copying costs less than it frees while at most a quarter is live.
pub fn worth_moving(live_bytes: u64, segment_bytes: u64, used: u64, max: u64) -> bool {
    used >= max / 2 && live_bytes > 0 && live_bytes <= segment_bytes / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_quota_costs_nothing_and_then_each_byte_costs_more() {
        const MAX: u64 = 10_000;
        for used in 0..=MAX / 2 {
            assert_eq!(delay(used, MAX, 1 << 20), Duration::ZERO);
        }
        let mut before = Duration::ZERO;
        for used in MAX / 2..=MAX + 10 {
            let now = delay(used, MAX, 4096);
            assert!(now >= before, "at {used}");
            before = now;
        }
    }

    #[test]
    fn the_table_is_the_one_that_is_written_down() {
        for (fill, nanos) in [(500, 0), (600, 4), (650, 7), (700, 10), (800, 40), (900, 200), (1000, 4_000)] {
            assert_eq!(delay(fill, 1000, 10), Duration::from_nanos(nanos * 10), "{fill}");
        }
        assert_eq!(delay(2000, 1000, 10), Duration::from_nanos(40_000));
        assert_eq!(delay(1000, 1000, u64::MAX), DELAY_MAX);
        assert_eq!(delay(0, 0, 1), Duration::ZERO);
    }

    #[test]
    fn few_live_entries_move_when_room_is_scarce() {
        assert!(worth_moving(25, 100, 50, 100));
        assert!(!worth_moving(26, 100, 50, 100));
        assert!(!worth_moving(25, 100, 49, 100));
        assert!(!worth_moving(0, 100, 90, 100));
    }
}
