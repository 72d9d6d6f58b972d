//! Names and attributes after single operations; whole histories are in flush/tests.

use std::time::Duration;

use types::{ByteRange, FileKind, JunctionId};

use super::*;
use crate::operation::{Attributes, NewObject, ReplacedObject};
use crate::plan::{FlushPlan, Pending};
use crate::random::TestRandom;

const DIR: FileId = FileId([1; 16]);
const FILE: FileId = FileId([2; 16]);
const OLD: FileId = FileId([3; 16]);

fn name(name: &'static str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn position(sequence: u64, data_length: u32) -> Position {
    Position { sequence, segment: 0, offset: 0, head_length: 0, data_length }
}

fn apply(names: &mut DirtyNames, sequence: u64, action: Action) {
    let acknowledged = Timestamp { seconds: sequence as i64, nanos: 0 };
    let operation = JournalOperation { junction: JunctionId(1), acknowledged, since: acknowledged, action };
    names.apply(sequence, &operation, position(sequence, 10));
}

fn make(given: &'static str, id: FileId) -> Action {
    let set = Attributes { mode: Some(0o600), ..Attributes::default() };
    Action::Make { dir: DIR, name: name(given), id, what: NewObject::File, set }
}

fn rename(from: &'static str, to: &'static str, object: FileId, replaced: Option<ReplacedObject>) -> Action {
    let (from, to) = (name(from), name(to));
    Action::Rename(Rename {
        from_dir: DIR,
        from,
        to_dir: DIR,
        to,
        object,
        is_dir: false,
        base: None,
        replaced,
    })
}

#[test]
fn a_name_is_what_the_last_operation_made_of_it_until_that_is_flushed() {
    let mut names = DirtyNames::default();
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::AsOrigin);
    apply(&mut names, 1, make("a", FILE));
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::Made(FILE));
    apply(&mut names, 2, rename("a", "b", FILE, None));
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::Gone);
    assert_eq!(names.lookup(DIR, &name("b")), Lookup::Made(FILE));
    let shown = vec![(name("a"), OLD), (name("c"), OLD)];
    assert_eq!(names.lay_over(DIR, shown, |id| id), [(name("c"), OLD), (name("b"), FILE)]);
    names.flushed(&[1], &[]);
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::Gone);
    assert!(!names.is_local(FILE) && names.is_altered(FILE));
    names.flushed(&[2], &[]);
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::AsOrigin);
    assert!(names.dirs.is_empty() && names.objects.is_empty() && names.traces.is_empty());
}

/// Who was told of them is to be told: what is shown of a directory changes with what comes home of its names.
#[test]
fn what_a_flush_may_show_otherwise_is_said_directories_among_it() {
    let mut names = DirtyNames::default();
    apply(&mut names, 1, make("a", FILE));
    apply(&mut names, 2, rename("a", "b", FILE, Some(ReplacedObject { object: OLD, links: 0, base: None })));
    let all_of = |mut ids: Vec<FileId>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(all_of(names.flushed(&[1], &[])), all_of(vec![DIR, FILE]));
    assert_eq!(all_of(names.flushed(&[2], &[])), all_of(vec![DIR, FILE, OLD]));
    assert_eq!(names.flushed(&[3], &[]), []);
}

#[test]
fn attributes_follow_the_operations() {
    let mut names = DirtyNames::default();
    apply(&mut names, 1, make("a", FILE));
    apply(&mut names, 2, Action::Write { file: FILE, offset: 5, size_before: 0, base: None });
    apply(&mut names, 3, Action::Link { file: FILE, dir: DIR, name: name("b"), links: 2, base: None });
    let attr = names.attr(FILE, None).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.nlink, attr.size), (FileKind::Regular, 0o600, 2, 15));
    assert_eq!((attr.mtime.seconds, attr.ctime.seconds), (2, 3));
    apply(&mut names, 4, Action::Truncate { file: FILE, size: 3, size_before: 15, base: None });
    apply(&mut names, 5, Action::Remove { dir: DIR, name: name("a"), object: FILE, links: 1, base: None });
    let attr = names.attr(FILE, None).unwrap();
    assert_eq!((attr.nlink, attr.size, attr.mtime.seconds), (1, 3, 4));
    assert_eq!(names.attr(OLD, None), None);
    assert_eq!(names.attr(OLD, Some(&attr)), Some(attr), "of what nothing is known here");
}

/// Of two operations the later one went ahead, since the origin refuses the other.
#[test]
fn the_ctime_never_goes_back_and_stays_when_all_is_flushed() {
    let origin = |ctime| {
        let local = made(&NewObject::File, &Attributes::default(), Timestamp::default());
        Attr { ctime: Timestamp { seconds: ctime, nanos: 0 }, ..local.attr }
    };
    let set = |mode| {
        let set = Attributes { mode: Some(mode), ..Attributes::default() };
        Action::Set { object: OLD, set, base: None }
    };
    let ctime =
        |names: &DirtyNames, at_origin| names.attr(OLD, Some(&origin(at_origin))).unwrap().ctime.seconds;
    let mut names = DirtyNames::default();
    apply(&mut names, 1, set(0o644));
    apply(&mut names, 2, rename("a", "b", OLD, None));
    assert_eq!(ctime(&names, 100), 2);
    names.flushed(&[2], &[(OLD, origin(101))]);
    assert_eq!(ctime(&names, 101), 2);
    // What came of the other one is not told.
    names.flushed(&[1], &[]);
    assert!(!names.is_altered(OLD));
    assert_eq!([101, 102].map(|at_origin| ctime(&names, at_origin)), [2, 102]);
}

#[test]
fn what_a_rename_replaced_loses_a_name() {
    let mut names = DirtyNames::default();
    apply(&mut names, 1, make("a", FILE));
    apply(&mut names, 2, make("b", OLD));
    apply(&mut names, 3, Action::Link { file: OLD, dir: DIR, name: name("c"), links: 2, base: None });
    let replaced = Some(ReplacedObject { object: OLD, links: 1, base: None });
    apply(&mut names, 4, rename("a", "b", FILE, replaced));
    assert_eq!(names.attr(OLD, None).unwrap().nlink, 1);
    assert_eq!(names.attr(FILE, None).unwrap().nlink, 1);
}

#[test]
fn since_is_the_time_of_the_oldest_operation_that_is_not_flushed() {
    let (mut names, now) = (DirtyNames::default(), Timestamp { seconds: 99, nanos: 0 });
    assert_eq!(names.since(FILE, now), now);
    apply(&mut names, 7, Action::Write { file: FILE, offset: 0, size_before: 0, base: None });
    apply(&mut names, 8, Action::Write { file: FILE, offset: 0, size_before: 0, base: None });
    assert_eq!(names.since(FILE, now).seconds, 7);
    names.flushed(&[7], &[]);
    assert_eq!(names.since(FILE, now).seconds, 8);
}

/// Files in one directory, changed at random.
fn history(random: &mut TestRandom, length: u64) -> Vec<(u64, JournalOperation, Position)> {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let mut there: BTreeMap<&str, (FileId, u64)> = BTreeMap::from([("a", (OLD, 40))]);
    let mut all = Vec::new();
    for sequence in 1..=length {
        let acknowledged = Timestamp { seconds: sequence as i64, nanos: 0 };
        let (given, other) = (NAMES[random.below(4) as usize], NAMES[random.below(4) as usize]);
        let action = match there.get(given).copied() {
            None => {
                let id = FileId([100 + sequence as u8; 16]);
                there.insert(given, (id, 0));
                make(given, id)
            }
            Some((object, _)) if random.below(6) == 0 => {
                there.remove(given);
                Action::Remove { dir: DIR, name: name(given), object, links: 0, base: None }
            }
            Some((object, _)) if random.below(5) == 0 && given != other => {
                let replaced = there.get(other).map(|(object, _)| ReplacedObject {
                    object: *object,
                    links: 0,
                    base: None,
                });
                let moved = there.remove(given).expect("there");
                there.insert(other, moved);
                rename(given, other, object, replaced)
            }
            Some((file, size_before)) => match random.below(4) {
                0 => {
                    let size = random.below(60);
                    there.insert(given, (file, size));
                    Action::Truncate { file, size, size_before, base: None }
                }
                1 => {
                    let set = Attributes { mode: Some(random.below(512) as u32), ..Attributes::default() };
                    Action::Set { object: file, set, base: None }
                }
                _ => {
                    let offset = random.below(50);
                    there.insert(given, (file, size_before.max(offset + 10)));
                    Action::Write { file, offset, size_before, base: None }
                }
            },
        };
        let operation =
            JournalOperation { junction: JunctionId(1), acknowledged, since: acknowledged, action };
        all.push((sequence, operation, position(sequence, 10)));
    }
    all
}

#[test]
fn what_is_given_up_leaves_what_the_others_alone_would() {
    let seed = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    println!("seed {seed}");
    let mut random = TestRandom(seed);
    for _ in 0..500 {
        let length = 5 + random.below(40);
        let all = history(&mut random, length);
        let (mut names, mut plan) = (DirtyNames::default(), FlushPlan::default());
        for (sequence, operation, position) in &all {
            names.apply(*sequence, operation, *position);
            plan.add(Pending {
                sequence: *sequence,
                operation: operation.clone(),
                position: *position,
                acknowledged: Duration::ZERO,
                in_doubt: false,
                recovered: false,
                carried: false,
            });
        }
        let gone = plan.with_dependents(&[1 + random.below(length), 1 + random.below(length)]);
        let is_gone = |sequence: &u64| gone.contains(sequence);
        let kept: Vec<_> = all.iter().filter(|(sequence, ..)| !is_gone(sequence)).collect();
        let numbers: Vec<u64> = gone.iter().copied().collect();
        let told: Vec<_> = kept.iter().map(|(sequence, operation, at)| (*sequence, operation, *at)).collect();
        names.given_up(&numbers, &told);
        let mut alone = DirtyNames::default();
        kept.iter().for_each(|(sequence, operation, position)| alone.apply(*sequence, operation, *position));
        for given in ["a", "b", "c", "d"] {
            assert_eq!(names.lookup(DIR, &name(given)), alone.lookup(DIR, &name(given)), "{given}");
        }
        let origin = made(&NewObject::File, &Attributes::default(), Timestamp::default()).attr;
        for id in all.iter().flat_map(|(_, operation, _)| operation.objects()).chain([DIR]) {
            assert_eq!(names.attr(id, Some(&origin)), alone.attr(id, Some(&origin)), "{id} without {gone:?}");
            assert_eq!(
                (names.is_local(id), names.is_altered(id)),
                (alone.is_local(id), alone.is_altered(id))
            );
            let bytes =
                |names: &DirtyNames| names.overlay(id).map(|overlay| overlay.plan(ByteRange::new(0, 100)));
            assert_eq!(bytes(&names), bytes(&alone), "{id} without {gone:?}");
        }
    }
}
