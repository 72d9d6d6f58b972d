//! Room in memory for the parts of one upload, each of which is held until it is whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fair::{ClientBudget, MemoryPermit};

/// Who has waited in vain for the room of one part does not wait for that of the next one, but takes what is free at once,
/// until something is: an upload of many parts is not slowed down by each.
#[derive(Default)]
pub struct PartRoom {
    waited_in_vain: AtomicBool,
}

impl PartRoom {
    /// Room for `length` bytes, within `patience`. `None`: there is none.
    pub async fn take(
        &self,
        share: &ClientBudget,
        length: usize,
        patience: Duration,
    ) -> Option<MemoryPermit> {
        let room = match self.waited_in_vain.load(Ordering::Relaxed) {
            true => share.try_acquire(length),
            false => tokio::time::timeout(patience, share.acquire(length)).await.ok(),
        };
        self.waited_in_vain.store(room.is_none(), Ordering::Relaxed);
        room
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::IpAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use fair::MemoryBudget;

    use super::*;

    const MIB: usize = 1 << 20;
    const LONG: Duration = Duration::from_secs(3600);

    fn once<T>(work: impl Future<Output = T>) -> Poll<T> {
        pin!(work).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn who_waited_in_vain_takes_what_is_free_and_waits_again_after_that() {
        let budget = MemoryBudget::new(4 * MIB, MIB);
        let share = |last: u8| budget.share(IpAddr::from([10, 0, 0, last]));
        let room = PartRoom::default();
        let mut held = Vec::new();
        for last in 1..=4 {
            held.push(share(last).acquire(MIB).await);
        }
        let ours = share(5);
        assert!(once(room.take(&ours, MIB, LONG)).is_pending());
        assert!(room.take(&ours, MIB, Duration::ZERO).await.is_none());
        assert!(matches!(once(room.take(&ours, MIB, LONG)), Poll::Ready(None)));
        held.pop();
        let Poll::Ready(Some(got)) = once(room.take(&ours, MIB, LONG)) else { panic!("it is free") };
        assert!(once(room.take(&ours, MIB, LONG)).is_pending(), "it may be worth to wait again");
        drop(got);
    }
}
