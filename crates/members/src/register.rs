//! How a node gets in: its own record, its sign of life, and what forbids them. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cluster::{NODES_MAX, NodeLabel, NodeState};
use coordinator::{Expected, LeaseId, Swap};
use types::{Error, ErrorKind, NodeId, Result};

use crate::changes::with_roster;
use crate::records::{
    AliveRecord, CLUSTER_KEY, ClusterId, Incarnation, KeyRecord, NodeRecord, OutReason, alive_key, node_key,
    write_record,
};
use crate::roll::{ClusterRoll, KeptRecord};
use crate::settle::NextStep;

const JOIN: &str = "join the cluster:";

/// A node as its own configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeProfile {
    /// What operators call it.
    pub name: String,
    /// Where peers reach it.
    pub addresses: Vec<SocketAddr>,
    /// Where its operator's interface listens.
    pub admin: Option<SocketAddr>,
    /// Where it listens for NFS, if it does.
    pub nfs: Option<SocketAddr>,
    /// The bytes that it can keep.
    pub weight: u64,
    pub label: NodeLabel,
    pub build: String,
    /// The newest version of the wire that it knows.
    pub wire: u32,
}

impl NodeProfile {
    fn record(&self, (state, out_reason): StateAndReason) -> NodeRecord {
        NodeRecord {
            name: self.name.clone(),
            addresses: self.addresses.clone(),
            admin: self.admin,
            nfs: self.nfs,
            weight: self.weight,
            label: self.label.clone(),
            state,
            out_reason,
            build: self.build.clone(),
            wire: self.wire,
        }
    }

    /// Whether it can be a record at all.
    pub fn check(&self) -> Result<()> {
        let wrong =
            |error| Error::new(ErrorKind::Config, "check the node's settings:", "").with_source(error);
        if self.name.parse::<NodeId>().is_ok() {
            let what = format!(
                "its name is {:?}, and 16 hexadecimal digits are a node's id; choose another name",
                self.name
            );
            return Err(Error::new(ErrorKind::Config, "check the node's settings:", what));
        }
        self.record((NodeState::Up, None)).check().map_err(wrong)
    }
}

/// Whether a node can have this name.
pub fn check_node_name(name: &str) -> Result<()> {
    let profile = NodeProfile {
        name: name.to_owned(),
        addresses: vec![([127, 0, 0, 1], 1).into()],
        admin: None,
        nfs: None,
        weight: 0,
        label: NodeLabel::root(),
        build: String::new(),
        wire: 0,
    };
    profile.check()
}

/// A node's state, and why it is out.
pub type StateAndReason = (NodeState, Option<OutReason>);

/// Who asks to be in the cluster.
#[derive(Clone, Debug)]
pub struct JoinApplicant<'a> {
    pub id: NodeId,
    pub incarnation: Incarnation,
    pub profile: &'a NodeProfile,
    /// The cluster whose member it has been.
    pub cluster: Option<ClusterId>,
    pub lease: LeaseId,
    /// It has been in since it was started: an operator who takes it out is not overruled.
    pub has_joined: bool,
    /// Its state before etcd went back: what an operator has done to it since the backup holds.
    pub before: Option<StateAndReason>,
    pub differs: &'a BTreeMap<u32, String>,
}

/// The cluster's id, if the node may be in it.
pub fn admit(roll: &ClusterRoll, kept: Option<ClusterId>, wire: u32) -> Result<ClusterId> {
    let refuse = |kind, what: String| Err(Error::new(kind, JOIN, what));
    let Some(cluster) = &roll.cluster else {
        let what = "there is none in this etcd under this name; make it, or mend the name or the address of etcd in \
                    the node's settings";
        return refuse(ErrorKind::NotFound, what.to_owned());
    };
    let cluster = match &cluster.record {
        Ok(cluster) => cluster,
        Err(why) => {
            return refuse(
                ErrorKind::Corrupt,
                format!("its record, the key {CLUSTER_KEY}, cannot be read: {why}"),
            );
        }
    };
    if let Some(kept) = kept.filter(|kept| *kept != cluster.id) {
        let found = cluster.id;
        let what = format!(
            "etcd holds the cluster {found}, and this node's directory or token is of the cluster {kept}; give it the \
                 address of its own etcd, or a token of this cluster and another directory to join as a new node"
        );
        return refuse(ErrorKind::Config, what);
    }
    if cluster.wire > wire {
        let other = cluster.wire;
        let what = format!(
            "its nodes speak version {other} of the wire, and this build knows {wire} at most; install a newer one"
        );
        return refuse(ErrorKind::NotSupported, what);
    }
    Ok(cluster.id)
}

/// Puts the node's record and its sign of life, if they are not there as they should be. Everything that it goes by is a condition
/// of the swap, or is changed by it.
pub fn register(roll: &ClusterRoll, applicant: &JoinApplicant<'_>, nonce: u64) -> Result<NextStep<()>> {
    let JoinApplicant { id, incarnation, profile, lease, .. } = *applicant;
    if let Err(error) = admit(roll, applicant.cluster, profile.wire) {
        return Ok(NextStep::Refuse(error));
    }
    let refuse = |kind, what: String| {
        Ok(NextStep::Refuse(Error::new(kind, JOIN, format!("{}: {what}", profile.name))))
    };
    let mut swap = Swap::new();
    let kept = roll.nodes.get(&id);
    let former = kept.and_then(KeptRecord::good);
    // A member is not thrown out by a record that somebody has put under its name.
    let is_new_name = former.is_none_or(|former| former.name != profile.name);
    let namesake = roll.good_nodes().find(|(other, node)| *other != id && node.name == profile.name);
    if let Some((other, _)) = namesake.filter(|_| is_new_name) {
        let what = format!("the node {other} has that name; choose another one, or forget that node");
        return refuse(ErrorKind::Exists, what);
    }
    // A node that drains goes on to, and one that was out is up by being started.
    let before = applicant.before.or(former.map(|former| (former.state, former.out_reason)));
    let record = profile.record(match before {
        Some((NodeState::Draining, _)) => (NodeState::Draining, None),
        Some((NodeState::Out, why)) if applicant.has_joined && why != Some(OutReason::Silent) => {
            (NodeState::Out, why)
        }
        _ => (NodeState::Up, None),
    });
    let mut changes = false;
    match kept {
        Some(_) if former == Some(&record) => {}
        Some(kept) => {
            swap = swap.replace(node_key(id), kept.revision, write_record(&record)?, None);
            if former.is_none_or(|former| former.name != record.name) {
                swap = with_roster(roll, swap, id, nonce)?;
            }
            changes = true;
        }
        None if roll.nodes.len() >= NODES_MAX => {
            return refuse(
                ErrorKind::NoSpace,
                format!("it has {NODES_MAX} nodes, and more are not possible"),
            );
        }
        None => {
            swap = with_roster(roll, swap.create(node_key(id), write_record(&record)?, None), id, nonce)?;
            changes = true;
        }
    }
    let alive = AliveRecord { incarnation, differs: applicant.differs.clone() };
    match roll.alive.get(&id) {
        None => {
            swap = swap.create(alive_key(id), write_record(&alive)?, Some(lease));
            changes = true;
        }
        // It would never end, and no process can be known by it.
        Some(there) if there.lease.is_none() => {
            swap = swap.replace(alive_key(id), there.revision, write_record(&alive)?, Some(lease));
            changes = true;
        }
        Some(there) => {
            let is_ours = there.good().is_some_and(|there| there.incarnation == incarnation);
            if !is_ours {
                let what = format!(
                    "{}: another process runs as this node ({id}); stop it, or wait until its lease has ended",
                    profile.name
                );
                return Ok(NextStep::Wait(Error::new(ErrorKind::Busy, JOIN, what)));
            }
            if there.good() != Some(&alive) || there.lease != Some(lease) {
                swap = swap.replace(alive_key(id), there.revision, write_record(&alive)?, Some(lease));
                changes = true;
            }
        }
    }
    let cluster = roll.cluster.as_ref().map_or(Expected::Absent, |cluster| Expected::At(cluster.revision));
    Ok(if changes { NextStep::Swap(swap.require(CLUSTER_KEY, cluster), ()) } else { NextStep::Done(()) })
}

#[cfg(test)]
mod tests;
