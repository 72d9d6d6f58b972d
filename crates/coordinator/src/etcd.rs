//! etcd behind the trait [`Coordinator`], by the crate `etcd-client`, which leaves to its caller what an outage needs.
//!
//! The cast:
//! - [`Etcd`] is the adapter; [`EtcdConfig`] is what it is made from, and `tls` reads the files for it.
//! - `endpoints` has one client for each server and the turn between them; `failure` says of each error what it is, and
//!   whether the call may have been carried out all the same.
//! - `reading` reads prefixes and keys; `swapping` sends a transaction and reads back what had no answer; `watching` keeps one
//!   watch going; `leases` keeps one lease alive.
//!
//! The way of a request: it begins at the preferred server and tries each one at most once, with a deadline for each attempt, so
//! that such a round ends after [`EtcdConfig::attempt`] times the number of servers at the latest. A grant is one round, a read one for
//! each thousand keys. A swap, with reading back what had no answer, takes two rounds and one attempt at most; one that was lost reads
//! its keys behind that. A server that failed is preferred no longer and gets a new connection next time: an old one may lead to a
//! process that is stopped. All errors of a round are in the message, each with the server's address.
//!
//! Invariants:
//! - Every request says that its server must know a leader: one that is cut off from the others refuses, and a watch there ends,
//!   instead of being silent for ever.
//! - All reads are linearizable. What a server says without asking the others (the revision in the head of a watch) decides nothing.
//! - A watch is asked for a sign of life each [`EtcdConfig::pulse`]; without one it is opened anew at the next server.
//! - What etcd sends is taken as untrusted in form: no index, no unwrap.

mod endpoints;
mod failure;
mod leases;
mod reading;
mod swapping;
mod tls;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use types::{Error, ErrorKind, Result};

use crate::{Coordinator, EtcdUrl, KeyWatch, Lease, PrefixState, Revision, Swap, SwapOutcome};
use endpoints::Endpoints;
pub use tls::EtcdTls;

/// A server that does not answer costs each call this long, until it is preferred no more.
const ATTEMPT: Duration = Duration::from_secs(2);
const PULSE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct EtcdConfig {
    pub url: EtcdUrl,
    /// Without it everything goes over the wire in clear.
    pub tls: Option<EtcdTls>,
    /// How long one server may take for one call.
    pub attempt: Duration,
    /// How often a quiet watch is asked whether it is alive.
    pub pulse: Duration,
}

impl EtcdConfig {
    pub fn new(url: EtcdUrl) -> EtcdConfig {
        EtcdConfig { url, tls: None, attempt: ATTEMPT, pulse: PULSE }
    }
}

/// Clones share their connections.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<EtcdShared>,
}

/// What calls, watches and leases have in common.
struct EtcdShared {
    config: EtcdConfig,
    /// In front of all keys.
    root: String,
    endpoints: Endpoints,
}

impl Etcd {
    /// Reads the files for TLS and checks that they fit. Connects to nothing: the first call does.
    pub async fn new(config: EtcdConfig) -> Result<Etcd> {
        if config.attempt.is_zero() || config.pulse.is_zero() {
            return Err(Error::new(ErrorKind::Config, "prepare the clients of etcd", "a deadline of zero"));
        }
        let endpoints = Endpoints::new(&config).await?;
        let root = config.url.root();
        Ok(Etcd { shared: Arc::new(EtcdShared { config, root, endpoints }) })
    }
}

#[async_trait]
impl Coordinator for Etcd {
    fn url(&self) -> String {
        self.shared.config.url.to_string()
    }

    fn heard(&self) -> Option<Duration> {
        self.shared.endpoints.heard()
    }

    async fn read(&self, prefix: &str) -> Result<PrefixState> {
        Ok(self.shared.read(prefix).await?.0)
    }

    async fn swap(&self, swap: &Swap) -> Result<SwapOutcome> {
        swap.check()?;
        self.shared.swap(swap).await
    }

    fn watch(&self, prefix: &str, behind: Option<Revision>) -> KeyWatch {
        watching::start(self.shared.clone(), prefix, behind)
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        leases::grant(self.shared.clone(), ttl).await
    }
}
