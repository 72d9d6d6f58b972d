//! From `[cluster]` and its options to what a node of a cluster goes by.

use std::net::SocketAddr;
use std::path::PathBuf;

use cluster::NodeLabel;
use coordinator::{EtcdConfig, EtcdTls, EtcdUrl};
use node::{CopyConfig, HeatConfig};
use types::Result;
use vfs::WritePolicy;

use super::{JunctionSettings, Overrides, at_line, refuse};
use crate::config;

/// A tier that is a node of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub url: EtcdUrl,
    pub etcd_tls: Option<EtcdTls>,
    /// The file of the node's token. Absent: the peers have no certificates, for a lab.
    pub token: Option<PathBuf>,
    /// Absent: as the token has it.
    pub name: Option<String>,
    /// Where the other nodes reach this one, one for each link; at least one.
    pub addresses: Vec<SocketAddr>,
    pub label: NodeLabel,
    /// In bytes; 0: the node keeps nothing for the others.
    pub weight: u64,
    /// Bytes per second for copies; 0: none are made.
    pub repair_rate: u64,
    /// Bytes per second of one stripe, served to other nodes, above which it is hot; 0: none is.
    pub hot_rate: u64,
}

impl ClusterSettings {
    /// `None`: the tier is alone. `cache`: its size in bytes.
    pub fn build(
        typed: config::ClusterTable,
        source: &config::ConfigText,
        args: &Overrides,
        cache: u64,
    ) -> Result<Option<ClusterSettings>> {
        let line = typed.url.as_ref().and_then(|url| source.line_of(url));
        let url = args.cluster.as_ref().or(typed.url.as_ref().map(toml::Spanned::get_ref));
        let Some(url) = url else {
            let options = [
                (args.token.is_some() || typed.token.is_some(), "token"),
                (args.node.is_some() || typed.node.is_some(), "node"),
                (!args.addresses.is_empty() || !typed.addresses.is_empty(), "addresses"),
                (typed.label.is_some(), "label"),
                (typed.weight.is_some(), "weight"),
                (typed.guests.is_some(), "guests"),
                (typed.repair_rate.is_some(), "repair_rate"),
                (typed.hot_rate.is_some(), "hot_rate"),
                (typed.insecure, "insecure"),
            ];
            return match options.iter().find(|(is_typed, _)| *is_typed) {
                None => Ok(None),
                Some((_, option)) => refuse(format!(
                    "[cluster] {option} is given without the cluster; name it with --cluster etcd://e1:2379/show or url = \
                     \"etcd://e1:2379/show\""
                )),
            };
        };
        let url = url.parse::<EtcdUrl>().map_err(|e| at_line(e, line.as_deref()))?;
        let token = args.token.clone().or(typed.token);
        let name = args.node.clone().or(typed.node.map(toml::Spanned::into_inner));
        match (&token, typed.insecure) {
            (None, false) => {
                return refuse(
                    "a node of a cluster has a token; have it made where the cluster was, by forebay cluster join-token \
                     NAME, and name the file with --token or [cluster] token"
                        .to_owned(),
                );
            }
            (Some(_), true) => {
                return refuse(
                    "[cluster] insecure = true and a token exclude each other; take one out".to_owned(),
                );
            }
            _ => {}
        }
        if token.is_none() && name.is_none() {
            return refuse("a node without a token needs a name; give it one with --node n1".to_owned());
        }
        let addresses = if args.addresses.is_empty() { typed.addresses } else { args.addresses.clone() };
        check_addresses(&addresses)?;
        let label = typed.label.map(|label| {
            let line = source.line_of(&label);
            label.get_ref().parse::<NodeLabel>().map_err(|e| at_line(e, line.as_deref()))
        });
        Ok(Some(ClusterSettings {
            url,
            etcd_tls: etcd_tls(typed.etcd)?,
            token,
            name,
            addresses,
            label: label.transpose()?.unwrap_or_default(),
            weight: typed.weight.map_or(cache, |weight| weight.0),
            repair_rate: typed.repair_rate.map_or(CopyConfig::default().repair_rate, |rate| rate.0),
            hot_rate: typed.hot_rate.map_or(HeatConfig::default().rate, |rate| rate.0),
        }))
    }

    pub fn etcd(&self) -> EtcdConfig {
        EtcdConfig { tls: self.etcd_tls.clone(), ..EtcdConfig::new(self.url.clone()) }
    }
}

/// The other nodes are told these, so they must lead here from elsewhere.
fn check_addresses(addresses: &[SocketAddr]) -> Result<()> {
    if addresses.is_empty() {
        return refuse(
            "the other nodes must reach this one; name an address of this machine for each link, as --address 10.0.0.1:7423"
                .to_owned(),
        );
    }
    for (at, address) in addresses.iter().enumerate() {
        if address.ip().is_unspecified() || address.port() == 0 {
            return refuse(format!(
                "{address} leads nowhere from another node; write an address of this machine and a port, as 10.0.0.1:7423"
            ));
        }
        if addresses.iter().take(at).any(|other| other == address) {
            return refuse(format!("the address {address} is there twice; name each link once"));
        }
    }
    Ok(())
}

fn etcd_tls(typed: config::EtcdTable) -> Result<Option<EtcdTls>> {
    let identity = match (typed.certificate, typed.private_key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            return refuse(
                "[cluster.etcd] certificate and private_key belong together; name both files".to_owned(),
            );
        }
    };
    match (typed.ca, identity) {
        (Some(ca), identity) => Ok(Some(EtcdTls { ca, identity })),
        (None, None) => Ok(None),
        (None, Some(_)) => refuse(
            "[cluster.etcd] has a certificate of this node and none of etcd's authority; name its file as ca"
                .to_owned(),
        ),
    }
}

/// What a junction cannot be in a cluster, and what it can be nowhere else.
pub fn check_junction(junction: &JunctionSettings, is_node: bool) -> Result<()> {
    let path = &junction.path;
    if is_node && junction.write == WritePolicy::Back {
        return refuse(format!(
            "{path} is written back, and a cluster does not do that yet: its journal would be on one node alone; write \
             write = \"through\" or \"read-only\", or serve it by a tier outside of the cluster"
        ));
    }
    if !is_node && (junction.copies.is_some() || junction.topology.is_some()) {
        return refuse(format!(
            "{path} has copies or a topology, which a cluster goes by; add [cluster], or take them out"
        ));
    }
    Ok(())
}
