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

    /// As much for each node as one call takes.
    pub fn take(&mut self) -> Vec<(NodeId, Vec<FilledStripe>)> {
        let one = |(node, feeds): (&NodeId, &mut VecDeque<FilledStripe>)| {
            let end = feeds.len().min(FEED_MAX);
            (*node, feeds.drain(..end).collect())
        };
        let taken = self.feeds.iter_mut().map(one).collect();
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
            let calls = outbox.take();
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
}
