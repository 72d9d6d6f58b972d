use std::net::SocketAddr;

use types::FileId;

use super::*;
use crate::map::{MapNode, NodeState};

fn map(number: u64, nodes: &[(u64, NodeState)]) -> Arc<ClusterMap> {
    let node = |(id, state): &(u64, NodeState)| MapNode {
        id: NodeId(*id),
        name: format!("n{id}"),
        weight: 1 << 40,
        label: NodeLabel::root(),
        state: *state,
        addresses: vec![SocketAddr::from(([10, 0, 0, *id as u8], 7423))],
    };
    Arc::new(ClusterMap::new(number, nodes.iter().map(node).collect()).expect("a map"))
}

fn up(number: u64, ids: impl IntoIterator<Item = u64>) -> Arc<ClusterMap> {
    let nodes: Vec<_> = ids.into_iter().map(|id| (id, NodeState::Up)).collect();
    map(number, &nodes)
}

fn stripes() -> impl Iterator<Item = Stripe> {
    (0..200).map(|index| Stripe { file: FileId([5; 16]), index })
}

fn primary(map: &Arc<ClusterMap>, stripe: Stripe) -> Option<NodeId> {
    Placement::new(map.clone(), &NodeLabel::root()).primary(stripe)
}

#[test]
fn the_newer_map_wins() {
    let now = Instant::now();
    let mut history = MapHistory::new(up(7, 1..=3));
    assert!(!history.advance(up(6, 1..=4), now));
    assert!(!history.advance(up(7, 1..=4), now));
    assert_eq!((history.current().number(), history.former(now).count()), (7, 0));
    assert!(history.advance(up(9, 1..=4), now));
    assert_eq!(history.current().number(), 9);
    assert_eq!(history.former(now).map(|map| map.number()).collect::<Vec<_>>(), [7]);
    assert!(!history.advance(up(8, 1..=5), now));
}

#[test]
fn for_ten_minutes_the_primary_of_the_map_before_is_asked() {
    let start = Instant::now();
    let (old, new) = (up(1, 1..=3), up(2, 1..=4));
    let mut history = MapHistory::new(old.clone());
    let root = NodeLabel::root();
    assert!(stripes().all(|stripe| history.former_primaries(stripe, &root, start).is_empty()));
    assert!(history.advance(new.clone(), start));
    let just_before = start + FORMER_MAPS_TIME - Duration::from_millis(1);
    let mut moved = 0;
    for stripe in stripes() {
        let before = primary(&old, stripe).filter(|before| Some(*before) != primary(&new, stripe));
        moved += usize::from(before.is_some());
        for now in [start, just_before] {
            assert_eq!(history.former_primaries(stripe, &root, now), Vec::from_iter(before));
        }
        assert!(history.former_primaries(stripe, &root, start + FORMER_MAPS_TIME).is_empty());
    }
    assert!((30..80).contains(&moved), "{moved} of 200 stripes moved to the fourth of four nodes");
    // A clock that is behind is no panic.
    assert_eq!(history.former(start - Duration::from_secs(1)).count(), 1);
}

#[test]
fn after_several_changes_the_primaries_of_all_of_them_are_asked_newest_first() {
    let start = Instant::now();
    let mut history = MapHistory::new(up(1, 1..=2));
    let maps = [up(1, 1..=2), up(2, 1..=4), up(3, 1..=8), up(4, 1..=16)];
    for (map, minutes) in maps[1..].iter().zip([0, 4, 8]) {
        assert!(history.advance(map.clone(), start + Duration::from_secs(60 * minutes)));
    }
    let root = NodeLabel::root();
    let expected = |stripe, since: usize| {
        let mut expected = Vec::new();
        for map in maps[since..3].iter().rev() {
            let primary = primary(map, stripe).expect("there are nodes");
            if Some(primary) != self::primary(&maps[3], stripe) && !expected.contains(&primary) {
                expected.push(primary);
            }
        }
        expected
    };
    let mut longest = 0;
    for stripe in stripes() {
        for (minutes, since) in [(8, 0), (9, 0), (10, 1), (13, 1), (14, 2), (17, 2), (18, 3)] {
            let asked = history.former_primaries(stripe, &root, start + Duration::from_secs(60 * minutes));
            longest = longest.max(asked.len());
            assert_eq!(asked, expected(stripe, since), "minute {minutes}");
        }
    }
    assert_eq!(longest, 3);
}

#[test]
fn a_node_that_has_gone_is_not_asked_and_one_that_drains_is() {
    let now = Instant::now();
    let root = NodeLabel::root();
    let old = up(1, 1..=3);
    for (state, asked) in [(NodeState::Draining, true), (NodeState::Out, false)] {
        let mut history = MapHistory::new(old.clone());
        let left = map(2, &[(1, NodeState::Up), (2, NodeState::Up), (3, state)]);
        assert!(history.advance(left, now));
        let of_the_third: Vec<_> =
            stripes().filter(|stripe| primary(&old, *stripe) == Some(NodeId(3))).collect();
        assert!(of_the_third.len() > 30);
        for stripe in of_the_third {
            let expected = if asked { vec![NodeId(3)] } else { Vec::new() };
            assert_eq!(history.former_primaries(stripe, &root, now), expected, "{state}");
        }
    }
    let mut history = MapHistory::new(old.clone());
    assert!(history.advance(up(2, 1..=2), now));
    assert!(stripes().all(|stripe| history.former_primaries(stripe, &root, now).is_empty()));
}

#[test]
fn a_map_that_places_alike_leaves_no_trace_and_the_number_of_maps_is_bounded() {
    let now = Instant::now();
    let mut history = MapHistory::new(up(1, 1..=3));
    assert!(history.advance(up(2, 1..=3), now));
    assert_eq!((history.current().number(), history.former(now).count()), (2, 0));
    for last in 4..60 {
        assert!(history.advance(up(last, 1..=last), now));
    }
    let numbers: Vec<u64> = history.former(now).map(|map| map.number()).collect();
    assert_eq!(numbers, Vec::from_iter((43..59).rev()));
    assert_eq!(numbers.len(), FORMER_MAPS_MAX);
    // What is out of time is forgotten at the next change.
    assert!(history.advance(up(100, 1..=5), now + FORMER_MAPS_TIME));
    assert_eq!(history.former.len(), 1);
}
