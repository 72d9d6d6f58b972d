//! A connection that another node made to this one, and what all of them share.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fair::{AnswerReader, ConnectionSlot, ConnectionSlots, Offence, SlotAdmission, SlotLimits};
use tokio::sync::SetOnce;
use tracing::debug;
use types::{Error, ErrorKind, Result};

use crate::admission::{ConnectedPeer, KnownPeers};
use crate::identity::PeerIdentity;
use crate::message::ReadRole;
use crate::peer_name::PeerName;
use crate::server_config::PeerServerConfig;
use crate::service::PeerService;

/// This port's name in metrics and logs of clients that were cut short.
const FRONT: &str = "peer";
/// The most connections with an incomplete TLS handshake: of all addresses, and of one.
const HANDSHAKES: SlotLimits = SlotLimits { all: 256, client: 64 };

/// What all connections of the port share.
pub struct PeerPort {
    pub config: PeerServerConfig,
    pub identity: PeerIdentity,
    pub service: Arc<dyn PeerService>,
    pub peers: KnownPeers,
    slots: Arc<ConnectionSlots>,
    pub handshakes: Arc<ConnectionSlots>,
}

/// A connection that another node made.
pub struct InboundConnection {
    pub port: Arc<PeerPort>,
    pub address: IpAddr,
    /// Its slot among those of its address.
    slot: ConnectionSlot,
    /// Its node, once that is known: from the handshake on, or, without certificates, from its first call on.
    known: SetOnce<ConnectedPeer>,
    /// Why none of its calls is answered.
    refused: OnceLock<Error>,
    is_cut: AtomicBool,
}

impl PeerPort {
    pub fn new(config: PeerServerConfig, identity: PeerIdentity, service: Arc<dyn PeerService>) -> PeerPort {
        let limits =
            SlotLimits { all: config.connections_max.max(1), client: config.connections_per_peer.max(1) };
        PeerPort {
            peers: KnownPeers::new(&config),
            slots: ConnectionSlots::new(limits),
            handshakes: ConnectionSlots::new(HANDSHAKES),
            config,
            identity,
            service,
        }
    }

    /// `None`: the address has no slot left, and the connection is closed at once.
    pub fn admit(self: &Arc<PeerPort>, address: SocketAddr) -> Option<Arc<InboundConnection>> {
        let address = address.ip();
        let too_many = |client| self.config.offenders.record(FRONT, client, Offence::TooManyConnections);
        match self.slots.admit(address, None) {
            SlotAdmission::Taken { slot, closed } => {
                closed.map(too_many);
                let (known, refused, is_cut) = Default::default();
                Some(Arc::new(InboundConnection {
                    port: self.clone(),
                    address,
                    slot,
                    known,
                    refused,
                    is_cut,
                }))
            }
            SlotAdmission::Refused => {
                too_many(address);
                None
            }
        }
    }
}

impl InboundConnection {
    /// Records whose connection it is. The node never changes.
    pub fn belongs_to(&self, name: &PeerName) -> Result<()> {
        self.port.identity.demand_cluster(name)?;
        if let Some(known) = self.known.get() {
            let is_same = known.peer.node == name.node;
            let why = format!("a connection of node {} is now one of node {}", known.peer.node, name.node);
            return if is_same {
                Ok(())
            } else {
                Err(Error::new(ErrorKind::AccessDenied, "know a peer:", why))
            };
        }
        let _ = self.known.set(self.port.peers.connect(name.node)?); // only this task sets it
        Ok(())
    }

    /// Returns when one of its slots was given to another connection.
    pub async fn slot_lost(&self) {
        let of_node = async { self.known.wait().await.slot.closed().await };
        tokio::select! {
            () = self.slot.closed() => {} // recorded when it was given away
            () = of_node => self.record_offence(Offence::TooManyConnections),
        }
    }

    pub fn known(&self) -> Option<&ConnectedPeer> {
        self.known.get()
    }

    /// From now on each call is answered with this error, and the connection ends.
    pub fn refuse(&self, why: Error) {
        debug!(address = %self.address, "{why}");
        let is_full = why.kind() == ErrorKind::Busy;
        self.record_offence(if is_full { Offence::TooManyConnections } else { Offence::NotAdmitted });
        let _ = self.refused.set(why); // the first reason stays
    }

    pub fn refused(&self) -> Option<&Error> {
        self.refused.get()
    }

    pub fn record_offence(&self, offence: Offence) {
        self.port.config.offenders.record(FRONT, self.address, offence);
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends with the answer that is being sent.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Marks the connection as one that is at work.
    pub fn touch(&self) {
        self.slot.touch();
        if let Some(known) = self.known.get() {
            known.slot.touch();
        }
    }
}

impl AnswerReader for InboundConnection {
    fn is_contended(&self) -> bool {
        let is_contended = |known: &ConnectedPeer| {
            [ReadRole::Rank, ReadRole::Primary, ReadRole::Holder]
                .iter()
                .any(|role| known.peer.share(*role).is_contended())
        };
        self.known.get().is_some_and(is_contended)
    }

    /// The node is not put on probation for it: its other connections may be well, and what it holds is bounded.
    fn record_slow(&self) {
        self.record_offence(Offence::SlowReader);
    }
}
