//! What a client knows that is no node and reads from the nodes: the map, where the nodes serve NFS, which of them answer, and how
//! each junction is spread. And its JSON, which is the document of MAP (`docs/design/map-wire.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::label::NodeLabel;
use crate::map::{ADDRESSES_MAX, ClusterMap, MapText};

/// The longest JSON that is read.
pub const CLIENT_MAP_BYTES_MAX: usize = 1 << 20;
/// The most junctions.
const JUNCTIONS_MAX: usize = 65_536;
/// The longest path of a junction, and the longest id of a cluster.
const PATH_MAX: usize = 4096;
const CLUSTER_ID_MAX: usize = 64;
/// The version of the JSON. It is raised when a reader that ignores what is new would go wrong.
const FORMAT: u64 = 1;

/// How the files of a junction are spread over the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunctionSpread {
    /// Nodes that keep each stripe of most of its files; at least 1. A rule may give a file more or fewer.
    pub copies: usize,
    /// Only nodes with a label within it keep stripes.
    pub topology: NodeLabel,
}

/// A junction that the client may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientJunction {
    pub id: JunctionId,
    pub path: String,
    /// `None`: the handles of a node are good there alone, and all is read from the node that gave them.
    pub spread: Option<JunctionSpread>,
}

/// The cluster as one of its nodes tells a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMap {
    /// The cluster's id, which no other cluster has.
    pub cluster: String,
    /// The node that tells it.
    pub teller: NodeId,
    pub map: Arc<ClusterMap>,
    /// Where the nodes serve NFS, of those that say so.
    pub nfs: BTreeMap<NodeId, Vec<SocketAddr>>,
    /// Those that do not answer the teller.
    pub silent: BTreeSet<NodeId>,
    pub junctions: Vec<ClientJunction>,
}

impl ClientMap {
    pub fn junction(&self, id: JunctionId) -> Option<&ClientJunction> {
        self.junctions.iter().find(|junction| junction.id == id)
    }

    /// One line of JSON; equal maps give equal bytes.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let text = ClientMapText {
            v: FORMAT,
            cluster: self.cluster.clone(),
            teller: self.teller.to_string(),
            map: self.map.text(),
            nfs: self.nfs.iter().map(|(node, at)| (node.to_string(), at.clone())).collect(),
            silent: self.silent.iter().map(NodeId::to_string).collect(),
            junctions: self.junctions.iter().map(JunctionText::of).collect(),
        };
        let failed =
            |error| Error::new(ErrorKind::Io, "write the map for clients", "as JSON").with_source(error);
        serde_json::to_vec(&text).map_err(failed)
    }

    /// Fields that are not known are ignored.
    pub fn from_json(bytes: &[u8]) -> Result<ClientMap> {
        if bytes.len() > CLIENT_MAP_BYTES_MAX {
            return Err(malformed(format!("{} bytes; {CLIENT_MAP_BYTES_MAX} are the most", bytes.len())));
        }
        let wrong = |error: serde_json::Error| malformed("from JSON").with_source(error);
        let FormatText { v } = serde_json::from_slice(bytes).map_err(wrong)?;
        if v != FORMAT {
            let what = format!(
                "its version is {v}; this version of Forebay reads {FORMAT}: install the nodes' version"
            );
            return Err(malformed(what));
        }
        let text: ClientMapText = serde_json::from_slice(bytes).map_err(wrong)?;
        text.read()
    }
}

#[derive(Deserialize)]
struct FormatText {
    v: u64,
}

#[derive(Serialize, Deserialize)]
struct ClientMapText {
    v: u64,
    cluster: String,
    teller: String,
    map: MapText,
    nfs: BTreeMap<String, Vec<SocketAddr>>,
    silent: Vec<String>,
    junctions: Vec<JunctionText>,
}

impl ClientMapText {
    fn read(self) -> Result<ClientMap> {
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_ID_MAX {
            return Err(malformed(format!("a cluster's id has 1 to {CLUSTER_ID_MAX} bytes")));
        }
        if self.junctions.len() > JUNCTIONS_MAX {
            return Err(malformed(format!(
                "{} junctions; {JUNCTIONS_MAX} are the most",
                self.junctions.len()
            )));
        }
        let nfs = self.nfs.into_iter().map(|(node, at)| Ok((node_of(&node)?, reachable(at))));
        Ok(ClientMap {
            teller: node_of(&self.teller)?,
            map: Arc::new(ClusterMap::of_text(self.map)?),
            nfs: nfs.collect::<Result<_>>()?,
            silent: self.silent.iter().map(|node| node_of(node)).collect::<Result<_>>()?,
            junctions: self.junctions.into_iter().map(JunctionText::read).collect::<Result<_>>()?,
            cluster: self.cluster,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct JunctionText {
    id: u32,
    path: String,
    /// Absent: its handles are good at one node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copies: Option<usize>,
    #[serde(default)]
    topology: NodeLabel,
}

impl JunctionText {
    fn of(junction: &ClientJunction) -> JunctionText {
        let ClientJunction { id, path, spread } = junction;
        let topology = spread.as_ref().map(|spread| spread.topology.clone()).unwrap_or_default();
        let copies = spread.as_ref().map(|spread| spread.copies);
        JunctionText { id: id.0, path: path.clone(), copies, topology }
    }

    fn read(self) -> Result<ClientJunction> {
        let JunctionText { id, path, copies, topology } = self;
        if !path.starts_with('/') || path.len() > PATH_MAX || copies == Some(0) {
            let what = format!("junction {id}: it has a path that begins with a slash, and 1 copy or more");
            return Err(malformed(what));
        }
        let spread = copies.map(|copies| JunctionSpread { copies, topology });
        Ok(ClientJunction { id: JunctionId(id), path, spread })
    }
}

fn node_of(text: &str) -> Result<NodeId> {
    text.parse().map_err(|error: Error| malformed("a node's id").with_source(error))
}

/// One node's wrong record keeps no client from the others.
fn reachable(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_somewhere = |address: &SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
    addresses.into_iter().filter(is_somewhere).take(ADDRESSES_MAX).collect()
}

fn malformed(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, "read the map for clients:", what)
}

#[cfg(test)]
mod tests;
