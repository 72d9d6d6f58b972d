//! How fast the other end of a connection must go on. Only the time that we wait for it counts, so that nobody is
//! cut because we are slow.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::ClientBudget;

/// The least rate in bytes per second: a slower client does not work but holds what others need.
const RATE_LEAST: u64 = 4 << 10;
/// The least rate while others wait for memory that this client holds.
const RATE_PRESSED: u64 = 128 << 10;
/// The time in which nobody is cut even while others wait.
const GRACE: Duration = Duration::from_secs(1);
/// The time between two looks at whether others wait.
const TICK: Duration = Duration::from_millis(500);

/// The progress of one transfer, and how long we waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerPace {
    pub waited: Duration,
    /// The time since the last byte.
    pub idle: Duration,
    pub bytes: u64,
}

impl PeerPace {
    /// Whether the other end is too slow. `stall`: the longest pause. `contended`: others wait for memory that it
    /// holds.
    pub fn is_too_slow(&self, stall: Duration, contended: bool) -> bool {
        let at = |rate: u64| Duration::from_millis(self.bytes.saturating_mul(1000) / rate);
        self.idle >= stall
            || self.waited > stall + at(RATE_LEAST)
            || contended && self.waited > GRACE + at(RATE_PRESSED)
    }

    pub fn progressed(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.idle = Duration::ZERO;
    }
}

/// How long to wait for the other end.
#[derive(Clone, Copy)]
pub struct StallPolicy<'a> {
    pub stall: Duration,
    /// The share of which memory is held during the wait.
    pub share: Option<&'a ClientBudget>,
}

impl StallPolicy<'_> {
    /// Runs `work` to its end; `None`: the other end is too slow. Work that is ready at once costs no look at the
    /// clock.
    pub async fn wait<T>(&self, pace: &mut PeerPace, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return Some(done);
        }
        let tick = TICK.min(self.stall);
        loop {
            if pace.is_too_slow(self.stall, self.share.is_some_and(ClientBudget::is_contended)) {
                return None;
            }
            let begun = Instant::now();
            let done = timeout(tick, work.as_mut()).await;
            let waited = begun.elapsed();
            pace.waited += waited;
            match done {
                Ok(done) => {
                    pace.idle = Duration::ZERO;
                    return Some(done);
                }
                Err(_) => pace.idle += waited,
            }
        }
    }
}

/// The same for code that is polled: asked each time that the other end has done nothing yet.
pub struct StallTimer {
    pace: PeerPace,
    stall: Duration,
    tick: Pin<Box<Sleep>>,
    /// When the current wait began.
    since: Option<Instant>,
    /// The part of the wait that is counted already.
    counted: Duration,
}

impl StallTimer {
    pub fn new(stall: Duration) -> StallTimer {
        let tick = Box::pin(sleep(TICK.min(stall)));
        StallTimer { pace: PeerPace::default(), stall, tick, since: None, counted: Duration::ZERO }
    }

    /// Ready when the other end is too slow.
    pub fn poll_too_slow(&mut self, cx: &mut Context<'_>, is_contended: bool) -> Poll<()> {
        let since = match self.since {
            Some(since) => since,
            None => {
                let now = Instant::now();
                self.tick.as_mut().reset(now + TICK.min(self.stall));
                self.counted = Duration::ZERO;
                *self.since.insert(now)
            }
        };
        while self.tick.as_mut().poll(cx).is_ready() {
            self.count(since);
            if self.pace.is_too_slow(self.stall, is_contended) {
                return Poll::Ready(());
            }
            let next = Instant::now() + TICK.min(self.stall);
            self.tick.as_mut().reset(next);
        }
        Poll::Pending
    }

    fn count(&mut self, since: Instant) {
        let waited = since.elapsed();
        self.pace.waited += waited.saturating_sub(self.counted);
        (self.pace.idle, self.counted) = (waited, waited);
    }

    /// Records that the other end has taken or sent `bytes`.
    pub fn progressed(&mut self, bytes: u64) {
        if let Some(since) = self.since.take() {
            self.count(since);
        }
        self.pace.progressed(bytes);
    }

    /// Ends the wait; the next one is judged anew.
    pub fn restart(&mut self) {
        (self.pace, self.since) = (PeerPace::default(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_depends_on_bytes_time_and_whether_others_wait() {
        let stall = Duration::from_secs(30);
        let late = |waited: u64, idle: u64, bytes: u64, contended: bool| {
            let (waited, idle) = (Duration::from_secs(waited), Duration::from_secs(idle));
            PeerPace { waited, idle, bytes }.is_too_slow(stall, contended)
        };
        assert!(!late(29, 29, 0, false), "one may hesitate");
        assert!(late(30, 30, 0, false), "and not for ever");
        assert!(late(100, 1, 100, false), "a byte a second is not going on");
        assert!(!late(100, 1, 1 << 20, false), "10 KiB/s is");
        assert!(!late(1, 1, 0, true) && late(2, 1, 0, true), "while others wait, a second is given");
        assert!(!late(9, 0, 1 << 20, true) && late(10, 0, 1 << 20, true), "and time for what is sent");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_the_work_or_with_patience() {
        let patience = StallPolicy { stall: Duration::from_secs(3), share: None };
        assert_eq!(patience.wait(&mut PeerPace::default(), async { 7 }).await, Some(7));
        let mut pace = PeerPace::default();
        let slow = tokio::time::sleep(Duration::from_secs(2));
        assert_eq!(patience.wait(&mut pace, slow).await, Some(()));
        assert_eq!((pace.waited.as_secs(), pace.idle), (2, Duration::ZERO));
        assert_eq!(patience.wait(&mut PeerPace::default(), std::future::pending::<()>()).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_drips_is_late_and_who_goes_on_is_not() {
        for (bytes, is_too_slow) in [(100, true), (64 << 10, false)] {
            let mut waiting = StallTimer::new(Duration::from_secs(3));
            let mut late = false;
            for _ in 0..20 {
                let second = Instant::now() + Duration::from_secs(1);
                let wait = poll_fn(|cx| waiting.poll_too_slow(cx, false));
                late |= tokio::time::timeout_at(second, wait).await.is_ok();
                waiting.progressed(bytes);
            }
            assert_eq!(late, is_too_slow, "{bytes} bytes a second");
        }
    }
}
