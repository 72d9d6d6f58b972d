//! The map of a cluster: the nodes that count for placement, and the number that orders maps. And its JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, NodeId, Result};

use crate::label::NodeLabel;

/// The most nodes of a map.
pub const NODES_MAX: usize = 4096;
/// The most addresses of a node.
pub const ADDRESSES_MAX: usize = 16;
/// The longest JSON of a map. The largest legal map, of [`NODES_MAX`] nodes with the longest names, labels and addresses, has less.
pub const MAP_BYTES_MAX: usize = 8 << 20;
/// The longest name of a node, in bytes.
const NAME_MAX: usize = 63;
/// The version of the JSON. It is raised when a reader that ignores what is new would compute other ranks.
const FORMAT: u64 = 1;

/// Whether a node gets stripes, and is asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It keeps the stripes that it has a rank of. A node that does not answer for a moment is still `Up`.
    Up,
    /// It is about to leave: it has no rank, and is asked for what it kept before.
    Draining,
    /// It has left, or did not answer for too long: it has no rank and is not asked.
    Out,
}

impl NodeState {
    pub const ALL: [NodeState; 3] = [NodeState::Up, NodeState::Draining, NodeState::Out];

    /// One word, for JSON and listings.
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Up => "up",
            NodeState::Draining => "draining",
            NodeState::Out => "out",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for NodeState {
    type Err = Error;

    fn from_str(text: &str) -> Result<NodeState> {
        let state = NodeState::ALL.into_iter().find(|state| state.name() == text);
        let what = || format!("{text:?}; a node is up, draining or out");
        state.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "read a node's state", what()))
    }
}

/// A node as the map knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapNode {
    pub id: NodeId,
    /// What operators call it. Whoever lets nodes join sees to it that no two have the same name; placement does not
    /// look at names.
    pub name: String,
    /// The bytes that it can keep; its share of the stripes is in proportion. 0: it keeps none, and is a gateway only.
    pub weight: u64,
    pub label: NodeLabel,
    pub state: NodeState,
    /// Where peers reach it. Several are several links.
    pub addresses: Vec<SocketAddr>,
}

impl MapNode {
    /// It gets stripes, or got them before it began to drain.
    pub(crate) fn is_placed(&self) -> bool {
        self.weight > 0 && self.state != NodeState::Out
    }

    fn check(&self) -> Result<()> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = (1..=NAME_MAX).contains(&self.name.len())
            && self.name.bytes().all(known)
            && self.name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !is_name {
            return Err(malformed(format!(
                "node {}: its name is {:?}; a name begins with a letter or a digit and has letters, digits and . _ -, \
                 {NAME_MAX} at most",
                self.id, self.name
            )));
        }
        if !(1..=ADDRESSES_MAX).contains(&self.addresses.len()) {
            let count = self.addresses.len();
            let what = format!("node {}: {count} addresses; it has 1 to {ADDRESSES_MAX}", self.id);
            return Err(malformed(what));
        }
        let nowhere = |address: &&SocketAddr| address.port() == 0 || address.ip().is_unspecified();
        match self.addresses.iter().find(nowhere) {
            Some(address) => Err(malformed(format!("node {}: nobody can connect to {address}", self.id))),
            None => Ok(()),
        }
    }
}

/// The nodes that count for placement, and the number that orders maps: of two maps of one cluster that with the larger
/// number is newer, and maps with the same number are the same.
///
/// The nodes are sorted by id, and no two have the same one.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterMap {
    number: u64,
    nodes: Vec<MapNode>,
    /// For each node which label it has, counted among all labels of the map: labels are compared as numbers.
    domains: Vec<u32>,
}

impl ClusterMap {
    /// `number` is the revision of the coordinator at which the nodes were as they are given here, in any order.
    pub fn new(number: u64, mut nodes: Vec<MapNode>) -> Result<ClusterMap> {
        if nodes.len() > NODES_MAX {
            return Err(malformed(format!("{} nodes; {NODES_MAX} are the most", nodes.len())));
        }
        nodes.iter().try_for_each(MapNode::check)?;
        nodes.sort_unstable_by_key(|node| node.id);
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(malformed(format!("node {} is there twice", pair[0].id)));
        }
        let mut known = BTreeMap::new();
        let mut domains = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let next = known.len() as u32;
            domains.push(*known.entry(&node.label).or_insert(next));
        }
        Ok(ClusterMap { number, nodes, domains })
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn nodes(&self) -> &[MapNode] {
        &self.nodes
    }

    pub fn node(&self, id: NodeId) -> Option<&MapNode> {
        self.index_of(id).map(|at| &self.nodes[at])
    }

    pub fn node_named(&self, name: &str) -> Option<&MapNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Each node with the number of its label, in the order of their ids.
    pub(crate) fn with_domains(&self) -> impl Iterator<Item = (&MapNode, u32)> {
        self.nodes.iter().zip(self.domains.iter().copied())
    }

    fn index_of(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    /// Both maps give each stripe the same ranks and the same nodes to ask: they differ in numbers, names and addresses
    /// at most.
    pub fn places_as(&self, other: &ClusterMap) -> bool {
        let placed = |map: &ClusterMap| -> Vec<(NodeId, u64, NodeState, NodeLabel)> {
            let nodes = map.nodes.iter().filter(|node| node.is_placed());
            nodes.map(|node| (node.id, node.weight, node.state, node.label.clone())).collect()
        };
        placed(self) == placed(other)
    }

    /// One line of JSON; equal maps give equal bytes.
    pub fn to_json(&self) -> Result<String> {
        let failed = |error| Error::new(ErrorKind::Io, "write the cluster map", "as JSON").with_source(error);
        serde_json::to_string(&self.text()).map_err(failed)
    }

    /// As a part of another document.
    pub(crate) fn text(&self) -> MapText {
        MapText { v: FORMAT, number: self.number, nodes: self.nodes.iter().map(NodeText::of).collect() }
    }

    pub(crate) fn of_text(text: MapText) -> Result<ClusterMap> {
        if text.v != FORMAT {
            return Err(other_version(text.v));
        }
        let nodes = text.nodes.into_iter().map(NodeText::read).collect::<Result<_>>()?;
        ClusterMap::new(text.number, nodes)
    }

    /// Fields that are not known are ignored: a later version of Forebay may add some, and raises `v` when they matter.
    pub fn from_json(bytes: &[u8]) -> Result<ClusterMap> {
        if bytes.len() > MAP_BYTES_MAX {
            return Err(malformed(format!("{} bytes; {MAP_BYTES_MAX} are the most", bytes.len())));
        }
        let wrong = |error: serde_json::Error| malformed("from JSON").with_source(error);
        let FormatText { v } = serde_json::from_slice(bytes).map_err(wrong)?;
        if v != FORMAT {
            return Err(other_version(v));
        }
        ClusterMap::of_text(serde_json::from_slice(bytes).map_err(wrong)?)
    }
}

impl fmt::Debug for ClusterMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterMap").field("number", &self.number).field("nodes", &self.nodes).finish()
    }
}

/// What is read first: the rest may have another shape in another version.
#[derive(Deserialize)]
struct FormatText {
    v: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct MapText {
    v: u64,
    number: u64,
    nodes: Vec<NodeText>,
}

#[derive(Serialize, Deserialize)]
struct NodeText {
    id: String,
    name: String,
    weight: u64,
    label: NodeLabel,
    state: NodeState,
    addresses: Vec<SocketAddr>,
}

impl NodeText {
    fn of(node: &MapNode) -> NodeText {
        NodeText {
            id: node.id.to_string(),
            name: node.name.clone(),
            weight: node.weight,
            label: node.label.clone(),
            state: node.state,
            addresses: node.addresses.clone(),
        }
    }

    fn read(self) -> Result<MapNode> {
        let NodeText { id, name, weight, label, state, addresses } = self;
        let id = id.parse().map_err(|error: Error| malformed("from JSON").with_source(error))?;
        Ok(MapNode { id, name, weight, label, state, addresses })
    }
}

fn other_version(v: u64) -> Error {
    malformed(format!("its version is {v}; this version of Forebay reads {FORMAT}"))
}

fn malformed(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, "read the cluster map", what)
}

#[cfg(test)]
mod tests;
