//! What operators must hear of. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use coordinator::Revision;
use types::NodeId;

use crate::junctions::{SettingsDifference, UrlDifference, settings_that_differ, urls_that_differ};
use crate::records::ClusterId;
use crate::roll::{BadRecord, ClusterRoll};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterAlarm {
    /// etcd does not answer. What runs goes on; nobody joins, and no node is marked out.
    EtcdUnreachable {
        /// What was said when it was noticed.
        why: String,
    },
    /// etcd answers, and takes no change.
    EtcdRefusesWrites {
        why: String,
    },
    /// etcd was restored from a backup or wiped. It stays for as long as the process runs.
    EtcdWentBack {
        known: Revision,
        found: Revision,
    },
    /// etcd holds no cluster any more. The last map stays in force.
    NoCluster,
    /// etcd holds another cluster than this node is a member of. The last map stays in force.
    OtherCluster {
        found: ClusterId,
        own: ClusterId,
    },
    /// This node is not in the cluster at the moment, though it was.
    NotIn {
        why: String,
    },
    /// A record that cannot be read, and is left out.
    UnreadableRecord(BadRecord),
    /// Several nodes have one name, because a record was put by hand.
    NameTwice {
        name: String,
        nodes: Vec<NodeId>,
    },
    /// Not heard of for too long.
    NodeOut {
        name: String,
    },
    SettingsDiffer(SettingsDifference),
    UrlsDiffer(UrlDifference),
    /// The cluster has another id for a junction than this node had, so that handles of its files end. It stays for as long as the
    /// process runs.
    JunctionRenumbered {
        path: String,
        was: u32,
        is: u32,
    },
    /// The file in the node's directory cannot be written.
    FileNotWritten {
        why: String,
    },
}

impl fmt::Display for ClusterAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterAlarm::EtcdUnreachable { why } => write!(
                f,
                "etcd does not answer; files are served on, and no node joins or is marked out until it is back: {why}"
            ),
            ClusterAlarm::EtcdRefusesWrites { why } => write!(
                f,
                "etcd refuses writes; no node joins or is marked out until its quota, or the rights of this node's \
                 certificate, are mended: {why}"
            ),
            ClusterAlarm::EtcdWentBack { known, found } => write!(
                f,
                "etcd was restored from a backup or wiped: it is at revision {found} and does not know what was put up \
                 to {known}; the nodes put their records again, and this ends when this node is restarted"
            ),
            ClusterAlarm::NoCluster => write!(
                f,
                "etcd holds no cluster any more; the last map stays in force until etcd is restored from a backup, or \
                 the cluster is made anew from the cluster.json of a node"
            ),
            ClusterAlarm::OtherCluster { found, own } => write!(
                f,
                "etcd holds the cluster {found}, and this node is of the cluster {own}, whose last map stays in force; \
                 mend the name of the cluster or the address of etcd in the node's settings"
            ),
            ClusterAlarm::NotIn { why } => write!(f, "this node is not in the cluster: {why}"),
            ClusterAlarm::UnreadableRecord(BadRecord { key, why }) => write!(
                f,
                "the key {key} in etcd is left out: {why}; remove it if it was put by hand, or upgrade this node if a \
                 newer one has put it"
            ),
            ClusterAlarm::NameTwice { name, nodes } => {
                let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
                write!(
                    f,
                    "{} nodes have the name {name}: {}; forget the one that does not run",
                    nodes.len(),
                    nodes.join(", ")
                )
            }
            ClusterAlarm::NodeOut { name } => write!(
                f,
                "node {name} is out: it was not heard of for too long; start it, or forget it if it does not come back"
            ),
            ClusterAlarm::SettingsDiffer(SettingsDifference { path, like, unlike }) => write!(
                f,
                "the settings of junction {path} are not the same on all nodes: {} against {}; make them the same, and \
                 restart the nodes that are changed",
                unlike.join(", "),
                like.join(", ")
            ),
            ClusterAlarm::UrlsDiffer(UrlDifference { path, urls }) => {
                let urls: Vec<String> =
                    urls.iter().map(|(url, names)| format!("{url} on {}", names.join(", "))).collect();
                write!(
                    f,
                    "junction {path} has not the same URL on all nodes: {}; they do not share what they cache of it, \
                     so write the URL in the same way in the settings of all, and restart them",
                    urls.join(", and ")
                )
            }
            ClusterAlarm::JunctionRenumbered { path, was, is } => {
                write!(
                    f,
                    "junction {path} has the id {is} in the cluster and had {was} here: this node reads it without the \
                     others until it is started with an empty cache directory; clients then open its files again"
                )
            }
            ClusterAlarm::FileNotWritten { why } => write!(
                f,
                "cluster.json in the node's directory is not written, and a restart without etcd would know old things: \
                 {why}"
            ),
        }
    }
}

/// The alarms that follow from the keys alone.
pub fn alarms_of(roll: &ClusterRoll) -> BTreeSet<ClusterAlarm> {
    let bad = roll.bad_records().into_iter().map(ClusterAlarm::UnreadableRecord);
    let out = roll.good_nodes().filter(|(_, node)| node.is_silent());
    let out = out.map(|(_, node)| ClusterAlarm::NodeOut { name: node.name.clone() });
    let differ = settings_that_differ(roll).into_iter().map(ClusterAlarm::SettingsDiffer);
    let urls = urls_that_differ(roll).into_iter().map(ClusterAlarm::UrlsDiffer);
    let mut names: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in roll.good_nodes() {
        names.entry(&node.name).or_default().push(id);
    }
    let twice = names.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    let twice = twice.map(|(name, nodes)| ClusterAlarm::NameTwice { name: name.to_owned(), nodes });
    bad.chain(out).chain(differ).chain(urls).chain(twice).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedAlarm {
    pub alarm: ClusterAlarm,
    /// Since 1970.
    pub since: Duration,
}

/// The alarms in force, each with the time at which it was raised.
#[derive(Debug, Default)]
pub struct AlarmBoard {
    raised: BTreeMap<ClusterAlarm, Duration>,
}

impl AlarmBoard {
    /// Sets the alarms that are in force now. Returns those that are new, and those that are over.
    pub fn set(
        &mut self,
        current: BTreeSet<ClusterAlarm>,
        now: Duration,
    ) -> (Vec<ClusterAlarm>, Vec<ClusterAlarm>) {
        let over: Vec<_> = self.raised.keys().filter(|alarm| !current.contains(alarm)).cloned().collect();
        for alarm in &over {
            self.raised.remove(alarm);
        }
        let new: Vec<_> = current.into_iter().filter(|alarm| !self.raised.contains_key(alarm)).collect();
        self.raised.extend(new.iter().map(|alarm| (alarm.clone(), now)));
        (new, over)
    }

    pub fn raised(&self) -> Vec<RaisedAlarm> {
        let raised = self.raised.iter();
        raised.map(|(alarm, since)| RaisedAlarm { alarm: alarm.clone(), since: *since }).collect()
    }
}

#[cfg(test)]
mod tests;
