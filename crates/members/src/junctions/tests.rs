use bytes::Bytes;
use coordinator::{KeyEntry, LeaseId, PrefixState, Revision, SwapAction};

use super::*;
use crate::records::{AliveRecord, Incarnation, alive_key};

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
    let known = KnownJunctions { junctions: Vec::new(), next: JUNCTION_ID_MAX + 1 };
    let error = assign(&ClusterRoll::default(), &junctions(1), &known, NodeId(1)).expect_err("all are used");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
}

fn key(key: &str, value: &[u8]) -> KeyEntry {
    KeyEntry { key: key.to_owned(), value: Bytes::copy_from_slice(value), revision: Revision(1), lease: None }
}

#[test]
fn a_key_that_was_put_by_hand_uses_up_no_ids() {
    let stray = key(&format!("junctions/{}", u32::MAX), b"nothing");
    let mut state = PrefixState { entries: vec![stray], revision: Revision(1) };
    let remembered = KnownJunction { id: u32::MAX, path: "/0".to_owned(), url: "nfs://nas/0".to_owned() };
    let known = KnownJunctions { junctions: vec![remembered], next: u32::MAX };
    settle(&mut state, &junctions(1), &known);
    assert_eq!(id_in(&ClusterRoll::of(&state), &junctions(1)[0]), Some(JunctionId(1)));
    let next = write_record(&JunctionIdsRecord { next: u32::MAX, by: "n1".to_owned() }).expect("JSON");
    let roll = ClusterRoll::of(&PrefixState { entries: vec![key("junction-ids", &next)], ..nothing() });
    assert_eq!(roll.bad_records().len(), 1);
}

#[test]
fn no_junction_gets_an_id_while_a_record_that_may_be_its_own_cannot_be_read() {
    let wanted = junctions(2);
    let mut state = nothing();
    settle(&mut state, &wanted[..1], &KnownJunctions::default());
    for (bad, value) in [("junctions/7", "{\"v\":2}"), ("junction-ids", "nothing")] {
        let mut entries = state.entries.clone();
        entries.retain(|entry| entry.key != bad);
        entries.push(key(bad, value.as_bytes()));
        let roll = ClusterRoll::of(&PrefixState { entries, revision: state.revision });
        let known = KnownJunctions::default();
        match assign(&roll, &wanted, &known, NodeId(1)).expect("it decides") {
            NextStep::Wait(error) => assert!(error.to_string().contains(bad), "{error}"),
            other => panic!("{bad}: {other:?}"),
        }
        // One whose id is known is not concerned.
        match assign(&roll, &wanted[..1], &known, NodeId(1)).expect("it decides") {
            NextStep::Done(true) => {}
            NextStep::Swap(swap, true) if swap.keys().iter().all(|key| key.key == JUNCTION_IDS_KEY) => {}
            other => panic!("{bad}: {other:?}"),
        }
    }
}

#[test]
fn one_path_with_two_urls_is_told_while_both_are_in_use() {
    let here = junctions(1);
    let mut there = here.clone();
    there[0].url = "nfs://nas.example/0".to_owned();
    let mut state = nothing();
    settle(&mut state, &here, &KnownJunctions::default());
    settle(&mut state, &there, &KnownJunctions::default());
    let roll = ClusterRoll::of(&state);
    assert_eq!(differences(&roll, &here), [(2, "junctions/1".to_owned())].into());
    assert_eq!(differences(&roll, &there), [(1, "junctions/2".to_owned())].into());
    let alive = |node: u64, differs: BTreeMap<u32, String>| {
        let record = AliveRecord { incarnation: Incarnation(node), differs };
        let value = write_record(&record).expect("JSON");
        KeyEntry { lease: Some(LeaseId(1)), ..key(&alive_key(NodeId(node)), &value) }
    };
    let one = alive(1, differences(&roll, &here));
    let other = alive(2, differences(&roll, &there));
    let told = |alive: &[&KeyEntry]| {
        let entries = state.entries.iter().chain(alive.iter().copied()).cloned().collect();
        urls_that_differ(&ClusterRoll::of(&PrefixState { entries, revision: state.revision }))
    };
    assert_eq!(told(&[&one]), []);
    let urls = [&here[0], &there[0]].map(|junction| junction.url.clone());
    let names = [1, 2].map(|node| vec![NodeId(node).to_string()]);
    let expected = UrlDifference { path: "/0".to_owned(), urls: urls.into_iter().zip(names).collect() };
    assert_eq!(told(&[&one, &other]), [expected]);
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
