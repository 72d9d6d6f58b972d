use std::collections::BTreeMap;
use std::sync::Arc;

use types::FileId;

use super::*;

fn node(id: u64, label: &str) -> MapNode {
    MapNode {
        id: NodeId(id),
        name: format!("n{id}"),
        weight: 1 << 40,
        label: label.parse().expect("a label"),
        state: NodeState::Up,
        addresses: vec![([10, 0, 0, id as u8], 7423).into()],
    }
}

fn map(nodes: Vec<MapNode>) -> Arc<ClusterMap> {
    Arc::new(ClusterMap::new(1, nodes).expect("a map"))
}

fn placement(map: &Arc<ClusterMap>) -> Placement {
    Placement::new(map.clone(), &NodeLabel::root())
}

struct Told {
    client: u64,
    here: Vec<u64>,
    gone: Vec<u64>,
}

impl Told {
    fn of(client: u64) -> Told {
        Told { client, here: Vec::new(), gone: Vec::new() }
    }

    fn with<T>(&self, ask: impl FnOnce(&RouteFacts<'_>) -> T) -> T {
        let is_here = |node: NodeId| self.here.contains(&node.0);
        let is_usable = |node: NodeId| !self.gone.contains(&node.0);
        let label = NodeLabel::root();
        ask(&RouteFacts { client: self.client, label: &label, is_here: &is_here, is_usable: &is_usable })
    }
}

fn stripes() -> impl Iterator<Item = Stripe> {
    (0..200u64).map(|n| Stripe { file: FileId([n as u8; 16]), index: n % 7 })
}

#[test]
fn the_first_that_is_asked_keeps_the_stripe_and_all_copies_are_used() {
    let map = map((1..=5).map(|id| node(id, "/")).collect());
    let placement = placement(&map);
    for copies in 1..=3 {
        let mut firsts: BTreeMap<usize, usize> = BTreeMap::new();
        for stripe in stripes() {
            let ranks = placement.ranks(stripe);
            for client in 0..20 {
                let route = Told::of(client)
                    .with(|facts| stripe_route(&placement, copies, stripe, Some(NodeId(1)), facts));
                assert!(ranks.keeps(route[0], copies), "{route:?}");
                assert!(route.contains(&NodeId(1)) && route.len() <= NODES_TRIED, "{route:?}");
                let again = Told::of(client)
                    .with(|facts| stripe_route(&placement, copies, stripe, Some(NodeId(1)), facts));
                assert_eq!(route, again, "a client stays with its copy");
                *firsts.entry(ranks.rank_of(route[0]).expect("ranked")).or_default() += 1;
            }
        }
        assert_eq!(firsts.len(), copies);
        let mean = 4000 / copies;
        assert!(firsts.values().all(|count| count.abs_diff(mean) < mean / 5), "{firsts:?}");
    }
}

#[test]
fn a_copy_on_this_machine_comes_first_and_no_node_here_that_has_none() {
    let map = map((1..=5).map(|id| node(id, "/")).collect());
    let placement = placement(&map);
    let told = Told { here: vec![2], ..Told::of(7) };
    let (mut kept, mut others) = (0, 0);
    for stripe in stripes() {
        let route = told.with(|facts| stripe_route(&placement, 2, stripe, Some(NodeId(2)), facts));
        match placement.ranks(stripe).keeps(NodeId(2), 2) {
            true => {
                assert_eq!(route[0], NodeId(2));
                kept += 1;
            }
            false => {
                assert_ne!(route[0], NodeId(2), "{route:?}");
                others += 1;
            }
        }
    }
    assert!(kept > 20 && others > 20);
}

#[test]
fn those_that_are_gone_are_not_asked_while_others_are_there() {
    let map = map((1..=5).map(|id| node(id, "/")).collect());
    let placement = placement(&map);
    for stripe in stripes() {
        let ranks = placement.ranks(stripe);
        let primary = ranks.primary().expect("there are nodes");
        let told = Told { gone: vec![primary.0], ..Told::of(3) };
        let home = ranks.all().find(|node| *node != primary);
        let route = told.with(|facts| stripe_route(&placement, 1, stripe, home, facts));
        assert_eq!(Some(route[0]), ranks.all().nth(1), "the next rank stands in for the primary");
        assert!(!route.contains(&primary), "{route:?}");
    }
    let told = Told { gone: vec![1, 2, 3, 4, 5], ..Told::of(3) };
    let stripe = stripes().next().expect("one");
    let route = told.with(|facts| stripe_route(&placement, 2, stripe, Some(NodeId(4)), facts));
    assert_eq!(route, [NodeId(4)], "the home is tried all the same");
}

#[test]
fn a_home_is_kept_for_as_long_as_it_is_usable_and_clients_choose_different_ones() {
    let mut nodes: Vec<MapNode> = (1..=5).map(|id| node(id, "/")).collect();
    nodes[4].state = NodeState::Out;
    let map = map(nodes);
    let chosen = |client: u64| Told::of(client).with(|facts| homes(&map, None, facts))[0];
    let all: std::collections::BTreeSet<NodeId> = (0..100).map(chosen).collect();
    assert_eq!(all.len(), 4, "{all:?}");
    for present in 1..=4 {
        let kept = Told::of(9).with(|facts| homes(&map, Some(NodeId(present)), facts));
        assert_eq!(kept[0], NodeId(present));
        let gone = Told { gone: vec![present], ..Told::of(9) };
        let moved = gone.with(|facts| homes(&map, Some(NodeId(present)), facts));
        assert_eq!((moved.len(), moved[3]), (4, NodeId(present)), "it is the last that is tried: {moved:?}");
    }
    let here = Told { here: vec![3], ..Told::of(9) };
    assert_eq!(here.with(|facts| homes(&map, None, facts))[0], NodeId(3));
}

#[test]
fn a_node_of_the_same_label_comes_before_the_others_that_keep_a_stripe() {
    let map = map((1..=6).map(|id| node(id, if id % 2 == 0 { "/a" } else { "/b" })).collect());
    let placement = placement(&map);
    let (is_here, is_usable) = (|_| false, |_| true);
    let label: NodeLabel = "/a".parse().expect("a label");
    for client in 0..10 {
        let facts = RouteFacts { client, label: &label, is_here: &is_here, is_usable: &is_usable };
        for stripe in stripes() {
            // Two copies are never under one label while there are two.
            let route = stripe_route(&placement, 2, stripe, None, &facts);
            assert!(route[0].0.is_multiple_of(2), "{route:?}");
        }
    }
}
