//! A service's limits, kept by this process: bytes and requests a second of a file or of all, a time to the first byte,
//! and "busy, retry after" answers. So what was measured against a cloud can be measured without one.
//!
//! [`ServiceLimits`] is what can be asked for, [`limits`] decides when a request is answered (pure), an
//! [`EmulatedService`] is what all clients of a process share, and a [`ServiceClient`] does as it is told.
//! [`LimitedOrigin`] puts the limits in front of an origin; the bench puts them in front of its targets.

pub mod limits;
mod origin;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

pub use limits::ServiceLimits;
use limits::{ServiceAnswer, ServiceState};
pub use origin::LimitedOrigin;

/// A request that is answered with "busy" so often in a row has failed: services' own clients give up after three to ten.
const TRIES_MAX: u32 = 10;

/// What all clients ask before they do anything.
pub struct EmulatedService {
    begun: Instant,
    state: Mutex<ServiceState>,
}

impl EmulatedService {
    pub fn new(limits: ServiceLimits) -> Arc<EmulatedService> {
        Arc::new(EmulatedService { begun: Instant::now(), state: Mutex::new(ServiceState::new(limits)) })
    }

    /// One more client.
    pub fn client(self: &Arc<EmulatedService>) -> ServiceClient {
        ServiceClient { service: Arc::clone(self), busy: AtomicU64::new(0) }
    }
}

/// One client's side: it does as it is told, and counts how often it was told to come again.
pub struct ServiceClient {
    service: Arc<EmulatedService>,
    busy: AtomicU64,
}

impl ServiceClient {
    /// The call, when its turn has come, and not over before the service would be done with it. `path` says which file.
    pub async fn limited<T>(
        &self,
        path: &str,
        bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            let answer = {
                let mut state = self.service.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.ask(self.service.begun.elapsed(), path, bytes)
            };
            match answer {
                ServiceAnswer::Granted { begin, done } => {
                    self.sleep_until(begin).await;
                    let result = call.await;
                    self.sleep_until(done).await;
                    return result;
                }
                ServiceAnswer::Busy { again } => {
                    self.busy.fetch_add(1, Ordering::Relaxed);
                    self.sleep_until(again).await;
                }
            }
        }
        let reason = format!("{path}: busy, {TRIES_MAX} times in a row");
        Err(Error::new(ErrorKind::Unavailable, "ask the limited service for", reason))
    }

    /// How many "busy" answers it had so far.
    pub fn busy(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    async fn sleep_until(&self, at: std::time::Duration) {
        if at > self.service.begun.elapsed() {
            // Whoever runs the workers gives up those who wait too long.
            tokio::time::sleep_until(self.service.begun + at).await;
        }
    }
}
