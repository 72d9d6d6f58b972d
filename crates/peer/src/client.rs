//! Calls to one node, over all of its addresses.
//!
//! Each call may be repeated without a difference, so a call whose path fails is made again on another path, as long as its
//! deadline allows. A call that only takes long is not repeated. A path on which nothing comes through is left (`path.rs`) and
//! tried with heartbeats.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{Request, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use types::range::bytes_of_blocks;
use types::{Distance, Error, ErrorKind, NodeId, Result};

use crate::client_config::PeerClientConfig;
use crate::identity::PeerIdentity;
use crate::lane::CallLane;
use crate::message::checksum::block_checksum;
use crate::message::{
    CORRUPT_BLOCKS_MAX, ChangeNotice, CorruptReport, DEADLINE_MAX, FeedNotice, HaveAnswer, HaveRequest,
    Heartbeat, HotStripe, KnownPath, PathRequest, PeerCall, ReadHead, ReadRequest, SMALL_BODY_MAX,
    ServedFrom, decode_refusal, set_deadline,
};
use crate::outbound::{Correspondents, Exchange};
use crate::path::{LocalAddress, PathId, PathReport, PathTable, PeerPath, paths_between};
use crate::pool::PathPool;

/// The deadline of a heartbeat over a path that is tried again, and of a report of corrupt blocks.
const OWN_DEADLINE: Duration = Duration::from_secs(1);
/// The reports of corrupt blocks that are under way at once; further ones are not sent.
const REPORTS_MAX: usize = 4;

/// Says what this node's heartbeat is now.
pub type HeartbeatSource = Arc<dyn Fn() -> Heartbeat + Send + Sync>;

/// Bytes of a file that another node sent, each block checked.
#[derive(Clone, Debug)]
pub struct CheckedBytes {
    pub bytes: Bytes,
    /// The checksum of each block.
    pub checksums: Vec<u32>,
    pub served_from: ServedFrom,
    pub distance: Option<Distance>,
    /// The number of the map that the other node goes by.
    pub map: u64,
    pub hot: Option<HotStripe>,
}

/// Calls one node, over all paths to it. Clones share paths, connections and what is known of them.
#[derive(Clone)]
pub struct PeerClient {
    shared: Arc<ClientState>,
}

struct ClientState {
    ends: Correspondents,
    config: PeerClientConfig,
    heartbeat: HeartbeatSource,
    begun: Instant,
    paths: Mutex<Paths>,
    reports: Arc<Semaphore>,
}

#[derive(Default)]
struct Paths {
    table: PathTable,
    pools: HashMap<PathId, Arc<PathPool>>,
}

impl PeerClient {
    /// Calls `node` as `us`. Nothing is dialled before the first call.
    pub fn new(
        us: PeerIdentity,
        node: NodeId,
        config: PeerClientConfig,
        heartbeat: HeartbeatSource,
    ) -> PeerClient {
        let shared = ClientState {
            ends: Correspondents { us, node },
            config,
            heartbeat,
            begun: Instant::now(),
            paths: Mutex::default(),
            reports: Arc::new(Semaphore::new(REPORTS_MAX)),
        };
        PeerClient { shared: Arc::new(shared) }
    }

    pub fn node(&self) -> NodeId {
        self.shared.ends.node
    }

    /// Sets where the node listens, and from where we may call it (`local_addresses`). Paths that stay keep their
    /// connections.
    pub fn set_addresses(&self, remotes: &[SocketAddr], locals: &[LocalAddress]) {
        let mut paths = self.shared.paths();
        let gone = paths.table.set(&paths_between(locals, remotes));
        for id in gone {
            paths.pools.remove(&id);
        }
    }

    pub fn paths(&self) -> Vec<PathReport> {
        self.shared.paths().table.reports()
    }

    /// The bytes that calls to this node wait for.
    pub fn outstanding_bytes(&self) -> u64 {
        self.paths().iter().map(|path| path.outstanding_bytes).sum()
    }

    /// Exactly the bytes of the range, or what the node says in their place. An error of the outer result is of the node itself:
    /// it could not be asked, or what it sent is not fit to use (`Corrupt`: bytes that did not pass; the node is told).
    pub async fn read(&self, request: &ReadRequest, deadline: Duration) -> Result<Result<CheckedBytes>> {
        let length = request.range.length;
        let body_max = usize::try_from(length).unwrap_or(usize::MAX).max(SMALL_BODY_MAX);
        let call = PeerCall::Read(request.clone());
        let (head, bytes) = self.shared.call(&call, length, body_max, deadline).await?;
        if let Err(told) = self.expect(&head, StatusCode::PARTIAL_CONTENT, &bytes) {
            return Ok(Err(told));
        }
        let head = ReadHead::decode(request, &head.headers).map_err(|e| self.corrupt(e))?;
        let mut bad = blocks_that_fail(request, &head, &bytes);
        if !self.shared.config.checks_bytes() {
            bad.clear();
        }
        if bad.is_empty() && bytes.len() as u64 == length {
            let ReadHead { checksums, served_from, distance, map, hot } = head;
            return Ok(Ok(CheckedBytes { bytes, checksums, served_from, distance, map, hot }));
        }
        let blocks: Vec<u64> = bad.into_iter().take(CORRUPT_BLOCKS_MAX).collect();
        let (file, version, size) = (request.file, request.version, request.size);
        let why = format!("blocks {blocks:?} of file {file}, version {version}, do not pass");
        self.report(CorruptReport { file, version, size, blocks });
        Err(self.corrupt(why))
    }

    /// How much the node holds of each stripe.
    ///
    /// Errors: `Unavailable` when no path to the node is open, the last one failed, or the deadline has passed; `AccessDenied` when
    /// the two certificates do not fit; `InvalidArgument`, before anything is sent, for a call that is beyond its bounds; `Corrupt` for
    /// an answer that is none. Any other kind is what the node says.
    pub async fn have(&self, request: &HaveRequest, deadline: Duration) -> Result<HaveAnswer> {
        let (head, body) = self.small(&PeerCall::Have(*request), deadline).await?;
        self.expect(&head, StatusCode::OK, &body)?;
        HaveAnswer::decode(request, &body).map_err(|e| self.corrupt(e))
    }

    /// Sends a heartbeat, over each path in turn; returns the node's own. When all paths are left it takes the one that failed first.
    ///
    /// Errors: as of [`PeerClient::have`].
    pub async fn ping(&self, deadline: Duration) -> Result<Heartbeat> {
        let call = PeerCall::Ping((self.shared.heartbeat)());
        let (head, body) = self.small(&call, deadline).await?;
        self.expect(&head, StatusCode::OK, &body)?;
        let beat = Heartbeat::decode(&body).map_err(|e| self.corrupt(e))?;
        if beat.node == self.node() { Ok(beat) } else { Err(self.corrupt("it answers for another node")) }
    }

    /// By which names the node reaches a file.
    ///
    /// Errors: `NotFound` when it does not know the file; else as of [`PeerClient::have`].
    pub async fn path(&self, request: &PathRequest, deadline: Duration) -> Result<KnownPath> {
        let (head, body) = self.small(&PeerCall::Path(*request), deadline).await?;
        self.expect(&head, StatusCode::OK, &body)?;
        KnownPath::decode(&body).map_err(|e| self.corrupt(e))
    }

    /// Tells the node that files have changed.
    ///
    /// Errors: as of [`PeerClient::have`].
    pub async fn notice(&self, notice: ChangeNotice, deadline: Duration) -> Result<()> {
        self.tell(PeerCall::Notice(notice), deadline).await
    }

    /// Tells the node of which stripes this one holds more.
    ///
    /// Errors: as of [`PeerClient::have`].
    pub async fn feed(&self, feed: FeedNotice, deadline: Duration) -> Result<()> {
        self.tell(PeerCall::Feed(feed), deadline).await
    }

    /// Tells the node of blocks that did not pass; for who found it out after `read`, which tells it by itself.
    pub async fn report_corrupt(&self, report: CorruptReport, deadline: Duration) -> Result<()> {
        self.tell(PeerCall::Corrupt(report), deadline).await
    }

    async fn tell(&self, call: PeerCall, deadline: Duration) -> Result<()> {
        let (head, body) = self.small(&call, deadline).await?;
        self.expect(&head, StatusCode::NO_CONTENT, &body)
    }

    async fn small(&self, call: &PeerCall, deadline: Duration) -> Result<(Parts, Bytes)> {
        self.shared.call(call, 0, SMALL_BODY_MAX, deadline).await
    }

    fn expect(&self, head: &Parts, status: StatusCode, body: &[u8]) -> Result<()> {
        if head.status == status {
            return Ok(());
        }
        Err(decode_refusal(self.node(), head.status, &head.headers, body))
    }

    fn corrupt(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Corrupt, "call a node:", format!("node {}: {why}", self.node()))
    }

    /// Best effort, in the background.
    fn report(&self, report: CorruptReport) {
        let Ok(permit) = self.shared.reports.clone().try_acquire_owned() else { return };
        let client = self.clone();
        tokio::spawn(async move {
            if let Err(e) = client.report_corrupt(report, OWN_DEADLINE).await {
                tracing::debug!("report corrupt blocks to a node: {e}");
            }
            drop(permit);
        });
    }
}

/// The blocks of the answer that are not what their checksums say.
fn blocks_that_fail(request: &ReadRequest, head: &ReadHead, bytes: &[u8]) -> Vec<u64> {
    let mut rest = bytes;
    let mut failed = Vec::new();
    for (block, sum) in request.range.blocks().zip(&head.checksums) {
        let length = bytes_of_blocks(block..block + 1, request.size).length as usize;
        let (part, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        if part.len() != length || block_checksum(request.file, request.version, block, part) != *sum {
            failed.push(block);
        }
    }
    failed
}

impl ClientState {
    async fn call(
        self: &Arc<ClientState>,
        call: &PeerCall,
        bytes: u64,
        body_max: usize,
        deadline: Duration,
    ) -> Result<(Parts, Bytes)> {
        let until = Instant::now() + deadline.min(DEADLINE_MAX);
        let outgoing = Outgoing { lane: CallLane::of(call), request: call.encode(deadline)?, body_max };
        let is_heartbeat = outgoing.lane == CallLane::Heartbeat;
        let mut tried = Vec::new();
        let mut last = None;
        loop {
            let (chosen, others) = {
                let table = &mut self.paths().table;
                let chosen = match is_heartbeat {
                    true => table.choose_for_heartbeat(&tried),
                    false => table.choose(bytes, &tried),
                };
                (chosen, table.len().saturating_sub(tried.len() + 1))
            };
            let Some((id, path)) = chosen else {
                return Err(last.unwrap_or_else(|| self.ends.unavailable("no path to it is open")));
            };
            let _outstanding = Outstanding { state: self, id, bytes };
            // A heartbeat over a path that is dead leaves time for one over another.
            let rest = until.saturating_duration_since(Instant::now());
            let now_until = if is_heartbeat && others > 0 { until - rest / 2 } else { until };
            match self.over(id, path, &outgoing, now_until).await {
                Ok(answer) => return Ok(answer),
                Err(e) if Instant::now() >= until => return Err(e),
                Err(e) => last = Some(e),
            }
            tried.push(id);
        }
    }

    /// Makes the call over one path, and leaves the path when nothing comes through. When the time is up nobody knows
    /// whether that is so: only heartbeats are answered at once by a node that is well.
    async fn over(
        self: &Arc<ClientState>,
        id: PathId,
        path: PeerPath,
        outgoing: &Outgoing,
        until: Instant,
    ) -> Result<(Parts, Bytes)> {
        let pool = self.pool(id);
        let outcome = timeout_at(until, self.over_pool(&pool, id, path, outgoing, until)).await;
        match outcome {
            Ok(Ok(answer)) => {
                self.paths().table.answered(id, answer.1.len() as u64);
                Ok(answer)
            }
            Ok(Err(e)) => {
                self.leave(id, &pool);
                Err(e)
            }
            Err(_) => {
                let is_heartbeat = outgoing.lane == CallLane::Heartbeat;
                if is_heartbeat && self.paths().table.is_too_late(id) {
                    self.leave(id, &pool);
                }
                Err(self.ends.unavailable(format!("{} does not answer in time", path.remote)))
            }
        }
    }

    async fn over_pool(
        &self,
        pool: &PathPool,
        id: PathId,
        path: PeerPath,
        outgoing: &Outgoing,
        until: Instant,
    ) -> Result<(Parts, Bytes)> {
        let connections = pool.lane(outgoing.lane);
        let _permit = connections.permits.acquire().await.map_err(|e| self.ends.unavailable(e))?;
        if outgoing.lane != CallLane::Heartbeat && self.paths().table.is_left(id) {
            return Err(self.ends.unavailable(format!("{} has failed", path.remote)));
        }
        let mut reused = connections.take(&self.config);
        loop {
            let is_fresh = reused.is_none();
            let mut connection = match reused.take() {
                Some(connection) => connection,
                None => self.ends.dial(path, &self.config).await?,
            };
            let mut request = outgoing.request.clone();
            set_deadline(&mut request, until.saturating_duration_since(Instant::now()));
            let stall = self.config.stall_timeout;
            match self.ends.exchange(&mut connection, path, request, outgoing.body_max, stall).await {
                Exchange::Answered(head, body) => {
                    connections.keep(connection);
                    return Ok((head, body));
                }
                Exchange::Failed(e) => return Err(e),
                Exchange::Closed(e) if is_fresh => return Err(e),
                // It was closed while it was idle: a fresh one tells whether the path is good.
                Exchange::Closed(_) => {}
            }
        }
    }

    fn leave(self: &Arc<ClientState>, id: PathId, pool: &PathPool) {
        let is_first = self.paths().table.failed(id, self.begun.elapsed());
        pool.close_idle();
        if is_first {
            tokio::spawn(try_again(Arc::downgrade(self), id));
        }
    }

    fn pool(&self, id: PathId) -> Arc<PathPool> {
        let mut paths = self.paths();
        paths.pools.entry(id).or_insert_with(|| Arc::new(PathPool::new(&self.config))).clone()
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call as it is sent, perhaps more than once.
struct Outgoing {
    lane: CallLane,
    request: Request<Bytes>,
    /// The most bytes of the answer's body.
    body_max: usize,
}

/// Bytes that a call waits for, until this is dropped.
struct Outstanding<'a> {
    state: &'a ClientState,
    id: PathId,
    bytes: u64,
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.state.paths().table.finished(self.id, self.bytes);
    }
}

/// Tries a path that is left with heartbeats, until one comes through or nobody wants the path any more.
async fn try_again(state: Weak<ClientState>, id: PathId) {
    loop {
        let Some(strong) = state.upgrade() else { return };
        let next = strong.paths().table.next_try(id, strong.begun.elapsed());
        match next {
            None => return,
            Some(Err(wait)) => {
                drop(strong);
                sleep(wait).await;
            }
            Some(Ok(path)) => {
                let heartbeat = PeerCall::Ping((strong.heartbeat)()).encode(OWN_DEADLINE);
                let Ok(request) = heartbeat else { return };
                let outgoing = Outgoing { lane: CallLane::Heartbeat, request, body_max: SMALL_BODY_MAX };
                let until = Instant::now() + OWN_DEADLINE;
                // What comes of it is on the table.
                let _ = strong.over(id, path, &outgoing, until).await;
            }
        }
    }
}
