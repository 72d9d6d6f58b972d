use bytes::Bytes;
use cluster::NodeState;

use super::*;
use crate::records::{node_key, write_record};

fn node(id: u64, name: &str, state: NodeState, revision: u64) -> KeyEntry {
    let record = NodeRecord {
        name: name.to_owned(),
        addresses: vec!["10.0.0.1:7423".parse().expect("an address")],
        admin: None,
        nfs: None,
        weight: 1,
        label: Default::default(),
        state,
        out_reason: None,
        build: String::new(),
        wire: 1,
    };
    let value = Bytes::from(write_record(&record).expect("JSON"));
    KeyEntry { key: node_key(NodeId(id)), value, revision: Revision(revision), lease: None }
}

fn reset(entries: &[KeyEntry], revision: u64) -> WatchEvent {
    let state = PrefixState { entries: entries.to_vec(), revision: Revision(revision) };
    WatchEvent::Reset { state, went_back: false }
}

#[test]
fn the_number_follows_from_the_keys_alone() {
    let (n1, n2) = (node(1, "n1", NodeState::Up, 5), node(2, "n2", NodeState::Up, 8));
    let mut watching = ClusterRoll::default();
    watching.take(&reset(std::slice::from_ref(&n1), 6));
    let changes = vec![KeyChange::Put(n2.clone())];
    watching.take(&WatchEvent::Changed { revision: Revision(8), changes });
    // A sign of life, or anything else, does not count.
    let alive = KeyEntry { key: "alive/0000000000000001".to_owned(), revision: Revision(9), ..n1.clone() };
    watching.take(&WatchEvent::Changed { revision: Revision(9), changes: vec![KeyChange::Put(alive)] });
    let mut started = ClusterRoll::default();
    started.take(&reset(&[n1, n2], 20));
    assert_eq!(started.map().expect("a map"), watching.map().expect("a map"));
    assert_eq!((started.map().expect("a map").number(), watching.revision()), (8, Revision(9)));
}

#[test]
fn a_node_that_is_removed_by_hand_gives_another_number_too() {
    let (n1, n2) = (node(1, "n1", NodeState::Up, 5), node(2, "n2", NodeState::Up, 8));
    let both = [n1.clone(), n2];
    let mut watching = ClusterRoll::default();
    watching.take(&reset(&both, 8));
    let changes = vec![KeyChange::Deleted { key: node_key(NodeId(2)) }];
    watching.take(&WatchEvent::Changed { revision: Revision(11), changes });
    assert_eq!(watching.map().expect("a map").number(), 11);
    assert_eq!(watching.number_of_keys(), 5, "whoever starts does not know it");
    // The same, heard of behind a compaction: it is a lower number, or it would be the same one.
    let mut behind = ClusterRoll::default();
    behind.take(&reset(&both, 8));
    let change = behind.take(&reset(std::slice::from_ref(&n1), 12));
    assert_eq!((change.went_back, behind.number()), (Some(Revision(8)), 5));
    let mut behind = ClusterRoll::default();
    behind.take(&reset(&both, 8));
    let change = behind.take(&reset(&both[1..], 12));
    assert_eq!((change.went_back, behind.number(), behind.number_of_keys()), (None, 12, 8));
}

#[test]
fn a_key_that_is_no_id_of_a_node_does_not_count() {
    let n1 = node(1, "n1", NodeState::Up, 5);
    let stray = KeyEntry { key: "nodes/n1".to_owned(), revision: Revision(9), ..n1.clone() };
    let mut watching = ClusterRoll::default();
    watching.take(&reset(std::slice::from_ref(&n1), 6));
    watching
        .take(&WatchEvent::Changed { revision: Revision(9), changes: vec![KeyChange::Put(stray.clone())] });
    let mut started = ClusterRoll::default();
    started.take(&reset(&[n1, stray], 20));
    assert_eq!((watching.number(), started.number()), (5, 5));
}

#[test]
fn numbers_that_go_back_while_revisions_do_not_begin_a_new_history() {
    let mut roll = ClusterRoll::behind(100);
    let change = roll.take(&reset(&[node(1, "n1", NodeState::Up, 50)], 1_000_000));
    assert_eq!((change.went_back, roll.number()), (Some(Revision(100)), 50));
}

#[test]
fn revisions_that_go_back_begin_a_new_history() {
    let mut roll = ClusterRoll::behind(100);
    let change = roll.take(&reset(&[node(1, "n1", NodeState::Up, 50)], 60));
    assert_eq!(change.went_back, Some(Revision(100)));
    assert_eq!(roll.map().expect("a map").number(), 50);
    let mut roll = ClusterRoll::behind(50);
    let change = roll.take(&reset(&[node(1, "n1", NodeState::Up, 50)], 60));
    assert_eq!((change.went_back, roll.map().expect("a map").number()), (None, 50));
}
