//! The order of ranks, and whom a gateway asks.

use std::collections::HashSet;

use super::*;

fn label(text: &str) -> NodeLabel {
    text.parse().expect("a label")
}

#[test]
fn labels_are_kept_apart_while_others_are_left() {
    let nodes: Vec<MapNode> =
        (0..10).map(|id| node(id, (1 + id) * TIB, &format!("/rack{}", id % 4))).collect();
    let placement = placement(nodes);
    for stripe in stripes(2_000) {
        let ranks = placement.ranks(stripe);
        let nodes = ranks.keepers(10);
        assert_eq!(nodes.len(), 10);
        // Racks 0 and 1 have three nodes, the others two.
        for (round, racks) in [(0..4, 4), (4..8, 4), (8..10, 2)] {
            let used: HashSet<u64> = nodes[round].iter().map(|node| node.0 % 4).collect();
            assert_eq!(used.len(), racks, "{nodes:?}");
        }
    }
}

#[test]
fn labels_change_no_primary() {
    let nodes = |labels: u64| (0..9).map(|id| node(id, TIB, &format!("/rack{}", id % labels))).collect();
    let (one, three) = (placement(nodes(1)), placement(nodes(3)));
    assert!(stripes(1_000).all(|stripe| one.primary(stripe) == three.primary(stripe)));
}

#[test]
fn a_topology_binds() {
    let labels = ["/dc1/rack1", "/dc1/rack2", "/dc1/rack2", "/dc2/rack1", "/dc10/rack1", "/"];
    let nodes: Vec<MapNode> = labels.iter().zip(1..).map(|(label, id)| node(id, TIB, label)).collect();
    let map = map(nodes);
    for (topology, bound) in [
        ("/", &[1, 2, 3, 4, 5, 6][..]),
        ("/dc1", &[1, 2, 3]),
        ("/dc1/rack2", &[2, 3]),
        ("/dc10", &[5]),
        ("/dc3", &[]),
        ("/dc1/rack", &[]),
    ] {
        let placement = Placement::new(map.clone(), &label(topology));
        for stripe in stripes(100) {
            let mut nodes: Vec<u64> = placement.ranks(stripe).all().map(|node| node.0).collect();
            nodes.sort_unstable();
            assert_eq!(nodes, bound, "{topology}");
            assert_eq!(placement.primary(stripe).is_some(), !bound.is_empty());
        }
    }
}

#[test]
fn without_keepers_nobody_keeps_a_stripe() {
    let stripe = Stripe { file: FileId([1; 16]), index: 0 };
    let gateways = placement(vec![node(1, 0, "/"), node(2, 0, "/")]);
    let empty = placement(Vec::new());
    for placement in [gateways, empty] {
        let ranks = placement.ranks(stripe);
        assert_eq!(ranks.primary(), None);
        assert_eq!(placement.primary(stripe), None);
        assert_eq!(ranks.keepers(3), []);
        assert!(!placement.keeps(stripe, NodeId(1), 3));
        assert_eq!(placement.ask_order(&ranks, 3, Some(NodeId(1)), &NodeLabel::root(), |_| true), []);
    }
}

#[test]
fn where_all_nodes_drain_one_of_them_is_the_primary_and_none_keeps() {
    let mut nodes: Vec<MapNode> = (1..=3).map(|id| node(id, TIB, "/")).collect();
    let before = placement(nodes.clone());
    nodes.iter_mut().for_each(|node| node.state = NodeState::Draining);
    let after = placement(nodes);
    for stripe in stripes(100) {
        let (old, new) = (before.ranks(stripe), after.ranks(stripe));
        assert_eq!(new.primary(), old.primary());
        assert_eq!(after.primary(stripe), old.primary());
        assert_eq!(new.keepers(3), []);
        assert!(new.all().eq(old.all()));
        assert!(new.leaving(2).eq(old.keepers(2).iter().copied()));
    }
}

#[test]
fn ranks_are_counted_and_found() {
    let placement = placement((1..=4).map(|id| node(id, TIB, "/")).collect());
    for stripe in stripes(100) {
        let ranks = placement.ranks(stripe);
        let all: Vec<NodeId> = ranks.all().collect();
        assert_eq!(ranks.keepers(0), []);
        assert_eq!(ranks.keepers(usize::MAX), all);
        assert_eq!(ranks.primary(), Some(all[0]));
        for (rank, node) in all.iter().enumerate() {
            assert_eq!(ranks.rank_of(*node), Some(rank));
            assert!(!ranks.keeps(*node, rank));
            assert!(ranks.keeps(*node, rank + 1));
        }
        assert_eq!(ranks.rank_of(NodeId(9)), None);
        assert_eq!(ranks.primary_among(|node| node != all[0]), Some(all[1]));
        assert_eq!(ranks.primary_among(|_| false), None);
    }
}

/// Six nodes in three racks and two copies. What was the second rank drains.
#[test]
fn a_gateway_asks_itself_then_its_label_then_the_others_then_who_leaves_then_substitutes() {
    use Nearness::{Elsewhere, Itself, Leaving, SameLabel, Substitute};
    let nodes: Vec<MapNode> = (1..=6).map(|id| node(id, TIB, &format!("/rack{}", id % 3))).collect();
    let before = placement(nodes.clone());
    let label_of = |node: NodeId| label(&format!("/rack{}", node.0 % 3));
    for stripe in stripes(200) {
        let old: Vec<NodeId> = before.ranks(stripe).all().collect();
        let after = placement(with_state(&nodes, old[1].0, NodeState::Draining));
        let ranks = after.ranks(stripe);
        let all: Vec<NodeId> = ranks.all().collect();
        assert_eq!((all.len(), all[0], all[5]), (6, old[0], old[1]));
        let ask = |own: Option<NodeId>, label: &NodeLabel, down: &[NodeId]| -> Vec<(NodeId, Nearness)> {
            let order = after.ask_order(&ranks, 2, own, label, |node| !down.contains(&node));
            order.into_iter().map(|target| (target.node, target.nearness)).collect()
        };
        let tail = [(all[5], Leaving), (all[2], Substitute), (all[3], Substitute)];
        let with_tail = |first: [(NodeId, Nearness); 2]| [&first[..], &tail[..]].concat();
        let (first, second) = (all[0], all[1]);
        // A client that is no node, far from all, and near the second.
        let far = label("/elsewhere");
        assert_eq!(ask(None, &far, &[]), with_tail([(first, Elsewhere), (second, Elsewhere)]));
        let near = ask(None, &label_of(second), &[]);
        assert_eq!(near, with_tail([(second, SameLabel), (first, Elsewhere)]));
        // Those that keep it.
        let of_first = ask(Some(first), &label_of(first), &[]);
        assert_eq!(of_first, with_tail([(first, Itself), (second, Elsewhere)]));
        let of_second = ask(Some(second), &label_of(second), &[]);
        assert_eq!(of_second, with_tail([(second, Itself), (first, Elsewhere)]));
        // The one that leaves does not ask itself.
        let of_leaving = ask(Some(all[5]), &far, &[]);
        assert_eq!(of_leaving.len(), 4);
        assert!(of_leaving.iter().all(|(node, _)| *node != all[5]));
        // Who cannot be reached is left out, and the next ones take over.
        assert_eq!(
            ask(None, &far, &[first, all[2], all[5]]),
            [(second, Elsewhere), (all[3], Substitute), (all[4], Substitute)]
        );
        assert_eq!(ask(None, &far, &all), []);
    }
}
