//! Random maps, against ranks that are made one by one with scores in floating point.

use std::collections::{HashMap, HashSet};

use super::*;

/// As the definition has it: `-weight / ln(x)`.
fn score(node: &MapNode, stripe: Stripe) -> f64 {
    let hash = hash(stripe, node.id) | 1;
    let two_64 = 2f64.powi(64);
    let ln = match hash >> 63 {
        1 => (-(hash.wrapping_neg() as f64) / two_64).ln_1p(),
        _ => (hash as f64 / two_64).ln(),
    };
    -(node.weight as f64) / ln
}

/// One rank after the other: of the nodes that are left those whose label was used least, and of these the one with the
/// best score.
fn reference(nodes: &[&MapNode], stripe: Stripe) -> Vec<NodeId> {
    let mut left: Vec<(&MapNode, f64)> = nodes.iter().map(|node| (*node, score(node, stripe))).collect();
    let mut used: HashMap<&NodeLabel, usize> = HashMap::new();
    let mut order = Vec::new();
    while !left.is_empty() {
        let uses = |node: &MapNode| used.get(&node.label).copied().unwrap_or(0);
        let least = left.iter().map(|(node, _)| uses(node)).min().unwrap_or(0);
        let eligible = left.iter().enumerate().filter(|(_, (node, _))| uses(node) == least);
        let best = eligible.max_by(|(_, one), (_, other)| one.1.total_cmp(&other.1));
        let (node, _) = left.swap_remove(best.expect("some have been used least").0);
        *used.entry(&node.label).or_default() += 1;
        order.push(node.id);
    }
    order
}

/// Two scores that floating point cannot tell apart.
fn is_close(nodes: &[&MapNode], stripe: Stripe) -> bool {
    let mut scores: Vec<f64> = nodes.iter().map(|node| score(node, stripe)).collect();
    scores.sort_by(f64::total_cmp);
    scores.windows(2).any(|pair| pair[1] - pair[0] <= pair[1] * 1e-8)
}

fn random_nodes(random: &mut Random) -> Vec<MapNode> {
    let count = 1 + random.below(14);
    let labels = 1 + random.below(5);
    let uneven = random.below(2) == 0;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let weight = match random.below(8) {
            0 => 0,
            1 if uneven => random.next(),
            2..=4 if uneven => 1 + random.below(100 * TIB),
            _ => 20 * TIB,
        };
        let label = format!("/dc{}/rack{}", random.below(2), random.below(labels));
        let state = match random.below(8) {
            0 => NodeState::Out,
            1 | 2 => NodeState::Draining,
            _ => NodeState::Up,
        };
        nodes.push(MapNode { state, ..node(random.next(), weight, &label) });
    }
    nodes
}

#[test]
fn random_maps_have_the_ranks_of_the_definition() {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let seed = match std::env::var("FOREBAY_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => time.as_nanos() as u64 | 1,
    };
    println!("FOREBAY_SEED={seed}");
    let mut random = Random(seed);
    let (mut compared, mut with_leaving) = (0, 0);
    for _ in 0..300 {
        let map = map(random_nodes(&mut random));
        let topology = ["/", "/", "/dc0", "/dc1/rack0"][random.below(4) as usize];
        let topology: NodeLabel = topology.parse().expect("a label");
        let placement = Placement::new(map.clone(), &topology);
        let is_placed = |node: &&MapNode| {
            node.label.is_within(&topology) && node.weight > 0 && node.state != NodeState::Out
        };
        let placed: Vec<&MapNode> = map.nodes().iter().filter(is_placed).collect();
        let (up, draining): (Vec<&MapNode>, Vec<&MapNode>) =
            placed.iter().copied().partition(|node| node.state == NodeState::Up);
        for _ in 0..20 {
            let stripe = Stripe { file: random.file(), index: random.below(1 << 20) };
            let ranks = placement.ranks(stripe);
            let all: Vec<NodeId> = ranks.all().collect();
            let once: HashSet<NodeId> = all.iter().copied().collect();
            assert_eq!((once.len(), all.len()), (placed.len(), placed.len()), "each node once");
            assert_eq!(placement.primary(stripe), ranks.primary());
            let copies = random.below(7) as usize;
            for node in map.nodes() {
                let keeps = placement.keeps(stripe, node.id, copies);
                assert_eq!(keeps, ranks.keeps(node.id, copies), "{} {stripe:?} {map:?}", node.id);
            }
            if is_close(&placed, stripe) {
                continue;
            }
            compared += 1;
            assert_eq!(ranks.keepers(usize::MAX), reference(&up, stripe), "{stripe:?} on {map:?}");
            let mut leaving = reference(&placed, stripe);
            leaving.truncate(copies);
            leaving.retain(|node| draining.iter().any(|draining| draining.id == *node));
            with_leaving += usize::from(!leaving.is_empty());
            assert_eq!(ranks.leaving(copies).collect::<Vec<_>>(), leaving, "{stripe:?} on {map:?}");
        }
    }
    assert!(compared > 5_000, "only {compared} compared");
    assert!(with_leaving > 500, "only {with_leaving} with leaving nodes");
}
