//! What operators do to a cluster: make it, take nodes out and back, remove junctions. Each change is a pure decision and a swap.

use std::time::Duration;

use cluster::NodeState;
use coordinator::{Coordinator, Expected, MAX_SWAP_KEYS, Swap};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::copy_rules::decide_rule;
use crate::identity::random;
use crate::junctions::{JunctionProfile, KnownJunction, KnownJunctions, next_id};
use crate::node_file::NodeFile;
use crate::records::{
    CLUSTER_KEY, ClusterId, ClusterRecord, JUNCTION_ID_MAX, JUNCTION_IDS_KEY, JunctionIdsRecord,
    JunctionRecord, OutReason, ROSTER_KEY, RosterRecord, alive_key, copy_rules_key, junction_key, node_key,
    write_record,
};
use crate::roll::{ClusterRoll, KeptRecord};
use crate::settle::{NextStep, settle};

/// For one change. Others may be at the same keys meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster that is about to be made.
#[derive(Clone, Debug)]
pub struct NewCluster {
    pub id: ClusterId,
    /// They have their ids before any node can give them others.
    pub junctions: KnownJunctions,
}

impl NewCluster {
    /// Under an id that no cluster has.
    pub fn draw() -> Result<NewCluster> {
        random().map(|id| NewCluster::of(ClusterId(id)))
    }

    pub fn of(id: ClusterId) -> NewCluster {
        NewCluster { id, junctions: KnownJunctions::default() }
    }

    /// One that goes on after its etcd was lost. `file`: of any node that was in it.
    pub fn again(file: &NodeFile) -> NewCluster {
        NewCluster { id: file.cluster, junctions: file.junctions.clone() }
    }
}

/// Makes the cluster's record. It may be repeated.
///
/// Errors: `Exists` when etcd holds another cluster of that name; those of [`settle`].
pub async fn init(coordinator: &dyn Coordinator, wire: u32, new: &NewCluster) -> Result<ClusterId> {
    let created = types::timeline::wall_clock().as_secs();
    let record = ClusterRecord { id: new.id, created, wire };
    let url = coordinator.url();
    settle(coordinator, PATIENCE, |roll| decide_init(roll, &record, &new.junctions, &url)).await
}

fn decide_init(
    roll: &ClusterRoll,
    record: &ClusterRecord,
    known: &KnownJunctions,
    url: &str,
) -> Result<NextStep<ClusterId>> {
    let made = match &roll.cluster {
        None => {
            let swap = Swap::new().create(CLUSTER_KEY, write_record(record)?, None);
            return Ok(NextStep::Swap(with_junctions(roll, swap, known)?, record.id));
        }
        // It was made by this call or one before it, whose answer was lost.
        Some(kept) if kept.good().is_some_and(|made| made.id == record.id) => {
            return Ok(NextStep::Done(record.id));
        }
        Some(kept) => match &kept.record {
            Ok(other) => format!("there is the cluster {} already", other.id),
            Err(why) => format!("there is a cluster already, whose record cannot be read: {why}"),
        },
    };
    Ok(NextStep::Refuse(Error::new(ErrorKind::Exists, "make a cluster in", format!("{url}: {made}"))))
}

/// A swap that also puts the junctions of a node's file, as many as one swap takes: the nodes that have the others put them back, and
/// the next id lies behind all of them.
fn with_junctions(roll: &ClusterRoll, mut swap: Swap, known: &KnownJunctions) -> Result<Swap> {
    for KnownJunction { id, path, url } in &known.junctions {
        let id = JunctionId(*id);
        let profile = JunctionProfile { path: path.clone(), url: url.clone(), digest: String::new() };
        let is_free = !roll.junctions.contains_key(&id) && (1..=JUNCTION_ID_MAX).contains(&id.0);
        let is_twice = swap.keys().iter().any(|key| key.key == junction_key(id));
        if !is_free || is_twice || profile.check().is_err() || swap.keys().len() + 1 >= MAX_SWAP_KEYS {
            continue;
        }
        let JunctionProfile { path, url, digest } = profile;
        let record = JunctionRecord { path, url, digest, by: "init".to_owned() };
        swap = swap.create(junction_key(id), write_record(&record)?, None);
    }
    let next = next_id(roll, known);
    let value = write_record(&JunctionIdsRecord { next, by: "init".to_owned() })?;
    Ok(match &roll.junction_ids {
        None if next > 1 => swap.create(JUNCTION_IDS_KEY, value, None),
        Some(ids) if ids.good().is_some_and(|ids| ids.next < next) => {
            swap.replace(JUNCTION_IDS_KEY, ids.revision, value, None)
        }
        _ => swap,
    })
}

/// What is to become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// It gets no more stripes, and is asked for what it keeps.
    Drain,
    /// It gets stripes again.
    Undrain,
    /// It is asked for nothing, until it is started again.
    Leave,
    /// It is removed, and its name is free. It must not run.
    Forget,
}

impl NodeChange {
    fn operation(self) -> &'static str {
        match self {
            NodeChange::Drain => "drain the node",
            NodeChange::Undrain => "undrain the node",
            NodeChange::Leave => "take out the node",
            NodeChange::Forget => "forget the node",
        }
    }
}

/// `node` is a name or an id.
///
/// Errors: `NotFound` when there is no such node; `InvalidArgument` to drain or undrain one that is out; `Busy` to forget one that
/// runs; `Corrupt` when its record cannot be read, unless it is to be forgotten; those of [`settle`].
pub async fn change_node(coordinator: &dyn Coordinator, node: &str, change: NodeChange) -> Result<NodeId> {
    let nonce = random()?;
    // Once it was tried: the node may be gone because this call removed it.
    let mut removed = None;
    settle(coordinator, PATIENCE, |roll| {
        if let Some(id) = removed
            && !roll.nodes.contains_key(&id)
        {
            return Ok(NextStep::Done(id));
        }
        let step = decide_change(roll, node, change, nonce)?;
        if let (NodeChange::Forget, NextStep::Swap(_, id)) = (change, &step) {
            removed = Some(*id);
        }
        Ok(step)
    })
    .await
}

fn decide_change(roll: &ClusterRoll, node: &str, change: NodeChange, nonce: u64) -> Result<NextStep<NodeId>> {
    let refuse = |kind, what: &str| {
        Ok(NextStep::Refuse(Error::new(kind, change.operation(), format!("{node}: {what}"))))
    };
    let Some((id, kept)) = roll.find(node).and_then(|id| Some((id, roll.nodes.get(&id)?))) else {
        return refuse(ErrorKind::NotFound, "the cluster has no node of that name or id");
    };
    if change == NodeChange::Forget {
        if roll.is_alive(id) {
            return refuse(ErrorKind::Busy, "it runs; stop it first, and wait until its lease has ended");
        }
        // Also one whose record cannot be read.
        let swap = Swap::new().delete(node_key(id), kept.revision);
        let swap = match roll.alive.get(&id) {
            // Put by hand, under no lease.
            Some(alive) => swap.delete(alive_key(id), alive.revision),
            None => swap.require(alive_key(id), Expected::Absent),
        };
        return Ok(NextStep::Swap(with_roster(roll, swap, id, nonce)?, id));
    }
    let record = match &kept.record {
        Ok(record) => record,
        Err(why) => return refuse(ErrorKind::Corrupt, why),
    };
    let changed = match (change, record.state) {
        (NodeChange::Drain, NodeState::Draining) | (NodeChange::Undrain, NodeState::Up) => {
            return Ok(NextStep::Done(id));
        }
        (NodeChange::Drain | NodeChange::Undrain, NodeState::Out) => {
            return refuse(ErrorKind::InvalidArgument, "it is out already");
        }
        (NodeChange::Drain, NodeState::Up) => record.in_state(NodeState::Draining, None),
        (NodeChange::Undrain, NodeState::Draining) => record.in_state(NodeState::Up, None),
        (NodeChange::Leave | NodeChange::Forget, _) => record.in_state(NodeState::Out, Some(OutReason::Left)),
    };
    if changed == *record {
        return Ok(NextStep::Done(id));
    }
    Ok(NextStep::Swap(Swap::new().replace(node_key(id), kept.revision, write_record(&changed)?, None), id))
}

/// A swap that adds, renames or removes a node, in the order of all such swaps.
pub(crate) fn with_roster(roll: &ClusterRoll, swap: Swap, node: NodeId, nonce: u64) -> Result<Swap> {
    let record = RosterRecord { node: node.to_string(), change: format!("{nonce:016x}") };
    let value = write_record(&record)?;
    Ok(match &roll.roster {
        Some(KeptRecord { revision, .. }) => swap.replace(ROSTER_KEY, *revision, value, None),
        None => swap.create(ROSTER_KEY, value, None),
    })
}

/// Its id is given to no other junction. First take the junction out of the settings of all nodes and restart them: the keys do not
/// tell which nodes serve it, and a node that does puts the record back within a moment, under the same id. A node that is started with
/// it later makes its record anew, under the former id if it remembers that.
///
/// Errors: `NotFound` when there is no such junction; those of [`settle`].
pub async fn remove_junction(coordinator: &dyn Coordinator, id: JunctionId) -> Result<()> {
    let mut tried = false;
    settle(coordinator, PATIENCE, |roll| {
        let Some(kept) = roll.junctions.get(&id) else {
            let missing = || Error::new(ErrorKind::NotFound, "remove the junction with the id", id);
            return Ok(if tried { NextStep::Done(()) } else { NextStep::Refuse(missing()) });
        };
        tried = true;
        let swap = Swap::new().delete(junction_key(id), kept.revision);
        let swap = match roll.copy_rules.get(&id) {
            Some(rules) => swap.delete(copy_rules_key(id), rules.revision),
            None => swap,
        };
        Ok(NextStep::Swap(swap, ()))
    })
    .await
}

/// Sets how many nodes keep each stripe of a file, or of all files below a directory; `None` takes that back. `path`: below the
/// junction's root, percent-encoded, `/` for the root.
///
/// Errors: `NoSpace` for more rules than a junction may have; `InvalidArgument` for a number that no rule has; `Corrupt` when the
/// junction's rules cannot be read; those of [`settle`].
pub async fn set_copies(
    coordinator: &dyn Coordinator,
    junction: JunctionId,
    path: &str,
    copies: Option<u8>,
) -> Result<()> {
    settle(coordinator, PATIENCE, |roll| decide_rule(roll, junction, path, copies)).await
}
