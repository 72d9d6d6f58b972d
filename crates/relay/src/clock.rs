//! Waiting to within some ten microseconds. The timers of the runtime are rounded up to a whole millisecond, which would
//! make a line of 1.9 ms twice as long; one timerfd, armed for the earliest waiter, is not.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub struct RelayClock {
    timer: AsyncFd<OwnedFd>,
    waiting: Mutex<QueuedSleep>,
}

#[derive(Default)]
struct QueuedSleep {
    /// The number makes two waiters for the same instant two keys.
    wakers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl RelayClock {
    /// In the runtime that will wait.
    pub fn new() -> io::Result<Arc<RelayClock>> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "what it is unsound for, a descriptor that changes, an OwnedFd is not")]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Arc::new(RelayClock { timer, waiting: Mutex::default() }))
    }

    /// Wakes the waiters; must be running for anybody to be woken.
    pub async fn run(&self) -> io::Result<()> {
        loop {
            let mut guard = self.timer.readable().await?;
            let mut expirations = [0; 8];
            // What was read does not matter: who is due is decided by the time.
            let _ = guard.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
            self.wake_due();
        }
    }

    fn wake_due(&self) {
        let now = Instant::now();
        let mut waiting = self.lock();
        while let Some(first) = waiting.wakers.first_entry() {
            if first.key().0 > now {
                let due = first.key().0;
                self.arm(due);
                return;
            }
            first.remove().wake();
        }
    }

    pub fn sleep_until(self: &Arc<RelayClock>, due: Instant) -> Sleep {
        Sleep { clock: Arc::clone(self), due, key: None }
    }

    fn arm(&self, due: Instant) {
        // Zero would disarm it.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = timerfd_settime(
            self.timer.get_ref(),
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval, it_value },
        );
        set.expect("the timer is open and the time is in range");
    }

    fn lock(&self) -> MutexGuard<'_, QueuedSleep> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Sleep {
    clock: Arc<RelayClock>,
    due: Instant,
    key: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        let clock = Arc::clone(&self.clock);
        let mut waiting = clock.lock();
        let key = match self.key {
            Some(key) => key,
            None => {
                let key = (self.due, waiting.next);
                waiting.next += 1;
                self.key = Some(key);
                key
            }
        };
        waiting.wakers.insert(key, context.waker().clone());
        if waiting.wakers.first_key_value().is_some_and(|(first, _)| *first == key) {
            clock.arm(self.due);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.clock.lock().wakers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_order_and_never_early() {
        let clock = RelayClock::new().expect("a timer");
        let driver = Arc::clone(&clock);
        let driver = tokio::spawn(async move { driver.run().await });
        let start = Instant::now();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = [3_u64, 1, 2, 1]
            .into_iter()
            .map(|ms| {
                let (woken, sleep) =
                    (Arc::clone(&woken), clock.sleep_until(start + Duration::from_millis(ms)));
                tokio::spawn(async move {
                    sleep.await;
                    woken.lock().expect("whole").push((ms, start.elapsed()));
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("woken");
        }
        let woken = woken.lock().expect("whole");
        assert_eq!(woken.iter().map(|(ms, _)| *ms).collect::<Vec<_>>(), [1, 1, 2, 3]);
        assert!(woken.iter().all(|(ms, at)| *at >= Duration::from_millis(*ms)), "{woken:?}");
        driver.abort();
    }

    #[tokio::test]
    async fn a_sleep_given_up_leaves_nothing_behind() {
        let clock = RelayClock::new().expect("a timer");
        let far = clock.sleep_until(Instant::now() + Duration::from_secs(3600));
        assert!(tokio::time::timeout(Duration::from_millis(1), far).await.is_err());
        assert!(clock.lock().wakers.is_empty());
    }
}
