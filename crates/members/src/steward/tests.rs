use bytes::Bytes;
use coordinator::{KeyEntry, PrefixState, Revision, SwapAction};

use super::*;
use crate::records::{AliveRecord, read_record};

const DOWN_AFTER: Duration = Duration::from_secs(60);
const LEASE: LeaseId = LeaseId(3);
const SEAT: StewardSeat = StewardSeat { node: NodeId(1), incarnation: Incarnation(11), lease: LEASE };

fn entry(key: String, value: Vec<u8>, lease: Option<LeaseId>) -> KeyEntry {
    KeyEntry { key, value: Bytes::from(value), revision: Revision(5), lease }
}

fn node(id: u64, state: NodeState, out_reason: Option<OutReason>) -> KeyEntry {
    let record = NodeRecord {
        name: format!("n{id}"),
        addresses: vec!["10.0.0.1:7423".parse().expect("an address")],
        admin: None,
        nfs: None,
        weight: 1,
        label: Default::default(),
        state,
        out_reason,
        build: String::new(),
        wire: 1,
    };
    entry(node_key(NodeId(id)), write_record(&record).expect("JSON"), None)
}

fn alive(id: u64) -> KeyEntry {
    let record = AliveRecord { incarnation: Incarnation(id), differs: BTreeMap::new() };
    entry(alive_key(NodeId(id)), write_record(&record).expect("JSON"), Some(LeaseId(100 + id as i64)))
}

fn held_by(seat: StewardSeat) -> KeyEntry {
    let record = StewardRecord { node: seat.node.to_string(), incarnation: seat.incarnation };
    entry(STEWARD_KEY.to_owned(), write_record(&record).expect("JSON"), Some(seat.lease))
}

fn roll(entries: &[KeyEntry]) -> ClusterRoll {
    ClusterRoll::of(&PrefixState { entries: entries.to_vec(), revision: Revision(9) })
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Which node becomes what.
fn marks(swap: Option<Swap>) -> Option<(String, NodeState)> {
    let swap = swap?;
    let first = &swap.keys()[0];
    let SwapAction::Put { value, .. } = &first.action else { panic!("{swap:?}") };
    let record: NodeRecord = read_record(value).expect("it is good");
    assert!(swap.keys().iter().any(|key| key.key == STEWARD_KEY && key.action == SwapAction::Keep));
    Some((record.name, record.state))
}

#[test]
fn a_node_has_its_whole_time_and_again_after_each_sign_of_life() {
    let mut steward = Steward::new(DOWN_AFTER);
    let (own, n2) = ([held_by(SEAT), node(1, NodeState::Up, None), alive(1)], node(2, NodeState::Up, None));
    let gone = roll(&[own.to_vec(), vec![n2.clone()]].concat());
    let there = roll(&[own.to_vec(), vec![n2, alive(2)]].concat());
    let mut look = |roll: &ClusterRoll, now| marks(steward.next(roll, SEAT, at(now)).expect("it decides"));
    assert_eq!(look(&gone, 100), None);
    assert_eq!(look(&gone, 159), None);
    assert_eq!(look(&there, 159), None);
    assert_eq!(look(&gone, 160), None);
    assert_eq!(look(&gone, 219), None);
    assert_eq!(look(&gone, 220), Some(("n2".to_owned(), NodeState::Out)));
    // A key under no lease is no sign of life.
    let by_hand = KeyEntry { lease: None, ..alive(2) };
    let by_hand = roll(&[own.to_vec(), vec![node(2, NodeState::Up, None), by_hand]].concat());
    assert_eq!(look(&by_hand, 220), Some(("n2".to_owned(), NodeState::Out)));
    steward.begin_anew();
    let mut look = |now| marks(steward.next(&gone, SEAT, at(now)).expect("it decides"));
    assert_eq!(look(221), None, "etcd was away");
    assert_eq!(look(281), Some(("n2".to_owned(), NodeState::Out)));
}

#[test]
fn only_who_was_silent_comes_back_by_itself() {
    let mut steward = Steward::new(DOWN_AFTER);
    let keys = [
        held_by(SEAT),
        node(2, NodeState::Out, Some(OutReason::Left)),
        alive(2),
        node(3, NodeState::Draining, None),
        node(4, NodeState::Out, Some(OutReason::Silent)),
    ];
    for now in [0, 1000] {
        assert_eq!(marks(steward.next(&roll(&keys), SEAT, at(now)).expect("it decides")), None);
    }
    let back = roll(&[keys.to_vec(), vec![alive(4)]].concat());
    let marked = marks(steward.next(&back, SEAT, at(1000)).expect("it decides"));
    assert_eq!(marked, Some(("n4".to_owned(), NodeState::Up)));
}

#[test]
fn who_is_not_the_steward_waits_or_claims() {
    let mut steward = Steward::new(DOWN_AFTER);
    let n2 = node(2, NodeState::Up, None);
    let claims = |swap: Option<Swap>| swap.is_some_and(|swap| swap.keys()[0].key == STEWARD_KEY);
    let mut look = |steward_key: Option<KeyEntry>, now| {
        let keys: Vec<KeyEntry> = steward_key.into_iter().chain([n2.clone()]).collect();
        steward.next(&roll(&keys), SEAT, at(now)).expect("it decides")
    };
    assert!(claims(look(None, 0)));
    assert_eq!(look(Some(held_by(SEAT)), 0), None);
    // While another one was it, this one has looked at nobody.
    let other = StewardSeat { node: NodeId(2), ..SEAT };
    assert_eq!(look(Some(held_by(other)), 70), None);
    assert_eq!(look(Some(held_by(SEAT)), 70), None);
    // One of a former lease, or of a former process of this node, is not held.
    assert!(claims(look(Some(held_by(StewardSeat { lease: LeaseId(2), ..SEAT })), 70)));
    let former = StewardSeat { incarnation: Incarnation(1), ..SEAT };
    assert_eq!(look(Some(held_by(former)), 70), None);
    assert!(claims(look(Some(entry(STEWARD_KEY.to_owned(), b"[]".to_vec(), None)), 70)));
    assert_eq!(look(Some(entry(STEWARD_KEY.to_owned(), b"[]".to_vec(), Some(LEASE))), 70), None);
    assert!(claims(look(Some(KeyEntry { lease: None, ..held_by(other) }), 70)));
}
