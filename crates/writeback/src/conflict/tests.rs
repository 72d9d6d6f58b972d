use super::*;

use ConflictPolicy::{KeepBoth, Ours, Theirs as TheirsStay};

const OLD: Version = Version([1; 16]);
const NEW: Version = Version([2; 16]);
const OWN: Version = Version([3; 16]);

fn based() -> KnownVersions {
    KnownVersions { base: Some(OLD), ..KnownVersions::default() }
}

#[test]
fn what_nobody_else_changed_is_flushed_under_every_policy() {
    let flushed = KnownVersions { own: Some(OWN), ..based() };
    for policy in [KeepBoth, Ours, TheirsStay] {
        for doing in [Doing::Bytes, Doing::Attributes, Doing::Removal] {
            assert_eq!(decide(policy, doing, based(), ForeignState::Version(OLD)), Decision::Proceed);
            assert_eq!(decide(policy, doing, flushed, ForeignState::Version(OWN)), Decision::Proceed);
            let first = KnownVersions { making: true, ..KnownVersions::default() };
            assert_eq!(decide(policy, doing, first, ForeignState::Version(NEW)), Decision::Proceed);
        }
        assert_eq!(decide(policy, Doing::Removal, based(), ForeignState::Gone), Decision::Proceed);
    }
}

#[test]
fn a_foreign_change_is_decided_by_the_policy() {
    let table = [
        (Doing::Bytes, ForeignState::Version(NEW), [Decision::Beside, Decision::TakeOurs, Decision::Drop]),
        (Doing::Bytes, ForeignState::Gone, [Decision::Beside, Decision::Beside, Decision::Drop]),
        (
            Doing::Attributes,
            ForeignState::Version(NEW),
            [Decision::TakeOurs, Decision::TakeOurs, Decision::Drop],
        ),
        (Doing::Attributes, ForeignState::Gone, [Decision::Drop; 3]),
        (Doing::Name, ForeignState::Other, [Decision::Beside, Decision::TakeOurs, Decision::Drop]),
        (Doing::Removal, ForeignState::Version(NEW), [Decision::Drop, Decision::TakeOurs, Decision::Drop]),
        (Doing::Removal, ForeignState::Other, [Decision::Drop; 3]),
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
    let begun = KnownVersions { begun: true, ..based() };
    assert_eq!(decide(KeepBoth, Doing::Bytes, begun, ForeignState::Version(NEW)), Decision::Resume);
    assert_eq!(decide(KeepBoth, Doing::Bytes, begun, ForeignState::Gone), Decision::Beside);
    let made = KnownVersions { begun: true, making: true, ..KnownVersions::default() };
    assert_eq!(decide(KeepBoth, Doing::Bytes, made, ForeignState::Version(NEW)), Decision::Resume);
}

#[test]
fn what_nothing_is_known_of_is_not_changed_unsaid() {
    let theirs = ForeignState::Version(NEW);
    for doing in [Doing::Bytes, Doing::Attributes] {
        assert_eq!(decide(KeepBoth, doing, KnownVersions::default(), theirs), Decision::Resume);
    }
    assert_eq!(decide(KeepBoth, Doing::Removal, KnownVersions::default(), theirs), Decision::Drop);
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
