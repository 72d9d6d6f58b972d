//! A run seen from outside: how far it is, and the way to end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

pub struct Control {
    cancel: watch::Sender<bool>,
    pub progress: Progress,
}

/// Sums over all phases so far, of this process. Read them whenever you like.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
    pub(super) units: AtomicU64,
    pub(super) errors: AtomicU64,
}

impl Progress {
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    pub fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }

    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
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
