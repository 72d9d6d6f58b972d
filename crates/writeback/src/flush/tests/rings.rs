//! Directories that were moved into each other while one of the moves is refused, and all of them removed: at the origin
//! they are in another order, and none can go before the others.

use types::FileId;

use super::test_target::{JUNCTION, Refusals};
use super::tree::tree;
use super::world::{World, alarms, name};
use crate::conflict::{AlarmKind, ConflictPolicy};
use crate::operation::{Action, Attributes, NewObject, Rename, ReplacedObject};
use crate::sabotage::Sabotage;

fn make_dir(world: &mut World, dir: FileId, given: &str) -> FileId {
    let (id, set) = (world.ids.give(JUNCTION), Attributes::default());
    world.journal(Action::Make { dir, name: name(given), id, what: NewObject::Directory, set }, &[]);
    id
}

fn rename_dir(
    world: &mut World,
    from: (FileId, &str),
    to: (FileId, &str),
    (object, replaced): (FileId, Option<FileId>),
) {
    let ((from_dir, from), (to_dir, to), base) =
        ((from.0, name(from.1)), (to.0, name(to.1)), world.base(object));
    let is_dir = true;
    let replaced = replaced.map(|object| ReplacedObject { object, links: 0, base: world.base(object) });
    world.journal(Action::Rename(Rename { from_dir, from, to_dir, to, object, is_dir, base, replaced }), &[]);
}

fn remove_dir(world: &mut World, dir: FileId, given: &str, object: FileId) {
    world.journal(Action::Rmdir { dir, name: name(given), object }, &[]);
}

fn paths(world: &World) -> Vec<String> {
    tree(&world.target.origin).into_keys().collect()
}

/// A chain of so many directories at the origin. The innermost one gets a name that is refused, the outermost one goes into
/// it, and all are removed.
fn ring(seed: u64, count: usize) -> (World, Vec<String>) {
    let mut world = World::new(seed, Sabotage::default(), ConflictPolicy::KeepBoth);
    let (root, before) = (world.root, paths(&world));
    let mut dirs = Vec::new();
    for _ in 0..count {
        let dir = dirs.last().copied().unwrap_or(root);
        dirs.push(make_dir(&mut world, dir, "in"));
    }
    world.flush_all().unwrap();
    *world.target.refusals.lock().unwrap() = Refusals { names: Some(b'x'), ..Refusals::default() };
    let (outermost, innermost) = (dirs[0], dirs[count - 1]);
    rename_dir(&mut world, (dirs[count - 2], "in"), (root, "x"), (innermost, None));
    rename_dir(&mut world, (root, "in"), (innermost, "in"), (outermost, None));
    world.clock.pass(200);
    while world.flush_step() {}
    dirs.pop();
    while let Some(dir) = dirs.pop() {
        let outer = dirs.last().copied().unwrap_or(innermost);
        remove_dir(&mut world, outer, "in", dir);
    }
    remove_dir(&mut world, root, "x", innermost);
    (world, before)
}

fn lost(world: &World) -> Vec<String> {
    let alarms = alarms(world).into_iter();
    let lost = alarms.filter(|it| !matches!(it.kind, AlarmKind::Parked | AlarmKind::Resumed));
    lost.map(|alarm| alarm.to_string()).collect()
}

#[test]
fn directories_that_were_moved_into_each_other_while_a_move_is_refused_can_be_removed() {
    for count in [2, 3, 7, 64] {
        let (mut world, before) = ring(1, count);
        world.flush_all().unwrap();
        assert_eq!(paths(&world), before, "{count}");
        assert!(lost(&world).is_empty(), "{count}: {:?}", lost(&world));
    }
}

#[test]
fn a_ring_of_more_directories_than_go_together_waits_for_the_move() {
    let (mut world, before) = ring(1, 65);
    world.clock.pass(200);
    while world.flush_step() {}
    assert_eq!(world.pending(), 2 + 65);
    *world.target.refusals.lock().unwrap() = Refusals::default();
    world.flush_all().unwrap();
    assert_eq!(paths(&world), before);
}

#[test]
fn a_crash_while_such_directories_are_removed_leaves_none_and_tells_of_no_loss() {
    let mut torn = 0;
    for seed in 1..=60 {
        let (mut world, before) = ring(seed, 2 + seed as usize % 3);
        world.clock.pass(200);
        for _ in 0..seed {
            world.flush_step();
        }
        torn += u64::from(world.is_flushing());
        world.crash();
        world.flush_all().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        assert_eq!(paths(&world), before, "seed {seed}");
        assert!(lost(&world).is_empty(), "seed {seed}: {:?}", lost(&world));
    }
    assert!(torn > 10, "{torn}");
}

/// A directory with a file in it, of which so many are `at_origin`, and another one. The first is emptied, the second takes
/// its name and is removed, and what is flushed of all that begins anew after a crash.
fn replaced_and_removed(seed: u64, at_origin: usize) -> World {
    let mut world = World::new(seed, Sabotage::default(), ConflictPolicy::KeepBoth);
    let root = world.root;
    let flush_at = |world: &mut World, made: usize| {
        if made == at_origin {
            world.flush_all().unwrap();
        }
    };
    let replaced = make_dir(&mut world, root, "taken");
    flush_at(&mut world, 1);
    let (file, set) = (world.ids.give(JUNCTION), Attributes::default());
    let (dir, what) = (replaced, NewObject::File);
    world.journal(Action::Make { dir, name: name("file"), id: file, what, set }, &[]);
    flush_at(&mut world, 2);
    let replacing = make_dir(&mut world, root, "taking");
    let base = world.base(file);
    world.journal(Action::Remove { dir: replaced, name: name("file"), object: file, links: 0, base }, &[]);
    rename_dir(&mut world, (root, "taking"), (root, "taken"), (replacing, Some(replaced)));
    remove_dir(&mut world, root, "taken", replacing);
    world.crash();
    world
}

#[test]
fn a_directory_whose_name_was_taken_is_removed_after_what_was_in_it() {
    for (seed, at_origin) in (1..=40).flat_map(|seed| (0..3).map(move |at_origin| (seed, at_origin))) {
        let mut world = replaced_and_removed(seed, at_origin);
        world.flush_all().unwrap_or_else(|wrong| panic!("seed {seed}, {at_origin}: {wrong}"));
        let told = alarms(&world);
        assert!(told.iter().all(|it| it.kind == AlarmKind::Resumed), "seed {seed}, {at_origin}: {told:?}");
        let left: Vec<_> = paths(&world).into_iter().filter(|path| path.contains("taken")).collect();
        assert!(left.is_empty(), "seed {seed}, {at_origin}: {left:?}");
    }
}

#[test]
fn what_others_put_into_a_directory_whose_name_was_taken_stays_and_is_told() {
    let mut world = replaced_and_removed(1, 1);
    world.target.origin.write_file(b"taken/theirs", b"of somebody else").unwrap();
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/taken/theirs").unwrap(), b"of somebody else");
    assert_eq!(lost(&world).len(), 1, "{:?}", alarms(&world));
}
