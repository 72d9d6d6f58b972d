//! Which nodes are being told what they lack, and which of them are slow. Pure: the caller brings the time.
//!
//! A node is told by one call at a time. Further fills are taken up when all nodes that are well have been told of those before, so
//! that what is told fits their outboxes; a node that is slow is not waited for.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use types::NodeId;

/// A node whose last call took longer, or failed, is slow until one ends sooner.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct FeedPace {
    /// When the call that is under way began.
    in_flight: HashMap<NodeId, Duration>,
    slow: HashSet<NodeId>,
}

impl FeedPace {
    pub fn in_flight(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.in_flight.keys().copied()
    }

    pub fn may_call(&self, node: NodeId) -> bool {
        !self.in_flight.contains_key(&node)
    }

    pub fn began(&mut self, node: NodeId, now: Duration) {
        self.in_flight.insert(node, now);
    }

    pub fn ended(&mut self, node: NodeId, was_told: bool, now: Duration) {
        let Some(begun) = self.in_flight.remove(&node) else { return };
        if was_told && now.saturating_sub(begun) < SLOW {
            self.slow.remove(&node);
        } else {
            self.slow.insert(node);
        }
    }

    /// Whether further fills wait until this node, for which there is something, has been told.
    pub fn holds_up(&self, node: NodeId, now: Duration) -> bool {
        let takes_long = |begun: &Duration| now.saturating_sub(*begun) >= SLOW;
        !self.slow.contains(&node) && !self.in_flight.get(&node).is_some_and(takes_long)
    }

    /// Forgets which nodes were slow but these.
    pub fn retain(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.slow.retain(|node| is_member(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_node_is_told_by_one_call_at_a_time() {
        let mut pace = FeedPace::default();
        assert!(pace.may_call(NODE));
        pace.began(NODE, ms(0));
        assert!(!pace.may_call(NODE) && pace.may_call(NodeId(2)));
        pace.ended(NODE, true, ms(5));
        assert!(pace.may_call(NODE) && pace.in_flight().next().is_none());
    }

    #[test]
    fn a_node_that_is_well_is_waited_for_and_one_that_is_slow_is_not_until_it_is_well_again() {
        let mut pace = FeedPace::default();
        assert!(pace.holds_up(NODE, ms(0)), "what is for it goes out first");
        pace.began(NODE, ms(0));
        assert!(pace.holds_up(NODE, ms(999)) && !pace.holds_up(NODE, ms(1000)));
        pace.ended(NODE, true, ms(1500));
        assert!(!pace.holds_up(NODE, ms(1500)), "the next call may take as long");
        pace.began(NODE, ms(2000));
        assert!(!pace.holds_up(NODE, ms(2000)));
        pace.ended(NODE, true, ms(2010));
        assert!(pace.holds_up(NODE, ms(2010)));
        pace.began(NODE, ms(3000));
        pace.ended(NODE, false, ms(3001));
        assert!(!pace.holds_up(NODE, ms(3001)), "it refuses");
        pace.retain(|_| false);
        assert!(pace.holds_up(NODE, ms(3001)), "a node of that id that comes later is another one");
    }
}
