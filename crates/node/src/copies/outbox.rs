//! What the other nodes are about to be told they lack. Pure.

use std::collections::{HashMap, VecDeque};

use peer::message::{FEED_MAX, FilledStripe};
use types::NodeId;

/// Feeds for each node, in order. One for a node that has too many already is dropped: the next look at the stripe makes it anew.
#[derive(Debug)]
pub struct Outbox {
    max: usize,
    feeds: HashMap<NodeId, VecDeque<FilledStripe>>,
}

impl Outbox {
    /// `max`: for one node.
    pub fn new(max: usize) -> Outbox {
        Outbox { max, feeds: HashMap::new() }
    }

    /// `false`: it was dropped.
    pub fn put(&mut self, to: NodeId, feed: FilledStripe) -> bool {
        let feeds = self.feeds.entry(to).or_default();
        let has_room = feeds.len() < self.max;
        if has_room {
            feeds.push_back(feed);
        }
        has_room
    }

    /// The nodes for which there is something.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.feeds.keys().copied()
    }

    /// As much as one call takes, for each node that may be called now.
    pub fn take(&mut self, may_call: impl Fn(NodeId) -> bool) -> Vec<(NodeId, Vec<FilledStripe>)> {
        let one = |(node, feeds): (&NodeId, &mut VecDeque<FilledStripe>)| {
            let end = feeds.len().min(FEED_MAX);
            (*node, feeds.drain(..end).collect())
        };
        let taken = self.feeds.iter_mut().filter(|(node, _)| may_call(**node)).map(one).collect();
        self.feeds.retain(|_, feeds| !feeds.is_empty());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::tests::feed;

    #[test]
    fn each_node_gets_its_own_in_calls_of_legal_size_and_one_that_takes_nothing_fills_no_memory() {
        let mut outbox = Outbox::new(100);
        let put: Vec<bool> = (0..120).map(|n| outbox.put(NodeId(1), feed(n))).collect();
        assert_eq!(put.iter().filter(|it| **it).count(), 100);
        assert!(outbox.put(NodeId(2), feed(7)), "others have room of their own");
        let mut taken: HashMap<NodeId, Vec<u64>> = HashMap::new();
        loop {
            let calls = outbox.take(|_| true);
            if calls.is_empty() {
                break;
            }
            for (node, feeds) in calls {
                assert!((1..=FEED_MAX).contains(&feeds.len()));
                taken.entry(node).or_default().extend(feeds.iter().map(|feed| feed.stripe));
            }
        }
        assert_eq!(taken[&NodeId(1)], (0..100).collect::<Vec<_>>());
        assert_eq!(taken[&NodeId(2)], [7]);
    }

    #[test]
    fn what_is_for_a_node_that_is_not_called_now_stays_and_holds_up_nobody() {
        let mut outbox = Outbox::new(100);
        (0..3).for_each(|n| assert!(outbox.put(NodeId(1), feed(n)) && outbox.put(NodeId(2), feed(n))));
        let taken = outbox.take(|node| node == NodeId(2));
        assert_eq!(
            taken.iter().map(|(node, feeds)| (*node, feeds.len())).collect::<Vec<_>>(),
            [(NodeId(2), 3)]
        );
        assert_eq!(outbox.nodes().collect::<Vec<_>>(), [NodeId(1)]);
        assert_eq!(outbox.take(|_| true)[0].1.len(), 3);
    }
}
