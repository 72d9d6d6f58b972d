//! The map as a node told it, with what this machine makes of it: which nodes are here, and the links to all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use cluster::{ClientMap, MapNode, NodeLabel, NodeState, Placement, Stripe};
use types::{FileId, JunctionId, NodeId};

use crate::node_link::{LinkEnd, NodeLink};
use crate::route::{RouteFacts, homes, stripe_route};
use crate::url::{ClusterUrl, NamedHost};

/// The most links of a node that a call is tried over, beside its name from the URL.
const LINKS_TRIED: usize = 2;

/// One state of the cluster. It is replaced as a whole; links live on in the next one.
pub struct ClientView {
    pub told: ClientMap,
    /// The teller's name for this document.
    pub tag: u64,
    spread: HashMap<JunctionId, (usize, Placement)>,
    links: BTreeMap<NodeId, Vec<Arc<NodeLink>>>,
    /// Nodes on this machine.
    here: BTreeSet<NodeId>,
    label: NodeLabel,
}

impl ClientView {
    /// `named`: which nodes answered under the names of the URL.
    pub fn new(
        mut told: ClientMap,
        tag: u64,
        named: &BTreeMap<NodeId, NamedHost>,
        url: &ClusterUrl,
        former: Option<&ClientView>,
    ) -> ClientView {
        if let Some(former) = former {
            // A node that was started without etcd does not know where the others serve.
            let known = former.told.nfs.iter().filter(|(node, _)| told.map.node(**node).is_some());
            for (node, at) in known {
                told.nfs.entry(*node).or_insert_with(|| at.clone());
            }
        }
        let nodes = told.map.nodes();
        let here: BTreeSet<NodeId> =
            nodes.iter().filter(|node| is_here(node, &told.nfs)).map(|node| node.id).collect();
        let label = nodes.iter().find(|node| here.contains(&node.id)).map(|node| node.label.clone());
        let mut links = BTreeMap::new();
        for node in nodes {
            let at = told.nfs.get(&node.id).map_or(&[][..], Vec::as_slice);
            let of = links_to(at, here.contains(&node.id), named.get(&node.id));
            let known = former.and_then(|former| former.links.get(&node.id)).map_or(&[][..], Vec::as_slice);
            let end = LinkEnd { cluster: told.cluster.clone(), node: node.id };
            // The connections to a node are spread over its addresses.
            let nconnect = (url.nconnect / of.iter().filter(|(_, is_spare)| !is_spare).count().max(1)).max(1);
            let link = |(at, is_spare): (NamedHost, bool)| {
                let is_same =
                    |link: &&Arc<NodeLink>| link.at == at && link.is_spare == is_spare && link.end == end;
                let kept = known.iter().find(is_same).cloned();
                kept.unwrap_or_else(|| Arc::new(NodeLink::new(at, end.clone(), is_spare, nconnect, url)))
            };
            links.insert(node.id, of.into_iter().map(link).collect());
        }
        let spread = told.junctions.iter().filter_map(|junction| {
            let spread = junction.spread.as_ref()?;
            let placement = Placement::new(told.map.clone(), &spread.topology);
            Some((junction.id, (spread.copies, placement)))
        });
        let spread = spread.collect();
        ClientView { told, tag, spread, links, here, label: label.unwrap_or_default() }
    }

    fn with_facts<T>(&self, client: u64, ask: impl FnOnce(&RouteFacts<'_>) -> T) -> T {
        let (is_here, is_usable) = (|node| self.here.contains(&node), |node| self.is_usable(node));
        ask(&RouteFacts { client, label: &self.label, is_here: &is_here, is_usable: &is_usable })
    }

    /// Whom to ask for bytes of a file. `None`: the node that gave its handle.
    pub fn route(
        &self,
        client: u64,
        (junction, file): (JunctionId, FileId),
        offset: u64,
        home: Option<NodeId>,
    ) -> Option<Vec<NodeId>> {
        let (copies, placement) = self.spread.get(&junction)?;
        let stripe = Stripe::at(file, offset);
        Some(self.with_facts(client, |facts| stripe_route(placement, *copies, stripe, home, facts)))
    }

    /// Whom to ask for names, and to send changes to.
    pub fn homes(&self, client: u64, present: Option<NodeId>) -> Vec<NodeId> {
        self.with_facts(client, |facts| homes(&self.told.map, present, facts))
    }

    /// It answers the node that told the map, and there is a way to it.
    pub fn is_usable(&self, node: NodeId) -> bool {
        let known = self.told.map.node(node).is_some_and(|node| node.state != NodeState::Out);
        let has_way = || self.links.get(&node).is_some_and(|links| links.iter().any(|link| link.is_usable()));
        known && !self.told.silent.contains(&node) && has_way()
    }

    /// The ways to a node, the one with the fewest bytes under way first; those that failed last.
    pub fn links_to(&self, node: NodeId) -> Vec<Arc<NodeLink>> {
        let mut links = self.links.get(&node).cloned().unwrap_or_default();
        links.sort_by_cached_key(|link| (!link.is_usable(), link.is_spare, link.under_way()));
        let spare = links.iter().skip(LINKS_TRIED).find(|link| link.is_spare).cloned();
        links.truncate(LINKS_TRIED);
        links.extend(spare);
        links
    }

    pub fn all_links(&self) -> impl Iterator<Item = &Arc<NodeLink>> {
        self.links.values().flatten()
    }

    pub fn name_of(&self, node: NodeId) -> String {
        self.told.map.node(node).map_or_else(|| node.to_string(), |node| node.name.clone())
    }
}

/// Where a node is reached, and whether that is only for want of another way. Its loopback addresses mean something on its own
/// machine alone.
fn links_to(at: &[SocketAddr], is_here: bool, named: Option<&NamedHost>) -> Vec<(NamedHost, bool)> {
    let reachable = at.iter().filter(|address| is_here || !address.ip().is_loopback());
    let mut links: Vec<(NamedHost, bool)> = reachable
        .map(|address| (NamedHost { host: address.ip().to_string(), port: address.port() }, false))
        .collect();
    if let Some(named) = named.filter(|named| !links.iter().any(|(at, _)| at == *named)) {
        links.push((named.clone(), true));
    }
    links
}

/// One of its addresses, but for loopback, is this machine's; or all of them are loopback, and then so is this machine.
fn is_here(node: &MapNode, nfs: &BTreeMap<NodeId, Vec<SocketAddr>>) -> bool {
    let peers = node.addresses.iter().map(SocketAddr::ip);
    let served = nfs.get(&node.id).into_iter().flatten().map(SocketAddr::ip);
    let all: BTreeSet<IpAddr> = peers.chain(served).collect();
    let is_loopback = all.iter().all(IpAddr::is_loopback);
    all.into_iter().filter(|ip| is_loopback || !ip.is_loopback()).any(is_own)
}

/// A socket can be bound to an address of this machine only.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(at: &[&str], is_here: bool, named: Option<&str>) -> Vec<(String, bool)> {
        let at: Vec<SocketAddr> = at.iter().map(|at| at.parse().expect("an address")).collect();
        let named = named.map(|host| NamedHost { host: host.to_owned(), port: 2049 });
        links_to(&at, is_here, named.as_ref())
            .into_iter()
            .map(|(at, spare)| (at.to_string(), spare))
            .collect()
    }

    #[test]
    fn a_node_is_reached_at_its_addresses_and_by_its_name_where_those_fail() {
        let told = ["10.0.0.1:2049", "10.1.0.1:2049"];
        let [one, other, named] = ["10.0.0.1:2049", "10.1.0.1:2049", "n1:2049"].map(str::to_owned);
        assert_eq!(links(&told, false, None), [(one.clone(), false), (other.clone(), false)]);
        assert_eq!(links(&told, false, Some("10.0.0.1")), [(one.clone(), false), (other.clone(), false)]);
        assert_eq!(links(&told, false, Some("n1")), [(one, false), (other, false), (named.clone(), true)]);
        assert_eq!(links(&[], false, Some("n1")), [(named.clone(), true)], "it does not say where it serves");
        // Another machine's loopback address leads to another node, or nowhere.
        assert_eq!(links(&["127.0.0.1:2049"], false, Some("n1")), [(named, true)]);
        assert_eq!(links(&["127.0.0.1:2049"], true, None), [("127.0.0.1:2049".to_owned(), false)]);
    }

    #[test]
    fn an_address_of_this_machine_is_known_as_one() {
        assert!(is_own(IpAddr::from([127, 0, 0, 1])));
        // TEST-NET-1 is nobody's.
        assert!(!is_own(IpAddr::from([192, 0, 2, 1])));
    }
}
