//! What is done to others is said before it is done: whatever moment a crash takes, nothing of theirs is gone unsaid.

use super::directed::{file, make, write};
use super::test_target::JUNCTION;
use super::tree::tree;
use super::world::{World, alarms, name, now};
use crate::conflict::{AlarmKind, ConflictPolicy};
use crate::operation::{Action, Attributes, NewObject, Rename};
use crate::sabotage::Sabotage;

fn world(seed: u64, policy: ConflictPolicy) -> World {
    World::new(seed, Sabotage::default(), policy)
}

fn copies(world: &World) -> Vec<String> {
    tree(&world.target.origin).into_keys().filter(|path| path.contains(".conflict-")).collect()
}

fn is_said(world: &World, kind: AlarmKind) -> bool {
    alarms(world).iter().any(|alarm| alarm.kind == kind)
}

fn rename(world: &mut World, from: &str, to: &str, object: types::FileId) {
    let (from_dir, base) = (world.root, world.base(object));
    let (from, to_dir, to) = (name(from), from_dir, name(to));
    let rename = Rename { from_dir, from, to_dir, to, object, is_dir: false, base, replaced: None };
    world.journal(Action::Rename(rename), &[]);
}

/// Each wants the name `new`, which others have.
fn made(world: &mut World) {
    let id = make(world, "new");
    write(world, id, b"ours");
}

fn made_as_a_link(world: &mut World) {
    let (dir, id) = (world.root, world.ids.give(JUNCTION));
    let what = NewObject::Symlink("to".into());
    world.journal(Action::Make { dir, name: name("new"), id, what, set: Attributes::default() }, &[]);
}

fn linked(world: &mut World) {
    let (a, dir) = (file(world, "a"), world.root);
    let base = world.base(a);
    world.journal(Action::Link { file: a, dir, name: name("new"), links: 2, base }, &[]);
}

fn renamed(world: &mut World) {
    let a = file(world, "a");
    rename(world, "a", "new", a);
}

const WANTED: [fn(&mut World); 4] = [made, made_as_a_link, linked, renamed];

#[test]
fn a_name_is_taken_from_others_or_given_beside_them_after_it_was_said() {
    for (history, seed) in WANTED.into_iter().flat_map(|history| (1..=20).map(move |seed| (history, seed))) {
        for policy in [ConflictPolicy::Ours, ConflictPolicy::KeepBoth] {
            let mut world = world(seed, policy);
            history(&mut world);
            world.target.origin.write_file(b"new", b"theirs").unwrap();
            world.clock.pass(200);
            let mut done = false;
            while world.flush_step() {
                let (taken, beside) = (world.at_origin("/new").unwrap_or_default(), copies(&world));
                assert!(
                    taken == b"theirs" || is_said(&world, AlarmKind::TookOurs),
                    "{policy:?}, seed {seed}"
                );
                assert!(beside.is_empty() || is_said(&world, AlarmKind::KeptBoth), "{policy:?}, seed {seed}");
                done |= taken != b"theirs" || !beside.is_empty();
            }
            assert!(done, "{policy:?}, seed {seed}");
        }
    }
}

#[test]
fn a_directory_keeps_its_name_under_every_policy() {
    for policy in [ConflictPolicy::Ours, ConflictPolicy::KeepBoth] {
        for history in WANTED {
            let mut world = world(1, policy);
            history(&mut world);
            world.target.origin.mkdir(b"new").unwrap();
            world.target.origin.write_file(b"new/theirs", b"theirs").unwrap();
            world.flush_all().unwrap();
            assert_eq!(world.at_origin("/new/theirs").unwrap(), b"theirs");
            assert!(is_said(&world, AlarmKind::KeptBoth) && copies(&world).len() == 1, "{policy:?}");
        }
    }
}

/// An attempt went on over foreign bytes and was cut off; then others removed the file, and the next attempt made it
/// anew: there was nothing left that could have told it.
#[test]
fn what_an_interrupted_making_overwrote_is_said_though_the_file_is_removed_then() {
    let (mut overwritten, mut removed) = (0, 0);
    for (seed, steps) in (1..=30).flat_map(|seed| (1..=25).map(move |steps| (seed, steps))) {
        let mut world = world(seed, ConflictPolicy::KeepBoth);
        let id = make(&mut world, "new");
        write(&mut world, id, b"ours");
        world.clock.pass(200);
        for _ in 0..seed {
            world.flush_step();
        }
        world.cut_power();
        if world.at_origin("/new").is_none() || world.pending() == 0 {
            continue;
        }
        world.target.origin.write_file(b"new", b"theirs").unwrap();
        for _ in 0..steps {
            world.flush_step();
        }
        world.cut_power();
        if world.pending() == 0 {
            continue;
        }
        let lost = !tree(&world.target.origin).into_values().any(|shown| shown.bytes == b"theirs");
        overwritten += u32::from(lost);
        assert!(!lost || is_said(&world, AlarmKind::Resumed), "seed {seed}, {steps} steps");
        // Of what was made without an answer, and is gone, nobody can know; and one that others made is theirs.
        let dir = world.root;
        let there = now(crate::FlushTarget::lookup(world.target.as_ref(), dir, &name("new"))).unwrap();
        if there.is_none_or(|there| there.id != id) {
            continue;
        }
        world.target.origin.remove(b"new").unwrap();
        removed += 1;
        let before = alarms(&world).len();
        world.flush_all().unwrap();
        let alarms = &alarms(&world)[before..];
        assert!(alarms.iter().any(|alarm| alarm.object == id), "seed {seed}, {steps} steps: {alarms:?}");
        let ours = tree(&world.target.origin).into_values().any(|shown| shown.bytes.starts_with(b"ours"));
        assert!(ours, "seed {seed}, {steps} steps: {alarms:?}");
    }
    assert!(overwritten > 0 && removed > overwritten, "{overwritten}, {removed}");
}

#[test]
fn a_file_that_was_made_under_its_earlier_name_goes_beside_who_took_the_later_one() {
    for policy in [ConflictPolicy::KeepBoth, ConflictPolicy::Ours, ConflictPolicy::Theirs] {
        let mut world = world(1, policy);
        let id = make(&mut world, "x");
        write(&mut world, id, b"ours");
        world.clock.pass(200);
        while world.at_origin("/x").is_none() {
            assert!(world.flush_step());
        }
        world.cut_power();
        rename(&mut world, "x", "y", id);
        world.target.origin.write_file(b"y", b"theirs").unwrap();
        world.flush_all().unwrap();
        let (kind, place) = match policy {
            ConflictPolicy::KeepBoth => (AlarmKind::KeptBoth, copies(&world).pop().expect("a copy")),
            ConflictPolicy::Ours => (AlarmKind::TookOurs, "/y".into()),
            ConflictPolicy::Theirs => (AlarmKind::Dropped, "/x".into()),
        };
        assert!(is_said(&world, kind), "{policy:?}: {:?}", alarms(&world));
        assert_eq!(world.at_origin(&place).unwrap(), b"ours", "{policy:?}");
        let theirs = world.at_origin("/y").unwrap() == b"theirs";
        assert_eq!(theirs, policy != ConflictPolicy::Ours);
        assert_eq!(world.at_origin("/x").is_some(), policy == ConflictPolicy::Theirs);
    }
}

/// No version of it is known as ours, and none as theirs: what others do next to it would not show.
#[test]
fn what_others_changed_while_it_was_made_is_not_written_again_unsaid() {
    let mut overtaken = 0;
    for seed in 1..=60 {
        let mut world = world(seed, ConflictPolicy::KeepBoth);
        let id = make(&mut world, "new");
        write(&mut world, id, b"ours");
        world.clock.pass(200);
        while world.at_origin("/new").is_none() {
            assert!(world.flush_step());
        }
        world.target.origin.write_file(b"new", b"theirs").unwrap();
        world.flush_all().unwrap();
        if !is_said(&world, AlarmKind::Overtaken) {
            continue;
        }
        overtaken += 1;
        world.target.origin.write_file(b"new", b"theirs again").unwrap();
        world.journal(Action::Write { file: id, offset: 0, size_before: 4, base: None }, b"OURS");
        world.flush_all().unwrap();
        let kept = world.at_origin("/new").unwrap() == b"theirs again";
        assert!(kept || is_said(&world, AlarmKind::Resumed), "seed {seed}: {:?}", alarms(&world));
    }
    assert!(overtaken > 0);
}
