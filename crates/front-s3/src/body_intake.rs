//! Flow control of a request's body: memory permits as the body arrives, and a time limit for its sender.
//!
//! A body whose first bytes have only begun to arrive holds no permit. Then it waits for its first permit; for more
//! it never waits, because a client that holds memory must not wait for memory: the answer is "slow down".

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fair::{MemoryPermit, Offence, StallTimer};

use crate::body_error::BodyError;
use crate::peer::S3Peer;

/// The first bytes of a body that need no permit, as with NFS calls.
const BYTES_BEGUN: u64 = 16 << 10;
/// The first permit of an object's body: all that such a body may hold in memory at once.
const FIRST_BYTES: u64 = 1 << 20;
/// The first permit of a body that is read as a whole.
const FIRST_BYTES_WHOLE: u64 = 64 << 10;

type TakingRoom = Pin<Box<dyn Future<Output = MemoryPermit> + Send>>;

pub struct BodyIntake {
    peer: Arc<S3Peer>,
    waiting: StallTimer,
    /// It is the body of a part, which may hold room for all of it in the budget of parts.
    is_part: bool,
    first: Option<TakingRoom>,
    permit: MemoryPermit,
    /// The bytes of `permit`, and the most that this body may hold.
    held: u64,
    held_max: u64,
    arrived: u64,
}

impl BodyIntake {
    /// `held_max`: the most of the body that is in memory at once.
    pub fn new(peer: Arc<S3Peer>, held_max: u64, stall: Duration) -> BodyIntake {
        let waiting = StallTimer::new(stall);
        BodyIntake {
            peer,
            waiting,
            is_part: false,
            first: None,
            permit: MemoryPermit::default(),
            held: 0,
            held_max,
            arrived: 0,
        }
    }

    /// The same of a part of an upload.
    pub fn of_part(self) -> BodyIntake {
        BodyIntake { is_part: true, ..self }
    }

    /// Records that `bytes` more have arrived.
    pub fn arrived(&mut self, bytes: u64) {
        self.waiting.progressed(bytes);
        self.arrived = self.arrived.saturating_add(bytes);
    }

    /// Ready when the permit covers what has arrived.
    pub fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let needed = self.arrived.min(self.held_max);
        if needed <= self.held.max(BYTES_BEGUN) {
            return Poll::Ready(Ok(()));
        }
        if self.held == 0 {
            let first = if self.held_max <= FIRST_BYTES { FIRST_BYTES } else { FIRST_BYTES_WHOLE };
            let bytes = first.min(self.held_max).max(needed);
            let share = self.peer.requests.clone();
            let first =
                self.first.get_or_insert_with(|| Box::pin(async move { share.acquire(size(bytes)).await }));
            self.permit = ready!(first.as_mut().poll(cx));
            (self.first, self.held) = (None, bytes);
            return Poll::Ready(Ok(()));
        }
        // Doubling makes requests for more rare; if that is not free, exactly what is needed.
        let more = self.held.min(self.held_max - self.held).max(needed - self.held);
        for more in [more, needed - self.held] {
            if let Some(permit) = self.peer.requests.try_acquire(size(more)) {
                self.permit.merge(permit);
                self.held += more;
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Err(BodyError::NoRoom))
    }

    /// Called while nothing has arrived: ready when the sender is too slow.
    pub fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        ready!(self.waiting.poll_too_slow(cx, self.is_contended()));
        self.peer.record_offence(Offence::Unfinished);
        if self.is_part {
            self.peer.parts.put_on_probation();
        }
        Poll::Ready(BodyError::Stalled)
    }

    /// Whether others wait for memory that is held for this body.
    fn is_contended(&self) -> bool {
        !self.permit.is_empty() && self.peer.requests.is_contended()
            || self.is_part && self.peer.parts.is_contended()
    }

    pub fn record_offence(&self, offence: Offence) {
        self.peer.record_offence(offence);
    }

    pub fn take_permit(&mut self) -> MemoryPermit {
        std::mem::take(&mut self.permit)
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use fair::{ConnectionSlots, MemoryBudget, SharedBudgets, SlotAdmission, SlotLimits};

    use super::*;

    const MIB: usize = 1 << 20;

    fn peer(parts: &MemoryBudget, last: u8) -> Arc<S3Peer> {
        let address = IpAddr::from([10, 0, 0, last]);
        let slots = ConnectionSlots::new(SlotLimits { all: 1, client: 1 });
        let SlotAdmission::Taken { slot, .. } = slots.admit(address, None) else { panic!("it is free") };
        Arc::new(S3Peer::new(&SharedBudgets::default(), parts, address, slot))
    }

    #[tokio::test]
    async fn a_part_is_pressed_while_others_wait_for_the_room_of_parts_that_its_client_holds() {
        let parts = MemoryBudget::new(4 * MIB, MIB);
        let peers: Vec<_> = (1..=5).map(|last| peer(&parts, last)).collect();
        let intake = |peer: &Arc<S3Peer>| BodyIntake::new(peer.clone(), 1, Duration::from_secs(30));
        let (part, object) = (intake(&peers[0]).of_part(), intake(&peers[0]));
        let idle = intake(&peers[4]).of_part();
        let mut held = Vec::new();
        for peer in &peers[..4] {
            held.push(peer.parts.acquire(MIB).await);
        }
        assert!(!part.is_contended());
        let mut waits = Box::pin(peers[4].parts.acquire(MIB));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(part.is_contended());
        assert!(!object.is_contended(), "it holds nothing of that");
        assert!(!idle.is_contended(), "its client holds nothing");
        drop(held.pop());
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        assert!(!part.is_contended());
    }
}
