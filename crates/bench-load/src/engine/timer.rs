//! Waking at a moment, to about a tenth of a millisecond: the runtime's own timer rounds up to the next
//! millisecond, which would be the largest part of a fast target's response time.
//!
//! One thread per open loop sleeps until the next of the moments that workers wait for. It is a help only:
//! whoever waits also waits on the runtime's timer, which is right (if late) whatever this thread does, and
//! which alone knows a clock that tests have stopped.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Without anybody waiting the thread looks this often whether it is still wanted.
const IDLE: Duration = Duration::from_millis(500);

struct TimerEntry {
    at: Instant,
    wake: oneshot::Sender<()>,
}

pub struct Timer {
    waiting: SyncSender<TimerEntry>,
}

impl Timer {
    /// For so many workers, each of which waits for one moment at a time.
    pub fn start(workers: usize) -> Timer {
        let (waiting, incoming) = sync_channel(workers.max(1));
        let thread =
            std::thread::Builder::new().name("bench-timer".to_owned()).spawn(move || serve(&incoming));
        if let Err(error) = thread {
            tracing::warn!(%error, "no timer thread; an open loop starts up to a millisecond late");
        }
        Timer { waiting }
    }

    /// Returns at that moment, or at once if this timer cannot help.
    pub async fn sleep_until(&self, at: tokio::time::Instant) {
        let (wake, woken) = oneshot::channel();
        let asked = self.waiting.try_send(TimerEntry { at: at.into_std(), wake });
        let precise = async {
            if asked.is_err() || woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = precise => {}
            () = tokio::time::sleep_until(at) => {}
        }
    }
}

/// Ends with the timer.
fn serve(incoming: &Receiver<TimerEntry>) {
    let mut waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>> = BTreeMap::new();
    let mut count = 0;
    loop {
        let now = Instant::now();
        while let Some(entry) = waiting.first_entry().filter(|entry| entry.key().0 <= now) {
            // It may have been given up.
            let _ = entry.remove().send(());
        }
        let wait = waiting.first_key_value().map_or(IDLE, |((at, _), _)| at.saturating_duration_since(now));
        let mut next = match incoming.recv_timeout(wait.min(IDLE)) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        while let Some(one) = next {
            count += 1;
            waiting.insert((one.at, count), one.wake);
            next = match incoming.try_recv() {
                Ok(next) => Some(next),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_wake_in_order_and_never_early() {
        let timer = std::sync::Arc::new(Timer::start(50));
        let begin = tokio::time::Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..50_u64 {
            let (timer, at) =
                (std::sync::Arc::clone(&timer), begin + Duration::from_micros(20_000 + n * 700));
            tasks.spawn(async move {
                timer.sleep_until(at).await;
                tokio::time::Instant::now() >= at
            });
        }
        while let Some(done) = tasks.join_next().await {
            assert!(done.expect("ended"), "woken early");
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_clock_is_obeyed() {
        let (timer, begin) = (Timer::start(1), tokio::time::Instant::now());
        timer.sleep_until(begin + Duration::from_secs(3600)).await;
        assert_eq!(begin.elapsed().as_secs(), 3600);
    }
}
