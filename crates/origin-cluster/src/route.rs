//! Whom to ask for bytes of a stripe, one after the other, and who is the home of names and changes. Pure.
//!
//! A node on this machine that keeps the stripe comes first, then the others that keep it: those of this machine's label, then the
//! rest. Among equals each client begins with another one, so that the readers of a file use all its copies; one client begins with
//! the same one each time, which has the bytes in memory then.

use cluster::{ClusterMap, MapNode, Nearness, NodeLabel, NodeState, Placement, Stripe};
use types::NodeId;

/// The most nodes that are asked for the same bytes.
pub const NODES_TRIED: usize = 4;

/// What a client knows of itself and of the nodes at the moment.
pub struct RouteFacts<'a> {
    /// Unlike that of other clients.
    pub client: u64,
    /// Of a node on this machine; the root if there is none.
    pub label: &'a NodeLabel,
    pub is_here: &'a dyn Fn(NodeId) -> bool,
    /// It answers its peers, as far as is known, and did not just fail to answer this client.
    pub is_usable: &'a dyn Fn(NodeId) -> bool,
}

/// The nodes to ask for bytes of a stripe. The home is always among them: its word counts about what the file is now.
pub fn stripe_route(
    placement: &Placement,
    copies: usize,
    stripe: Stripe,
    home: Option<NodeId>,
    facts: &RouteFacts<'_>,
) -> Vec<NodeId> {
    let ranks = placement.ranks(stripe);
    let order = placement.ask_order(&ranks, copies, None, facts.label, facts.is_usable);
    let of = |near: Nearness| -> Vec<NodeId> {
        order.iter().filter(|target| target.nearness == near).map(|target| target.node).collect()
    };
    let turn = turn(facts.client, stripe);
    let keepers = [rotated(of(Nearness::SameLabel), turn), rotated(of(Nearness::Elsewhere), turn)].concat();
    let (here, elsewhere): (Vec<NodeId>, Vec<NodeId>) =
        keepers.into_iter().partition(|node| (facts.is_here)(*node));
    let after = of(Nearness::Leaving).into_iter().chain(of(Nearness::Substitute)).chain(home);
    let mut route: Vec<NodeId> = Vec::with_capacity(NODES_TRIED);
    for node in here.into_iter().chain(elsewhere).chain(after) {
        if !route.contains(&node) {
            route.push(node);
        }
    }
    if let Some(home) = home.filter(|home| !route.iter().take(NODES_TRIED).any(|node| node == home)) {
        route.truncate(NODES_TRIED - 1);
        route.push(home);
    }
    route.truncate(NODES_TRIED);
    route
}

/// The nodes that names and changes may go to, in order: the present one for as long as it is usable, then those on this machine,
/// then the others, each client's in an order of its own. Those that are not usable come last.
pub fn homes(map: &ClusterMap, present: Option<NodeId>, facts: &RouteFacts<'_>) -> Vec<NodeId> {
    let mut nodes: Vec<&MapNode> = map.nodes().iter().filter(|node| node.state != NodeState::Out).collect();
    nodes.sort_by_cached_key(|node| {
        let id = node.id;
        let is_up = node.state == NodeState::Up;
        (
            !(facts.is_usable)(id),
            present != Some(id),
            !is_up,
            !(facts.is_here)(id),
            node.label != *facts.label,
            mixed(facts.client ^ id.0),
        )
    });
    nodes.into_iter().map(|node| node.id).take(NODES_TRIED).collect()
}

fn turn(client: u64, stripe: Stripe) -> usize {
    let file = u128::from_be_bytes(stripe.file.0);
    let whose = mixed(mixed(client) ^ file as u64);
    (mixed(mixed(whose ^ (file >> 64) as u64) ^ stripe.index) >> 32) as usize
}

/// Spreads what differs in a few bits over all of them.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn rotated(mut nodes: Vec<NodeId>, turn: usize) -> Vec<NodeId> {
    if !nodes.is_empty() {
        let first = turn % nodes.len();
        nodes.rotate_left(first);
    }
    nodes
}

#[cfg(test)]
mod tests;
