//! How calls to other nodes are made.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct PeerClientConfig {
    /// The most connections of one path for READs, in each role.
    pub bulk_connections: usize,
    /// The most connections of one path for small calls; heartbeats have one of their own.
    pub small_connections: usize,
    /// A connection that was idle for longer is not used again. Less than the other node's `idle_timeout`.
    pub idle_timeout: Duration,
    pub connect_timeout: Duration,
    /// The time limit of a TLS handshake, and of each wait for the next bytes of an answer's body once its head has arrived. A path
    /// that exceeds it has failed. A call whose answer has not begun waits until its deadline.
    pub stall_timeout: Duration,
    /// A node whose machine or link is gone without a word is noticed after this time.
    pub dead_after: Duration,
    /// A planted bug, which the tests of crate `node` must find: bytes are taken that do not pass.
    #[cfg(feature = "sabotage")]
    pub trusts_any_bytes: bool,
}

impl PeerClientConfig {
    /// Whether the bytes of an answer are checked. Only a test has them unchecked.
    pub(crate) fn checks_bytes(&self) -> bool {
        #[cfg(feature = "sabotage")]
        return !self.trusts_any_bytes;
        #[cfg(not(feature = "sabotage"))]
        true
    }
}

impl Default for PeerClientConfig {
    fn default() -> PeerClientConfig {
        PeerClientConfig {
            bulk_connections: 64,
            small_connections: 2,
            idle_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(5),
            dead_after: Duration::from_secs(2),
            #[cfg(feature = "sabotage")]
            trusts_any_bytes: false,
        }
    }
}
