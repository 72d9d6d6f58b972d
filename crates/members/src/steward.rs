//! The steward: the one node that marks others out when they were not heard of for too long. A node that is back marks itself up; the
//! steward does it only for one that it finds alive and still out. Pure: it sees the keys and a clock, and answers with a swap.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::NodeState;
use coordinator::{Expected, LeaseId, Swap};
use types::{NodeId, Result};

use crate::records::{
    Incarnation, NodeRecord, OutReason, STEWARD_KEY, StewardRecord, alive_key, node_key, write_record,
};
use crate::roll::{ClusterRoll, KeptRecord};

/// Which node asks.
#[derive(Clone, Copy, Debug)]
pub struct StewardSeat {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub lease: LeaseId,
}

/// A node's part in stewardship. Every node has one; only the one that holds the key counts.
#[derive(Debug)]
pub struct Steward {
    down_after: Duration,
    /// Since when this steward has seen nodes without a sign of life.
    gone_since: BTreeMap<NodeId, Duration>,
}

impl Steward {
    pub fn new(down_after: Duration) -> Steward {
        Steward { down_after, gone_since: BTreeMap::new() }
    }

    /// While etcd is away nobody can give a sign of life, and after a restored backup nobody has: each node has its whole time again.
    pub fn begin_anew(&mut self) {
        self.gone_since.clear();
    }

    /// What is to be done now, one swap at a time. `now` is of any clock that goes on evenly.
    pub fn next(&mut self, roll: &ClusterRoll, seat: StewardSeat, now: Duration) -> Result<Option<Swap>> {
        let own = StewardRecord { node: seat.node.to_string(), incarnation: seat.incarnation };
        let held = match &roll.steward {
            None => {
                self.begin_anew();
                return Ok(Some(Swap::new().create(STEWARD_KEY, write_record(&own)?, Some(seat.lease))));
            }
            Some(held) => held,
        };
        if held.good() != Some(&own) {
            self.begin_anew();
            // One under no lease was put by hand, and would be there for ever.
            if held.lease.is_none() {
                let value = write_record(&own)?;
                return Ok(Some(Swap::new().replace(STEWARD_KEY, held.revision, value, Some(seat.lease))));
            }
            return Ok(None);
        }
        if held.lease != Some(seat.lease) {
            // Of a lease that this node held before: it is about to end.
            let value = write_record(&own)?;
            return Ok(Some(Swap::new().replace(STEWARD_KEY, held.revision, value, Some(seat.lease))));
        }
        self.look(roll, now);
        for (id, kept) in &roll.nodes {
            let Some(node) = kept.good() else { continue };
            let Some(marked) = self.mark(roll, *id, node, now) else { continue };
            // What it goes by is a condition: the sign of life, and that this node is still the steward.
            let alive = match roll.alive.get(id) {
                Some(alive) => Expected::At(alive.revision),
                None => Expected::Absent,
            };
            let swap = Swap::new().replace(node_key(*id), kept.revision, write_record(&marked)?, None);
            let swap = swap.require(alive_key(*id), alive);
            return Ok(Some(swap.require(STEWARD_KEY, Expected::At(held.revision))));
        }
        Ok(None)
    }

    fn look(&mut self, roll: &ClusterRoll, now: Duration) {
        self.gone_since.retain(|id, _| roll.nodes.contains_key(id) && !roll.is_alive(*id));
        for id in roll.nodes.keys().filter(|id| !roll.is_alive(**id)) {
            self.gone_since.entry(*id).or_insert(now);
        }
    }

    fn mark(&self, roll: &ClusterRoll, id: NodeId, node: &NodeRecord, now: Duration) -> Option<NodeRecord> {
        let is_alive = roll.is_alive(id) && roll.alive.get(&id).and_then(KeptRecord::good).is_some();
        let gone = self.gone_since.get(&id).map(|since| now.saturating_sub(*since));
        match node.state {
            NodeState::Up if gone.is_some_and(|gone| gone >= self.down_after) => {
                Some(node.in_state(NodeState::Out, Some(OutReason::Silent)))
            }
            NodeState::Out if is_alive && node.is_silent() => Some(node.in_state(NodeState::Up, None)),
            // A node that drains was told to by its operator, whether it lives or not.
            NodeState::Up | NodeState::Draining | NodeState::Out => None,
        }
    }
}

#[cfg(test)]
mod tests;
