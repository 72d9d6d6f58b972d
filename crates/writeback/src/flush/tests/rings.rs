//! Directories that were moved into each other while one of the moves is refused, and all of them removed: at the origin
//! they are in another order, and none can go before the others.

use types::FileId;

use super::test_target::{JUNCTION, Refusals};
use super::tree::tree;
use super::world::{World, alarms, name};
use crate::conflict::{AlarmKind, ConflictPolicy};
use crate::operation::{Action, Attributes, NewObject, Rename};
use crate::sabotage::Sabotage;

fn make_dir(world: &mut World, dir: FileId, given: &str) -> FileId {
    let (id, set) = (world.ids.give(JUNCTION), Attributes::default());
    world.journal(Action::Make { dir, name: name(given), id, what: NewObject::Directory, set }, &[]);
    id
}

fn rename_dir(world: &mut World, from: (FileId, &str), to: (FileId, &str), object: FileId) {
    let ((from_dir, from), (to_dir, to), base) =
        ((from.0, name(from.1)), (to.0, name(to.1)), world.base(object));
    let (is_dir, replaced) = (true, None);
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
    rename_dir(&mut world, (dirs[count - 2], "in"), (root, "x"), innermost);
    rename_dir(&mut world, (root, "in"), (innermost, "in"), outermost);
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
