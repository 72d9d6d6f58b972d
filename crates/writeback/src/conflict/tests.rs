use super::*;

use ConflictPolicy::{KeepBoth, Ours, Theirs as TheirsStay};

const OLD: Version = Version([1; 16]);
const NEW: Version = Version([2; 16]);
const OWN: Version = Version([3; 16]);

fn based() -> Known {
    Known { base: Some(OLD), ..Known::default() }
}

#[test]
fn what_nobody_else_changed_is_flushed_under_every_policy() {
    let flushed = Known { own: Some(OWN), ..based() };
    for policy in [KeepBoth, Ours, TheirsStay] {
        for doing in [Doing::Bytes, Doing::Attributes, Doing::Removal] {
            assert_eq!(decide(policy, doing, based(), Theirs::Version(OLD)), Decision::Proceed);
            assert_eq!(decide(policy, doing, flushed, Theirs::Version(OWN)), Decision::Proceed);
            let first = Known { making: true, ..Known::default() };
            assert_eq!(decide(policy, doing, first, Theirs::Version(NEW)), Decision::Proceed);
        }
        assert_eq!(decide(policy, Doing::Removal, based(), Theirs::Gone), Decision::Proceed);
    }
}

#[test]
fn a_foreign_change_is_decided_by_the_policy() {
    let table = [
        (Doing::Bytes, Theirs::Version(NEW), [Decision::Beside, Decision::TakeOurs, Decision::Drop]),
        (Doing::Bytes, Theirs::Gone, [Decision::Beside, Decision::Beside, Decision::Drop]),
        (Doing::Attributes, Theirs::Version(NEW), [Decision::TakeOurs, Decision::TakeOurs, Decision::Drop]),
        (Doing::Attributes, Theirs::Gone, [Decision::Drop; 3]),
        (Doing::Name, Theirs::Other, [Decision::Beside, Decision::TakeOurs, Decision::Drop]),
        (Doing::Removal, Theirs::Version(NEW), [Decision::Drop, Decision::TakeOurs, Decision::Drop]),
        (Doing::Removal, Theirs::Other, [Decision::Drop; 3]),
    ];
    for (doing, theirs, expected) in table {
        for (policy, expected) in [KeepBoth, Ours, TheirsStay].into_iter().zip(expected) {
            let decision = decide(policy, doing, based(), theirs);
            assert_eq!(decision, expected, "{policy:?}, {doing:?}, {theirs:?}");
            assert_eq!(AlarmKind::of(decision).is_none(), decision == Decision::Proceed);
        }
    }
}

#[test]
fn an_interrupted_flush_goes_on_over_its_own_traces_only() {
    let begun = Known { begun: true, ..based() };
    assert_eq!(decide(KeepBoth, Doing::Bytes, begun, Theirs::Version(NEW)), Decision::Resume);
    assert_eq!(decide(KeepBoth, Doing::Bytes, begun, Theirs::Gone), Decision::Beside);
    let made = Known { begun: true, making: true, ..Known::default() };
    assert_eq!(decide(KeepBoth, Doing::Bytes, made, Theirs::Version(NEW)), Decision::Resume);
}

#[test]
fn what_nothing_is_known_of_is_not_changed_unsaid() {
    let theirs = Theirs::Version(NEW);
    for doing in [Doing::Bytes, Doing::Attributes] {
        assert_eq!(decide(KeepBoth, doing, Known::default(), theirs), Decision::Resume);
    }
    assert_eq!(decide(KeepBoth, Doing::Removal, Known::default(), theirs), Decision::Drop);
}

#[test]
fn a_conflict_name_says_whose_and_when_and_is_never_too_long() {
    let at = Timestamp { seconds: 1_795_283_326, nanos: 5 };
    let name = |bytes: &[u8]| Name::new(bytes.to_vec()).unwrap();
    let given = conflict_name(&name(b"data.txt"), "edge1", at, FileId([7; 16]));
    assert_eq!(given.to_string(), "data.txt.conflict-edge1-20261121T174846Z.000000005-07070707");
    let long = conflict_name(&name(&[0xff; 255]), &"h/".repeat(300), at, FileId([7; 16]));
    assert_eq!(long.as_bytes().len(), 255);
    let other = conflict_name(&name(&[0xff; 255]), "h", at, FileId([8; 16]));
    assert_ne!(long, other);
}

#[test]
fn dates_are_those_of_the_calendar() {
    let of = |seconds| date(Timestamp { seconds, nanos: 0 });
    assert_eq!(of(0), "19700101T000000Z");
    assert_eq!(of(951_827_696), "20000229T123456Z");
    assert_eq!(of(-1), "19691231T235959Z");
    assert_eq!(of(4_107_542_399), "21000228T235959Z");
    assert_eq!(of(4_107_542_400), "21000301T000000Z");
    assert!(!of(i64::MAX).is_empty() && !of(i64::MIN).is_empty());
}
