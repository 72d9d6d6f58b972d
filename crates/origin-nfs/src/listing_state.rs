//! What is learnt of a server by listing: whether it has READDIRPLUS, and how much to ask for at a time. A page costs a
//! round trip, so it should be large on a far line, but a server with slow disks must still answer before anybody gives up.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use crate::listing_guard::ListingGuard;

/// Bytes of a page: at most what fits a record, at least what every server takes. About 200 bytes make an
/// entry.
const PAGE_MAX: u32 = 1 << 20;
const PAGE_MIN: u32 = 32 << 10;
const PAGE_FIRST: u32 = 256 << 10;

/// A page that takes less may be larger next time; one that takes more should be smaller. Well under the
/// stall timeout.
const FAST: Duration = Duration::from_millis(700);
const SLOW: Duration = Duration::from_secs(2);

/// Bytes to ask for after a page of `bytes` took `time`.
pub fn next_page_bytes(bytes: u32, time: Duration) -> u32 {
    let next = if time <= FAST {
        bytes.saturating_mul(2)
    } else if time >= SLOW {
        bytes / 2
    } else {
        bytes
    };
    next.clamp(PAGE_MIN, PAGE_MAX)
}

pub struct ListingState {
    pub page_bytes: AtomicU32,
    /// The server said that it has no READDIRPLUS.
    pub no_plus: AtomicBool,
    pub guard: ListingGuard,
}

impl Default for ListingState {
    fn default() -> ListingState {
        ListingState {
            page_bytes: AtomicU32::new(PAGE_FIRST),
            no_plus: AtomicBool::new(false),
            guard: ListingGuard::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_on_a_fast_server_and_shrink_on_a_slow_one_within_bounds() {
        let mut bytes = PAGE_FIRST;
        for _ in 0..10 {
            bytes = next_page_bytes(bytes, Duration::from_millis(71));
        }
        assert_eq!(bytes, PAGE_MAX);
        assert_eq!(next_page_bytes(bytes, Duration::from_secs(1)), PAGE_MAX);
        for _ in 0..10 {
            bytes = next_page_bytes(bytes, Duration::from_secs(3));
        }
        assert_eq!(bytes, PAGE_MIN);
    }
}
