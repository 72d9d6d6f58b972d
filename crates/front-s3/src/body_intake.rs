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
            first: None,
            permit: MemoryPermit::default(),
            held: 0,
            held_max,
            arrived: 0,
        }
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
        let is_contended = !self.permit.is_empty() && self.peer.requests.is_contended();
        ready!(self.waiting.poll_too_slow(cx, is_contended));
        self.peer.record_offence(Offence::Unfinished);
        Poll::Ready(BodyError::Stalled)
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
