//! Pure rules: may what we know still be served?

use std::time::Duration;

use crate::config::Freshness;

/// A change within this time of a listing could carry the same timestamps as the listed state: origins stamp
/// with ticks of up to 10 ms (ext4 on old kernels), some with whole seconds, and clocks differ a little.
const SETTLING: Duration = Duration::from_secs(3);

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
    if checked_ms == 0 || checked_ms > now_ms {
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
/// timestamps?
pub fn is_settled(changed: types::Timestamp, looked_ms: u64) -> bool {
    let changed_ms = i128::from(changed.seconds) * 1000 + i128::from(changed.nanos / 1_000_000);
    changed_ms + i128::try_from(SETTLING.as_millis()).unwrap_or(i128::MAX) < i128::from(looked_ms)
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
            (Freshness::Immutable, Ask::Open, 1, u64::MAX, true),
            (Freshness::Immutable, Ask::Open, 0, 1, false),
            (Freshness::Immutable, Ask::Open, 2, 1, false),
        ];
        for (rule, ask, checked, now, expected) in table {
            assert_eq!(is_fresh(rule, ask, checked, now), expected, "{rule} {ask:?} {checked} {now}");
        }
    }

    #[test]
    fn a_directory_changed_just_now_is_not_settled() {
        let changed = types::Timestamp { seconds: 100, nanos: 500_000_000 };
        assert!(!is_settled(changed, 100_600));
        assert!(!is_settled(changed, 103_500));
        assert!(is_settled(changed, 103_501));
        assert!(!is_settled(types::Timestamp { seconds: i64::MAX, nanos: 0 }, u64::MAX));
    }
}
