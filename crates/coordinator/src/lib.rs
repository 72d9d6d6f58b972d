//! Coordination between the nodes of a cluster: a few small keys in etcd that all nodes see alike, and that one transaction
//! changes for all. It knows keys and bytes. What the keys mean (members, the map, the steward) is decided above it.
//!
//! The cast:
//! - [`Coordinator`] is the trait: read a prefix, swap, watch a prefix, grant a lease. Whoever coordinates holds an
//!   `Arc<dyn Coordinator>` and cannot tell which of the two implementations it is.
//! - [`etcd::Etcd`] is etcd over gRPC, for which [`EtcdConfig`] has the servers ([`EtcdUrl`]) and the files for TLS.
//! - [`model::ModelEtcd`] is a linearizable etcd in memory, for tests: with outages, lost answers, compaction, leases that run
//!   out on injected time, and snapshots that are restored.
//! - [`Swap`] is a transaction: each [`KeySwap`] names a key, what it is expected to be, and what becomes of it.
//! - [`KeyWatch`] is a stream of [`WatchEvent`]s about a prefix; [`Lease`] ends the keys of a node that died.
//!
//! The way of data: a node grants itself a lease and swaps in its keys, some under that lease; it watches the prefixes that it
//! goes by; from then on nothing is sent but keepalives, until a key changes. Everything that is decided is decided by a swap;
//! a watch only tells when it is time to look.
//!
//! Invariants (`tests/it` holds both implementations to them with one suite):
//! - A swap is done whole or not at all. `Won` and `Lost` are certain. An error of kind `OutcomeUnknown` is the only one after
//!   which it may have been done, or may yet be.
//! - A [`PrefixState`] is true at its revision, which is no older than the call.
//! - The events of a watch are whole revisions in their order, none twice and none left out, up to the next
//!   [`WatchEvent::Reset`], which replaces everything that was told before. A watch ends by being dropped and by nothing else.
//! - Revisions only rise, unless etcd was restored from a backup or wiped: then the next reset of each watch says so.
//! - Each call ends by a deadline. What waits for etcd is bounded: a watch that nobody reads holds [`WATCH_QUEUE`] events, and a
//!   lease is kept by one task.
//! - Leases are hints. etcd may end the lease of a node that lives, and a node may believe for a moment in one that has ended:
//!   no data is safe only because a lease is held.
//!
//! Begin with the trait, then [`etcd`], whose page says how a call finds a server that answers.

pub mod etcd;
mod etcd_url;
mod lease;
pub mod model;
mod swap;
mod watch;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use types::Result;

pub use etcd::{EtcdConfig, EtcdTls};
pub use etcd_url::EtcdUrl;
pub use lease::{Lease, LeaseId, LeaseState};
pub use swap::{Expected, KeySwap, MAX_SWAP_BYTES, MAX_SWAP_KEYS, Swap, SwapAction, SwapLoss, SwapOutcome};
pub use watch::{KeyChange, KeyWatch, WATCH_QUEUE, WatchEvent};

/// A number that etcd counts up with each transaction that changes anything. It orders all states of all keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A key that is there. Its name is relative to the cluster, without a slash at its front: `alive/0123`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    pub key: String,
    pub value: Bytes,
    /// When it was last put. A swap that expects this revision is done only if nobody has changed the key since.
    pub revision: Revision,
    /// The key ends with this lease.
    pub lease: Option<LeaseId>,
}

/// All keys below a prefix at one moment, in order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixState {
    pub entries: Vec<KeyEntry>,
    /// At which these were all. A watch that is to go on from here is started behind it.
    pub revision: Revision,
}

#[async_trait]
pub trait Coordinator: Send + Sync + 'static {
    /// For logs and `status`. Without secrets.
    fn url(&self) -> String;

    /// How long ago a server answered last; `None` if none has so far. Whoever watches anything hears one each few seconds.
    fn heard(&self) -> Option<Duration>;

    /// All keys whose names begin with `prefix`; the empty one stands for all of the cluster.
    ///
    /// Errors: `Unavailable` when no server answers; `AccessDenied` when etcd refuses this client; `NotSupported` for more keys than a
    /// cluster has; `Corrupt` for an answer that is none; `Stale` when the revision was compacted each time between two pages.
    async fn read(&self, prefix: &str) -> Result<PrefixState>;

    /// One transaction, tried until its outcome is known or no server is left. After an error other than `OutcomeUnknown`
    /// nothing was changed.
    ///
    /// A swap whose answer was lost is read back. It is `Won` if one of its keys has the value and the lease that it was to put, at
    /// another revision than the expected one: that is its trace, whatever became of its other keys since. So two writers must not put
    /// the same bytes under the same lease; a value that names its writer (a node and its incarnation) makes sure of that. A swap that
    /// only deletes leaves no trace: when its key is gone nobody knows by whom, and the outcome is unknown.
    async fn swap(&self, swap: &Swap) -> Result<SwapOutcome>;

    /// What changes below `prefix`, behind a revision that was read before; without one the watch begins with a reset, which
    /// has all there is. Must be called inside of a runtime: a task keeps the watch going.
    fn watch(&self, prefix: &str, behind: Option<Revision>) -> KeyWatch;

    /// A lease, which a task keeps alive until it is revoked or dropped. etcd counts in whole seconds and has a shortest length, so
    /// a lease may last longer than was asked for: [`Lease::ttl`] has what was granted.
    ///
    /// Errors: `InvalidArgument` for no length, or more than a day; `Unavailable` when no server answers; `AccessDenied` when etcd
    /// refuses this client; `Corrupt` for an answer that is none.
    async fn grant(&self, ttl: Duration) -> Result<Lease>;
}
