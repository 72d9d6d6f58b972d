//! One TCP connection to the server with many calls in flight, kept alive by one task.
//!
//! The task dials, proves the connection with a NULL call, then reads and writes until one of them ends;
//! then it dials again, with pauses that grow to `backoff_max` and shrink only after a reply came. Callers
//! never see a reconnect, only an answer, the end of their deadline, or `Unavailable` when the server has
//! been out of reach for longer than the grace.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Buf as _;
use rpc_nfs3::nfs3;
use rpc_nfs3::record::{RecordError, RecordReader};
use rpc_nfs3::rpc::{Credentials, ReplyHeader};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{Notify, Semaphore};
use types::{Error, ErrorKind, Result};

use crate::config::Config;
use crate::dial::dial;
use crate::errors::{failure, record_error, wire_error};
use crate::exchange::{CallTarget, begin_call, exchange, first_xid};
use crate::pending_calls::{Batch, DeliveredCall, OutgoingCall, PendingCalls, Reachability};

/// Longest reply: the largest READ or listing that we ask for, with its headers.
const RECORD_MAX: usize = (1 << 20) + (64 << 10);
/// Calls without a payload are small; this many bytes of them go out in one write.
const WRITE_BATCH: usize = 64 << 10;
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// How often silence is looked for.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub connect_timeout: Duration,
    pub stall_timeout: Duration,
    pub outage_grace: Duration,
    pub backoff_max: Duration,
}

impl Endpoint {
    pub fn new(config: &Config, port: u16) -> Endpoint {
        Endpoint {
            host: config.host.clone(),
            port,
            connect_timeout: config.connect_timeout,
            stall_timeout: config.stall_timeout,
            outage_grace: config.outage_grace,
            backoff_max: config.backoff_max,
        }
    }

    /// `host:port`, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// A connection on which the server has answered: a port that merely accepts (a relay whose server is
    /// gone) is none. From the local port `from` if that is to be had.
    pub async fn connect(&self, from: Option<u16>) -> Result<TcpStream> {
        let mut stream = dial(&self.host, self.port, from, self.connect_timeout).await?;
        exchange(&mut stream, "speak NFSv3 with", &self.place(), null_call(), self.connect_timeout).await?;
        Ok(stream)
    }
}

fn null_call() -> XdrEncoder {
    let target =
        CallTarget { program: nfs3::PROGRAM, version: nfs3::VERSION, procedure: nfs3::procedure::NULL };
    begin_call(target, &Credentials::None)
}

/// When an attempt to reach the server last failed, on any of its connections. A connection that has heard
/// nothing since must prove itself: idle ones would otherwise look alive in an outage and make the next
/// call wait for its own stall.
#[derive(Default)]
pub struct LastFailure(Mutex<Option<Instant>>);

impl LastFailure {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn since(&self, heard: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at > heard)
    }
}

struct ConnectionState {
    endpoint: Endpoint,
    trouble: Arc<LastFailure>,
    state: Mutex<PendingCalls>,
    /// Something was put into `unsent`.
    wake: Notify,
}

impl ConnectionState {
    fn state(&self) -> MutexGuard<'_, PendingCalls> {
        // Every section leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct NfsConnection {
    shared: Arc<ConnectionState>,
    permits: Semaphore,
    task: tokio::task::JoinHandle<()>,
}

/// Takes the call back when the caller's future is dropped or ends.
struct ForgetOnDrop<'a>(&'a ConnectionState, u32);

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.state().forget(self.1);
    }
}

impl NfsConnection {
    /// Starts the task; `stream` is a connection that is already there.
    pub fn start(
        endpoint: Endpoint,
        trouble: Arc<LastFailure>,
        calls_in_flight: usize,
        stream: Option<TcpStream>,
    ) -> NfsConnection {
        let mut state = PendingCalls::new(first_xid(), Instant::now());
        if stream.is_some() {
            state.connected();
        }
        let shared =
            Arc::new(ConnectionState { endpoint, trouble, state: Mutex::new(state), wake: Notify::new() });
        let task = tokio::spawn(drive(Arc::clone(&shared), stream));
        NfsConnection { shared, permits: Semaphore::new(calls_in_flight.max(1)), task }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.shared.state().reach(), Reachability::Up)
    }

    pub fn is_down(&self) -> bool {
        matches!(self.shared.state().reach(), Reachability::Down(_))
    }

    /// The number of further calls that it takes.
    pub fn free_slots(&self) -> usize {
        self.permits.available_permits()
    }

    /// Sends the call, as often as it must be, and waits for its reply, `timeout` at most.
    pub async fn call(
        &self,
        operation: &'static str,
        call: OutgoingCall,
        timeout: Duration,
    ) -> DeliveredCall {
        let deadline = tokio::time::Instant::now() + timeout;
        let failed = |reason: String| {
            Err(failure(ErrorKind::Unavailable, operation, self.shared.endpoint.place(), reason))
        };
        let late = || failed(format!("no reply in {} s", timeout.as_secs_f32()));
        let closed = || failed("the client is closed".to_owned());
        let _permit = match tokio::time::timeout_at(deadline, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return DeliveredCall { answer: closed(), sends: 0 },
            Err(_) => return DeliveredCall { answer: late(), sends: 0 },
        };
        let (xid, answer) = match self.shared.state().submit(call) {
            Ok(submitted) => submitted,
            Err(error) => return DeliveredCall { answer: Err(error), sends: 0 },
        };
        let _forget = ForgetOnDrop(&self.shared, xid);
        self.shared.wake.notify_one();
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(delivered)) => delivered,
            // If in doubt, the call counts as sent.
            Ok(Err(_)) => DeliveredCall { answer: closed(), sends: 1 },
            Err(_) => DeliveredCall { answer: late(), sends: self.shared.state().sends(xid).unwrap_or(1) },
        }
    }
}

impl Drop for NfsConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a connection ended.
struct ConnectionEnd {
    error: Error,
    /// The server broke the protocol.
    garbled: bool,
}

async fn drive(shared: Arc<ConnectionState>, mut ready: Option<TcpStream>) {
    let endpoint = &shared.endpoint;
    let mut pause = BACKOFF_MIN;
    let mut port = None;
    let mut failures = 0_u32;
    loop {
        // Every other attempt: the port itself may be what hinders us.
        let from = port.filter(|_| failures.is_multiple_of(2));
        let stream = match ready.take() {
            Some(stream) => Ok(stream),
            None => endpoint.connect(from).await,
        };
        match stream {
            Ok(stream) => {
                port = stream.local_addr().ok().map(|local| local.port());
                failures = 0;
                shared.state().connected();
                let heard = LastHeard::default();
                let end = serve(&shared, stream, &heard).await;
                tracing::info!(server = endpoint.place(), error = %end.error, "NFS connection lost; reconnecting");
                shared.state().connection_lost(&end.error, end.garbled, Instant::now());
                if heard.replies() > 0 && !end.garbled {
                    pause = BACKOFF_MIN;
                }
            }
            Err(error) => {
                tracing::debug!(server = endpoint.place(), %error, "NFS server out of reach");
                failures = failures.wrapping_add(1);
                let error = unavailable(&error);
                shared.trouble.note();
                shared.state().unreachable(&error, endpoint.outage_grace, Instant::now());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(endpoint.backoff_max);
    }
}

/// Whatever hinders us from connecting now may be gone later: for callers it is an outage.
fn unavailable(error: &Error) -> Error {
    if error.kind() == ErrorKind::Unavailable {
        return error.clone();
    }
    Error::new(ErrorKind::Unavailable, "reach the NFS server", "").with_source(error.clone())
}

/// Moves calls and replies until the connection ends.
async fn serve(shared: &ConnectionState, mut stream: TcpStream, heard: &LastHeard) -> ConnectionEnd {
    let (read, write) = stream.split();
    let reader = RecordReader::new(HeardStream { inner: read, heard }, RECORD_MAX);
    let end = tokio::select! {
        end = read_replies(shared, reader, heard) => end,
        end = write_calls(shared, write) => end,
        end = watch(shared, heard) => end,
    };
    // Closed by a reset: an orderly end to which a dead line brings no answer would hold the local port, from
    // which the next connection is to come. What is not sent yet is sent again there.
    if let Err(error) = SockRef::from(&stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "a lost connection is closed in the slow way");
    }
    end
}

async fn read_replies<R: AsyncRead + Unpin>(
    shared: &ConnectionState,
    mut reader: RecordReader<R>,
    heard: &LastHeard,
) -> ConnectionEnd {
    loop {
        let record = match reader.record().await {
            Ok(record) => record,
            Err(error) => {
                let garbled = matches!(error, RecordError::TooLong);
                return ConnectionEnd {
                    error: record_error("read from", shared.endpoint.place(), error),
                    garbled,
                };
            }
        };
        let mut results = XdrDecoder::new(record);
        match ReplyHeader::decode(&mut results) {
            Ok(header) => {
                heard.replies.fetch_add(1, Ordering::Relaxed);
                shared.state().deliver_reply(header.xid, header.status, results);
            }
            Err(error) => {
                let error = wire_error("decode a reply of", shared.endpoint.place(), error);
                return ConnectionEnd { error, garbled: true };
            }
        }
    }
}

async fn write_calls(shared: &ConnectionState, mut stream: WriteHalf<'_>) -> ConnectionEnd {
    let mut batch = Batch::default();
    loop {
        batch.clear();
        // Bound first: the lock must not live into the await.
        let some = shared.state().take_unsent(&mut batch, WRITE_BATCH, Instant::now());
        if !some {
            shared.wake.notified().await;
            continue;
        }
        let mut bytes = batch.messages.as_slice().chain(&*batch.payload).chain(batch.padding());
        if let Err(error) = stream.write_all_buf(&mut bytes).await {
            let error = record_error("write to", shared.endpoint.place(), RecordError::Io(error));
            return ConnectionEnd { error, garbled: false };
        }
    }
}

/// Ends when calls wait and the server has been silent for the stall timeout, or when a NULL call is not
/// answered here. That one is made when others cannot reach the server, and when all that the server is
/// silent about is calls that may take it long.
async fn watch(shared: &ConnectionState, heard: &LastHeard) -> ConnectionEnd {
    let limit = shared.endpoint.stall_timeout;
    let mut asked: Option<Instant> = None;
    loop {
        tokio::time::sleep(WATCH_INTERVAL.min(limit)).await;
        let last = heard.last();
        asked = asked.filter(|asked| last < *asked);
        let long = shared.state().oldest_patient().is_some_and(|sent| sent.max(last).elapsed() >= limit);
        if asked.is_none() && (long || shared.trouble.since(last)) {
            // Nobody waits for the answer: that bytes come is the answer.
            if shared.state().submit(OutgoingCall::small(null_call())).is_ok() {
                shared.wake.notify_one();
            }
            asked = Some(Instant::now());
        }
        let dead = asked.is_some_and(|asked| asked.elapsed() >= shared.endpoint.connect_timeout);
        let stalled = shared.state().oldest_sent().is_some_and(|sent| sent.max(last).elapsed() >= limit);
        if dead || stalled {
            let reason = format!("silent for {:.1} s with calls waiting", last.elapsed().as_secs_f32());
            let error = failure(ErrorKind::Unavailable, "read from", shared.endpoint.place(), reason);
            return ConnectionEnd { error, garbled: false };
        }
    }
}

/// When bytes came last, and how many replies came, on one connection.
struct LastHeard {
    start: Instant,
    last_ms: AtomicU64,
    replies: AtomicU64,
}

impl Default for LastHeard {
    fn default() -> LastHeard {
        LastHeard { start: Instant::now(), last_ms: AtomicU64::new(0), replies: AtomicU64::new(0) }
    }
}

impl LastHeard {
    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }
}

/// A stream that notes when it heard something: a large reply on a slow line is no silence.
struct HeardStream<'a, R> {
    inner: R,
    heard: &'a LastHeard,
}

impl<R: AsyncRead + Unpin> AsyncRead for HeardStream<'_, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, out);
        if out.filled().len() > before {
            let now = u64::try_from(self.heard.start.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.heard.last_ms.store(now, Ordering::Relaxed);
        }
        result
    }
}
