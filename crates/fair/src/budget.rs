//! Bytes in memory, counted in KiB: a budget over all connections, and at most a quarter of it for one client. Who finds
//! no room waits. A client that was cut for holding room which others waited for is on probation: for a minute it has
//! room for one piece at a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_of;

/// Clients that are remembered; more share nothing but the whole.
const CLIENTS_MAX: usize = 4096;
const PROBATION: Duration = Duration::from_secs(60);

/// Over all connections.
#[derive(Debug)]
pub struct Budget {
    all: Arc<Semaphore>,
    kib: usize,
    /// Most that is ever taken at once.
    largest_kib: usize,
    /// How many wait for room in the whole.
    waiting: Arc<AtomicUsize>,
    begun: Instant,
    clients: Mutex<HashMap<IpAddr, Share>>,
}

/// What one client may take of a budget: a quarter. All of its connections have the same.
#[derive(Clone, Debug)]
pub struct Share(Arc<Own>);

#[derive(Debug)]
struct Own {
    own: Arc<Semaphore>,
    /// One piece at a time, while on probation.
    least: Arc<Semaphore>,
    own_kib: usize,
    all: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    /// Milliseconds since `begun`; 0: never.
    probation_until: AtomicU64,
    begun: Instant,
}

/// Given back when it is dropped.
#[derive(Debug, Default)]
pub struct Room {
    own: Option<OwnedSemaphorePermit>,
    all: Option<OwnedSemaphorePermit>,
    _least: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// `largest`: bytes that are taken at once, at most; a budget has room for that.
    pub fn new(bytes: usize, largest: usize) -> Budget {
        let largest_kib = largest.div_ceil(1024);
        let kib = (bytes / 1024).max(largest_kib);
        Budget {
            all: Arc::new(Semaphore::new(kib)),
            kib,
            largest_kib,
            waiting: Arc::default(),
            begun: Instant::now(),
            clients: Mutex::default(),
        }
    }

    /// The share of the client at this address.
    pub fn share(&self, address: IpAddr) -> Share {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = client_of(address);
        if let Some(share) = clients.get(&client) {
            return share.clone();
        }
        let share = self.new_share();
        if clients.len() >= CLIENTS_MAX {
            clients.retain(|_, share| Arc::strong_count(&share.0) > 1 || share.is_on_probation());
        }
        if clients.len() < CLIENTS_MAX {
            clients.insert(client, share.clone());
        }
        share
    }

    fn new_share(&self) -> Share {
        let own_kib = (self.kib / 4).max(self.largest_kib);
        Share(Arc::new(Own {
            own: Arc::new(Semaphore::new(own_kib)),
            least: Arc::new(Semaphore::new(1)),
            own_kib,
            all: self.all.clone(),
            waiting: self.waiting.clone(),
            probation_until: AtomicU64::new(0),
            begun: self.begun,
        }))
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        (self.kib - self.all.available_permits().min(self.kib)) * 1024
    }
}

impl Share {
    /// Its own part first, so that who has used that up holds nothing of the others'.
    pub async fn take(&self, bytes: usize) -> Room {
        let share = &self.0;
        let kib = self.kib(bytes);
        let least = match self.is_on_probation() {
            true => Some(share.least.clone().acquire_owned().await.expect("budgets are never closed")),
            false => None,
        };
        let own = share.own.clone().acquire_many_owned(kib).await.expect("budgets are never closed");
        let all = match share.all.clone().try_acquire_many_owned(kib) {
            Ok(all) => all,
            Err(_) => {
                let _waits = Waits::begin(&share.waiting);
                share.all.clone().acquire_many_owned(kib).await.expect("budgets are never closed")
            }
        };
        Room { own: Some(own), all: Some(all), _least: least }
    }

    /// As `take`, where one must not wait because one holds something already.
    pub fn try_take(&self, bytes: usize) -> Option<Room> {
        let kib = self.kib(bytes);
        let own = self.0.own.clone().try_acquire_many_owned(kib).ok()?;
        let all = self.0.all.clone().try_acquire_many_owned(kib).ok()?;
        Some(Room { own: Some(own), all: Some(all), _least: None })
    }

    fn kib(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(1024).min(self.0.own_kib)).unwrap_or(u32::MAX)
    }

    /// Others wait for room in the whole.
    pub fn is_pressed(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// It held room for which others waited, and did not go on.
    pub fn put_on_probation(&self) {
        let until = (self.0.begun.elapsed() + PROBATION).as_millis();
        self.0.probation_until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn is_on_probation(&self) -> bool {
        let until = self.0.probation_until.load(Ordering::Relaxed);
        until > 0 && u128::from(until) > self.0.begun.elapsed().as_millis()
    }
}

impl Room {
    /// Of what was taken so much is needed; the rest is given back.
    pub fn keep(&mut self, bytes: usize) {
        let kib = bytes.div_ceil(1024);
        for permit in [&mut self.own, &mut self.all].into_iter().flatten() {
            let surplus = permit.num_permits().saturating_sub(kib);
            if surplus > 0 {
                drop(permit.split(surplus));
            }
        }
    }

    /// Both together.
    pub fn add(&mut self, more: Room) {
        for (permit, more) in [(&mut self.own, more.own), (&mut self.all, more.all)] {
            match (permit.as_mut(), more) {
                (Some(permit), Some(more)) => permit.merge(more),
                (None, more) => *permit = more,
                (Some(_), None) => {}
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_none()
    }
}

/// Counted while it lives: who waits may give up at any time.
struct Waits<'a>(&'a AtomicUsize);

impl Waits<'_> {
    fn begin(waiting: &AtomicUsize) -> Waits<'_> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const MIB: usize = 1 << 20;

    fn poll_take(share: &Share, bytes: usize) -> Option<Room> {
        match pin!(share.take(bytes)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_client_takes_a_quarter_and_all_together_the_whole() {
        let budget = Budget::new(8 * MIB, MIB);
        let mut taken = Vec::new();
        for last in 0..4 {
            let share = budget.share(client(last));
            taken.extend([poll_take(&share, MIB), poll_take(&budget.share(client(last)), MIB)]);
            assert!(
                poll_take(&budget.share(client(last)), 1).is_none(),
                "a quarter is used up, by all its connections"
            );
        }
        assert!(taken.iter().all(Option::is_some));
        assert_eq!(budget.used(), 8 * MIB);
        let fifth = budget.share(client(4));
        assert!(poll_take(&fifth, 1).is_none(), "nothing is left for a fifth");
        taken.pop();
        assert!(poll_take(&fifth, MIB).is_some(), "what is given back can be taken");
    }

    #[test]
    fn a_budget_has_room_for_the_largest_whatever_was_configured() {
        let budget = Budget::new(0, MIB + 5);
        assert!(poll_take(&budget.share(client(0)), MIB + 5).is_some());
        assert!(poll_take(&budget.share(client(0)), usize::MAX).is_some(), "and takes it for more than that");
    }

    #[test]
    fn what_is_not_needed_is_given_back_at_once_and_more_can_be_added() {
        let budget = Budget::new(8 * MIB, MIB);
        let share = budget.share(client(0));
        let mut room = poll_take(&share, MIB).expect("room");
        room.keep(3 << 10);
        assert_eq!(budget.used(), 3 << 10);
        room.add(share.try_take(5 << 10).expect("room"));
        assert_eq!(budget.used(), 8 << 10);
        room.keep(0);
        drop(room);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn who_waits_presses_all_and_who_gives_up_does_not() {
        let budget = Budget::new(4 * MIB, MIB);
        let shares: Vec<_> = (0..5).map(|last| budget.share(client(last))).collect();
        let held: Vec<_> = shares[..4].iter().map(|share| poll_take(share, MIB)).collect();
        assert!(held.iter().all(Option::is_some) && !shares[0].is_pressed());
        {
            let mut waits = pin!(shares[4].take(1));
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(shares[0].is_pressed());
        }
        assert!(!shares[0].is_pressed());
        assert!(poll_take(&shares[0], 1).is_none());
        assert!(!shares[0].is_pressed(), "who waits for its own part presses nobody");
    }

    #[test]
    fn on_probation_a_client_has_room_for_one_piece_at_a_time() {
        let budget = Budget::new(64 * MIB, MIB);
        let share = budget.share(client(0));
        share.put_on_probation();
        let first = poll_take(&share, 1);
        assert!(first.is_some() && poll_take(&budget.share(client(0)), 1).is_none());
        assert!(poll_take(&budget.share(client(1)), 1).is_some(), "others have all of theirs");
        drop(first);
        assert!(poll_take(&share, 1).is_some());
    }
}
