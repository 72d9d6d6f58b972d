//! Bounds the calls that an origin gets at the same time. Metadata, reads and writes have separate room, so that a
//! look-up does not queue behind bulk reads. How many reads is found out (`adaptive.rs`), and how far the origin is is
//! measured on the way (`distance.rs`). A read whose answer straggles is sent once more; the first answer counts.
//!
//! Reads that nobody waits for (warm-up) take turns: one gets its turn when no other read waits and a quarter of the room
//! is free. They wait before they are asked for, so nobody who comes to need the same bytes waits in their place.

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use types::{Distance, Error, ErrorKind, Result, Turn};

use crate::adaptive::{Adaptive, SlotBounds};
use crate::distance::{Odometer, Sent};
use crate::pace::Pace;
use crate::{CallClass, Layer, Origin, OriginAnswer, OriginCall, Sending};

#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    /// Metadata calls at the same time. 256 at 221 ms is 1,150 look-ups per second.
    pub metadata_calls: usize,
    /// Reads at the same time, to begin with. 128 of 512 KiB at 221 ms is 300 MB/s.
    pub reads: usize,
    /// Fewer and more than these it never becomes. 1024 of 512 KiB at 221 ms is 19 Gbit/s.
    pub reads_least: usize,
    pub reads_most: usize,
    /// Writes and commits at the same time. 64 of 1 MiB at 221 ms is 300 MB/s.
    pub writes: usize,
    /// Longest wait for room; then the call fails with `Busy`, and a turn comes at last.
    pub patience: Duration,
}

impl Default for LimitConfig {
    fn default() -> LimitConfig {
        LimitConfig {
            metadata_calls: 256,
            reads: 128,
            reads_least: 8,
            reads_most: 1024,
            writes: 64,
            patience: Duration::from_secs(10),
        }
    }
}

/// What the limit tells about its origin.
#[derive(Clone, Default)]
pub struct LimitMetrics {
    /// From a call to its answer, in seconds, when nothing queues.
    pub latency: Gauge<f64, AtomicU64>,
    /// Bytes per second that the line carries, as far as it was seen busy.
    pub rate: Gauge<f64, AtomicU64>,
    /// Reads that may be under way.
    pub limit: Gauge,
    /// Reads sent once more.
    pub again: Counter,
    /// Of these, answered by the second call first.
    pub again_won: Counter,
}

pub struct Limit {
    inner: Arc<dyn Origin>,
    metadata: Semaphore,
    reads: Arc<Reads>,
    writes: Semaphore,
    patience: Duration,
    /// See [`OriginTraits::answers_side_by_side`](crate::OriginTraits::answers_side_by_side).
    side_by_side: bool,
    began: Instant,
    state: Mutex<State>,
    metrics: LimitMetrics,
}

struct State {
    odometer: Odometer,
    adaptive: Adaptive,
    pace: Pace,
}

/// Room for a number of reads that changes.
struct Reads {
    room: Semaphore,
    used: AtomicUsize,
    /// What `room` and `used` add up to, less `owed`.
    size: AtomicUsize,
    /// Permits to take away when they come back.
    owed: AtomicUsize,
    /// Reads that wait for room.
    waiting: AtomicUsize,
    /// Turns given and not over. Their reads are in `used` too while they are under way.
    turns: AtomicUsize,
    /// Held by the one whose turn is next.
    next: Semaphore,
    /// Wakes it: there may be room now.
    changed: Notify,
}

/// Of room for `size` reads, what those that nobody waits for may fill.
fn room_for_turns(size: usize) -> usize {
    (size - size.div_ceil(4)).max(1)
}

/// May one more turn be given, with `used` reads under way, `turns` given and `waiting` reads in the queue?
fn is_free(size: usize, used: usize, turns: usize, waiting: usize) -> bool {
    waiting == 0 && used.max(turns) < room_for_turns(size)
}

impl Reads {
    fn new(size: usize) -> Reads {
        Reads {
            room: Semaphore::new(size),
            used: AtomicUsize::new(0),
            size: AtomicUsize::new(size),
            owed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            next: Semaphore::new(1),
            changed: Notify::new(),
        }
    }

    /// Only one waits here, the one who has `next`.
    async fn wait_until_free(&self) {
        loop {
            let now = |count: &AtomicUsize| count.load(Ordering::SeqCst);
            if is_free(now(&self.size), now(&self.used), now(&self.turns), now(&self.waiting)) {
                return;
            }
            self.changed.notified().await;
        }
    }

    /// What counts when it is asked whether the room is full: turns that fill what they may would fill more.
    fn filled(&self) -> usize {
        let (used, size) = (self.used.load(Ordering::SeqCst), self.size.load(Ordering::SeqCst));
        let turns = self.turns.load(Ordering::SeqCst);
        if turns >= room_for_turns(size) { used.max(size) } else { used }
    }

    /// Only one caller at a time (under the lock of the state).
    fn resize(&self, size: usize) {
        let before = self.size.swap(size, Ordering::Relaxed);
        if size > before {
            let more = size - before;
            let paid = self
                .owed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owed| Some(owed.saturating_sub(more)));
            self.room.add_permits(more.saturating_sub(paid.unwrap_or(0)));
        } else {
            let less = before - size;
            let gone = self.room.forget_permits(less);
            self.owed.fetch_add(less - gone, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }
}

/// A read in the queue.
struct QueuedRead<'a>(&'a Reads);

impl<'a> QueuedRead<'a> {
    fn begin(reads: &'a Reads) -> QueuedRead<'a> {
        reads.waiting.fetch_add(1, Ordering::SeqCst);
        QueuedRead(reads)
    }
}

impl Drop for QueuedRead<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

struct GivenTurn(Arc<Reads>);

impl Drop for GivenTurn {
    fn drop(&mut self) {
        self.0.turns.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

/// A read's place.
struct ReadSlot<'a> {
    reads: &'a Reads,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for ReadSlot<'_> {
    fn drop(&mut self) {
        self.reads.used.fetch_sub(1, Ordering::SeqCst);
        let pay = |owed: usize| owed.checked_sub(1);
        if let Some(permit) = self.permit.take()
            && self.reads.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
        {
            permit.forget();
        }
        self.reads.changed.notify_one();
    }
}

/// A call that was sent; given up unless it is answered.
struct Trip<'a> {
    limit: &'a Limit,
    sent: Sent,
    began: Instant,
    bytes: u64,
    open: bool,
}

impl Trip<'_> {
    fn answered(mut self) -> Duration {
        self.open = false;
        let took = self.began.elapsed();
        let mut state = self.limit.state();
        state.odometer.answer(self.sent, self.bytes, self.limit.now());
        took
    }
}

impl Drop for Trip<'_> {
    fn drop(&mut self) {
        if self.open {
            self.limit.state().odometer.lost(self.bytes);
        }
    }
}

impl Limit {
    pub fn new(inner: Arc<dyn Origin>, config: LimitConfig) -> Arc<Limit> {
        Limit::told(inner, config, LimitMetrics::default())
    }

    /// As `new`, and tells what it finds out.
    pub fn told(inner: Arc<dyn Origin>, config: LimitConfig, metrics: LimitMetrics) -> Arc<Limit> {
        let bounds = SlotBounds {
            least: config.reads_least.min(config.reads),
            most: config.reads_most.max(config.reads),
        };
        let adaptive = Adaptive::new(config.reads, bounds);
        metrics.limit.set(i64::try_from(adaptive.limit()).unwrap_or(i64::MAX));
        let side_by_side = inner.traits().answers_side_by_side;
        let odometer = if side_by_side { Odometer::of_answers_side_by_side() } else { Odometer::default() };
        Arc::new(Limit {
            inner,
            metadata: Semaphore::new(config.metadata_calls),
            reads: Arc::new(Reads::new(adaptive.limit())),
            writes: Semaphore::new(config.writes),
            patience: config.patience,
            side_by_side,
            began: Instant::now(),
            state: Mutex::new(State { odometer, adaptive, pace: Pace::default() }),
            metrics,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn room<'a>(&self, semaphore: &'a Semaphore) -> Result<SemaphorePermit<'a>> {
        match tokio::time::timeout(self.patience, semaphore.acquire()).await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => Err(Error::new(ErrorKind::Busy, "wait for room to call", self.inner.url())),
        }
    }

    async fn place(&self) -> Result<ReadSlot<'_>> {
        let _waiting = QueuedRead::begin(&self.reads);
        let permit = self.room(&self.reads.room).await?;
        self.reads.used.fetch_add(1, Ordering::SeqCst);
        Ok(ReadSlot { reads: &self.reads, permit: Some(permit) })
    }

    fn send(&self, bytes: u64) -> Trip<'_> {
        let sent = self.state().odometer.send(bytes, self.now());
        Trip { limit: self, sent, began: Instant::now(), bytes, open: true }
    }

    async fn wait_for_its_time(&self, bytes: u64) {
        if !self.side_by_side {
            return;
        }
        let wait = {
            let (now, mut state) = (self.now(), self.state());
            let distance = state.odometer.distance();
            state.pace.wait(bytes, distance, now)
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// A metadata call: it has its own room, and tells the latency.
    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let _room = self.room(&self.metadata).await?;
        let trip = self.send(0);
        let answer = call.await;
        // An answer from the origin, not from a client that has given up on it.
        if !answer.as_ref().is_err_and(Error::is_retryable) {
            trip.answered();
        }
        answer
    }

    /// The first answer of a read and, if it straggles, of the same read sent once more.
    async fn first_answer<'a, A: OriginAnswer>(&self, send: impl Fn() -> Sending<'a, A>) -> Result<A> {
        let mut first = send();
        let straggles = self.state().adaptive.straggles_after();
        let Some(straggles) = straggles else { return first.await };
        if let Ok(answer) = tokio::time::timeout(straggles, &mut first).await {
            return answer;
        }
        if !self.state().adaptive.take_again() {
            return first.await;
        }
        self.metrics.again.inc();
        let mut second = send();
        tokio::select! {
            answer = &mut first => if answer.is_ok() { answer } else { second.await },
            answer = &mut second => {
                if answer.is_err() {
                    return first.await;
                }
                self.metrics.again_won.inc();
                answer
            }
        }
    }

    fn learn<A>(&self, answer: &Result<A>, took: Option<Duration>) {
        let mut state = self.state();
        let distance = state.odometer.distance();
        let used = self.reads.filled();
        match (answer, took) {
            (Ok(_), Some(took)) => state.adaptive.answered(took, distance.latency, used, self.now()),
            (Err(e), _) if e.is_retryable() => state.adaptive.failed(distance.latency, self.now()),
            _ => {}
        }
        let limit = state.adaptive.limit();
        if limit != self.reads.size.load(Ordering::Relaxed) {
            self.reads.resize(limit);
            self.metrics.limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        }
        self.metrics.latency.set(distance.latency.as_secs_f64());
        self.metrics.rate.set(distance.rate as f64);
    }
}

impl Layer for Limit {
    fn inner(&self) -> &dyn Origin {
        self.inner.as_ref()
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        match call.class() {
            CallClass::Local => send().await,
            CallClass::Metadata => self.ask(send()).await,
            CallClass::Read => {
                let bytes = call.bytes();
                self.wait_for_its_time(bytes).await;
                let _place = self.place().await?;
                let trip = self.send(bytes);
                let answer = self.first_answer(send).await;
                let took = answer.is_ok().then(|| trip.answered());
                self.learn(&answer, took);
                answer
            }
            CallClass::Write => {
                let _room = self.room(&self.writes).await?;
                send().await
            }
        }
    }

    fn around_distance(&self) -> Option<Distance> {
        let state = self.state();
        state.odometer.knows().then(|| state.odometer.distance())
    }

    async fn around_turn(&self) -> Turn {
        let _next = self.reads.next.acquire().await.expect("the semaphore is never closed");
        // Who never gets a turn would starve; one in `patience` harms nobody.
        let _ = tokio::time::timeout(self.patience, self.reads.wait_until_free()).await;
        self.reads.turns.fetch_add(1, Ordering::SeqCst);
        Turn::in_place(GivenTurn(self.reads.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::is_free;

    #[test]
    fn turns_leave_a_quarter_free_and_let_those_who_wait_go_first() {
        for (size, used, turns, waiting, free) in [
            (8, 5, 0, 0, true),
            (8, 6, 0, 0, false),
            (8, 0, 5, 0, true),
            (8, 0, 6, 0, false),
            (8, 0, 0, 1, false),
            (1, 0, 0, 0, true),
            (1, 1, 0, 0, false),
            (10, 7, 7, 0, false),
        ] {
            assert_eq!(
                is_free(size, used, turns, waiting),
                free,
                "{used} of {size}, {turns} turns, {waiting} wait"
            );
        }
    }
}
