//! How many stripes each node has, and which of them move when the map changes.

use super::*;

#[test]
fn weights_are_kept_within_a_hundredth() {
    let weights = [3 * TIB, 4 * TIB, 5 * TIB, 8 * TIB];
    let nodes = weights.iter().zip(1..).map(|(weight, id)| node(id, *weight, "/"));
    let placement = placement(nodes.collect());
    let mut primaries = [0u64; 4];
    let count = 600_000;
    for stripe in stripes(count) {
        let primary = placement.primary(stripe).expect("there are nodes");
        primaries[primary.0 as usize - 1] += 1;
    }
    for (primaries, weight) in primaries.iter().zip(weights) {
        let expected = count * (weight / TIB) / 20;
        assert!(primaries.abs_diff(expected) * 100 < expected, "{primaries} and not {expected} stripes");
    }
}

#[test]
fn equal_nodes_in_equal_racks_keep_equally_much() {
    let nodes = (0..12).map(|id| node(id, TIB, &format!("/rack{}", id % 3)));
    let placement = placement(nodes.collect());
    let (mut kept, count, copies) = ([0u64; 12], 30_000, 2);
    for stripe in stripes(count) {
        for keeper in placement.ranks(stripe).keepers(copies) {
            kept[keeper.0 as usize] += 1;
        }
    }
    let expected = count * 2 / 12;
    for kept in kept {
        assert!(kept.abs_diff(expected) * 20 < expected, "{kept} and not {expected} stripes");
    }
}

/// Of each stripe that `before` and `after` keep on different nodes: one node gave it away and one got it, and `is_move`
/// says whether they may. Answers with how many stripes moved.
fn moves(
    before: &Placement,
    after: &Placement,
    count: u64,
    copies: usize,
    is_move: impl Fn(Stripe, NodeId, NodeId) -> bool,
) -> u64 {
    let mut moved = 0;
    for stripe in stripes(count) {
        let (old, new) = (before.ranks(stripe), after.ranks(stripe));
        let (old, new) = (old.keepers(copies), new.keepers(copies));
        let gone: Vec<_> = old.iter().filter(|node| !new.contains(node)).collect();
        let come: Vec<_> = new.iter().filter(|node| !old.contains(node)).collect();
        match (&gone[..], &come[..]) {
            ([], []) => continue,
            ([gone], [come]) => assert!(is_move(stripe, **gone, **come), "{gone} gave {stripe:?} to {come}"),
            _ => panic!("{gone:?} gave {stripe:?} to {come:?}"),
        }
        moved += 1;
    }
    moved
}

#[test]
fn a_node_more_moves_its_share_and_nothing_else() {
    for (racks, copies) in [(1, 1), (1, 2), (3, 1), (3, 2), (3, 4)] {
        let label = |id: u64| format!("/rack{}", id % racks);
        let nodes: Vec<MapNode> = (1..=7).map(|id| node(id, id * TIB, &label(id))).collect();
        let before = placement(nodes.clone());
        let more = nodes.into_iter().chain([node(8, 7 * TIB, &label(8))]);
        let after = placement(more.collect());
        let count = 20_000;
        let moved = moves(&before, &after, count, copies, |_, _, come| come == NodeId(8));
        if copies == 1 {
            // 7 of now 35 TiB.
            assert!(moved.abs_diff(count / 5) < count / 100, "{moved} of {count} stripes moved");
        }
        let kept = stripes(count).filter(|stripe| after.keeps(*stripe, NodeId(8), copies)).count() as u64;
        assert_eq!(moved, kept, "{racks} racks, {copies} copies");
    }
}

#[test]
fn a_drained_nodes_stripes_go_to_the_next_ranks_and_nothing_else_moves() {
    let count = 3_000;
    for (racks, copies) in [(1, 1), (1, 3), (3, 1), (3, 2), (3, 3), (3, 5), (9, 2)] {
        let nodes: Vec<MapNode> =
            (1..=9).map(|id| node(id, id * TIB, &format!("/rack{}", id % racks))).collect();
        let before = placement(nodes.clone());
        let drained = NodeId(8);
        for state in [NodeState::Draining, NodeState::Out] {
            let after = placement(with_state(&nodes, drained.0, state));
            // With one label, or one for each node, that is the rank behind the last one that keeps the stripe.
            let goes_to = |stripe: Stripe, gone: NodeId, come: NodeId| {
                let next = before.ranks(stripe).rank_of(come);
                gone == drained && (racks == 3 || next == Some(copies))
            };
            let moved = moves(&before, &after, count, copies, goes_to);
            let kept = stripes(count).filter(|stripe| before.keeps(*stripe, drained, copies)).count() as u64;
            assert_eq!(moved, kept, "all that it kept, {racks} racks, {copies} copies, {state}");
            assert!(kept > 300);
            for stripe in stripes(count) {
                let (old, new) = (before.ranks(stripe), after.ranks(stripe));
                let leaves = new.leaving(copies).any(|node| node == drained);
                assert_eq!(leaves, state == NodeState::Draining && old.keeps(drained, copies));
                assert_eq!(new.rank_of(drained), None);
                let is_last = new.all().last() == Some(drained);
                assert_eq!(is_last, state == NodeState::Draining);
            }
        }
    }
}

#[test]
fn a_node_that_is_back_has_what_it_had() {
    let nodes: Vec<MapNode> = (1..=6).map(|id| node(id, 5 * TIB, &format!("/rack{}", id % 2))).collect();
    let before = placement(nodes.clone());
    let without = nodes.iter().filter(|node| node.id != NodeId(3)).cloned();
    let without = placement(without.collect());
    let out = placement(with_state(&nodes, 3, NodeState::Out));
    let back = placement(with_state(&with_state(&nodes, 3, NodeState::Out), 3, NodeState::Up));
    for stripe in stripes(1_000) {
        assert_eq!(out.ranks(stripe), without.ranks(stripe), "out is as forgotten");
        assert_eq!(back.ranks(stripe), before.ranks(stripe));
    }
}
