//! The wall clock, because freshness is remembered over restarts; tests own the hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, Default)]
pub struct Clock {
    ahead_ms: Arc<AtomicU64>,
}

impl Clock {
    /// Milliseconds since 1970; never 0, which means "never" in records.
    pub fn now_ms(&self) -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        u64::try_from(wall).unwrap_or(u64::MAX / 2).max(1) + self.ahead_ms.load(Ordering::Relaxed)
    }

    /// Let time pass without waiting for it.
    pub fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }
}
