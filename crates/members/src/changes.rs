//! What operators do to a cluster: make it, take nodes out and back, remove junctions. Each change is a pure decision and a swap.

use std::time::Duration;

use cluster::NodeState;
use coordinator::{Coordinator, Expected, Swap};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::identity::random;
use crate::records::{
    CLUSTER_KEY, ClusterId, ClusterRecord, OutReason, ROSTER_KEY, RosterRecord, alive_key, junction_key,
    node_key, write_record,
};
use crate::roll::{ClusterRoll, KeptRecord};
use crate::settle::{NextStep, settle};

/// For one change. Others may be at the same keys meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the cluster's record. `id` is given when etcd was lost and the cluster is to go on under its id; otherwise it is a new one.
///
/// Errors: `Exists` when etcd holds a cluster of that name already; those of [`settle`].
pub async fn init(coordinator: &dyn Coordinator, wire: u32, id: Option<ClusterId>) -> Result<ClusterId> {
    let id = id.map_or_else(|| random().map(ClusterId), Ok)?;
    let created = types::timeline::wall_clock().as_secs();
    let record = ClusterRecord { id, created, wire };
    let url = coordinator.url();
    settle(coordinator, PATIENCE, |roll| decide_init(roll, &record, &url)).await
}

fn decide_init(roll: &ClusterRoll, record: &ClusterRecord, url: &str) -> Result<NextStep<ClusterId>> {
    let made = match &roll.cluster {
        None => {
            let swap = Swap::new().create(CLUSTER_KEY, write_record(record)?, None);
            return Ok(NextStep::Swap(swap, record.id));
        }
        // It was made by this call, whose answer was lost.
        Some(kept) if kept.good() == Some(record) => return Ok(NextStep::Done(record.id)),
        Some(kept) => match &kept.record {
            Ok(other) => format!("there is the cluster {} already", other.id),
            Err(why) => format!("there is a cluster already, whose record cannot be read: {why}"),
        },
    };
    Ok(NextStep::Refuse(Error::new(ErrorKind::Exists, "make a cluster in", format!("{url}: {made}"))))
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
        let swap = Swap::new().delete(node_key(id), kept.revision).require(alive_key(id), Expected::Absent);
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

/// Its id is given to no other junction. A node that is started with this one later makes its record anew, under the former id if it
/// remembers that.
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
        Ok(NextStep::Swap(Swap::new().delete(junction_key(id), kept.revision), ()))
    })
    .await
}
