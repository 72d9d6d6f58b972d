use std::net::SocketAddr;

use types::FileId;

use super::*;
use crate::map::MapNode;

mod golden;
mod order;
mod random;
mod shares;

const TIB: u64 = 1 << 40;

fn node(id: u64, weight: u64, label: &str) -> MapNode {
    MapNode {
        id: NodeId(id),
        name: format!("n{id}"),
        weight,
        label: label.parse().expect("a label"),
        state: NodeState::Up,
        addresses: vec![SocketAddr::from(([10, 0, 0, 1], 7423))],
    }
}

fn map(nodes: Vec<MapNode>) -> Arc<ClusterMap> {
    Arc::new(ClusterMap::new(1, nodes).expect("a map"))
}

fn placement(nodes: Vec<MapNode>) -> Placement {
    Placement::new(map(nodes), &NodeLabel::root())
}

/// The nodes of `nodes` with `id` in `state`.
fn with_state(nodes: &[MapNode], id: u64, state: NodeState) -> Vec<MapNode> {
    let change = |node: &MapNode| match node.id == NodeId(id) {
        true => MapNode { state, ..node.clone() },
        false => node.clone(),
    };
    nodes.iter().map(change).collect()
}

/// Stripes of files of ten stripes each.
fn stripes(count: u64) -> impl Iterator<Item = Stripe> {
    (0..count).map(|at| Stripe { file: FileId(u128::from(at / 10).to_le_bytes()), index: at % 10 })
}

/// Xorshift; the same numbers for the same seed. The seed is not 0.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn file(&mut self) -> FileId {
        FileId((u128::from(self.next()) << 64 | u128::from(self.next())).to_le_bytes())
    }
}
