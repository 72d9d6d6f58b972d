//! Pure rules: may what we know still be served?

use std::time::Duration;

use crate::config::Freshness;

/// A change within this time of a listing could carry the same timestamps as the listed state: origins stamp
/// with ticks of up to 10 ms (ext4 on old kernels), some with whole seconds, and clocks differ a little.
const SETTLING: Duration = Duration::from_secs(3);

/// When something was checked of which nobody knows any more whether it is so: no rule takes it for fresh.
pub const DOUBTED_MS: u64 = 1;

/// What the caller wants to know it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A client opens, looks up or stats: the moment where `always` asks the origin.
    Open,
    /// In the middle of using it (reading on, attributes that ride along): `always` trusts the last open.
    Use,
}

/// Is knowledge from `checked_ms` good enough at `now_ms`? A time in the future (the clock was set back)
/// counts as unknown.
pub fn is_fresh(rule: Freshness, ask: Ask, checked_ms: u64, now_ms: u64) -> bool {
    if checked_ms <= DOUBTED_MS || checked_ms > now_ms {
        return false;
    }
    match (rule, ask) {
        (Freshness::Immutable, _) | (Freshness::Always, Ask::Use) => true,
        (Freshness::Always, Ask::Open) => false,
        (Freshness::Ttl(ttl), _) => within(ttl, checked_ms, now_ms),
    }
}

/// True if no more than `limit` has passed since `then_ms`.
pub fn within(limit: Duration, then_ms: u64, now_ms: u64) -> bool {
    then_ms != 0 && u128::from(now_ms.saturating_sub(then_ms)) < limit.as_millis().max(1)
}

/// Had the object been left alone long enough, when it was looked at, for any later change to show in its
/// timestamps? `looked_ms` by the time line, `wall_ms` by the wall clock: after a step of it either may be the one that
/// goes with the origin's clock, so both must say so. What is later than all of the time line, only a clock that the wall
/// clock was set to has stamped.
pub fn is_settled(changed: types::Timestamp, looked_ms: u64, wall_ms: u64) -> bool {
    let changed_ms = i128::from(changed.seconds) * 1000 + i128::from(changed.nanos / 1_000_000);
    let settled = changed_ms + i128::try_from(SETTLING.as_millis()).unwrap_or(i128::MAX);
    settled < i128::from(wall_ms) && (settled < i128::from(looked_ms) || changed_ms > i128::from(looked_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_trusts_exactly_what_it_promises() {
        let ttl = Freshness::Ttl(Duration::from_secs(30));
        let table = [
            (ttl, Ask::Open, 1_000, 30_999, true),
            (ttl, Ask::Open, 1_000, 31_000, false),
            (ttl, Ask::Use, 1_000, 31_000, false),
            (ttl, Ask::Use, 0, 5, false),
            (Freshness::Always, Ask::Open, 1_000, 1_000, false),
            (Freshness::Always, Ask::Use, 1_000, 1_000_000, true),
            (Freshness::Always, Ask::Use, 0, 1_000, false),
            (Freshness::Immutable, Ask::Open, 2, u64::MAX, true),
            (Freshness::Immutable, Ask::Open, DOUBTED_MS, u64::MAX, false),
            (Freshness::Always, Ask::Use, DOUBTED_MS, 1_000, false),
            (ttl, Ask::Use, DOUBTED_MS, 2, false),
            (Freshness::Immutable, Ask::Open, 0, 1, false),
            (Freshness::Immutable, Ask::Open, 3, 2, false),
        ];
        for (rule, ask, checked, now, expected) in table {
            assert_eq!(is_fresh(rule, ask, checked, now), expected, "{rule} {ask:?} {checked} {now}");
        }
    }

    #[test]
    fn a_directory_changed_just_now_is_not_settled() {
        let changed = types::Timestamp { seconds: 100, nanos: 500_000_000 };
        for (looked_ms, settled) in [(100_600, false), (103_500, false), (103_501, true)] {
            assert_eq!(is_settled(changed, looked_ms, looked_ms), settled, "{looked_ms}");
        }
        assert!(!is_settled(types::Timestamp { seconds: i64::MAX, nanos: 0 }, u64::MAX, u64::MAX));
    }

    #[test]
    fn after_a_step_of_the_wall_clock_nothing_is_settled_too_early() {
        let changed = types::Timestamp { seconds: 10_000, nanos: 0 };
        let just = 10_000_500;
        for (looked_ms, wall_ms, settled, what) in [
            (just, just + 3_600_000, false, "set forward, the origin has the right time"),
            (just + 3_600_000, just, false, "set back with the origin, which is this machine"),
            (just, just - 3_600_000, false, "set back, the origin has the right time"),
            (just - 3_600_000, just, false, "set forward with the origin"),
            (just - 3_600_000, just + 4000, true, "set forward with the origin, some time ago"),
            (just + 4000, just + 3_604_000, true, "set forward some time ago"),
        ] {
            assert_eq!(is_settled(changed, looked_ms, wall_ms), settled, "{what}");
        }
    }
}
