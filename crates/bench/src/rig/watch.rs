//! A look at a tier's counters at regular times while a phase runs: what happened when.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Counters;

/// Between two looks.
pub const LOOK: Duration = Duration::from_millis(200);
/// Looks that are kept: half a day of them. Later ones are not taken.
const LOOKS_MAX: usize = 1 << 18;

pub struct Watch<T> {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<(f64, T)>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl<T: Send + 'static> Watch<T> {
    /// Of each look, `keep` is what is kept.
    pub fn start(admin: SocketAddr, keep: impl Fn(&Counters) -> T + Send + 'static) -> Watch<T> {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (told, out) = (stop.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            loop {
                // The last look comes after the end, so that nothing is missing.
                let last = told.load(Ordering::Relaxed);
                if let Ok(counters) = Counters::of(admin) {
                    let mut seen = out.lock().unwrap_or_else(PoisonError::into_inner);
                    if seen.len() < LOOKS_MAX {
                        seen.push((start.elapsed().as_secs_f64(), keep(&counters)));
                    }
                }
                if last {
                    return;
                }
                std::thread::park_timeout(LOOK);
            }
        });
        Watch { stop, seen, thread: Some(thread) }
    }

    /// Seconds after the start, and what was kept.
    pub fn stop(mut self) -> Vec<(f64, T)> {
        self.end();
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Watch<T> {
    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.end();
    }
}
