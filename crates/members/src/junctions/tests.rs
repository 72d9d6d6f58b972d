use bytes::Bytes;
use coordinator::{KeyEntry, PrefixState, Revision, SwapAction};

use super::*;

fn junctions(count: u32) -> Vec<JunctionProfile> {
    let junction = |n: u32| JunctionProfile {
        path: format!("/{n}"),
        url: format!("nfs://nas/{n}"),
        digest: "d".to_owned(),
    };
    (0..count).map(junction).collect()
}

/// What etcd holds once the swap was won.
fn after(state: &PrefixState, swap: &Swap) -> PrefixState {
    let revision = Revision(state.revision.0 + 1);
    let mut entries = state.entries.clone();
    for key in swap.keys() {
        entries.retain(|entry| entry.key != key.key);
        if let SwapAction::Put { value, lease } = &key.action {
            entries.push(KeyEntry { key: key.key.clone(), value: value.clone(), revision, lease: *lease });
        }
    }
    PrefixState { entries, revision }
}

/// Until nothing is left to do. The number of swaps.
fn settle(state: &mut PrefixState, wanted: &[JunctionProfile], known: &KnownJunctions) -> usize {
    for swaps in 0.. {
        match assign(&ClusterRoll::of(state), wanted, known, NodeId(1)).expect("it decides") {
            NextStep::Done(is_last) => {
                assert!(is_last);
                return swaps;
            }
            NextStep::Swap(swap, _) => *state = after(state, &swap),
            other => panic!("{other:?}"),
        }
    }
    0
}

fn nothing() -> PrefixState {
    PrefixState { entries: Vec::new(), revision: Revision(1) }
}

#[test]
fn many_junctions_take_several_swaps() {
    let (mut state, wanted) = (nothing(), junctions(100));
    assert_eq!(settle(&mut state, &wanted, &KnownJunctions::default()), 3);
    let roll = ClusterRoll::of(&state);
    let ids: BTreeSet<u32> = wanted.iter().filter_map(|junction| Some(id_in(&roll, junction)?.0)).collect();
    assert_eq!(ids, (1..=100).collect());
    assert_eq!(settle(&mut state, &wanted, &KnownJunctions::default()), 0);
}

#[test]
fn what_a_node_remembers_is_given_to_nothing_else() {
    let wanted = junctions(2);
    let remembered = KnownJunction { id: 9, path: wanted[1].path.clone(), url: wanted[1].url.clone() };
    let known = KnownJunctions { junctions: vec![remembered], next: 12 };
    let mut state = nothing();
    settle(&mut state, &wanted, &known);
    let roll = ClusterRoll::of(&state);
    let ids: Vec<_> = wanted.iter().filter_map(|junction| id_in(&roll, junction)).collect();
    assert_eq!(ids, [JunctionId(12), JunctionId(9)]);
    assert_eq!(next_id(&roll, &KnownJunctions::default()), 13);
}

#[test]
fn ids_that_are_used_up_are_an_error() {
    let known = KnownJunctions { junctions: Vec::new(), next: u32::MAX };
    let error = assign(&ClusterRoll::default(), &junctions(1), &known, NodeId(1)).expect_err("all are used");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let highest = KeyEntry {
        key: format!("junctions/{}", u32::MAX),
        value: Bytes::from_static(b"nothing"),
        revision: Revision(1),
        lease: None,
    };
    let roll = ClusterRoll::of(&PrefixState { entries: vec![highest], revision: Revision(1) });
    assign(&roll, &junctions(1), &KnownJunctions::default(), NodeId(1)).expect_err("all are used");
}

#[test]
fn a_remembered_id_that_another_junction_has_is_not_taken() {
    let wanted = junctions(3);
    let mut state = nothing();
    settle(&mut state, &wanted[..1], &KnownJunctions::default());
    let remember = |n: usize| KnownJunction { id: 1, path: format!("/{n}"), url: format!("nfs://nas/{n}") };
    let known = KnownJunctions { junctions: vec![remember(1), remember(2)], next: 2 };
    settle(&mut state, &wanted, &known);
    let roll = ClusterRoll::of(&state);
    let ids: Vec<_> = wanted.iter().filter_map(|junction| id_in(&roll, junction)).collect();
    assert_eq!(ids, [JunctionId(1), JunctionId(2), JunctionId(3)]);
    // Nor is one id taken twice at once.
    let mut state = nothing();
    settle(&mut state, &wanted, &known);
    let roll = ClusterRoll::of(&state);
    let ids: BTreeSet<_> = wanted.iter().filter_map(|junction| id_in(&roll, junction)).collect();
    assert_eq!(ids, [JunctionId(1), JunctionId(2), JunctionId(3)].into());
}
