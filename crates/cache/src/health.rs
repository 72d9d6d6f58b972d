//! Is the cache disk fit for filling? A disk that fails or is full makes the tier slower, never wrong.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

/// After a failure, filling is tried again at this interval.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct DiskHealth {
    failure: Mutex<Option<DiskFailure>>,
}

struct DiskFailure {
    reason: String,
    retry_at: Instant,
}

impl DiskHealth {
    /// Fill now? Also true for the one try after each interval.
    pub fn may_fill(&self) -> bool {
        match &mut *self.lock() {
            None => true,
            Some(failure) if Instant::now() >= failure.retry_at => {
                failure.retry_at = Instant::now() + RETRY;
                true
            }
            Some(_) => false,
        }
    }

    /// Failed, and not yet time for the next try. Asking takes nobody's try away.
    pub fn is_ailing(&self) -> bool {
        self.lock().as_ref().is_some_and(|failure| Instant::now() < failure.retry_at)
    }

    pub fn failed(&self, reason: String) {
        let mut failure = self.lock();
        if failure.is_none() {
            warn!("the cache disk cannot be filled, reading through to the origin: {reason}");
        }
        *failure = Some(DiskFailure { reason, retry_at: Instant::now() + RETRY });
    }

    pub fn succeeded(&self) {
        if self.lock().take().is_some() {
            info!("the cache disk can be filled again");
        }
    }

    pub fn degraded(&self) -> Option<String> {
        self.lock().as_ref().map(|failure| failure.reason.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<DiskFailure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
