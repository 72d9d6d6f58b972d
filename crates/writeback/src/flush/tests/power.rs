//! The power is cut at any moment of a flush whose operations undo each other: none may come back under its followers.
//!
//! Each history ends without a cut as it should; with a cut anywhere it must end the same, and nobody is told of others
//! who changed something, because nobody did.

use types::FileId;

use super::tree::{Tree, tree};
use super::world::{World, alarms, name};
use crate::conflict::{AlarmKind, ConflictPolicy};
use crate::operation::{Action, Attributes, NewObject, Rename, ReplacedObject};
use crate::sabotage::{Bug, Sabotage};

type History = fn(&mut World);

fn file(world: &World, given: &str) -> FileId {
    let root = super::world::now(origin::Origin::root(world.target.origin.as_ref())).unwrap();
    let names = super::world::now(world.target.list(&root.reference)).unwrap();
    names.into_iter().find(|(there, _)| *there == name(given)).expect("is there").1
}

fn make(world: &mut World, given: &str) -> FileId {
    let id = world.ids.give(super::test_target::JUNCTION);
    let (dir, name, set) = (world.root, name(given), Attributes::default());
    world.journal(Action::Make { dir, name, id, what: NewObject::File, set }, &[]);
    id
}

fn write(world: &mut World, file: FileId, text: &[u8]) {
    let base = world.base(file);
    world.journal(Action::Write { file, offset: 0, size_before: 28, base }, text);
}

fn remove(world: &mut World, given: &str, object: FileId, links: u32) {
    let (dir, base) = (world.root, world.base(object));
    world.journal(Action::Remove { dir, name: name(given), object, links, base }, &[]);
}

fn rename(world: &mut World, from: &str, to: &str, object: FileId, replaced: Option<(FileId, u32)>) {
    let (dir, base) = (world.root, world.base(object));
    let replaced = replaced.map(|(object, links)| ReplacedObject { object, links, base: world.base(object) });
    let (from, to) = (name(from), name(to));
    let rename = Rename { from_dir: dir, from, to_dir: dir, to, object, is_dir: false, base, replaced };
    world.journal(Action::Rename(rename), &[]);
}

/// The removal, carried out once more, would take the last name.
fn a_name_taken_away_and_given_again(world: &mut World) {
    let (a, dir) = (file(world, "a"), world.root);
    let base = world.base(a);
    world.journal(Action::Link { file: a, dir, name: name("b"), links: 2, base }, &[]);
    remove(world, "b", a, 1);
    rename(world, "a", "b", a, None);
    write(world, a, b"after it");
}

/// The first rename, carried out once more, would find another file where it is to go: a conflict with ourselves.
fn a_name_left_and_given_to_another(world: &mut World) {
    let a = file(world, "a");
    rename(world, "a", "b", a, None);
    rename(world, "b", "a", a, None);
    let b = make(world, "b");
    write(world, b, b"another");
}

/// The write, carried out once more, would find a version that came after it: ours, and not known by it.
fn a_file_written_replaced_and_made_again(world: &mut World) {
    let (a, c) = (file(world, "a"), file(world, "c"));
    write(world, c, b"first");
    rename(world, "a", "c", a, Some((c, 1)));
    write(world, a, b"second");
    remove(world, "c", a, 0);
    let again = make(world, "c");
    write(world, again, b"third");
    rename(world, "c", "a", again, None);
}

const HISTORIES: [History; 3] = [
    a_name_taken_away_and_given_again,
    a_name_left_and_given_to_another,
    a_file_written_replaced_and_made_again,
];

fn world(seed: u64, bug: Option<Bug>) -> World {
    World::new(seed, Sabotage(bug), ConflictPolicy::KeepBoth)
}

/// Cut after so many steps of its flush.
fn ends_as(expected: &Tree, history: History, seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut world = world(seed, bug);
    history(&mut world);
    world.clock.pass(200);
    for _ in 0..world.random.below(80) {
        world.flush_step();
    }
    world.cut_power();
    world.flush_all()?;
    if let Some(other) = super::tree::difference(expected, &tree(&world.target.origin)) {
        return Err(other);
    }
    let told = alarms(&world);
    let of_others = told.iter().find(|alarm| alarm.kind != AlarmKind::Resumed);
    of_others.map_or(Ok(()), |alarm| Err(alarm.to_string()))
}

#[test]
fn what_is_done_does_not_come_back_under_its_followers() {
    for history in HISTORIES {
        let mut whole = world(1, None);
        history(&mut whole);
        whole.flush_all().unwrap();
        let expected = tree(&whole.target.origin);
        for seed in 1..=300 {
            ends_as(&expected, history, seed, None).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
        let bug = Some(Bug::BeginOnUnsynced);
        let found = (1..=300).find_map(|seed| ends_as(&expected, history, seed, bug).err());
        println!("without the order: {}", found.expect("a history that needs it"));
    }
}
