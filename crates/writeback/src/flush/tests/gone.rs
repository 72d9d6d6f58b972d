//! What its owner took away in the end is retracted as a whole where the origin refuses some of it. A crash comes before all
//! of that is recorded, and what is left is carried out one by one, when nothing is refused any more.

use types::FileId;

use super::directed::{file, make};
use super::sums::{cut_after, outcome, rename, world};
use super::test_target::{JUNCTION, Refusals};
use super::world::{World, alarms, name};
use crate::conflict::AlarmKind;
use crate::operation::{Action, Attributes, NewObject, Rename};

const X: Refusals = Refusals { names: Some(b'x'), size_max: None, is_full: false, mode: None, links: false };

fn make_dir(world: &mut World, dir: FileId, given: &str) -> FileId {
    let (id, set) = (world.ids.give(JUNCTION), Attributes::default());
    world.journal(Action::Make { dir, name: name(given), id, what: NewObject::Directory, set }, &[]);
    id
}

fn move_to(world: &mut World, from: (FileId, &str), to: (FileId, &str), object: FileId, is_dir: bool) {
    let ((from_dir, from), (to_dir, to)) = ((from.0, name(from.1)), (to.0, name(to.1)));
    let (base, replaced) = (world.base(object), None);
    world.journal(Action::Rename(Rename { from_dir, from, to_dir, to, object, is_dir, base, replaced }), &[]);
}

fn remove(world: &mut World, dir: FileId, given: &str, object: FileId, links: u32) {
    let base = world.base(object);
    world.journal(Action::Remove { dir, name: name(given), object, links, base }, &[]);
}

/// Told as lost by others, who never were there.
fn lost(world: &World) -> Vec<String> {
    let by_us = |kind| matches!(kind, AlarmKind::Parked | AlarmKind::Resumed);
    alarms(world).into_iter().filter(|it| !by_us(it.kind)).map(|it| it.to_string()).collect()
}

#[test]
fn a_link_to_a_file_that_was_replaced_and_is_gone_is_not_told_as_lost() {
    let mut left = 0;
    for seed in 1..=80 {
        let mut world = world(seed, Refusals { links: true, ..Refusals::default() });
        let (a, root) = (file(&world, "a"), world.root);
        let base = world.base(a);
        world.journal(Action::Link { file: a, dir: root, name: name("y"), links: 2, base }, &[]);
        rename(&mut world, "a", "b", a, None);
        remove(&mut world, root, "y", a, 1);
        let new = make(&mut world, "n");
        rename(&mut world, "n", "b", new, Some(a));
        left += u64::from(cut_after(&mut world, seed / 2));
        assert_eq!(lost(&world), [""; 0], "seed {seed}");
        assert_eq!(outcome(&world).0, [("/b".to_string(), Vec::new())], "seed {seed}");
        assert_eq!(world.at_origin("/a"), None, "seed {seed}");
    }
    assert!(left > 20, "{left}");
}

/// Of rename and removal only the removal is left by the crash. It waits for the directory, and has not begun by itself.
#[test]
fn a_removal_of_which_only_the_mark_is_missing_is_not_told_as_lost() {
    let mut left = 0;
    for seed in 1..=200 {
        let mut world = world(seed, X);
        let (a, root) = (file(&world, "a"), world.root);
        let dir = make_dir(&mut world, root, "x");
        move_to(&mut world, (root, "a"), (dir, "a"), a, false);
        remove(&mut world, dir, "a", a, 0);
        left += u64::from(cut_after(&mut world, seed / 4));
        assert_eq!(lost(&world), [""; 0], "seed {seed}");
        assert_eq!(outcome(&world).0, [("/x".to_string(), Vec::new())], "seed {seed}");
        assert_eq!(world.at_origin("/a"), None, "seed {seed}");
    }
    assert!(left > 50, "{left}");
}

/// The new directory is refused under its first name, and its second one is at the origin still that of another directory,
/// whose rename is refused.
#[test]
fn what_still_has_a_later_name_of_a_directory_is_not_taken_for_it() {
    for seed in 1..=20 {
        let mut world = world(seed, X);
        let (d, root) = (file(&world, "d"), world.root);
        let new = make_dir(&mut world, d, "x");
        world.clock.pass(200);
        while world.flush_step() {}
        move_to(&mut world, (root, "d"), (root, "x"), d, true);
        move_to(&mut world, (d, "x"), (root, "d"), new, true);
        world.journal(Action::Rmdir { dir: root, name: name("d"), object: new }, &[]);
        cut_after(&mut world, seed);
        assert_eq!(lost(&world), [""; 0], "seed {seed}");
        let (there, said) = outcome(&world);
        let paths: Vec<&String> = there.iter().map(|it| &it.0).collect();
        assert_eq!(paths, ["/x", "/x/b", "/x/e"], "seed {seed}: {said:?}");
        let known = world.target.database().reference(d).unwrap();
        let inside = super::world::now(world.target.list(&known)).unwrap();
        assert_eq!(inside.len(), 2, "seed {seed}: the directory is known as what it was");
    }
}
