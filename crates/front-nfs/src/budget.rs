//! Bytes in memory, counted in KiB: a budget over all connections, and at most a part of it for one of them. Who finds
//! no room waits; nobody is refused.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Over all connections.
pub struct Budget {
    all: Arc<Semaphore>,
    kib: usize,
    /// Most that is ever taken at once.
    largest_kib: usize,
}

/// What one connection may take of a budget: a quarter.
#[derive(Clone)]
pub struct Share {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Given back when it is dropped.
#[derive(Default)]
pub struct Room {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// `largest`: bytes that are taken at once, at most; a budget has room for that.
    pub fn new(bytes: usize, largest: usize) -> Budget {
        let largest_kib = largest.div_ceil(1024);
        let kib = (bytes / 1024).max(largest_kib);
        Budget { all: Arc::new(Semaphore::new(kib)), kib, largest_kib }
    }

    pub fn share(&self) -> Share {
        let own = Arc::new(Semaphore::new((self.kib / 4).max(self.largest_kib)));
        Share { own, all: self.all.clone() }
    }
}

impl Share {
    /// Its own part first, so that who has used that up holds nothing of the others'.
    pub async fn take(&self, bytes: usize) -> Room {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let own = self.own.clone().acquire_many_owned(kib).await.expect("budgets are never closed");
        let all = self.all.clone().acquire_many_owned(kib).await.expect("budgets are never closed");
        Room { _own: Some(own), _all: Some(all) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn try_take(share: &Share, bytes: usize) -> Option<Room> {
        match pin!(share.take(bytes)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_connection_takes_a_quarter_and_all_together_the_whole() {
        let budget = Budget::new(8 << 20, 1 << 20);
        let shares: Vec<_> = (0..5).map(|_| budget.share()).collect();
        let mut taken = Vec::new();
        for share in &shares[..4] {
            taken.extend([try_take(share, 1 << 20), try_take(share, 1 << 20)]);
            assert!(try_take(share, 1).is_none(), "a quarter is used up");
        }
        assert!(taken.iter().all(Option::is_some));
        assert!(try_take(&shares[4], 1).is_none(), "nothing is left for a fifth");
        taken.pop();
        assert!(try_take(&shares[4], 1 << 20).is_some(), "what is given back can be taken");
    }

    #[test]
    fn a_budget_has_room_for_the_largest_whatever_was_configured() {
        let share = Budget::new(0, (1 << 20) + 5).share();
        assert!(try_take(&share, (1 << 20) + 5).is_some());
    }
}
