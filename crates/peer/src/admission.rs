//! What one node may have of this one: its connections, its calls in flight, and its shares of the budgets of bytes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fair::{ClientBudget, ConnectionSlot, ConnectionSlots, MemoryBudget, SlotAdmission, SlotLimits};
use tokio::sync::Semaphore;
use types::{Error, ErrorKind, NodeId, Result};

use crate::lane::{CallLane, PerLane};
use crate::message::{READ_MAX, ReadRole};
use crate::server_config::PeerServerConfig;

/// The calls of one node that run at once, of heartbeats and of small calls.
const HEARTBEATS_MAX: usize = 4;
const SMALL_CALLS_MAX: usize = 16;

/// The nodes that are connected, and what they share.
///
/// Bytes in flight are counted in four budgets that wait in one direction: those for our own clients are the caller's
/// affair and may wait for any node; those to serve others as rank are counted here, and wait for a primary; those to
/// serve others as primary are counted here by themselves, and wait for holders and for the far origin; those to serve others
/// as holder wait for nobody. With one budget, two nodes
/// that pull from each other could stop for ever.
pub struct KnownPeers {
    slots: Arc<ConnectionSlots>,
    as_rank: MemoryBudget,
    as_primary: MemoryBudget,
    as_holder: MemoryBudget,
    calls_max: usize,
    peers: Mutex<HashMap<NodeId, Weak<KnownPeer>>>,
}

/// One node, for as long as it has a connection.
pub struct KnownPeer {
    pub node: NodeId,
    calls: PerLane<Arc<Semaphore>>,
    as_rank: ClientBudget,
    as_primary: ClientBudget,
    as_holder: ClientBudget,
}

/// A connection's node, and its slot among those of the node.
pub struct ConnectedPeer {
    pub peer: Arc<KnownPeer>,
    pub slot: ConnectionSlot,
}

impl KnownPeers {
    pub fn new(config: &PeerServerConfig) -> KnownPeers {
        let budget =
            |bytes: u64| MemoryBudget::new(usize::try_from(bytes).unwrap_or(usize::MAX), READ_MAX as usize);
        let limits =
            SlotLimits { all: config.connections_max.max(1), client: config.connections_per_peer.max(1) };
        KnownPeers {
            slots: ConnectionSlots::new(limits),
            as_rank: budget(config.rank_bytes),
            as_primary: budget(config.primary_bytes),
            as_holder: budget(config.holder_bytes),
            calls_max: config.calls_per_peer.max(1),
            peers: Mutex::default(),
        }
    }

    /// Gives a connection of `node` a slot. One of the node's own that is idle may be closed for it.
    pub fn connect(&self, node: NodeId) -> Result<ConnectedPeer> {
        match self.slots.admit(account_of(node), None) {
            SlotAdmission::Taken { slot, .. } => Ok(ConnectedPeer { peer: self.known(node), slot }),
            SlotAdmission::Refused => {
                let why = format!("node {node} has too many connections, and all of them are busy");
                Err(Error::new(ErrorKind::Busy, "take a connection:", why))
            }
        }
    }

    fn known(&self, node: NodeId) -> Arc<KnownPeer> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(&node).and_then(Weak::upgrade) {
            return peer;
        }
        let calls = |lane| {
            Arc::new(Semaphore::new(match lane {
                CallLane::Heartbeat => HEARTBEATS_MAX,
                CallLane::Small => SMALL_CALLS_MAX,
                CallLane::Rank | CallLane::Primary | CallLane::Holder => self.calls_max,
            }))
        };
        let account = account_of(node);
        let peer = Arc::new(KnownPeer {
            node,
            calls: PerLane::new(calls),
            as_rank: self.as_rank.share(account),
            as_primary: self.as_primary.share(account),
            as_holder: self.as_holder.share(account),
        });
        peers.retain(|_, known| known.strong_count() > 0);
        peers.insert(node, Arc::downgrade(&peer));
        peer
    }

    /// The bytes in flight that serve others in this role.
    pub fn bytes_in_flight(&self, role: ReadRole) -> usize {
        match role {
            ReadRole::Rank => self.as_rank.used(),
            ReadRole::Primary => self.as_primary.used(),
            ReadRole::Holder => self.as_holder.used(),
        }
    }
}

impl KnownPeer {
    pub fn calls(&self, lane: CallLane) -> &Arc<Semaphore> {
        self.calls.of(lane)
    }

    pub fn share(&self, role: ReadRole) -> &ClientBudget {
        match role {
            ReadRole::Rank => &self.as_rank,
            ReadRole::Primary => &self.as_primary,
            ReadRole::Holder => &self.as_holder,
        }
    }
}

/// The address under which `fair` keeps a node's account: one for all addresses of the node. `fair` tells IPv6 addresses
/// apart by their upper 64 bits.
fn account_of(node: NodeId) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(u128::from(node.0) << 64))
}
