//! One connection. A call is carried out at once; one that must wait goes on in a task of its own, so that those
//! behind it do not wait. Replies are sent as they are ready (`reply_writer.rs`).
//!
//! Nothing here grows without bound: calls in flight have permits, large calls (WRITE) and replies hold memory of
//! budgets over all connections, of which one client has at most a quarter, and what is not read off the socket
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
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tracing::debug;

use crate::message::{IncomingCall, NfsPeer};
use crate::reply_writer::write_replies;
use crate::{FRONT, NfsState, WRITE_MAX, dispatch};

/// The largest call: a WRITE with all that may precede its data.
pub const CALL_BYTES_MAX: usize = WRITE_MAX as usize + 4096;
/// A call up to this size needs no memory permit: all but WRITE, and SYMLINK with a long target.
const CALL_BYTES_SMALL: usize = 4096;
/// The bytes of a larger call that must arrive before it takes a permit.
const CALL_BYTES_BEGUN: usize = 16 << 10;
/// The time that a client that no rule admits has for its only call.
const STRANGERS_WAIT: Duration = Duration::from_secs(5);

pub async fn run(
    shared: Arc<NfsState>,
    stream: TcpStream,
    address: SocketAddr,
    slot: &ConnectionSlot,
    mut stop: watch::Receiver<bool>,
) {
    let (reading, writing) = stream.into_split();
    let mut calls = RecordReader::new(reading, CALL_BYTES_MAX);
    let peer = NfsPeer { address, replies: shared.config.shared_budgets.replies.share(address.ip()) };
    let requests = shared.config.shared_budgets.requests.share(address.ip());
    let call_permits = Arc::new(Semaphore::new(shared.config.calls_per_connection));
    let (replies, outgoing) = mpsc::channel(shared.config.calls_per_connection);
    let mut writer = tokio::spawn(write_replies(shared.clone(), peer.clone(), writing, outgoing));
    // A new connection has little time for its first call.
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
            if let Some(mut reply) = dispatch::handle_record(shared, peer, call).await {
                reply.call_permit = Some(permit);
                let _ = answers.send(reply).await;
            }
        });
        // A call that needs no waiting is answered here: a task for it costs more than the reply.
        if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_pending() {
            let gone = replies.clone();
            tokio::spawn(async move {
                // Work for a reply that cannot be sent any more is dropped. Changes are completed all the same
                // (`change_calls.rs`).
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

/// A connection from an address that no rule admits: its first call is answered with the refusal, and the connection
/// closed.
pub async fn refuse(shared: Arc<NfsState>, stream: TcpStream, address: SocketAddr, slot: &ConnectionSlot) {
    let (reading, writing) = stream.into_split();
    let mut calls = RecordReader::new(reading, CALL_BYTES_SMALL);
    let peer = NfsPeer { address, replies: shared.config.shared_budgets.replies.share(address.ip()) };
    let (replies, outgoing) = mpsc::channel(1);
    let answered = async {
        let record = calls.record().await.ok()?;
        let call = IncomingCall { record, permit: MemoryPermit::default() };
        let reply = dispatch::handle_record(shared.clone(), peer.clone(), call).await?;
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
    shared: &NfsState,
    (peer, requests): (&NfsPeer, &ClientBudget),
    calls: &mut RecordReader<impl tokio::io::AsyncRead + Unpin>,
    idle: Duration,
) -> Option<IncomingCall> {
    // An idle connection may wait long; half a call may not.
    match timeout(idle, calls.begin()).await {
        Ok(Ok(())) => {}
        Ok(Err(RecordError::Closed | RecordError::Io(_))) | Err(_) => return None,
        Ok(Err(RecordError::TooLong)) => return None,
    }
    let mut patience = StallPolicy { stall: shared.config.stall_timeout, share: None };
    let mut pace = PeerPace::default();
    let length = checked_read(shared, peer, patience.wait(&mut pace, calls.announced()).await)?;
    if length <= CALL_BYTES_SMALL {
        let record = checked_read(shared, peer, patience.wait(&mut pace, calls.record()).await)?;
        return Some(IncomingCall { record, permit: MemoryPermit::default() });
    }
    // The permit is taken when some of the call has arrived and before the rest: what has no memory stays at the
    // client, and a client that announces much and sends little holds none.
    let begun = patience.wait(&mut pace, calls.record_up_to(CALL_BYTES_BEGUN)).await;
    let begun = checked_read(shared, peer, begun)?;
    let permit = requests.acquire(begun.as_ref().map_or(length, Bytes::len)).await;
    if let Some(record) = begun {
        return Some(IncomingCall { record, permit });
    }
    patience.share = Some(requests);
    let mut pace = PeerPace::default();
    pace.progressed(length as u64 / 4); // while others wait for its room, it has 3 s for 1 MiB
    let rest = patience.wait(&mut pace, calls.record()).await;
    if rest.is_none() {
        requests.put_on_probation();
    }
    let record = checked_read(shared, peer, rest)?;
    Some(IncomingCall { record, permit })
}

fn checked_read<T>(shared: &NfsState, peer: &NfsPeer, read: Option<Result<T, RecordError>>) -> Option<T> {
    let offenders = &shared.config.shared_budgets.offenders;
    match read {
        Some(Ok(read)) => Some(read),
        Some(Err(e)) => {
            debug!("connection dropped: {e:?}");
            if matches!(e, RecordError::TooLong) {
                shared.metrics.malformed.inc();
                offenders.record(FRONT, peer.address.ip(), Offence::Malformed);
            }
            None
        }
        None => {
            offenders.record(FRONT, peer.address.ip(), Offence::Unfinished);
            None
        }
    }
}
