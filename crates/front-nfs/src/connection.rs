//! One connection: calls come in and are answered at once; one that has to wait goes on in a task of its own, so that
//! those behind it do not. Answers go out as they are ready (`send.rs`).
//!
//! Nothing here grows without bound: calls under way have permits, large calls (WRITE) and READ answers take room in
//! budgets shared by all connections (and at most a quarter of each by one), and what is not read off the socket waits
//! at the client.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use rpc_nfs3::record::{RecordError, RecordReader};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tracing::debug;
use vfs::Piece;

use crate::budget::{Room, Share};
use crate::send::write_replies;
use crate::{Shared, WRITE_MAX, dispatch};

/// Largest call taken: a WRITE with all that may be in front of its data.
pub const CALL_BYTES_MAX: usize = WRITE_MAX as usize + 4096;
/// A call up to this size takes no room: all but WRITE, and SYMLINK with a long target.
const CALL_BYTES_SMALL: usize = 4096;

/// A call as it came in.
pub struct Incoming {
    pub record: Bytes,
    /// What it takes until it is carried out.
    pub room: Room,
}

/// An answer on its way out, with the room it takes.
pub struct Reply {
    pub head: Bytes,
    /// Payload and padding of a READ.
    pub body: Vec<Piece>,
    /// Given back when the answer is in the socket, as is its place among the calls of its connection.
    pub room: Room,
    pub place: Option<OwnedSemaphorePermit>,
}

impl Reply {
    /// An answer without a payload.
    pub fn new(head: Bytes) -> Reply {
        Reply { head, body: Vec::new(), room: Room::default(), place: None }
    }
}

/// What a call may use of its connection.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// Of the bytes of READ answers in memory.
    pub replies: Share,
}

pub async fn run(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    let (reading, writing) = stream.into_split();
    let mut calls = RecordReader::new(reading, CALL_BYTES_MAX);
    let peer = Peer { address, replies: shared.reply_budget.share() };
    let large_calls = shared.call_budget.share();
    let room = Arc::new(Semaphore::new(shared.config.calls_per_connection));
    let (replies, outgoing) = mpsc::channel(shared.config.calls_per_connection);
    let mut writer = tokio::spawn(write_replies(shared.clone(), writing, outgoing));
    loop {
        let call = tokio::select! {
            call = next_call(&shared, &large_calls, &mut calls) => call,
            _ = stop.wait_for(|stop| *stop) => break,
            _ = &mut writer => return, // the client does not take its answers
        };
        let Some(call) = call else { break };
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
            _ = &mut writer => return,
        };
        let (shared, peer, replies) = (shared.clone(), peer.clone(), replies.clone());
        let mut work = Box::pin(async move {
            if let Some(mut reply) = dispatch::answer(shared, peer, call).await {
                reply.place = Some(permit);
                let _ = replies.send(reply).await;
            }
        });
        // What is in memory is answered here and now: a task for it costs more than the answer.
        if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(work);
        }
    }
    drop(replies); // the writer ends when the last call has answered
    let _ = timeout(shared.config.stall_timeout, writer).await;
}

/// The next whole call; `None` when the connection is over.
async fn next_call(
    shared: &Shared,
    large_calls: &Share,
    calls: &mut RecordReader<impl tokio::io::AsyncRead + Unpin>,
) -> Option<Incoming> {
    let stall = shared.config.stall_timeout;
    // An idle connection is fine for long; half a call is not.
    match timeout(shared.config.idle_timeout, calls.begin()).await {
        Ok(Ok(())) => {}
        Ok(Err(RecordError::Closed | RecordError::Io(_))) | Err(_) => return None,
        Ok(Err(RecordError::TooLong)) => return None,
    }
    // Room before the bytes: what there is no room for stays at the client. One that does not send on holds its room
    // until the stall timeout.
    let length = arrived(shared, timeout(stall, calls.announced()).await)?;
    let room = if length > CALL_BYTES_SMALL { large_calls.take(length).await } else { Room::default() };
    let record = arrived(shared, timeout(stall, calls.record()).await)?;
    Some(Incoming { record, room })
}

fn arrived<T>(shared: &Shared, read: Result<Result<T, RecordError>, Elapsed>) -> Option<T> {
    match read {
        Ok(Ok(read)) => Some(read),
        Ok(Err(e)) => {
            debug!("connection dropped: {e:?}");
            if matches!(e, RecordError::TooLong) {
                shared.metrics.malformed.inc();
            }
            None
        }
        Err(_) => None,
    }
}
