//! Which nodes answer. Pure: the caller sends the heartbeats, tells what came back, and brings the time.
//!
//! A node that has missed four heartbeats, 0.4 s apart, is passed over until it answers any call; nobody waits for
//! the coordinator to notice. So one that says nothing is passed over 1.6 to 2 s later, and one that is busy for less than 1.6 s is not:
//! the time between two heartbeats is what the two times differ by. A node whose id two processes use at once is noticed by its incarnations, which take turns.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use types::NodeId;

/// The time between two heartbeats to one node.
pub const HEARTBEAT: Duration = Duration::from_millis(400);
/// So many heartbeats without an answer, and the node is passed over.
pub const MISSED_MAX: u32 = 4;
/// The incarnations of a node that are remembered as over.
const OVER_MAX: usize = 4;

/// What an answer says of the node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncarnationSeen {
    /// The first answer of this node.
    First,
    Same,
    /// The node was started anew.
    Restarted,
    /// A process that was taken to be over answers: two of them use one id.
    Twice,
}

/// The heartbeats of this node to each other one: when the next is due, how many in a row had no answer, and as which incarnation
/// the node answered.
#[derive(Debug, Default)]
pub struct Liveness {
    nodes: HashMap<NodeId, NodeLife>,
}

#[derive(Debug, Default)]
struct NodeLife {
    /// When the next heartbeat is to be sent.
    due: Duration,
    /// The last one has no answer yet.
    is_awaited: bool,
    missed: u32,
    incarnation: Option<u64>,
    over: VecDeque<u64>,
}

impl Liveness {
    /// Whether a heartbeat is to be sent to `node` now. It counts as sent then, and the one before it, if it has no
    /// answer, as missed. `now` is any clock that does not go back.
    pub fn is_due(&mut self, node: NodeId, now: Duration) -> bool {
        let life = self.nodes.entry(node).or_default();
        if now < life.due {
            return false;
        }
        if life.is_awaited {
            life.missed = life.missed.saturating_add(1);
        }
        (life.is_awaited, life.due) = (true, now + HEARTBEAT);
        true
    }

    /// Records that `node` answered a heartbeat.
    pub fn heard(&mut self, node: NodeId, incarnation: u64) -> IncarnationSeen {
        let life = self.nodes.entry(node).or_default();
        (life.is_awaited, life.missed) = (false, 0);
        let before = life.incarnation.replace(incarnation);
        match before {
            None => IncarnationSeen::First,
            Some(before) if before == incarnation => IncarnationSeen::Same,
            Some(before) => {
                let was_over = life.over.contains(&incarnation);
                life.over.retain(|over| *over != incarnation);
                life.over.push_back(before);
                if life.over.len() > OVER_MAX {
                    life.over.pop_front();
                }
                if was_over { IncarnationSeen::Twice } else { IncarnationSeen::Restarted }
            }
        }
    }

    /// Records that a heartbeat of `node` arrived. That it can be heard does not mean that it can be reached.
    pub fn noticed(&mut self, node: NodeId, incarnation: u64) -> IncarnationSeen {
        let life = self.nodes.entry(node).or_default();
        let (is_awaited, missed) = (life.is_awaited, life.missed);
        let seen = self.heard(node, incarnation);
        if let Some(life) = self.nodes.get_mut(&node) {
            (life.is_awaited, life.missed) = (is_awaited, missed);
        }
        seen
    }

    /// Records that `node` answered another call: a busy node may be late with its heartbeats.
    pub fn answered(&mut self, node: NodeId) {
        if let Some(life) = self.nodes.get_mut(&node) {
            (life.is_awaited, life.missed) = (false, 0);
        }
    }

    /// Whether `node` is passed over: it missed [`MISSED_MAX`] heartbeats and has answered nothing since. A node that was never asked is
    /// not.
    pub fn is_passed_over(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|life| life.missed >= MISSED_MAX)
    }

    /// Forgets all nodes but these.
    pub fn retain(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.nodes.retain(|node, _| is_member(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_missed_four_heartbeats_is_passed_over_until_it_answers_one() {
        let mut liveness = Liveness::default();
        assert!(!liveness.is_passed_over(NODE), "nobody has asked it yet");
        assert!(liveness.is_due(NODE, ms(0)) && !liveness.is_due(NODE, ms(399)));
        for missed in 1..4 {
            assert!(liveness.is_due(NODE, ms(400 * missed)), "so many are missed");
            assert!(!liveness.is_passed_over(NODE), "{missed} are missed");
        }
        assert!(liveness.is_due(NODE, ms(1600)), "four are missed");
        assert!(liveness.is_passed_over(NODE));
        assert!(liveness.is_due(NODE, ms(2000)), "it is asked on");
        assert_eq!(liveness.heard(NODE, 1), IncarnationSeen::First);
        assert!(!liveness.is_passed_over(NODE));
        let are_due = |liveness: &mut Liveness, times: [u64; 4]| {
            times.into_iter().all(|at| liveness.is_due(NODE, ms(at)))
        };
        assert!(are_due(&mut liveness, [3000, 3500, 4000, 4500]));
        assert!(!liveness.is_passed_over(NODE), "one was answered, and three missed");
        assert!(liveness.is_due(NODE, ms(5000)) && liveness.is_passed_over(NODE));
        liveness.noticed(NODE, 1);
        assert!(liveness.is_passed_over(NODE), "it is heard, and cannot be reached");
        liveness.answered(NODE);
        assert!(!liveness.is_passed_over(NODE), "it answered another call");
        assert!(!liveness.is_passed_over(NodeId(8)));
        liveness.retain(|node| node != NODE);
        assert!(!liveness.is_passed_over(NODE) && liveness.nodes.is_empty());
    }

    #[test]
    fn a_sleep_of_our_own_counts_as_one_heartbeat_and_not_as_a_hundred() {
        let mut liveness = Liveness::default();
        assert!(liveness.is_due(NODE, ms(0)));
        assert!(liveness.is_due(NODE, ms(100_000)) && !liveness.is_due(NODE, ms(100_399)));
        assert!(!liveness.is_passed_over(NODE));
    }

    #[test]
    fn a_second_process_under_one_id_is_noticed_and_a_restart_is_none() {
        let mut liveness = Liveness::default();
        let mut heard = |incarnation| liveness.heard(NODE, incarnation);
        assert_eq!((heard(1), heard(1)), (IncarnationSeen::First, IncarnationSeen::Same));
        assert_eq!((heard(2), heard(2), heard(3)), {
            (IncarnationSeen::Restarted, IncarnationSeen::Same, IncarnationSeen::Restarted)
        });
        assert_eq!((heard(2), heard(2), heard(3)), {
            (IncarnationSeen::Twice, IncarnationSeen::Same, IncarnationSeen::Twice)
        });
        (10..100).for_each(|incarnation| assert_eq!(heard(incarnation), IncarnationSeen::Restarted));
        assert_eq!(liveness.nodes[&NODE].over.len(), OVER_MAX);
    }
}
