//! The way to one address of a node: a client of its NFS server that is connected when it is first used, what is under way there,
//! and whether the node lives.
//!
//! A node is silent if it has not answered for half a second and does not answer a call then that every server answers at once. A
//! read that takes long because the storage is far is not cut short by that.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use origin_nfs::{Config, NfsOrigin};
use types::{Error, ErrorKind, OutageReason, Result};

use crate::url::{ClusterUrl, NamedHost};

/// A node that does not answer for so long is asked whether it lives.
const ASK_AFTER: Duration = Duration::from_millis(500);
/// And has so long to say so.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// A link that failed is not used for so long, unless there is no other.
const LEFT_FOR: Duration = Duration::from_secs(5);
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

pub struct NodeLink {
    pub at: NamedHost,
    /// A name from the URL, beside addresses of the map: it is used when none of those can be.
    pub is_spare: bool,
    config: Config,
    origin: Mutex<Option<Arc<NfsOrigin>>>,
    /// Held while it is being connected.
    dialling: tokio::sync::Mutex<()>,
    /// When the node was last asked whether it lives, and what came of it.
    asked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    under_way: AtomicU64,
    times: Mutex<LinkTimes>,
}

#[derive(Clone, Copy)]
struct LinkTimes {
    left_until: Option<Instant>,
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
    pub fn new(at: NamedHost, is_spare: bool, url: &ClusterUrl) -> NodeLink {
        let config = Config {
            host: at.host.clone(),
            port: Some(at.port),
            mount_port: Some(at.port),
            export: url.path.clone(),
            nconnect: url.nconnect,
            identity: url.identity.clone(),
            connect_timeout: CONNECT_WITHIN,
            // There are other nodes: nobody waits for this one to come back.
            outage_grace: Duration::ZERO,
            ..Config::default()
        };
        let times = LinkTimes { left_until: None, used: Instant::now(), heard: None };
        NodeLink {
            at,
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

    /// It failed: it is not used for some seconds. `false`: it was left already.
    pub fn leave(&self) -> bool {
        let was_usable = self.is_usable();
        self.times().left_until = Some(Instant::now() + LEFT_FOR);
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
    ) -> Result<T> {
        let _under_way = UnderWay::begin(&self.under_way, bytes);
        self.times().used = Instant::now();
        let work = async { call(self.origin().await?).await };
        let answer = match patience {
            Patience::ToTheEnd => work.await,
            Patience::WhileAlive => tokio::select! {
                answer = work => answer,
                () = self.until_silent() => Err(self.silent()),
            },
        };
        if !answer.as_ref().is_err_and(is_unreachable) {
            let mut times = self.times();
            (times.heard, times.left_until) = (Some(Instant::now()), None);
        }
        answer
    }

    async fn origin(&self) -> Result<Arc<NfsOrigin>> {
        let connected = || self.connected().clone();
        if let Some(origin) = connected() {
            return Ok(origin);
        }
        let _one = self.dialling.lock().await;
        if let Some(origin) = connected() {
            return Ok(origin);
        }
        let origin = NfsOrigin::connect(self.config.clone()).await?;
        *self.connected() = Some(origin.clone());
        Ok(origin)
    }

    async fn until_silent(&self) {
        loop {
            tokio::time::sleep(ASK_AFTER).await;
            if !self.is_alive().await {
                return;
            }
        }
    }

    /// All that wait for the node ask once.
    async fn is_alive(&self) -> bool {
        let mut asked = self.asked.lock().await;
        if self.times().heard.is_some_and(|heard| heard.elapsed() < ASK_AFTER) {
            return true;
        }
        if let Some((_, answered)) = asked.filter(|(at, _)| at.elapsed() < ASK_AFTER) {
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
