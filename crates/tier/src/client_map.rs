//! What this node tells clients that read from the nodes: the map, where the nodes serve NFS, and which of them it hears.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{ClientJunction, ClientMap, JunctionSpread, MapNode};
use front_nfs::{MapSource, MappedJunction};
use members::MembershipNews;
use node::ClusterView;
use tokio::sync::watch;
use types::{Error, ErrorKind, NodeId, Result};

/// Where clients get the map from.
pub struct ClientMapTeller {
    news: watch::Receiver<Arc<MembershipNews>>,
    view: Arc<ClusterView>,
}

impl std::fmt::Debug for ClientMapTeller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientMapTeller").field("map", &self.view.number()).finish()
    }
}

impl ClientMapTeller {
    pub fn new(news: watch::Receiver<Arc<MembershipNews>>, view: Arc<ClusterView>) -> ClientMapTeller {
        ClientMapTeller { news, view }
    }

    fn junction(&self, junction: &MappedJunction) -> ClientJunction {
        let placed = match junction.has_own_handles {
            true => None,
            false => self.view.spread(junction.id),
        };
        let spread = placed.map(|placed| JunctionSpread { copies: placed.copies, topology: placed.topology });
        ClientJunction { id: junction.id, path: junction.path.clone(), spread }
    }
}

impl MapSource for ClientMapTeller {
    fn document(&self, junctions: &[MappedJunction]) -> Result<Vec<u8>> {
        let news = self.news.borrow().clone();
        let missing =
            || Error::new(ErrorKind::Unavailable, "tell the map:", "this node is in no cluster yet");
        let (map, own) = (self.view.map(), self.view.own());
        let is_silent = |node: &MapNode| node.id != own && self.view.is_passed_over(node.id);
        let told = ClientMap {
            cluster: news.cluster.ok_or_else(missing)?.to_string(),
            teller: own,
            nfs: served_at(map.nodes(), &news.nfs),
            silent: map.nodes().iter().filter(|node| is_silent(node)).map(|node| node.id).collect(),
            junctions: junctions.iter().map(|junction| self.junction(junction)).collect(),
            map,
        };
        told.to_json()
    }
}

/// A node that listens at all its addresses is reached at those that it told the other nodes, one for each link.
pub fn served_at(nodes: &[MapNode], nfs: &BTreeMap<NodeId, SocketAddr>) -> BTreeMap<NodeId, Vec<SocketAddr>> {
    let of = |node: &MapNode| {
        let listens = *nfs.get(&node.id)?;
        if !listens.ip().is_unspecified() {
            return Some((node.id, vec![listens]));
        }
        let mut all: Vec<SocketAddr> = Vec::new();
        // Who listens at all addresses of one family is not reached at those of the other.
        let is_reached = |address: &&SocketAddr| listens.is_ipv6() || address.is_ipv4();
        for address in node.addresses.iter().filter(is_reached) {
            let at = SocketAddr::new(address.ip(), listens.port());
            if !all.contains(&at) {
                all.push(at);
            }
        }
        Some((node.id, all))
    };
    nodes.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use cluster::{NodeLabel, NodeState};

    use super::*;

    #[test]
    fn a_node_that_listens_everywhere_is_reached_once_over_each_of_its_links() {
        let node = |id: u64, addresses: &[&str]| MapNode {
            id: NodeId(id),
            name: format!("n{id}"),
            weight: 1,
            label: NodeLabel::root(),
            state: NodeState::Up,
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
        };
        let nodes = [
            node(1, &["10.0.0.1:7423", "10.1.0.1:7423", "10.0.0.1:7424"]),
            node(2, &["10.0.0.2:7423"]),
            node(3, &["10.0.0.3:7423"]),
        ];
        let at = |address: &str| -> SocketAddr { address.parse().expect("an address") };
        let nfs = [(NodeId(1), at("0.0.0.0:2049")), (NodeId(2), at("192.168.0.2:2050"))].into();
        let told = served_at(&nodes, &nfs);
        assert_eq!(told[&NodeId(1)], [at("10.0.0.1:2049"), at("10.1.0.1:2049")]);
        assert_eq!(told[&NodeId(2)], [at("192.168.0.2:2050")]);
        assert!(!told.contains_key(&NodeId(3)), "it serves no NFS, or does not say where");
    }
}
