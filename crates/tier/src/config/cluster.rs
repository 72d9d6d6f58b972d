//! `[cluster]` as it is typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use quantity::Size;
use serde::Deserialize;
use toml::Spanned;

/// Of a node of a cluster. Absent: the tier is alone.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterTable {
    /// `"etcd://e1:2379,e2:2379,e3:2379/show"`.
    pub url: Option<Spanned<String>>,
    /// The node's token.
    pub token: Option<PathBuf>,
    /// What people call the node; absent: as its token has it.
    pub node: Option<Spanned<String>>,
    /// Where the other nodes reach this one, one for each link.
    pub addresses: Vec<SocketAddr>,
    /// `"/site/rack"`: copies of a stripe are kept under different ones.
    pub label: Option<Spanned<String>>,
    /// Bytes of stripes that the node keeps for all, as a weight beside those of the others; absent: the cache's size; `"0"`: none.
    pub weight: Option<Size>,
    /// Bytes of stripes that other nodes keep, at most; absent: a tenth of the cache's size.
    pub guests: Option<Size>,
    /// Bytes per second that this node takes, and hands out, for copies; `"0"`: none are made.
    pub repair_rate: Option<Size>,
    /// Bytes per second of one stripe that a node serves to the others before more nodes serve it, too; `"0"`: none do.
    pub hot_rate: Option<Size>,
    /// No certificates: everybody who reaches the port is believed to be a node. For a lab.
    pub insecure: bool,
    pub etcd: EtcdTable,
}

/// TLS to etcd. Absent: in clear.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdTable {
    /// The certificate of its authority.
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub private_key: Option<PathBuf>,
}
