//! A run seen from outside: where processes meet before a phase, how far it is, and the way to end it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;
use types::Result;

/// Where workers of all processes meet before a phase. Implemented here for one process, and over a fleet of them by
/// whoever runs one.
#[async_trait]
pub trait PhaseGate: Send + Sync {
    /// Returns when all processes may begin the phase, with the moment, on this process's clock, that all of
    /// them count from. It may lie a little in the past. Fails if the others will not come.
    async fn wait(&self, phase: &str) -> Result<Instant>;
}

/// One process meets itself.
pub struct LocalGate;

#[async_trait]
impl PhaseGate for LocalGate {
    async fn wait(&self, _phase: &str) -> Result<Instant> {
        Ok(Instant::now())
    }
}

pub struct Control {
    cancel: watch::Sender<bool>,
    pub progress: Progress,
}

/// Sums over all phases of a job so far, of this process. Read them whenever you like.
#[derive(Debug, Default)]
pub struct Progress {
    /// In both directions; they count for the job's budget.
    pub bytes: AtomicU64,
    pub units: AtomicU64,
    pub errors: AtomicU64,
}

impl Control {
    pub fn new() -> Arc<Control> {
        Arc::new(Control { cancel: watch::Sender::new(false), progress: Progress::default() })
    }

    /// Ends the run within about a second; its outcome says so.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Returns when the run is cancelled.
    pub(crate) async fn cancelled(&self) {
        let mut receiver = self.cancel.subscribe();
        // The sender lives as long as `self`.
        let _ = receiver.wait_for(|cancelled| *cancelled).await;
    }
}
