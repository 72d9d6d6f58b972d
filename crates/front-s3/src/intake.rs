//! Room for a body as it arrives, and patience with who sends it. What has only begun to arrive holds nothing. Then the body
//! waits for room; for more nobody waits, since who holds some must not: then the answer is "slow down".

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fair::{Offence, Room, Waiting};

use crate::body::BodyError;
use crate::peer::Peer;

/// So much of a body takes no room, as with the calls of NFS.
const BYTES_BEGUN: u64 = 16 << 10;
/// Taken when more is there. An object's body has all that it may hold at once by then.
const FIRST_BYTES: u64 = 1 << 20;
/// Of one that is taken as a whole.
const FIRST_BYTES_WHOLE: u64 = 64 << 10;

type TakingRoom = Pin<Box<dyn Future<Output = Room> + Send>>;

pub struct Intake {
    peer: Arc<Peer>,
    waiting: Waiting,
    first: Option<TakingRoom>,
    room: Room,
    /// Bytes in `room`, and the most that there will be.
    held: u64,
    held_max: u64,
    arrived: u64,
}

impl Intake {
    /// `held_max`: so much of it is in memory at once.
    pub fn new(peer: Arc<Peer>, held_max: u64, stall: Duration) -> Intake {
        let waiting = Waiting::new(stall);
        Intake { peer, waiting, first: None, room: Room::default(), held: 0, held_max, arrived: 0 }
    }

    /// So many more bytes are here.
    pub fn arrived(&mut self, bytes: u64) {
        self.waiting.took(bytes);
        self.arrived = self.arrived.saturating_add(bytes);
    }

    /// Room for what has arrived.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let needed = self.arrived.min(self.held_max);
        if needed <= self.held.max(BYTES_BEGUN) {
            return Poll::Ready(Ok(()));
        }
        if self.held == 0 {
            let first = if self.held_max <= FIRST_BYTES { FIRST_BYTES } else { FIRST_BYTES_WHOLE };
            let bytes = first.min(self.held_max).max(needed);
            let share = self.peer.requests.clone();
            let first =
                self.first.get_or_insert_with(|| Box::pin(async move { share.take(size(bytes)).await }));
            self.room = ready!(first.as_mut().poll(cx));
            (self.first, self.held) = (None, bytes);
            return Poll::Ready(Ok(()));
        }
        // Twice as much, so that it is asked for seldom; or what there must be.
        let more = self.held.min(self.held_max - self.held).max(needed - self.held);
        for more in [more, needed - self.held] {
            if let Some(room) = self.peer.requests.try_take(size(more)) {
                self.room.add(room);
                self.held += more;
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Err(BodyError::NoRoom))
    }

    /// Nothing more is here: whether there will be.
    pub fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let is_pressed = !self.room.is_empty() && self.peer.requests.is_pressed();
        ready!(self.waiting.poll_late(cx, is_pressed));
        self.peer.offends(Offence::Unfinished);
        Poll::Ready(BodyError::Stalled)
    }

    pub fn offends(&self, offence: Offence) {
        self.peer.offends(offence);
    }

    pub fn take_room(&mut self) -> Room {
        std::mem::take(&mut self.room)
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
