//! The keys that a cluster has in etcd, and their values: JSON with a version, unknown fields passed over. Whatever a value
//! holds, reading it gives a record or an error that says what is wrong with it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use cluster::{ClusterMap, MapNode, NodeLabel, NodeState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

/// The version of all records. It is raised when a reader that passes over what is new would go wrong.
const FORMAT: u64 = 1;
/// The longest value that is read.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;
/// The longest path, URL or digest of a junction.
pub const TEXT_MAX: usize = 4096;
/// The most junctions of which one node says that its settings are others.
pub const DIFFERENCES_MAX: usize = 16;
/// The highest id of a junction. A key of a higher one was put by hand, and must not use up the ids below it.
pub const JUNCTION_ID_MAX: u32 = 1 << 24;
/// The most rules of one junction on how many copies there are of which files.
pub const COPY_RULES_MAX: usize = 256;
/// The most copies that a rule asks for.
pub const COPIES_MAX: u8 = 16;

pub const CLUSTER_KEY: &str = "cluster";
/// Put in each transaction that adds, renames or removes a node: such changes have one order, so that of two nodes with one name
/// only one gets in, and the number of the map rises when a node is removed.
pub const ROSTER_KEY: &str = "roster";
pub const STEWARD_KEY: &str = "steward";
/// The next id that a junction gets.
pub const JUNCTION_IDS_KEY: &str = "junction-ids";
pub const NODES_PREFIX: &str = "nodes/";
pub const ALIVE_PREFIX: &str = "alive/";
pub const JUNCTIONS_PREFIX: &str = "junctions/";
pub const COPY_RULES_PREFIX: &str = "copies/";

pub fn node_key(id: NodeId) -> String {
    format!("{NODES_PREFIX}{id}")
}

pub fn alive_key(id: NodeId) -> String {
    format!("{ALIVE_PREFIX}{id}")
}

pub fn junction_key(id: JunctionId) -> String {
    format!("{JUNCTIONS_PREFIX}{id}")
}

/// Of a junction.
pub fn copy_rules_key(id: JunctionId) -> String {
    format!("{COPY_RULES_PREFIX}{id}")
}

/// Given out when a cluster is made, and never to another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

impl FromStr for ClusterId {
    type Err = Error;

    /// Exactly 16 hexadecimal digits.
    fn from_str(text: &str) -> Result<ClusterId> {
        digits(text).map(ClusterId).ok_or_else(|| {
            let what = format!("{text:?}: a cluster's id is 16 hexadecimal digits");
            Error::new(ErrorKind::InvalidArgument, "read a cluster's id", what)
        })
    }
}

impl TryFrom<String> for ClusterId {
    type Error = Error;

    fn try_from(text: String) -> Result<ClusterId> {
        text.parse()
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> String {
        id.to_string()
    }
}

/// One run of a node's process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}

impl TryFrom<String> for Incarnation {
    type Error = Error;

    fn try_from(text: String) -> Result<Incarnation> {
        let wrong = || Error::new(ErrorKind::InvalidArgument, "read an incarnation", format!("{text:?}"));
        digits(&text).map(Incarnation).ok_or_else(wrong)
    }
}

impl From<Incarnation> for String {
    fn from(incarnation: Incarnation) -> String {
        incarnation.to_string()
    }
}

fn digits(text: &str) -> Option<u64> {
    let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// A value of a key.
pub trait KeyRecord: Serialize + DeserializeOwned {
    /// What is right in form and still means nothing.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// `cluster`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub id: ClusterId,
    /// Seconds since 1970.
    pub created: u64,
    /// The version of the wire that all nodes speak. A node that does not know it does not join.
    pub wire: u32,
}

impl KeyRecord for ClusterRecord {}

/// Why a node is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutReason {
    /// It was taken out by its operator, and comes back when it is started again.
    Left,
    /// It was not heard of for too long, and comes back by itself.
    Silent,
}

/// `nodes/<id>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    pub addresses: Vec<SocketAddr>,
    /// Where its operator's interface listens.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
    /// Where it listens for NFS. An unspecified IP: at all its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<SocketAddr>,
    pub weight: u64,
    #[serde(default)]
    pub label: NodeLabel,
    pub state: NodeState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_reason: Option<OutReason>,
    #[serde(default)]
    pub build: String,
    /// The newest version of the wire that it knows.
    pub wire: u32,
}

impl NodeRecord {
    pub fn on_map(&self, id: NodeId) -> MapNode {
        MapNode {
            id,
            name: self.name.clone(),
            weight: self.weight,
            label: self.label.clone(),
            state: self.state,
            addresses: self.addresses.clone(),
        }
    }

    /// The same node in another state.
    pub fn in_state(&self, state: NodeState, out_reason: Option<OutReason>) -> NodeRecord {
        NodeRecord { state, out_reason, ..self.clone() }
    }

    /// The steward has marked it, and not its operator.
    pub fn is_silent(&self) -> bool {
        self.state == NodeState::Out && self.out_reason == Some(OutReason::Silent)
    }
}

impl KeyRecord for NodeRecord {
    /// As the map demands it; the id makes no difference.
    fn check(&self) -> Result<()> {
        ClusterMap::new(0, vec![self.on_map(NodeId(0))]).map(drop)
    }
}

/// `alive/<id>`, under the node's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveRecord {
    pub incarnation: Incarnation,
    /// The junctions whose settings at this node have another digest than the junction's record, with that digest; and those that
    /// have the path of one of this node's junctions and another URL, with the key of this node's. [`DIFFERENCES_MAX`] at most, and none
    /// as long as the nodes are configured alike.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub differs: BTreeMap<u32, String>,
}

impl KeyRecord for AliveRecord {}

/// `junctions/<id>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JunctionRecord {
    pub path: String,
    /// Without secrets.
    pub url: String,
    /// Of its settings, as the node that started last has them.
    pub digest: String,
    /// That node.
    pub by: String,
}

impl KeyRecord for JunctionRecord {
    fn check(&self) -> Result<()> {
        check_junction(&self.path, &self.url, &self.digest)
    }
}

/// `junction-ids`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JunctionIdsRecord {
    /// All ids below it have been given out.
    pub next: u32,
    /// Who raised it to that.
    pub by: String,
}

impl KeyRecord for JunctionIdsRecord {
    fn check(&self) -> Result<()> {
        if self.next <= JUNCTION_ID_MAX + 1 {
            return Ok(());
        }
        let what = format!("{} as the next id; {JUNCTION_ID_MAX} is the highest", self.next);
        Err(Error::new(ErrorKind::InvalidArgument, "check the ids of junctions:", what))
    }
}

/// `roster`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterRecord {
    /// The node that was added, renamed or removed last.
    pub node: String,
    /// Unlike that of any other change.
    pub change: String,
}

impl KeyRecord for RosterRecord {}

/// `steward`, under the lease of the node that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StewardRecord {
    pub node: String,
    pub incarnation: Incarnation,
}

impl KeyRecord for StewardRecord {}

/// `copies/<id of the junction>`; without a rule there is no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRulesRecord {
    /// By path below the junction's root, percent-encoded: how many nodes keep each stripe of the file, or of all files below the
    /// directory.
    pub rules: BTreeMap<String, u8>,
}

impl KeyRecord for CopyRulesRecord {
    fn check(&self) -> Result<()> {
        let is_path = |path: &str| {
            path == "/" || (path.starts_with('/') && !path.ends_with('/') && path.len() <= TEXT_MAX)
        };
        let is_good = |(path, copies): (&String, &u8)| is_path(path) && (1..=COPIES_MAX).contains(copies);
        if self.rules.len() <= COPY_RULES_MAX && self.rules.iter().all(is_good) {
            return Ok(());
        }
        let what =
            format!("a rule is a path and 1 to {COPIES_MAX} copies, and {COPY_RULES_MAX} are the most");
        Err(Error::new(ErrorKind::InvalidArgument, "check the rules on copies:", what))
    }
}

pub fn check_junction(path: &str, url: &str, digest: &str) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidArgument, "check the junction", what));
    if !path.starts_with('/') || path.len() > TEXT_MAX {
        return wrong("its path begins with a slash and has 4096 bytes at most");
    }
    if url.is_empty() || url.len() > TEXT_MAX {
        return wrong("its URL has 1 to 4096 bytes");
    }
    if digest.len() > 128 {
        return wrong("the digest of its settings has 128 bytes at most");
    }
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""));
    if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return wrong("its URL has a password in it, and secrets are not kept in etcd");
    }
    Ok(())
}

#[derive(Deserialize)]
struct WrittenVersion {
    v: u64,
}

#[derive(Serialize)]
struct WrittenRecord<'a, T> {
    v: u64,
    #[serde(flatten)]
    record: &'a T,
}

/// One line of JSON; equal records give equal bytes.
pub fn write_record<T: KeyRecord>(record: &T) -> Result<Vec<u8>> {
    let failed = |error| Error::new(ErrorKind::Io, "write a record", "as JSON").with_source(error);
    serde_json::to_vec(&WrittenRecord { v: FORMAT, record }).map_err(failed)
}

pub fn read_record<T: KeyRecord>(value: &[u8]) -> Result<T> {
    let malformed = |what: String| Error::new(ErrorKind::Corrupt, "read a record:", what);
    if value.len() > RECORD_BYTES_MAX {
        return Err(malformed(format!("{} bytes; {RECORD_BYTES_MAX} are the most", value.len())));
    }
    let wrong = |error: serde_json::Error| malformed(error.to_string());
    let WrittenVersion { v } = serde_json::from_slice(value).map_err(wrong)?;
    if v != FORMAT {
        return Err(malformed(format!("its version is {v}; this version of Forebay reads {FORMAT}")));
    }
    let record: T = serde_json::from_slice(value).map_err(wrong)?;
    record.check()?;
    Ok(record)
}

#[cfg(test)]
mod tests;
