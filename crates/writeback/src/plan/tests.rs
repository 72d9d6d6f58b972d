//! What is drawn together and what is not, and when.

use types::{Name, Timestamp};

use super::*;
use crate::operation::{Action, Attributes, NewObject, Rename};
use crate::{DirtyPiece, ReplacedObject};

const JUNCTION: JunctionId = JunctionId(1);
const DIR: FileId = FileId([1; 16]);
const FILE: FileId = FileId([2; 16]);
const OTHER: FileId = FileId([3; 16]);

fn name(name: &'static str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn make(given: &'static str, id: FileId) -> Action {
    Action::Make { dir: DIR, name: name(given), id, what: NewObject::File, set: Attributes::default() }
}

fn write(file: FileId, offset: u64) -> Action {
    Action::Write { file, offset, size_before: 0, base: None }
}

fn remove(given: &'static str, object: FileId) -> Action {
    Action::Remove { dir: DIR, name: name(given), object, links: 0, base: None }
}

fn rename(from: &'static str, to: &'static str, object: FileId, replaced: Option<FileId>) -> Action {
    let replaced = replaced.map(|object| ReplacedObject { object, links: 0, base: None });
    let (from, to, is_dir) = (name(from), name(to), false);
    Action::Rename(Rename { from_dir: DIR, from, to_dir: DIR, to, object, is_dir, base: None, replaced })
}

/// Writes are ten bytes; each operation is acknowledged a second after the one before.
fn plan(policy: FlushPolicy, actions: Vec<Action>) -> FlushPlan {
    let mut plan = FlushPlan::new([(JUNCTION, policy)].into(), Sabotage::default());
    for (sequence, action) in (1..).zip(actions) {
        let data_length = if matches!(action, Action::Write { .. }) { 10 } else { 0 };
        let position = Position { sequence, segment: 0, offset: 0, head_length: 0, data_length };
        let acknowledged = Timestamp { seconds: sequence as i64, nanos: 0 };
        let operation = JournalOperation { junction: JUNCTION, acknowledged, since: acknowledged, action };
        let acknowledged = Duration::from_secs(sequence);
        plan.add(Pending {
            sequence,
            operation,
            position,
            acknowledged,
            in_doubt: false,
            recovered: false,
            carried: false,
        });
    }
    plan
}

fn at(seconds: i64) -> FlushMoment {
    let steady = Duration::from_secs(seconds as u64);
    FlushMoment { steady, time_of_day: Duration::ZERO }
}

/// Units as sequences, each done before the next is taken.
fn units(plan: &mut FlushPlan) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    while let Some(unit) = plan.next(at(1000), false) {
        plan.done(&unit.sequences);
        all.push(unit.sequences);
    }
    assert!(plan.is_empty());
    all
}

#[test]
fn units_wait_for_each_other_while_clients_write_unless_somebody_waits_for_them() {
    // Acknowledged after 1, 2 and 3 seconds.
    let actions = ["a", "b", "c"].into_iter().zip(5_u8..).map(|(name, n)| make(name, FileId([n; 16])));
    let mut plan = plan(FlushPolicy::default(), actions.collect());
    let after =
        |ms: u64| FlushMoment { steady: Duration::from_millis(3000 + ms), time_of_day: Duration::ZERO };
    assert_eq!(plan.next(after(1), false).expect("the first begins").sequences, [1]);
    assert!(plan.next(after(2), false).is_none(), "the last was written three milliseconds ago");
    assert_eq!(plan.idle_for(after(2)), Some(Duration::from_millis(9)));
    assert_eq!(plan.next(after(2), true).expect("the journal needs room").sequences, [2]);
    assert!(plan.next(after(3), false).is_none());
    plan.ask(&Scope::All);
    assert_eq!(plan.next(after(3), false).expect("somebody waits for it").sequences, [3]);
}

#[test]
fn a_new_file_travels_with_its_bytes_under_its_last_name() {
    let mut plan = plan(
        FlushPolicy::default(),
        vec![
            make("tmp", FILE),
            write(FILE, 0),
            write(FILE, 5),
            rename("tmp", "final", FILE, None),
            write(FILE, 20),
            make("tmp", OTHER),
        ],
    );
    let unit = plan.next(at(1000), false).unwrap();
    assert_eq!(unit.sequences, [1, 2, 3, 4, 5]);
    let FlushWork::Object { make: Some(making), content, set } = &unit.work else {
        panic!("{:?}", unit.work)
    };
    assert_eq!(making.names, [(DIR, name("tmp")), (DIR, name("final"))]);
    let ranges: Vec<_> =
        content.pieces.iter().map(DirtyPiece::range).map(|it| (it.offset, it.length)).collect();
    assert_eq!(ranges, [(0, 5), (5, 10), (20, 10)], "what was written over does not travel");
    assert_eq!((content.size, unit.bytes), (Some(30), 25));
    assert_eq!(set.mtime, Some(Timestamp { seconds: 5, nanos: 0 }));
    assert!(plan.next(at(1000), false).is_none(), "the old name is not free before");
    plan.done(&unit.sequences);
    assert_eq!(units(&mut plan), [[6]]);
}

#[test]
fn what_replaces_another_is_renamed_at_the_origin_too() {
    let actions =
        vec![make("tmp", FILE), write(FILE, 0), rename("tmp", "final", FILE, Some(OTHER)), write(FILE, 5)];
    assert_eq!(units(&mut plan(FlushPolicy::default(), actions)), [vec![1, 2], vec![3], vec![4]]);
}

#[test]
fn what_is_made_and_removed_vanishes_unless_something_of_it_may_have_travelled() {
    let actions = || vec![make("a", FILE), write(FILE, 0), rename("a", "b", FILE, None), remove("b", FILE)];
    let mut all = plan(FlushPolicy::default(), actions());
    let unit = all.next(at(1000), false).unwrap();
    assert_eq!(unit.sequences, [1, 2, 3, 4]);
    assert!(matches!(unit.work, FlushWork::Vanished));
    all.hold(&unit, Duration::ZERO);
    let unit = all.next(at(1000), false).unwrap();
    assert_eq!(unit.sequences, [1, 2, 3, 4]);
    let FlushWork::Retract(retract) = &unit.work else { panic!("what an attempt left goes: {unit:?}") };
    assert!(unit.in_doubt && retract.made.is_some() && retract.ends);
}

#[test]
fn a_file_with_a_second_name_does_not_vanish_with_the_first() {
    let link = Action::Link { file: FILE, dir: DIR, name: name("b"), links: 2, base: None };
    let actions = vec![make("a", FILE), link, remove("a", FILE)];
    assert_eq!(units(&mut plan(FlushPolicy::default(), actions)), [[1], [2], [3]]);
}

#[test]
fn nothing_is_drawn_over_what_it_waits_for() {
    // The new name is taken until the other file is removed.
    let actions = vec![remove("b", OTHER), make("a", FILE), rename("a", "b", FILE, None), write(FILE, 0)];
    let mut plan = plan(FlushPolicy::default(), actions);
    let first = plan.next(at(1000), false).unwrap();
    let second = plan.next(at(1000), false).unwrap();
    assert_eq!((first.sequences, second.sequences), (vec![1], vec![2]));
    assert!(plan.next(at(1000), false).is_none());
}

#[test]
fn truncations_swallow_writes_and_attributes_merge() {
    let set =
        |mode| Action::Set { object: FILE, set: Attributes { mode, ..Attributes::default() }, base: None };
    let cut = Action::Truncate { file: FILE, size: 4, size_before: 0, base: None };
    let mut plan =
        plan(FlushPolicy::default(), vec![write(FILE, 0), write(FILE, 100), set(Some(1)), cut, set(Some(2))]);
    let unit = plan.next(at(1000), false).unwrap();
    assert_eq!((unit.sequences.len(), unit.bytes), (5, 4));
    let FlushWork::Object { make: None, content, set } = unit.work else { panic!() };
    assert_eq!((content.cut, content.size, set.mode), (Some(4), Some(4), Some(2)));
}

#[test]
fn changes_made_on_different_versions_are_not_drawn_together() {
    let based = |byte| {
        let base = Some(types::Version([byte; 16]));
        Action::Write { file: FILE, offset: 0, size_before: 0, base }
    };
    assert_eq!(
        units(&mut plan(FlushPolicy::default(), vec![based(1), based(1), based(2)])),
        [vec![1, 2], vec![3]]
    );
}

#[test]
fn an_operation_waits_for_its_delay_unless_it_is_asked_for_or_room_is_scarce() {
    let policy = FlushPolicy { delay: Duration::from_secs(10), ..FlushPolicy::default() };
    let mut plan = plan(policy, vec![make("a", FILE), write(FILE, 0), make("b", OTHER)]);
    assert!(plan.next(at(10), false).is_none());
    assert_eq!(plan.idle_for(at(10)), Some(Duration::from_secs(1)));
    let unit = plan.next(at(11), false).unwrap();
    assert_eq!(unit.sequences, [1], "the others are too young");
    plan.done(&unit.sequences);
    assert_eq!(plan.ask(&Scope::Objects([FILE].into())), [2]);
    let unit = plan.next(at(11), false).unwrap();
    assert_eq!(unit.sequences, [2]);
    assert!(plan.next(at(11), false).is_none());
    assert_eq!(plan.next(at(11), true).unwrap().sequences, [3]);
}

#[test]
fn a_flush_takes_along_what_its_operations_wait_for() {
    let delay = Duration::from_secs(1000);
    let inside = Action::Make {
        dir: FILE,
        name: name("x"),
        id: OTHER,
        what: NewObject::File,
        set: Attributes::default(),
    };
    let mut plan = plan(FlushPolicy { delay, ..FlushPolicy::default() }, vec![make("d", FILE), inside]);
    assert_eq!(plan.ask(&Scope::Objects([OTHER].into())), [1, 2]);
    assert_eq!(units(&mut plan), [[1], [2]]);
}

#[test]
fn outside_of_the_window_only_what_is_asked_for_is_flushed() {
    let window = FlushWindow { from: Duration::from_secs(3600), to: Duration::from_secs(7200) };
    let policy = FlushPolicy { windows: vec![window], ..FlushPolicy::default() };
    let mut plan = plan(policy, vec![make("a", FILE), make("b", OTHER)]);
    assert!(plan.next(at(1000), true).is_none());
    plan.ask(&Scope::Objects([OTHER].into()));
    assert_eq!(plan.next(at(1000), false).unwrap().sequences, [2]);
    let open = FlushMoment { time_of_day: Duration::from_secs(4000), ..at(1000) };
    assert_eq!(plan.next(open, false).unwrap().sequences, [1]);
}

#[test]
fn the_line_carries_no_more_than_it_may() {
    let policy = FlushPolicy { bytes_per_second: Some(5), ..FlushPolicy::default() };
    let mut plan = plan(policy, vec![write(FILE, 0), write(OTHER, 0)]);
    assert_eq!(plan.next(at(1000), false).unwrap().bytes, 10);
    plan.ask(&Scope::All);
    assert!(plan.next(at(1001), false).is_none(), "asked for or not");
    assert!(plan.next(at(1002), false).is_some());
}

#[test]
fn what_is_parked_holds_up_only_what_depends_on_it() {
    let mut plan = plan(
        FlushPolicy::default(),
        vec![
            make("a", FILE),
            Action::Link { file: FILE, dir: DIR, name: name("b"), links: 2, base: None },
            make("c", FileId([4; 16])),
        ],
    );
    let unit = plan.next(at(1000), false).unwrap();
    let error = Error::new(types::ErrorKind::AccessDenied, "make", "");
    plan.park(&unit, &error, Duration::from_secs(1060));
    let other = plan.next(at(1000), false).unwrap();
    assert_eq!(other.sequences, [3]);
    assert!(!plan.all_wait_for_parked(&[2, 3].into()));
    plan.done(&other.sequences);
    assert!(plan.all_wait_for_parked(&[2].into()));
    assert!(plan.next(at(1059), false).is_none());
    assert_eq!(plan.next(at(1060), false).unwrap().sequences, [1]);
}

#[test]
fn what_is_made_gives_no_room_back_and_what_is_cut_or_removed_does() {
    let cut = Action::Truncate { file: FILE, size: 0, size_before: 10, base: None };
    let frees = |actions| plan(FlushPolicy::default(), actions).next(at(1000), false).unwrap().frees_room();
    assert!(!frees(vec![make("a", FILE), write(FILE, 0)]));
    assert!(!frees(vec![write(FILE, 0)]));
    assert!(frees(vec![cut]));
    assert!(frees(vec![remove("a", FILE)]));
    assert!(frees(vec![rename("a", "b", FILE, Some(OTHER))]));
}
