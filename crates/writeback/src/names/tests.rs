//! Names and attributes after single operations; whole histories are in flush/tests.

use types::{FileKind, JunctionId};

use super::*;
use crate::operation::{Attributes, NewObject, Replaced};

const DIR: FileId = FileId([1; 16]);
const FILE: FileId = FileId([2; 16]);
const OLD: FileId = FileId([3; 16]);

fn name(name: &'static str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn position(sequence: u64, data_length: u32) -> Position {
    Position { sequence, segment: 0, offset: 0, head_length: 0, data_length }
}

fn apply(names: &mut Names, sequence: u64, action: Action) {
    let acknowledged = Timestamp { seconds: sequence as i64, nanos: 0 };
    let operation = Operation { junction: JunctionId(1), acknowledged, since: acknowledged, action };
    names.apply(sequence, &operation, position(sequence, 10));
}

fn make(given: &'static str, id: FileId) -> Action {
    let set = Attributes { mode: Some(0o600), ..Attributes::default() };
    Action::Make { dir: DIR, name: name(given), id, what: NewObject::File, set }
}

fn rename(from: &'static str, to: &'static str, object: FileId, replaced: Option<Replaced>) -> Action {
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
    let mut names = Names::default();
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::AsOrigin);
    apply(&mut names, 1, make("a", FILE));
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::Made(FILE));
    apply(&mut names, 2, rename("a", "b", FILE, None));
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::Gone);
    assert_eq!(names.lookup(DIR, &name("b")), Lookup::Made(FILE));
    let shown = vec![(name("a"), OLD), (name("c"), OLD)];
    assert_eq!(names.lay_over(DIR, shown, |id| id), [(name("c"), OLD), (name("b"), FILE)]);
    names.flushed(&[1], Some(0));
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::Gone);
    assert!(!names.is_local(FILE) && names.is_altered(FILE));
    names.flushed(&[2], None);
    assert_eq!(names.lookup(DIR, &name("a")), Lookup::AsOrigin);
    assert!(names.dirs.is_empty() && names.objects.is_empty() && names.traces.is_empty());
}

#[test]
fn attributes_follow_the_operations() {
    let mut names = Names::default();
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

#[test]
fn what_a_rename_replaced_loses_a_name() {
    let mut names = Names::default();
    apply(&mut names, 1, make("a", FILE));
    apply(&mut names, 2, make("b", OLD));
    apply(&mut names, 3, Action::Link { file: OLD, dir: DIR, name: name("c"), links: 2, base: None });
    let replaced = Some(Replaced { object: OLD, links: 1, base: None });
    apply(&mut names, 4, rename("a", "b", FILE, replaced));
    assert_eq!(names.attr(OLD, None).unwrap().nlink, 1);
    assert_eq!(names.attr(FILE, None).unwrap().nlink, 1);
}

#[test]
fn since_is_the_time_of_the_oldest_operation_that_is_not_flushed() {
    let (mut names, now) = (Names::default(), Timestamp { seconds: 99, nanos: 0 });
    assert_eq!(names.since(FILE, now), now);
    apply(&mut names, 7, Action::Write { file: FILE, offset: 0, size_before: 0, base: None });
    apply(&mut names, 8, Action::Write { file: FILE, offset: 0, size_before: 0, base: None });
    assert_eq!(names.since(FILE, now).seconds, 7);
    names.flushed(&[7], Some(10));
    assert_eq!(names.since(FILE, now).seconds, 8);
}
