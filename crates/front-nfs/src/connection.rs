//! One connection: calls come in and are answered at once; one that has to wait goes on in a task of its own, so that
//! those behind it do not. Answers go out as they are ready (`send.rs`).
//!
//! Nothing here grows without bound: calls under way have permits, large calls (WRITE) and answers take room in budgets
//! shared by all connections (and at most a quarter of each by those of one client), and what is not read off the socket
//! waits at the client.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fair::{ClientBudget, ConnectionSlot, MemoryPermit, Offence, PeerPace, StallPolicy};
use rpc_nfs3::record::{RecordError, RecordReader};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;
use tracing::debug;
use vfs::Piece;

use crate::send::write_replies;
use crate::{FRONT, Shared, WRITE_MAX, dispatch};

/// Largest call taken: a WRITE with all that may be in front of its data.
pub const CALL_BYTES_MAX: usize = WRITE_MAX as usize + 4096;
/// A call up to this size takes no room: all but WRITE, and SYMLINK with a long target.
const CALL_BYTES_SMALL: usize = 4096;
/// So much of a larger one is here before it takes room.
const CALL_BYTES_BEGUN: usize = 16 << 10;
/// A client that no rule admits has so long for its only call.
const STRANGERS_WAIT: Duration = Duration::from_secs(5);

/// A call as it came in.
pub struct Incoming {
    pub record: Bytes,
    /// What it takes until it is carried out.
    pub permit: MemoryPermit,
}

/// An answer on its way out, with the room it takes.
pub struct Reply {
    pub head: Bytes,
    /// Payload and padding of a READ.
    pub body: Vec<Piece>,
    /// Given back when the answer is in the socket, as is its place among the calls of its connection.
    pub permit: MemoryPermit,
    pub place: Option<OwnedSemaphorePermit>,
}

impl Reply {
    /// An answer without a payload.
    pub fn new(head: Bytes) -> Reply {
        Reply { head, body: Vec::new(), permit: MemoryPermit::default(), place: None }
    }
}

/// What a call may use of its connection.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// Of the bytes of answers in memory.
    pub replies: ClientBudget,
}

pub async fn run(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    slot: &ConnectionSlot,
    mut stop: watch::Receiver<bool>,
) {
    let (reading, writing) = stream.into_split();
    let mut calls = RecordReader::new(reading, CALL_BYTES_MAX);
    let peer = Peer { address, replies: shared.config.shared_budgets.replies.share(address.ip()) };
    let requests = shared.config.shared_budgets.requests.share(address.ip());
    let call_permits = Arc::new(Semaphore::new(shared.config.calls_per_connection));
    let (replies, outgoing) = mpsc::channel(shared.config.calls_per_connection);
    let mut writer = tokio::spawn(write_replies(shared.clone(), peer.clone(), writing, outgoing));
    // Who connects has something to ask.
    let mut idle = shared.config.stall_timeout;
    loop {
        let call = tokio::select! {
            call = next_call(&shared, (&peer, &requests), &mut calls, idle) => call,
            _ = stop.wait_for(|stop| *stop) => break,
            _ = &mut writer => return, // the client does not take its answers
            () = slot.closed() => return writer.abort(),
        };
        let Some(call) = call else { break };
        slot.touch();
        idle = shared.config.idle_timeout;
        let permit = tokio::select! {
            permit = call_permits.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
            _ = &mut writer => return,
            () = slot.closed() => return writer.abort(),
        };
        let (shared, peer, answers) = (shared.clone(), peer.clone(), replies.clone());
        let mut work = Box::pin(async move {
            if let Some(mut reply) = dispatch::answer(shared, peer, call).await {
                reply.place = Some(permit);
                let _ = answers.send(reply).await;
            }
        });
        // What is in memory is answered here and now: a task for it costs more than the answer.
        if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_pending() {
            let gone = replies.clone();
            tokio::spawn(async move {
                // Nobody works for an answer that cannot go out any more. Changes are made all the same (`changing.rs`).
                tokio::select! {
                    () = work => {}
                    () = gone.closed() => {}
                }
            });
        }
    }
    drop(replies); // the writer ends when the last call has answered
    let _ = timeout(shared.config.stall_timeout, writer).await;
}

/// A connection from an address that no rule admits: its first call is answered, which says so, and that is all.
pub async fn refuse(shared: Arc<Shared>, stream: TcpStream, address: SocketAddr, slot: &ConnectionSlot) {
    let (reading, writing) = stream.into_split();
    let mut calls = RecordReader::new(reading, CALL_BYTES_SMALL);
    let peer = Peer { address, replies: shared.config.shared_budgets.replies.share(address.ip()) };
    let (replies, outgoing) = mpsc::channel(1);
    let answered = async {
        let record = calls.record().await.ok()?;
        let call = Incoming { record, permit: MemoryPermit::default() };
        let reply = dispatch::answer(shared.clone(), peer.clone(), call).await?;
        let _ = replies.send(reply).await;
        drop(replies);
        write_replies(shared.clone(), peer, writing, outgoing).await;
        Some(())
    };
    let wait = STRANGERS_WAIT.min(shared.config.stall_timeout);
    tokio::select! {
        _ = timeout(wait, answered) => {}
        () = slot.closed() => {}
    }
}

/// The next whole call; `None` when the connection is over.
async fn next_call(
    shared: &Shared,
    (peer, requests): (&Peer, &ClientBudget),
    calls: &mut RecordReader<impl tokio::io::AsyncRead + Unpin>,
    idle: Duration,
) -> Option<Incoming> {
    // An idle connection is fine for long; half a call is not.
    match timeout(idle, calls.begin()).await {
        Ok(Ok(())) => {}
        Ok(Err(RecordError::Closed | RecordError::Io(_))) | Err(_) => return None,
        Ok(Err(RecordError::TooLong)) => return None,
    }
    let mut patience = StallPolicy { stall: shared.config.stall_timeout, share: None };
    let mut pace = PeerPace::default();
    let length = arrived(shared, peer, patience.wait(&mut pace, calls.announced()).await)?;
    if length <= CALL_BYTES_SMALL {
        let record = arrived(shared, peer, patience.wait(&mut pace, calls.record()).await)?;
        return Some(Incoming { record, permit: MemoryPermit::default() });
    }
    // Room when some of it is here, and before the rest: what there is no room for stays at the client, and who
    // announces much and sends little holds nothing of the others'.
    let begun = patience.wait(&mut pace, calls.record_up_to(CALL_BYTES_BEGUN)).await;
    let begun = arrived(shared, peer, begun)?;
    let permit = requests.acquire(begun.as_ref().map_or(length, Bytes::len)).await;
    if let Some(record) = begun {
        return Some(Incoming { record, permit });
    }
    patience.share = Some(requests);
    let mut pace = PeerPace::default();
    pace.progressed(length as u64 / 4); // while others wait for its room, it has 3 s for 1 MiB
    let rest = patience.wait(&mut pace, calls.record()).await;
    if rest.is_none() {
        requests.put_on_probation();
    }
    let record = arrived(shared, peer, rest)?;
    Some(Incoming { record, permit })
}

fn arrived<T>(shared: &Shared, peer: &Peer, read: Option<Result<T, RecordError>>) -> Option<T> {
    let offenders = &shared.config.shared_budgets.offenders;
    match read {
        Some(Ok(read)) => Some(read),
        Some(Err(e)) => {
            debug!("connection dropped: {e:?}");
            if matches!(e, RecordError::TooLong) {
                shared.metrics.malformed.inc();
                offenders.note(FRONT, peer.address.ip(), Offence::Malformed);
            }
            None
        }
        None => {
            offenders.note(FRONT, peer.address.ip(), Offence::Unfinished);
            None
        }
    }
}
