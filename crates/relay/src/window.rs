//! How many bytes of one connection may be on the line in one direction: the window of a long line. A byte counts from
//! when it is taken until its acknowledgement would be back, half a round trip after delivery, so a connection carries a
//! window per round trip at most. All together are bounded too: what is on the line is memory of ours.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock::RelayClock;

/// Acknowledgements this close to each other count as one.
const TOGETHER: Duration = Duration::from_micros(100);

/// The bound over all connections.
pub struct Total {
    max: u64,
    in_flight: AtomicU64,
    /// Open connections: each direction of each has an equal share.
    pub open: AtomicUsize,
    room: Notify,
}

impl Total {
    pub fn new(max: u64) -> Total {
        Total { max, in_flight: AtomicU64::new(0), open: AtomicUsize::new(0), room: Notify::new() }
    }

    fn share(&self) -> u64 {
        let directions = 2 * self.open.load(Ordering::Relaxed).max(1);
        self.max / (directions as u64)
    }

    fn is_full(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) >= self.max
    }
}

pub struct DeliveryWindow {
    limit: u64,
    total: Arc<Total>,
    state: Mutex<State>,
    /// Something was delivered, so that an acknowledgement has a time now.
    delivered: Notify,
}

#[derive(Default)]
struct State {
    in_flight: u64,
    /// When acknowledgements arrive, and for how much.
    acknowledged: VecDeque<(Instant, u64)>,
}

impl State {
    fn expire(&mut self, now: Instant) {
        while let Some((at, bytes)) = self.acknowledged.front().copied() {
            if at > now {
                return;
            }
            self.acknowledged.pop_front();
            self.in_flight = self.in_flight.saturating_sub(bytes);
        }
    }
}

impl DeliveryWindow {
    pub fn new(limit: u64, total: Arc<Total>) -> DeliveryWindow {
        DeliveryWindow { limit, total, state: Mutex::default(), delivered: Notify::new() }
    }

    /// Waits until at least one byte more may be on the line, and says how many.
    pub async fn room(&self, clock: &Arc<RelayClock>) -> u64 {
        loop {
            let somewhere = self.total.room.notified();
            let next = match self.room_now() {
                Ok(room) => return room,
                Err(next) => next,
            };
            let acknowledgement = async {
                match next {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = acknowledgement => {}
                () = self.delivered.notified() => {}
                () = somewhere => {}
            }
        }
    }

    /// Or when the next acknowledgement comes, if one is under way.
    fn room_now(&self) -> Result<u64, Option<Instant>> {
        let mut state = self.lock();
        state.expire(Instant::now());
        // With nothing on the line a connection may always take something, so that none is starved by others that do
        // not read.
        let limit = match self.total.is_full() {
            true => 1,
            false => self.limit.min(self.total.share()).max(1),
        };
        match limit.saturating_sub(state.in_flight) {
            0 => Err(state.acknowledged.front().map(|(at, _)| *at)),
            room => Ok(room),
        }
    }

    pub fn enter(&self, bytes: u64) {
        self.lock().in_flight += bytes;
        self.total.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Delivered now; the sender learns of it at `acknowledged`.
    pub fn leave(&self, bytes: u64, acknowledged: Instant) {
        {
            let mut state = self.lock();
            state.expire(Instant::now());
            match state.acknowledged.back_mut() {
                // Many small chunks need few entries.
                Some((at, sum)) if acknowledged.saturating_duration_since(*at) < TOGETHER => *sum += bytes,
                _ => state.acknowledged.push_back((acknowledged, bytes)),
            }
        }
        let was_full = self.total.is_full();
        self.total.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        self.delivered.notify_one();
        if was_full {
            self.total.room.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was on the line when its connection ended is gone.
impl Drop for DeliveryWindow {
    fn drop(&mut self) {
        let state = self.lock();
        let waiting_for_acknowledgement: u64 = state.acknowledged.iter().map(|(_, bytes)| bytes).sum();
        let undelivered = state.in_flight.saturating_sub(waiting_for_acknowledgement);
        self.total.in_flight.fetch_sub(undelivered, Ordering::Relaxed);
        self.total.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(max: u64, open: usize) -> Arc<Total> {
        let total = Total::new(max);
        total.open.store(open, Ordering::Relaxed);
        Arc::new(total)
    }

    #[test]
    fn bytes_count_until_their_acknowledgement_is_back() {
        let window = DeliveryWindow::new(100, total(1000, 1));
        assert_eq!(window.room_now(), Ok(100));
        window.enter(60);
        assert_eq!(window.room_now(), Ok(40));
        window.enter(40);
        assert_eq!(window.room_now(), Err(None), "nothing is delivered yet");
        window.leave(60, Instant::now());
        assert_eq!(window.room_now(), Ok(60));
        window.enter(60);
        let back = Instant::now() + Duration::from_secs(3600);
        window.leave(100, back);
        assert_eq!(window.room_now(), Err(Some(back)), "delivered, but nobody here knows it yet");
    }

    #[test]
    fn all_connections_together_are_bounded_and_none_is_starved() {
        let total = total(100, 2);
        let (greedy, modest) =
            (DeliveryWindow::new(1000, Arc::clone(&total)), DeliveryWindow::new(1000, Arc::clone(&total)));
        assert_eq!(greedy.room_now(), Ok(25), "a quarter: two connections of two directions each");
        greedy.enter(100);
        assert!(greedy.room_now().is_err());
        assert_eq!(modest.room_now(), Ok(1), "one step at a time, but never nothing");
        drop(greedy);
        assert_eq!(modest.room_now(), Ok(25), "a connection that ended gives back what it had");
    }
}
