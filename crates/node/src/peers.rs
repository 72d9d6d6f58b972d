//! The other nodes, as this one calls them, and the heartbeats that tell who answers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use peer::{HeartbeatSource, IncarnationSeen, PeerClient, PeerClientConfig, PeerIdentity, local_addresses};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};
use types::NodeId;

use crate::view::ClusterView;

/// How often it is looked whose heartbeat is due.
const LOOK: Duration = Duration::from_millis(100);
/// An answer to a heartbeat is waited for so long: longer than until the next one, since a node that is busy answers late.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// How often it is looked which addresses this machine has.
const LOCAL_LOOK: Duration = Duration::from_secs(10);

/// One client for each other node of the map, made when the node is called for the first time and dropped when the node has left
/// the map. A client follows the addresses that the map has of its node, and those of this machine.
pub struct PeerTable {
    us: PeerIdentity,
    config: PeerClientConfig,
    heartbeat: HeartbeatSource,
    view: Arc<ClusterView>,
    clients: Mutex<HashMap<NodeId, CalledPeer>>,
}

/// A node that was called.
struct CalledPeer {
    client: PeerClient,
    addresses: Vec<SocketAddr>,
    /// When it was last looked which addresses this machine has: they may change while the node's stay.
    looked: Instant,
}

impl PeerTable {
    pub fn new(
        us: PeerIdentity,
        config: PeerClientConfig,
        heartbeat: HeartbeatSource,
        view: Arc<ClusterView>,
    ) -> Arc<PeerTable> {
        Arc::new(PeerTable { us, config, heartbeat, view, clients: Mutex::default() })
    }

    /// The client that calls `node`, at the addresses that the map has of it. `None`: the map does not know it.
    pub fn client(&self, node: NodeId) -> Option<PeerClient> {
        let map = self.view.map();
        let addresses = &map.node(node)?.addresses;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.entry(node).or_insert_with(|| CalledPeer {
            client: PeerClient::new(self.us.clone(), node, self.config, self.heartbeat.clone()),
            addresses: Vec::new(),
            looked: Instant::now(),
        });
        if known.addresses != *addresses || known.looked.elapsed() > LOCAL_LOOK {
            known.looked = Instant::now();
            known.addresses.clone_from(addresses);
            known.client.set_addresses(addresses, &local_addresses());
        }
        Some(known.client.clone())
    }

    /// Sends heartbeats until told to stop.
    pub async fn beat(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut under_way = JoinSet::new();
        loop {
            for node in self.view.due() {
                let Some(client) = self.client(node) else { continue };
                let view = self.view.clone();
                under_way.spawn(async move {
                    let Ok(beat) = client.ping(ANSWERED_WITHIN).await else { return };
                    match view.heard(node, beat) {
                        IncarnationSeen::Twice => {
                            warn!(%node, "two processes are running under the id of one node; stop one of them");
                        }
                        IncarnationSeen::Restarted => info!(%node, "a node was started anew"),
                        IncarnationSeen::First | IncarnationSeen::Same => {}
                    }
                });
            }
            while under_way.try_join_next().is_some() {}
            self.forget_former();
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Drops the connections to nodes that have left the map.
    fn forget_former(&self) {
        let map = self.view.map();
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|node, _| map.node(*node).is_some());
    }
}
