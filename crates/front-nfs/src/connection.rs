//! One connection: calls come in and are answered at once; one that has to wait goes on in a task of its own, so that
//! those behind it do not. Answers go out as they are ready (`send.rs`).
//!
//! Nothing here grows without bound: calls under way have permits, READ answers take room in a budget shared by all
//! connections (and at most a quarter of it by one), and what is not read off the socket waits at the client.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use rpc_nfs3::record::{RecordError, RecordReader};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;
use tracing::debug;
use vfs::Piece;

use crate::send::write_replies;
use crate::{Shared, dispatch};

/// Largest call taken: no call of a read-only server comes near it, and a WRITE of 1 MiB is still refused politely.
const CALL_BYTES_MAX: usize = (1 << 20) + 4096;

/// An answer on its way out, with the room it takes.
pub struct Reply {
    pub head: Bytes,
    /// Payload and padding of a READ.
    pub body: Vec<Piece>,
    /// Given back when the answer is in the socket.
    pub permits: Vec<OwnedSemaphorePermit>,
}

/// What a call may use of its connection.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// KiB of READ answers that this connection may still have in memory.
    pub reply_share: Arc<Semaphore>,
}

pub async fn run(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    let (reading, writing) = stream.into_split();
    let mut calls = RecordReader::new(reading, CALL_BYTES_MAX);
    let share = (shared.config.reply_bytes_max / 1024 / 4).max(crate::READ_MAX as usize / 1024);
    let peer = Peer { address, reply_share: Arc::new(Semaphore::new(share)) };
    let room = Arc::new(Semaphore::new(shared.config.calls_per_connection));
    let (replies, outgoing) = mpsc::channel(shared.config.calls_per_connection);
    let mut writer = tokio::spawn(write_replies(shared.clone(), writing, outgoing));
    loop {
        let call = tokio::select! {
            call = next_call(&shared, &mut calls) => call,
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
            if let Some(mut reply) = dispatch::answer(&shared, &peer, call).await {
                reply.permits.push(permit);
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
    calls: &mut RecordReader<impl tokio::io::AsyncRead + Unpin>,
) -> Option<Bytes> {
    // An idle connection is fine for long; half a call is not.
    match timeout(shared.config.idle_timeout, calls.begin()).await {
        Ok(Ok(())) => {}
        Ok(Err(RecordError::Closed | RecordError::Io(_))) | Err(_) => return None,
        Ok(Err(RecordError::TooLong)) => return None,
    }
    match timeout(shared.config.stall_timeout, calls.record()).await {
        Ok(Ok(call)) => Some(call),
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
