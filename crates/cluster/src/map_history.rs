//! The map in force and those shortly before it: where stripes may still lie after a change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::NodeId;

use crate::label::NodeLabel;
use crate::map::ClusterMap;
use crate::placement::Placement;
use crate::stripe::Stripe;

/// For so long after a change of the map a primary asks the primaries of the maps before it, ahead of the origin. The
/// copies that the change asks for are under way by then.
pub const FORMER_MAPS_TIME: Duration = Duration::from_secs(600);

/// So many former maps are known at most, as when that many nodes join one after the other; the oldest one is
/// forgotten.
pub const FORMER_MAPS_MAX: usize = 16;

/// The newest map that this node has heard of, and what was in force shortly before. Time is given by the caller.
#[derive(Clone, Debug)]
pub struct MapHistory {
    current: Arc<ClusterMap>,
    /// Newest first.
    former: VecDeque<FormerMap>,
}

#[derive(Clone, Debug)]
struct FormerMap {
    map: Arc<ClusterMap>,
    replaced_at: Instant,
}

impl FormerMap {
    fn is_in_time(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.replaced_at) < FORMER_MAPS_TIME
    }
}

impl MapHistory {
    pub fn new(map: Arc<ClusterMap>) -> MapHistory {
        MapHistory { current: map, former: VecDeque::new() }
    }

    /// The newer map wins: one whose number is not larger changes nothing, and the answer is `false`. A map that places
    /// as the one before it takes its place without a trace. (A coordinator that was restored from a backup counts from
    /// an older number; whoever finds that out begins a new history.)
    pub fn advance(&mut self, map: Arc<ClusterMap>, now: Instant) -> bool {
        if map.number() <= self.current.number() {
            return false;
        }
        let replaced = std::mem::replace(&mut self.current, map);
        self.former.retain(|former| former.is_in_time(now));
        if !replaced.places_as(&self.current) {
            self.former.truncate(FORMER_MAPS_MAX - 1);
            self.former.push_front(FormerMap { map: replaced, replaced_at: now });
        }
        true
    }

    pub fn current(&self) -> &Arc<ClusterMap> {
        &self.current
    }

    /// Maps that were replaced within the last [`FORMER_MAPS_TIME`], newest first.
    pub fn former(&self, now: Instant) -> impl Iterator<Item = &Arc<ClusterMap>> {
        self.former.iter().filter(move |former| former.is_in_time(now)).map(|former| &former.map)
    }

    /// Whom the primary of a stripe asks before it asks the origin: the primaries of the former maps, newest first,
    /// without itself and without nodes that have gone since. Each is named once.
    ///
    /// After several changes within the time the bytes may still be where the first of them found them; so it is not
    /// the last map alone that counts.
    pub fn former_primaries(&self, stripe: Stripe, topology: &NodeLabel, now: Instant) -> Vec<NodeId> {
        let mut primaries: Vec<NodeId> = Vec::new();
        let mut former = self.former(now).peekable();
        if former.peek().is_none() {
            return primaries;
        }
        let own = Placement::new(self.current.clone(), topology).primary(stripe);
        for map in former {
            let Some(primary) = Placement::new(map.clone(), topology).primary(stripe) else { continue };
            let is_there = self.current.node(primary).is_some_and(|node| node.is_placed());
            if is_there && own != Some(primary) && !primaries.contains(&primary) {
                primaries.push(primary);
            }
        }
        primaries
    }
}

#[cfg(test)]
mod tests;
