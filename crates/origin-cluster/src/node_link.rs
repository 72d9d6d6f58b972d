//! The way to one address of a node: a client of its NFS server that is connected when it is first used, what is under way there,
//! and whether the node lives.
//!
//! A node is silent if it has not answered for half a second and does not answer a call then that every server answers at once. A
//! call that takes long because the storage is far is not cut short by that, and a node that lives is not left for another one,
//! which would have to do the same work.
//!
//! Before its first call a link makes sure that the node which the map names is at the address, and not another tier, or a NAS.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::cluster_map::UNKNOWN_TAG;
use types::{Error, ErrorKind, NodeId, OutageReason, Result};

use crate::map_call::{MapTold, ask_map};
use crate::url::{ClusterUrl, NamedHost};

/// A node that does not answer for so long is asked whether it lives.
const ASK_AFTER: Duration = Duration::from_millis(500);
/// And has so long to say so.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// A link that failed is not used for so long, unless there is no other; each time twice as long, for an address may be one that this
/// machine has no way to.
const LEFT_FOR: Duration = Duration::from_secs(5);
const LEFT_FOR_MOST: Duration = Duration::from_secs(300);
/// What was asked so lately is not asked again.
const JUST_NOW: Duration = Duration::from_millis(50);
/// A node that lives is given so long for a call: a COMMIT waits until the store has all that was written.
const CALL_WITHIN: Duration = Duration::from_secs(120);
/// The connections of a link that was not used for so long are closed.
const IDLE: Duration = Duration::from_secs(300);
/// For a connection, a name's look-up and a first call.
const CONNECT_WITHIN: Duration = Duration::from_millis(1500);

/// How long a call waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until the node is silent: it may be asked of another node.
    WhileAlive,
    /// For as long as the NFS client does: it may have been carried out.
    ToTheEnd,
}

/// Who is to be at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    pub cluster: String,
    pub node: NodeId,
}

/// Why a call has no answer of the node.
#[derive(Debug)]
pub enum LinkFailure {
    /// The link could not be connected: the call was not sent.
    NotConnected(Error),
    /// The node was not reached, or is silent.
    Silent(Error),
    /// The same of a change that may have been made.
    Doubtful(Error),
    /// What the node answered; of a node that lives also that a call took too long.
    Answered(Error),
}

pub struct NodeLink {
    pub at: NamedHost,
    pub end: LinkEnd,
    url: ClusterUrl,
    /// A name from the URL, beside addresses of the map: it is used when none of those can be.
    pub is_spare: bool,
    config: Config,
    origin: Mutex<Option<Arc<NfsOrigin>>>,
    /// Held while it is being connected; why that failed, and when.
    dialling: tokio::sync::Mutex<Option<(Instant, Error)>>,
    /// When the node was last asked whether it lives, and what came of it.
    asked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    under_way: AtomicU64,
    times: Mutex<LinkTimes>,
}

#[derive(Clone, Copy)]
struct LinkTimes {
    left_until: Option<Instant>,
    /// Since it last answered, the last time.
    left_for: Option<Duration>,
    used: Instant,
    heard: Option<Instant>,
}

/// Counted as under way for as long as it lives.
struct UnderWay<'a>(&'a AtomicU64, u64);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicU64, bytes: u64) -> UnderWay<'a> {
        // A call is work, too.
        let bytes = bytes.max(1);
        count.fetch_add(bytes, Ordering::Relaxed);
        UnderWay(count, bytes)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl NodeLink {
    /// `nconnect`: TCP connections.
    pub fn new(at: NamedHost, end: LinkEnd, is_spare: bool, nconnect: usize, url: &ClusterUrl) -> NodeLink {
        let config = Config {
            host: at.host.clone(),
            port: Some(at.port),
            mount_port: Some(at.port),
            export: url.path.clone(),
            nconnect,
            identity: url.identity.clone(),
            connect_timeout: CONNECT_WITHIN,
            call_timeout: CALL_WITHIN,
            // There are other nodes: nobody waits for this one to come back.
            outage_grace: Duration::ZERO,
            ..Config::default()
        };
        let times = LinkTimes { left_until: None, left_for: None, used: Instant::now(), heard: None };
        NodeLink {
            at,
            end,
            url: url.clone(),
            is_spare,
            config,
            origin: Mutex::default(),
            dialling: Default::default(),
            asked: Default::default(),
            under_way: AtomicU64::new(0),
            times: Mutex::new(times),
        }
    }

    /// Bytes, and a byte for each call.
    pub fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    pub fn is_usable(&self) -> bool {
        self.times().left_until.is_none_or(|until| until <= Instant::now())
    }

    /// It failed: it is not used for a while. `false`: it was left already.
    pub fn leave(&self) -> bool {
        let was_usable = self.is_usable();
        let mut times = self.times();
        if was_usable {
            times.left_for = Some(times.left_for.map_or(LEFT_FOR, |last| (last * 2).min(LEFT_FOR_MOST)));
        }
        times.left_until = Some(Instant::now() + times.left_for.unwrap_or(LEFT_FOR));
        was_usable
    }

    pub fn close_if_idle(&self) {
        if self.under_way() == 0 && self.times().used.elapsed() >= IDLE {
            *self.connected() = None;
        }
    }

    /// One call to the node, of which `bytes` bytes go there or come from there.
    pub async fn ask<T, F: Future<Output = Result<T>>>(
        &self,
        patience: Patience,
        bytes: u64,
        call: impl FnOnce(Arc<NfsOrigin>) -> F,
    ) -> std::result::Result<T, LinkFailure> {
        let _under_way = UnderWay::begin(&self.under_way, bytes);
        let begun = Instant::now();
        self.times().used = begun;
        let origin = self.origin().await.map_err(LinkFailure::NotConnected)?;
        let answer = match patience {
            Patience::ToTheEnd => call(origin).await,
            Patience::WhileAlive => tokio::select! {
                answer = call(origin) => answer,
                () = self.until_silent() => return Err(LinkFailure::Silent(self.silent())),
            },
        };
        let error = match answer {
            Ok(answer) => {
                self.heard();
                return Ok(answer);
            }
            Err(error) => error,
        };
        let silence = error.doubtful_answer().is_some_and(is_unreachable) || is_unreachable(&error);
        if silence && !self.is_alive(begun, JUST_NOW).await {
            return Err(match is_unreachable(&error) {
                true => LinkFailure::Silent(error),
                false => LinkFailure::Doubtful(error),
            });
        }
        if !silence {
            self.heard();
        } else if is_unreachable(&error) {
            let slow = Error::new(ErrorKind::Busy, "wait for", format!("{}: it lives", self.at));
            return Err(LinkFailure::Answered(slow.with_source(error)));
        }
        Err(LinkFailure::Answered(error))
    }

    fn heard(&self) {
        let mut times = self.times();
        (times.heard, times.left_until, times.left_for) = (Some(Instant::now()), None, None);
    }

    async fn origin(&self) -> Result<Arc<NfsOrigin>> {
        let connected = || self.connected().clone();
        if let Some(origin) = connected() {
            return Ok(origin);
        }
        let asked = Instant::now();
        let mut dialling = self.dialling.lock().await;
        if let Some(origin) = connected() {
            return Ok(origin);
        }
        // Whoever waited meanwhile does not wait for as long once more.
        if let Some((_, error)) = dialling.as_ref().filter(|(at, _)| *at > asked) {
            return Err(error.clone());
        }
        let connected = self.connect().await;
        *dialling = connected.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let origin = connected?;
        *self.connected() = Some(origin.clone());
        Ok(origin)
    }

    async fn connect(&self) -> Result<Arc<NfsOrigin>> {
        // Beside each other: neither is a secret, and a far node is asked once less.
        let (who, origin) =
            tokio::join!(ask_map(&self.at, UNKNOWN_TAG, &self.url), NfsOrigin::connect(self.config.clone()));
        if let MapTold::Map { map, .. } = who?
            && (map.cluster != self.end.cluster || map.teller != self.end.node)
        {
            let LinkEnd { cluster, node } = &self.end;
            let what = format!(
                "{}: node {node} of cluster {cluster} is to be there, and node {} of {} is",
                self.at, map.teller, map.cluster
            );
            return Err(Error::new(ErrorKind::Config, "reach a node:", what));
        }
        origin
    }

    async fn until_silent(&self) {
        let begun = Instant::now();
        loop {
            tokio::time::sleep(ASK_AFTER).await;
            if !self.is_alive(begun, ASK_AFTER).await {
                return;
            }
        }
    }

    /// What is known of it from so short a time ago is not asked again; all that wait for the node ask once. What was known before
    /// `begun` says nothing of why a call that began then failed.
    async fn is_alive(&self, begun: Instant, known_for: Duration) -> bool {
        let mut asked = self.asked.lock().await;
        let is_known = |at: Instant| at > begun && at.elapsed() < known_for;
        if self.times().heard.is_some_and(is_known) {
            return true;
        }
        if let Some((_, answered)) = asked.filter(|(at, _)| is_known(*at)) {
            return answered;
        }
        let answered = origin_nfs::is_alive(&self.at.host, self.at.port, ALIVE_WITHIN).await;
        *asked = Some((Instant::now(), answered));
        answered
    }

    fn silent(&self) -> Error {
        Error::new(ErrorKind::Unavailable, "wait for", format!("{}: it is silent", self.at))
    }

    fn connected(&self) -> MutexGuard<'_, Option<Arc<NfsOrigin>>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn times(&self) -> MutexGuard<'_, LinkTimes> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node was not reached, or did not answer. What a node says of its storage is `Busy`.
pub fn is_unreachable(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.outage_reason() == Some(OutageReason::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_node_answered_before_a_call_began_says_nothing_of_why_the_call_failed() {
        // Nobody listens there any more.
        let gone =
            std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let url = ClusterUrl::parse(&format!("forebay://{gone}/")).expect("a URL");
        let end = LinkEnd { cluster: "show".to_owned(), node: NodeId(1) };
        let at = NamedHost { host: "127.0.0.1".to_owned(), port: gone.port() };
        let link = NodeLink::new(at, end, false, 1, &url);
        let long = Duration::from_secs(60);
        let before = Instant::now();
        link.heard();
        *link.asked.lock().await = Some((Instant::now(), true));
        assert!(link.is_alive(before, long).await, "it has answered since");
        assert!(!link.is_alive(Instant::now(), long).await);
    }
}
