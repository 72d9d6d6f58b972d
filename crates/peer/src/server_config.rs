//! How the port for other nodes is set up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fair::Offenders;

#[derive(Clone, Debug)]
pub struct PeerServerConfig {
    /// One for each link of this machine.
    pub listen: Vec<SocketAddr>,
    pub connections_max: usize,
    /// The most connections of one node, and of one address before its node is known.
    pub connections_per_peer: usize,
    /// The most READs of one node in flight, in each role.
    pub calls_per_peer: usize,
    /// The bytes in flight to serve others as rank; a node has a quarter at most. There is room for one READ at least.
    pub rank_bytes: u64,
    /// The same to serve others as primary.
    pub primary_bytes: u64,
    /// The same to serve others with what is held here.
    pub holder_bytes: u64,
    /// A connection without a complete head of a call for this long is closed.
    pub idle_timeout: Duration,
    /// A client that takes nothing of its answer for this long, or sends nothing of its call, is cut.
    pub stall_timeout: Duration,
    /// A client whose machine is gone without a word is noticed after this time.
    pub dead_after: Duration,
    /// At the end, calls that run have this much time to end.
    pub drain_timeout: Duration,
    pub offenders: Arc<Offenders>,
}

impl Default for PeerServerConfig {
    fn default() -> PeerServerConfig {
        PeerServerConfig {
            listen: Vec::new(),
            connections_max: 4096,
            connections_per_peer: 1024,
            calls_per_peer: 128,
            rank_bytes: 256 << 20,
            primary_bytes: 256 << 20,
            holder_bytes: 64 << 20,
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(10),
            dead_after: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
            offenders: Arc::default(),
        }
    }
}
