use bytes::Bytes;
use coordinator::{KeyEntry, PrefixState, Revision};

use super::*;
use crate::records::ClusterRecord;

const NODE: NodeId = NodeId(1);

fn profile() -> NodeProfile {
    NodeProfile {
        name: "n1".to_owned(),
        addresses: vec!["10.0.0.1:7423".parse().expect("an address")],
        admin: None,
        nfs: None,
        weight: 1,
        label: NodeLabel::root(),
        build: String::new(),
        wire: 2,
    }
}

fn roll(keys: &[(String, Vec<u8>)]) -> ClusterRoll {
    let entry = |(at, (key, value)): (usize, &(String, Vec<u8>))| KeyEntry {
        key: key.clone(),
        value: Bytes::from(value.clone()),
        revision: Revision(1 + at as u64),
        lease: key.starts_with("alive/").then_some(LeaseId(5)),
    };
    let entries = keys.iter().enumerate().map(entry).collect();
    ClusterRoll::of(&PrefixState { entries, revision: Revision(100) })
}

fn cluster(wire: u32) -> (String, Vec<u8>) {
    let record = ClusterRecord { id: ClusterId(7), created: 0, wire };
    (CLUSTER_KEY.to_owned(), write_record(&record).expect("JSON"))
}

fn ask(roll: &ClusterRoll, incarnation: u64, has_joined: bool) -> NextStep<()> {
    let (profile, differs) = (profile(), BTreeMap::new());
    let applicant = JoinApplicant {
        id: NODE,
        incarnation: Incarnation(incarnation),
        profile: &profile,
        cluster: Some(ClusterId(7)),
        lease: LeaseId(9),
        has_joined,
        before: None,
        differs: &differs,
    };
    register(roll, &applicant, 1).expect("it decides")
}

#[test]
fn a_build_that_does_not_know_the_wire_is_refused() {
    assert!(matches!(ask(&roll(&[cluster(2)]), 1, false), NextStep::Swap(..)));
    match ask(&roll(&[cluster(3)]), 1, false) {
        NextStep::Refuse(error) => assert!(error.to_string().contains("version 3 of the wire"), "{error}"),
        other => panic!("{other:?}"),
    }
    let unreadable = (CLUSTER_KEY.to_owned(), b"{}".to_vec());
    assert!(matches!(ask(&roll(&[unreadable]), 1, false), NextStep::Refuse(_)));
}

#[test]
fn a_record_of_its_own_that_cannot_be_read_is_made_anew() {
    let keys = [cluster(1), (node_key(NODE), b"nothing".to_vec())];
    let NextStep::Swap(swap, ()) = ask(&roll(&keys), 1, false) else { panic!("it is replaced") };
    let names: Vec<&str> = swap.keys().iter().map(|key| key.key.as_str()).collect();
    assert_eq!(names, [&node_key(NODE), "roster", &alive_key(NODE), CLUSTER_KEY]);
}

#[test]
fn a_sign_of_life_of_another_process_is_waited_for() {
    let alive = |incarnation| {
        let record = AliveRecord { incarnation: Incarnation(incarnation), differs: BTreeMap::new() };
        (alive_key(NODE), write_record(&record).expect("JSON"))
    };
    assert!(matches!(ask(&roll(&[cluster(1), alive(5)]), 6, false), NextStep::Wait(_)));
    let unreadable = (alive_key(NODE), b"[]".to_vec());
    assert!(matches!(ask(&roll(&[cluster(1), unreadable]), 6, false), NextStep::Wait(_)));
    // One under no lease would never end.
    let (key, value) = alive(5);
    let by_hand = KeyEntry { key, value: value.into(), revision: Revision(2), lease: None };
    let (key, value) = cluster(1);
    let cluster_entry = KeyEntry { key, value: value.into(), revision: Revision(1), lease: None };
    let state = PrefixState { entries: vec![cluster_entry, by_hand], revision: Revision(100) };
    assert!(matches!(ask(&ClusterRoll::of(&state), 6, false), NextStep::Swap(..)));
    // Its own one, of a lease that it does not hold any more.
    assert!(matches!(ask(&roll(&[cluster(1), alive(6)]), 6, true), NextStep::Swap(..)));
}

#[test]
fn an_operator_is_overruled_by_a_start_and_by_nothing_else() {
    let state_after = |state, why, has_joined| {
        let record = profile().record((state, why));
        let keys = [cluster(1), (node_key(NODE), write_record(&record).expect("JSON"))];
        let NextStep::Swap(swap, ()) = ask(&roll(&keys), 1, has_joined) else { panic!("it is not alive") };
        let put = swap.keys().iter().find(|key| key.key == node_key(NODE));
        put.map(|put| match &put.action {
            coordinator::SwapAction::Put { value, .. } => {
                crate::records::read_record::<NodeRecord>(value).expect("it is good").state
            }
            other => panic!("{other:?}"),
        })
    };
    let (left, silent) = (Some(OutReason::Left), Some(OutReason::Silent));
    assert_eq!(state_after(NodeState::Out, left, true), None);
    assert_eq!(state_after(NodeState::Out, left, false), Some(NodeState::Up));
    assert_eq!(state_after(NodeState::Out, silent, true), Some(NodeState::Up));
    assert_eq!(state_after(NodeState::Draining, None, false), None);
    assert_eq!(state_after(NodeState::Draining, None, true), None);
}

#[test]
fn a_record_under_a_members_name_does_not_throw_it_out() {
    let own = profile().record((NodeState::Up, None));
    let foreign = (node_key(NodeId(2)), write_record(&own).expect("JSON"));
    let member = (node_key(NODE), write_record(&own).expect("JSON"));
    assert!(matches!(ask(&roll(&[cluster(1), foreign.clone(), member]), 1, true), NextStep::Swap(..)));
    assert!(matches!(ask(&roll(&[cluster(1), foreign]), 1, true), NextStep::Refuse(_)));
}

#[test]
fn a_name_that_looks_like_an_id_is_refused() {
    profile().check().expect("a name");
    let error = NodeProfile { name: "00000000000000ff".to_owned(), ..profile() }.check().expect_err("an id");
    assert!(error.to_string().contains("choose another name"), "{error}");
}

#[test]
fn after_a_restored_backup_a_node_is_in_the_state_in_which_it_was() {
    let state_after = |backup, before, has_joined| {
        let keys = [cluster(1), (node_key(NODE), write_record(&profile().record(backup)).expect("JSON"))];
        let (profile, differs, roll) = (profile(), BTreeMap::new(), roll(&keys));
        let applicant = JoinApplicant {
            id: NODE,
            incarnation: Incarnation(1),
            profile: &profile,
            cluster: Some(ClusterId(7)),
            lease: LeaseId(9),
            has_joined,
            before: Some(before),
            differs: &differs,
        };
        let NextStep::Swap(swap, ()) = register(&roll, &applicant, 1).expect("it decides") else {
            panic!("it is not alive")
        };
        let put = swap.keys().iter().find(|key| key.key == node_key(NODE))?;
        match &put.action {
            coordinator::SwapAction::Put { value, .. } => {
                Some(crate::records::read_record::<NodeRecord>(value).expect("it is good").state)
            }
            other => panic!("{other:?}"),
        }
    };
    let (up, drains, left) =
        ((NodeState::Up, None), (NodeState::Draining, None), (NodeState::Out, Some(OutReason::Left)));
    assert_eq!(state_after(up, drains, true), Some(NodeState::Draining));
    assert_eq!(state_after(up, drains, false), Some(NodeState::Draining));
    assert_eq!(state_after(drains, up, true), Some(NodeState::Up));
    assert_eq!(state_after(up, left, true), Some(NodeState::Out));
    assert_eq!(state_after(up, left, false), None, "it is up by being started");
}
