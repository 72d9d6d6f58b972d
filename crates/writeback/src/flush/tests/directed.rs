//! What the random histories would show too late: policies of conflicts, refusals, outages, waiting.

use origin::{Change, Origin};
use types::{ErrorKind, FileId};

use super::test_target::JUNCTION;
use super::tree::tree;
use super::world::{World, alarms, name};
use crate::conflict::{AlarmKind, ConflictPolicy};
use crate::operation::{Action, Attributes, NewObject};
use crate::plan::Scope;
use crate::sabotage::Sabotage;

fn world(conflict: ConflictPolicy) -> World {
    World::new(1, Sabotage::default(), conflict)
}

pub fn file(world: &World, path: &str) -> FileId {
    let tree = now_list(world);
    tree.into_iter().find(|(given, _)| *given == name(path)).expect("is there").1
}

fn now_list(world: &World) -> Vec<(types::Name, FileId)> {
    let root = super::world::now(origin::Origin::root(world.target.origin.as_ref())).unwrap();
    super::world::now(world.target.list(&root.reference)).unwrap()
}

pub fn write(world: &mut World, id: FileId, text: &[u8]) {
    let base = world.base(id);
    world.journal(Action::Write { file: id, offset: 0, size_before: 28, base }, text);
}

pub fn make(world: &mut World, given: &str) -> FileId {
    let id = world.ids.give(JUNCTION);
    let (dir, name, set) = (world.root, name(given), Attributes::default());
    world.journal(Action::Make { dir, name, id, what: NewObject::File, set }, &[]);
    id
}

#[test]
fn keep_both_leaves_theirs_and_puts_the_whole_of_ours_beside() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let a = file(&world, "a");
    write(&mut world, a, b"OUR");
    world.target.origin.write_file(b"a", b"theirs").unwrap();
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/a").unwrap(), b"theirs");
    let alarms = alarms(&world);
    let [alarm] = &alarms[..] else { panic!("{alarms:?}") };
    assert_eq!((alarm.kind, alarm.object), (AlarmKind::KeptBoth, a));
    assert_eq!(alarm.place.as_ref().unwrap().1, name("a"));
    let beside = format!("/{}", alarm.beside.as_ref().unwrap());
    assert!(beside.starts_with("/a.conflict-tier-"), "{beside}");
    assert_eq!(world.at_origin(&beside).unwrap(), b"OUR first file of the origin");
}

#[test]
fn all_of_one_conflict_goes_to_one_copy_even_with_a_crash_in_between() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let a = file(&world, "a");
    write(&mut world, a, b"1");
    world.target.origin.write_file(b"a", b"theirs").unwrap();
    world.flush_step();
    world.clock.pass(1000);
    let base = world.base(a);
    world.journal(Action::Write { file: a, offset: 3, size_before: 28, base }, b"2");
    world.flush_steps(20);
    world.crash();
    world.flush_all().unwrap();
    let copies: Vec<_> =
        tree(&world.target.origin).into_keys().filter(|path| path.contains("conflict")).collect();
    let [copy] = &copies[..] else { panic!("{copies:?}") };
    assert_eq!(world.at_origin(copy).unwrap(), b"1he2first file of the origin");
    assert_eq!(world.at_origin("/a").unwrap(), b"theirs");
}

#[test]
fn ours_and_theirs_are_taken_where_the_policy_says_so_and_both_are_said() {
    for (policy, expected, kind) in [
        (ConflictPolicy::Ours, &b"OURirs"[..], AlarmKind::TookOurs),
        (ConflictPolicy::Theirs, &b"theirs"[..], AlarmKind::Dropped),
    ] {
        let mut world = world(policy);
        let a = file(&world, "a");
        write(&mut world, a, b"OUR");
        world.target.origin.write_file(b"a", b"theirs").unwrap();
        world.flush_all().unwrap();
        assert_eq!(world.at_origin("/a").unwrap(), expected);
        let kinds: Vec<_> = alarms(&world).iter().map(|alarm| alarm.kind).collect();
        assert_eq!(kinds, [kind]);
    }
}

#[test]
fn what_was_changed_at_the_origin_is_not_removed() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let a = file(&world, "a");
    let (dir, base) = (world.root, world.base(a));
    world.journal(Action::Remove { dir, name: name("a"), object: a, links: 0, base }, &[]);
    world.target.origin.write_file(b"a", b"theirs").unwrap();
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/a").unwrap(), b"theirs");
    assert_eq!(alarms(&world)[0].kind, AlarmKind::Dropped);
}

/// The removal of a name is dropped, and so the link that gives it again finds it: it did nothing to the file.
#[test]
fn a_name_that_is_there_already_does_not_make_their_version_ours() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let (c, dir) = (file(&world, "c"), world.root);
    let base = world.base(c);
    world.journal(Action::Remove { dir, name: name("c"), object: c, links: 1, base }, &[]);
    world.journal(Action::Link { file: c, dir, name: name("c"), links: 2, base }, &[]);
    world.target.origin.write_file(b"d/b", b"theirs").unwrap();
    world.flush_all().unwrap();
    assert_eq!(world.base(c), base, "their version is not known by our flush");
    write(&mut world, c, b"OURS");
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/d/b").unwrap(), b"theirs");
    let kinds: Vec<_> = alarms(&world).iter().map(|alarm| alarm.kind).collect();
    assert_eq!(kinds, [AlarmKind::Dropped, AlarmKind::KeptBoth]);
}

#[test]
fn what_was_written_has_a_place_to_go_when_its_directory_is_gone() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let new = Action::Make {
        dir: file(&world, "d"),
        name: name("new"),
        id: world.ids.give(JUNCTION),
        what: NewObject::File,
        set: Attributes::default(),
    };
    let Action::Make { id, .. } = new else { unreachable!() };
    world.journal(new, &[]);
    world.flush_all().unwrap();
    write(&mut world, id, b"ours");
    for path in [&b"d/new"[..], b"d/b", b"d/e"] {
        world.target.origin.remove(path).unwrap();
    }
    let (root, given) = (super::world::now(world.target.origin.root()).unwrap().reference, name("d"));
    super::world::change(&world.target.origin, Change::Rmdir { dir: root, name: given }).unwrap();
    world.flush_all().unwrap();
    let alarms = alarms(&world);
    let [alarm] = &alarms[..] else { panic!("{alarms:?}") };
    assert_eq!(alarm.kind, AlarmKind::KeptBoth);
    assert_eq!(world.at_origin(&format!("/{}", alarm.beside.as_ref().unwrap())).unwrap(), b"ours");
}

#[test]
fn a_name_is_not_removed_when_others_took_away_the_names_that_were_to_be_left() {
    for policy in [ConflictPolicy::KeepBoth, ConflictPolicy::Theirs] {
        let mut world = world(policy);
        let (c, dir) = (file(&world, "c"), world.root);
        write(&mut world, c, b"OURS");
        world.flush_all().unwrap();
        world.target.origin.remove(b"d/b").unwrap();
        let base = world.base(c);
        // They also come between a look and the removal: so the version is known, and the name is the last.
        let found =
            super::world::now(crate::FlushTarget::lookup(world.target.as_ref(), dir, &name("c"))).unwrap();
        let version = found.map(|found| found.version);
        super::world::now(crate::FlushTarget::remember(world.target.as_ref(), c, version)).unwrap();
        world.journal(Action::Remove { dir, name: name("c"), object: c, links: 1, base }, &[]);
        world.flush_all().unwrap();
        assert!(world.at_origin("/c").unwrap().starts_with(b"OURS"));
        assert_eq!(alarms(&world)[0].kind, AlarmKind::Dropped);
    }
}

/// Without learning what it made: this is a name that only we give.
#[test]
fn what_an_earlier_attempt_made_beside_is_taken_as_ours() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let id = world.ids.give(JUNCTION);
    let (dir, set, since) = (world.root, Attributes::default(), world.clock.wall());
    let what = NewObject::Symlink("to".into());
    world.journal(Action::Make { dir, name: name("new"), id, what, set }, &[]);
    world.target.origin.write_file(b"new", b"theirs").unwrap();
    let beside = crate::conflict::conflict_name(&name("new"), "tier", since, id);
    world.target.origin.symlink(beside.as_bytes(), b"to").unwrap();
    world.crash();
    world.flush_all().unwrap();
    let kinds: Vec<_> = alarms(&world).iter().map(|alarm| alarm.kind).collect();
    assert_eq!(kinds, [AlarmKind::KeptBoth]);
    assert_eq!(
        super::world::now(crate::FlushTarget::name_in(world.target.as_ref(), dir, id)).unwrap(),
        Some(beside)
    );
}

/// The tier died after it had made and filled a file, before the journal knew; others wrote to the file meanwhile.
#[test]
fn what_others_wrote_to_a_new_file_while_the_tier_was_dead_is_kept_or_said() {
    let mut said = 0;
    for seed in 1..=60 {
        let mut world = World::new(seed, Sabotage::default(), ConflictPolicy::KeepBoth);
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
        world.flush_all().unwrap();
        let alarms = alarms(&world);
        let is_said = alarms.iter().any(|alarm| alarm.kind == AlarmKind::Resumed);
        said += u32::from(is_said);
        assert!(is_said || world.at_origin("/new").unwrap() == b"theirs", "seed {seed}: {alarms:?}");
        let both: Vec<u8> = tree(&world.target.origin).into_values().flat_map(|shown| shown.bytes).collect();
        assert!(both.windows(4).any(|part| part == b"ours"), "seed {seed}: {alarms:?}");
    }
    assert!(said > 0, "no crash came in between");
}

#[test]
fn a_name_that_others_gave_meanwhile_stays_theirs() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let id = make(&mut world, "new");
    write(&mut world, id, b"ours");
    world.target.origin.write_file(b"new", b"theirs").unwrap();
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/new").unwrap(), b"theirs");
    let beside = format!("/{}", alarms(&world)[0].beside.as_ref().unwrap());
    assert_eq!(world.at_origin(&beside).unwrap(), b"ours");
    // What clients do later to their file finds it there.
    let (dir, base) = (world.root, world.base(id));
    world.journal(Action::Remove { dir, name: name("new"), object: id, links: 0, base }, &[]);
    world.flush_all().unwrap();
    assert_eq!(world.at_origin(&beside), None);
    assert_eq!(world.at_origin("/new").unwrap(), b"theirs");
}

#[test]
fn what_is_made_and_removed_never_travels() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let before = super::world::now(origin::Origin::root(world.target.origin.as_ref())).unwrap();
    let id = make(&mut world, "short");
    write(&mut world, id, b"lived");
    let dir = world.root;
    world.journal(Action::Remove { dir, name: name("short"), object: id, links: 0, base: None }, &[]);
    world.flush_all().unwrap();
    assert_eq!(super::world::now(origin::Origin::root(world.target.origin.as_ref())).unwrap(), before);
}

#[test]
fn a_refusal_is_parked_and_said_once_and_tried_again() {
    let mut world = world(ConflictPolicy::KeepBoth);
    *world.target.refuses.lock().unwrap() = Some(ErrorKind::NoSpace);
    let id = make(&mut world, "new");
    write(&mut world, id, b"ours");
    for _ in 0..500 {
        world.clock.pass(1);
        world.flush_step();
    }
    let kinds: Vec<_> = alarms(&world).iter().map(|alarm| alarm.kind).collect();
    assert_eq!(kinds, [AlarmKind::Parked]);
    assert_eq!(world.pending(), 2);
    let metrics = world.metrics();
    assert_eq!((metrics.waiting.get(), metrics.parked.get(), metrics.waiting_bytes.get()), (2, 2, 4));
    assert!(metrics.retries.get() > 1 && metrics.oldest_seconds.get() >= 400.0);
    assert_eq!((metrics.units.get(), metrics.conflicts.get()), (0, 0));
    *world.target.refuses.lock().unwrap() = None;
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/new").unwrap(), b"ours");
}

#[test]
fn an_outage_is_waited_out() {
    let mut world = world(ConflictPolicy::KeepBoth);
    *world.target.refuses.lock().unwrap() = Some(ErrorKind::Unavailable);
    let id = make(&mut world, "new");
    write(&mut world, id, b"ours");
    for _ in 0..500 {
        world.clock.pass(1);
        world.flush_step();
    }
    assert!(alarms(&world).is_empty());
    *world.target.refuses.lock().unwrap() = None;
    world.clock.pass(31);
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/new").unwrap(), b"ours");
}

/// Each of those that failed together doubled the pause: of 64, the first moment without the origin took half a minute.
#[test]
fn what_fails_together_is_one_failure() {
    let mut together = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, Sabotage(None), ConflictPolicy::KeepBoth);
        for n in 0..10 {
            make(&mut world, &format!("new{n}"));
        }
        world.clock.pass(3600);
        *world.target.refuses.lock().unwrap() = Some(ErrorKind::Unavailable);
        while world.flush_step() {}
        together = together.max(world.metrics().retries.get());
        *world.target.refuses.lock().unwrap() = None;
        let waiting = world.pending();
        world.clock.pass(2);
        for _ in 0..100 {
            world.flush_step();
        }
        assert!(world.pending() < waiting, "seed {seed}");
    }
    assert!(together > 2, "several at a time");
}

mod waiting {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::flush::{FlushConfig, Flusher, SystemClock};
    use crate::journal::{Config, Journal};
    use crate::operation::JournalOperation;
    use crate::plan::FlushPolicy;
    use types::Timestamp;

    /// A file that is made, and the flush of it asked for while the policy would wait an hour.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_flush_that_is_asked_for_ends_when_the_origin_has_what_there_was() {
        let place = tempfile::tempdir().unwrap();
        let world = world(ConflictPolicy::KeepBoth);
        let (journal, _) = Journal::open(Config::new(place.path().join("journal"))).unwrap();
        let journal = Arc::new(journal);
        let delay = Duration::from_secs(3600);
        let policy = FlushPolicy { delay, ..FlushPolicy::default() };
        let config = FlushConfig { policies: [(JUNCTION, policy)].into(), ..FlushConfig::new("tier") };
        let clock = Arc::new(SystemClock::new(types::Timeline::default(), |_| 0));
        let flusher = Flusher::start(journal.clone(), world.target.clone(), clock, config, Vec::new());
        let far = Timestamp { seconds: 1 << 40, nanos: 0 };
        let mut add = Vec::new();
        for given in ["x", "y"] {
            let id = world.ids.give(JUNCTION);
            let (dir, name, set) = (world.root, name(given), Attributes::default());
            let action = Action::Make { dir, name, id, what: NewObject::File, set };
            add.push(JournalOperation { junction: JUNCTION, acknowledged: far, since: far, action });
        }
        for operation in add {
            let deadline = Instant::now() + Duration::from_secs(60);
            let ticket = journal.append(operation.encode(), Default::default(), deadline).await.unwrap();
            journal.synced(ticket.sequence).await.unwrap();
            flusher.add(ticket.sequence, operation, ticket.position, Duration::ZERO);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(flusher.waiting().operations, 2, "the delay is an hour");
        assert!(flusher.flush(&Scope::All).wait().await.is_empty());
        assert_eq!(flusher.waiting().operations, 0);
        assert_eq!(flusher.load(JUNCTION), (0, None));
        let metrics = flusher.metrics();
        assert_eq!((metrics.units.get(), metrics.operations.get(), metrics.retries.get()), (2, 2, 0));
        assert!(world.at_origin("/x").is_some() && world.at_origin("/y").is_some());
        assert_eq!(journal.oldest_age(), None, "the journal knows");
    }
}

/// Each of 40 parts, of which 32 go at once: 128 of them is four files.
#[test]
fn parts_of_many_large_files_take_turns() {
    let mut world = world(ConflictPolicy::KeepBoth);
    let files: Vec<FileId> = (0..5).map(|n| make(&mut world, &format!("large{n}"))).collect();
    for part in 0..40_u64 {
        for file in &files {
            // They do not touch, so each is a part.
            let (offset, size_before) = (2 * part, (2 * part).saturating_sub(1));
            world.journal(Action::Write { file: *file, offset, size_before, base: None }, b"x");
        }
    }
    world.clock.pass(1000);
    world.flush_all().unwrap();
    assert_eq!(world.target.writing.lock().unwrap().1, 4);
    for n in 0..5 {
        assert_eq!(world.at_origin(&format!("/large{n}")).unwrap(), "x\0".repeat(40).as_bytes()[..79]);
    }
}

/// It was carried to the origin once more, which begins with emptying the file there; and the journal had given up its
/// bytes.
#[test]
fn what_is_at_the_origin_is_not_carried_again_when_only_its_mark_fails() {
    for fsync in [false, true] {
        for written_before in [false, true] {
            let mut world = world(ConflictPolicy::KeepBoth);
            let (file, path) = match written_before {
                true => (file(&world, "a"), "/a"),
                false => (make(&mut world, "new"), "/new"),
            };
            if written_before {
                let base = world.base(file);
                world.journal(Action::Truncate { file, size: 0, size_before: 28, base }, &[]);
            }
            write(&mut world, file, b"all there is");
            world.clock.pass(200);
            world.fail_marks(fsync);
            for _ in 0..500 {
                world.flush_step();
            }
            assert_eq!(world.at_origin(path).unwrap(), b"all there is", "the first time");
            assert!(world.pending() > 0, "or no mark failed");
            for _ in 0..500 {
                world.clock.pass(1);
                world.flush_step();
            }
            assert_eq!(world.at_origin(path).unwrap(), b"all there is", "again and again");
            if fsync {
                world.crash(); // nothing else helps
            } else {
                world.marks_go_again();
            }
            world.flush_all().unwrap();
            assert_eq!(world.at_origin(path).unwrap(), b"all there is");
        }
    }
}
