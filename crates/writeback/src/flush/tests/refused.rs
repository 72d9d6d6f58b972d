//! What the origin refuses, for a while or for good: all that clients were told and did not undo gets there, nothing that
//! they undid comes back, and when they undid all that is refused nothing waits any more.

use types::{ErrorKind, FileKind, Timestamp};

use super::directed::{file, make, write};
use super::operations::Entry;
use super::test_target::{JUNCTION, Refusals};
use super::tree::{Shown, difference, tree};
use super::world::{World, alarms, change, name, now};
use crate::conflict::{AlarmKind, ConflictPolicy};
use crate::operation::{Action, Attributes, NewObject, Rename, ReplacedObject};
use crate::plan::Scope;
use crate::sabotage::{Bug, Sabotage};
use origin::Change;
use types::{SetAttr, TimeChange};

const SIZE_MAX: u64 = 5500;
const MODE: u32 = 0o711;
const ALL: Refusals =
    Refusals { names: Some(b'x'), size_max: Some(SIZE_MAX), is_full: true, mode: Some(MODE), links: true };

#[derive(Default, Debug)]
pub struct Refused {
    operations: u64,
    refusals: u64,
    undone: u64,
    /// Histories in which what was left had to be removed.
    removed: u64,
    crashes: u64,
}

/// `undo`: the refusals stay, and clients undo what is refused.
pub fn play(seed: u64, crashes: bool, undo: bool, bug: Option<Bug>) -> Result<Refused, String> {
    let mut world = World::new(seed, Sabotage(bug), ConflictPolicy::KeepBoth);
    world.odd_names = true;
    world.refuse_something();
    let mut seen = Refused::default();
    let steps = 20 + world.random.below(80);
    for step in 0..steps {
        match world.random.below(10) {
            0..=4 => seen.operations += u64::from(world.operate(step).is_some()),
            5..=8 => world.flush_steps(30),
            _ => world.clock.pass(1 + (seed % 40) as i64),
        }
        if world.random.below(6) == 0 {
            world.refuse_something();
        }
        if crashes && world.random.below(15) == 0 {
            seen.crashes += 1;
            world.crash();
        }
        world.compare("a step", !crashes)?;
    }
    match undo {
        true => {
            seen.undone = world.undo_what_is_refused(!crashes)?;
            if world.refused_at_last() > 0 {
                seen.removed += 1;
                super::world::tell(|| format!("left: {:?}", world.left()));
                world.remove_what_waits();
            }
        }
        false => *world.target.refusals.lock().unwrap() = Refusals::default(),
    }
    world.flush_all()?;
    world.compare("the end", true)?;
    if let Some(difference) = difference(&tree(&world.want), &tree(&world.target.origin)) {
        return Err(format!("at the origin {difference}"));
    }
    let told = alarms(&world);
    seen.refusals += told.iter().filter(|alarm| alarm.kind == AlarmKind::Parked).count() as u64;
    let unexpected = |kind| kind != AlarmKind::Resumed && kind != AlarmKind::Parked;
    match told.iter().find(|alarm| unexpected(alarm.kind)) {
        Some(alarm) => Err(format!("nobody else was there: {alarm}")),
        None => Ok(seen),
    }
}

impl World {
    /// How many names a file has, a start knows exactly only when its operations on names are flushed.
    fn compare(&self, after: &str, links: bool) -> Result<(), String> {
        let mut view = self.view()?;
        let mut want = tree(&self.want);
        if !links {
            want.values_mut().chain(view.values_mut()).for_each(Shown::forget_links);
        }
        let found = difference(&want, &view).or_else(|| self.moved_ctime());
        found.map_or(Ok(()), |it| Err(format!("seen by clients {it}, after {after}")))
    }

    fn refuse_something(&mut self) {
        let mut on = || self.random.below(2) == 0;
        let some = Refusals {
            // What an origin cannot have a name for it does not have.
            names: ALL.names,
            size_max: ALL.size_max.filter(|_| on()),
            is_full: on() && on(),
            mode: ALL.mode.filter(|_| on()),
            links: on(),
        };
        *self.target.refusals.lock().unwrap() = some;
    }

    /// As its owner would, by ordinary means. Returns how much there was to undo.
    fn undo_what_is_refused(&mut self, links: bool) -> Result<u64, String> {
        *self.target.refusals.lock().unwrap() = ALL;
        for _ in 0..self.random.below(3) {
            self.flush_steps(300);
            self.clock.pass(61);
        }
        for undone in 0..1000 {
            let (_, entries) = self.entries();
            let refused = entries.iter().rev().find(|entry| self.is_refused(entry)).cloned();
            let Some(entry) = refused else { return Ok(undone) };
            self.undo(&entry, &entries);
            self.flush_steps(20);
            self.clock.pass(self.random.below(40) as i64);
            self.compare("something undone", links)?;
        }
        Err("there is no end to what must be undone".into())
    }

    fn is_refused(&self, entry: &Entry) -> bool {
        let attr = &entry.object.attr;
        let has_dirty = || self.target.names.lock().unwrap().overlay(entry.id).is_some() && attr.size > 0;
        let is_file = attr.kind == FileKind::Regular;
        entry.name.as_bytes()[0] == b'x'
            || attr.mode == MODE
            || is_file && attr.nlink > 1 && !self.has_name_at_origin(entry)
            || is_file && attr.size > SIZE_MAX
            || is_file && has_dirty()
    }

    fn has_name_at_origin(&self, entry: &Entry) -> bool {
        let reference = self.target.database().reference(entry.dir);
        let names = reference.map(|dir| now(self.target.list(&dir)).unwrap_or_default()).unwrap_or_default();
        names.contains(&(entry.name.clone(), entry.id))
    }

    fn undo(&mut self, entry: &Entry, all: &[Entry]) {
        let (attr, at) = (entry.object.attr, self.clock.wall());
        if attr.is_dir() && entry.name.as_bytes()[0] == b'x' && self.random.below(2) == 0 {
            return self.remove_tree(entry, all);
        }
        if !attr.is_dir() && (attr.nlink > 1 || self.random.below(3) == 0) {
            let action = self.remove(std::slice::from_ref(entry)).expect("it is there");
            return self.journal(action, &[]);
        }
        if entry.name.as_bytes()[0] == b'x' {
            let dir = if self.random.below(2) == 0 { entry.dir } else { self.root };
            for given in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"] {
                if all.iter().any(|other| other.dir == dir && other.name == name(given)) {
                    continue;
                }
                if let Some(action) = self.rename(std::slice::from_ref(entry), dir, name(given)) {
                    return self.journal(action, &[]);
                }
            }
            return self.remove_tree(entry, all);
        }
        if attr.mode == MODE {
            let set = Attributes { mode: Some(0o640), ..Attributes::default() };
            let (object, given) = (entry.object.reference.clone(), set.to_set(None));
            change(&self.want, Change::Set { object, set: given, guard: None }).unwrap();
            let base = self.base(entry.id);
            return self.journal(Action::Set { object: entry.id, set, base }, &[]);
        }
        self.cut(entry, at);
    }

    fn cut(&mut self, entry: &Entry, at: Timestamp) {
        let set = SetAttr { size: Some(0), mtime: TimeChange::To(at), ..SetAttr::default() };
        change(&self.want, Change::Set { object: entry.object.reference.clone(), set, guard: None }).unwrap();
        let (size_before, base) = (entry.object.attr.size, self.base(entry.id));
        self.journal(Action::Truncate { file: entry.id, size: 0, size_before, base }, &[]);
    }

    fn remove_tree(&mut self, entry: &Entry, all: &[Entry]) {
        for inside in all.iter().filter(|other| other.dir == entry.id) {
            self.remove_tree(inside, all);
        }
        // As it is now: it may have lost another name.
        let (_, now) = self.entries();
        let entry = now.iter().find(|it| (it.dir, &it.name) == (entry.dir, &entry.name));
        if let Some(action) = entry.and_then(|entry| self.remove(std::slice::from_ref(entry))) {
            self.journal(action, &[]);
        }
    }

    /// A file with several names that is renamed back and forth under names that are refused may have no other way out.
    fn remove_what_waits(&mut self) {
        let (_, entries) = self.entries();
        let is_altered = |entry: &&Entry| self.target.names.lock().unwrap().is_altered(entry.id);
        let mut left: Vec<Entry> = entries.iter().filter(is_altered).cloned().collect();
        while let Some(entry) = left.pop() {
            let (_, entries) = self.entries();
            if let Some(entry) = entries.iter().find(|it| (it.dir, &it.name) == (entry.dir, &entry.name)) {
                self.remove_tree(&entry.clone(), &entries);
            }
        }
    }

    /// What is refused of all that waits, when all was tried again.
    fn refused_at_last(&mut self) -> usize {
        for _ in 0..5 {
            self.clock.pass(61);
            while self.flush_step() {}
        }
        self.pending()
    }
}

fn play_all(last: u64, crashes: bool, undo: bool) -> Refused {
    let (mut all, mut wrong) = (Refused::default(), Vec::new());
    for seed in super::seeds(last) {
        match play(seed, crashes, undo, None) {
            Ok(seen) => {
                all.operations += seen.operations;
                all.refusals += seen.refusals;
                all.undone += seen.undone;
                all.removed += seen.removed;
                all.crashes += seen.crashes;
            }
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    println!("seeds {:?}: {all:?}", super::seeds(last));
    all
}

#[test]
fn what_is_refused_for_a_while_gets_there_in_the_end() {
    let seen = play_all(200, false, false);
    assert!(seen.refusals > 0, "{seen:?}");
}

#[test]
fn what_is_refused_for_good_can_be_undone_by_its_owner_and_nothing_of_it_comes_back() {
    let seen = play_all(300, false, true);
    assert!(seen.undone > 0 && seen.refusals > 0, "{seen:?}");
    // Nearly all of these exchange the names of a file that has several.
    let histories = super::seeds(300).count() as u64;
    let is_too_many = histories >= 100 && seen.removed * 5 >= histories * 2;
    assert!(!is_too_many, "most get there without being removed: {seen:?}");
}

#[test]
fn with_crashes_too_nothing_that_is_refused_is_lost_or_comes_back() {
    let seen = play_all(300, true, true);
    assert!(seen.undone > 0 && seen.crashes > 0, "{seen:?}");
}

fn world() -> World {
    World::new(1, Sabotage::default(), ConflictPolicy::KeepBoth)
}

fn refuse(world: &World, refusals: Refusals) {
    *world.target.refusals.lock().unwrap() = refusals;
}

fn remove(world: &mut World, given: &str, object: types::FileId) {
    let (dir, base) = (world.root, world.base(object));
    world.journal(Action::Remove { dir, name: name(given), object, links: 0, base }, &[]);
}

#[test]
fn what_never_found_room_is_removed_and_what_waited_for_room_gets_there() {
    let mut world = world();
    let big = make(&mut world, "big");
    write(&mut world, big, &[1; 3000]);
    refuse(&world, Refusals { size_max: Some(1000), ..Refusals::default() });
    assert!(world.refused_at_last() > 0);
    let later = make(&mut world, "later");
    remove(&mut world, "big", big);
    write(&mut world, later, b"later");
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/later").unwrap(), b"later");
    assert_eq!(world.at_origin("/big"), None);
    let parked = world.metrics().parked.get();
    assert_eq!(parked, 0);
}

#[test]
fn what_vanishes_after_it_was_looked_at_is_looked_at_again_and_is_parked_only_if_that_goes_on() {
    let mut world = world();
    let file = make(&mut world, "file");
    write(&mut world, file, b"bytes");
    *world.target.refuses.lock().unwrap() = Some(ErrorKind::Stale);
    world.clock.pass(200);
    while world.flush_step() {}
    assert_eq!((world.metrics().retries.get(), world.metrics().parked.get()), (1, 0));
    assert!(world.target.alarms.lock().unwrap().is_empty());
    *world.target.refuses.lock().unwrap() = None;
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/file").unwrap(), b"bytes");
    assert!(world.target.alarms.lock().unwrap().is_empty());

    write(&mut world, file, b"more");
    *world.target.refuses.lock().unwrap() = Some(ErrorKind::Stale);
    assert_eq!(world.refused_at_last(), 1);
    assert_eq!(world.target.alarms.lock().unwrap().len(), 1, "one is told, once");
    let tries = world.metrics().retries.get();
    for again in 1..=3 {
        world.clock.pass(61);
        while world.flush_step() {}
        let is_held = world.shared.plan().is_held(JUNCTION, world.shared.clock.now().steady);
        assert!(!is_held, "parked, it holds up nobody when it is tried again");
        assert_eq!(world.metrics().retries.get(), tries + again);
    }
    *world.target.refuses.lock().unwrap() = None;
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/file").unwrap(), b"mores");
}

#[test]
fn what_is_renamed_over_what_is_refused_gets_there() {
    let mut world = world();
    let big = make(&mut world, "big");
    write(&mut world, big, &[1; 3000]);
    refuse(&world, Refusals { size_max: Some(1000), ..Refusals::default() });
    world.refused_at_last();
    let valid = make(&mut world, "valid");
    write(&mut world, valid, b"valid");
    let root = world.root;
    let (from_dir, to_dir, from, to) = (root, root, name("valid"), name("big"));
    let replaced = Some(ReplacedObject { object: big, links: 0, base: None });
    let rename = Rename { from_dir, from, to_dir, to, object: valid, is_dir: false, base: None, replaced };
    world.journal(Action::Rename(rename), &[]);
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/big").unwrap(), b"valid");
    assert_eq!(world.at_origin("/valid"), None);
}

#[test]
fn a_tree_whose_top_is_refused_is_removed_as_a_whole() {
    let mut world = world();
    refuse(&world, Refusals { names: Some(b'x'), ..Refusals::default() });
    let (root, set) = (world.root, Attributes::default());
    let (top, below, inside) = (world.ids.give(JUNCTION), world.ids.give(JUNCTION), world.ids.give(JUNCTION));
    for (dir, given, id) in [(root, "x", top), (top, "below", below), (below, "inside", inside)] {
        let what = NewObject::Directory;
        world.journal(Action::Make { dir, name: name(given), id, what, set }, &[]);
    }
    assert_eq!(world.refused_at_last(), 3);
    for (dir, given, object) in [(below, "inside", inside), (top, "below", below), (root, "x", top)] {
        world.journal(Action::Rmdir { dir, name: name(given), object }, &[]);
    }
    world.flush_all().unwrap();
}

#[test]
fn what_is_in_a_directory_whose_rename_is_refused_is_changed_all_the_same() {
    let mut world = world();
    refuse(&world, Refusals { names: Some(b'x'), ..Refusals::default() });
    let (d, root) = (file(&world, "d"), world.root);
    let (from_dir, to_dir, from, to) = (root, root, name("d"), name("x"));
    let rename = Rename { from_dir, from, to_dir, to, object: d, is_dir: true, base: None, replaced: None };
    world.journal(Action::Rename(rename), &[]);
    world.refused_at_last();
    let (id, set) = (world.ids.give(JUNCTION), Attributes::default());
    world.journal(Action::Make { dir: d, name: name("new"), id, what: NewObject::File, set }, &[]);
    write(&mut world, id, b"new");
    world.refused_at_last();
    assert_eq!(world.at_origin("/d/new").unwrap(), b"new");
    assert_eq!(world.pending(), 1);
    world.shared_ask(&Scope::All);
    refuse(&world, Refusals::default());
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/x/new").unwrap(), b"new");
}

/// A tree that was unpacked and removed before a start may have many names, and the origin is far away.
#[test]
fn what_was_removed_before_a_start_is_retracted_without_a_listing_for_each_name() {
    let mut world = world();
    let files: Vec<_> = (0..20).map(|number| (format!("f{number}"), number)).collect();
    for (given, number) in &files {
        let id = make(&mut world, given);
        if number % 2 == 0 {
            write(&mut world, id, b"begun");
        }
        remove(&mut world, given, id);
    }
    world.cut_power();
    world.flush_all().unwrap();
    assert_eq!(world.target.listings.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert!(tree(&world.target.origin).keys().all(|path| !path.starts_with("/f")));
}

/// Each of two files takes a name of the other, so that neither can be retracted before the other.
#[test]
fn files_that_took_names_of_each_other_while_both_are_refused_can_be_removed() {
    let mut world = world();
    let before: Vec<String> = tree(&world.target.origin).into_keys().collect();
    refuse(&world, Refusals { size_max: Some(1000), links: true, ..Refusals::default() });
    let root = world.root;
    let mut both = Vec::new();
    for (first, second) in [("m", "n"), ("o", "p")] {
        let id = make(&mut world, first);
        write(&mut world, id, &[1; 3000]);
        world.journal(Action::Link { file: id, dir: root, name: name(second), links: 2, base: None }, &[]);
        both.push(id);
    }
    let (one, other) = (both[0], both[1]);
    for (from, to, object, loses) in [("m", "o", one, other), ("p", "n", other, one)] {
        let replaced = Some(ReplacedObject { object: loses, links: 1, base: None });
        let (from_dir, to_dir, from, to) = (root, root, name(from), name(to));
        let rename = Rename { from_dir, from, to_dir, to, object, is_dir: false, base: None, replaced };
        world.journal(Action::Rename(rename), &[]);
    }
    assert!(world.refused_at_last() > 0);
    remove(&mut world, "o", one);
    remove(&mut world, "n", other);
    world.flush_all().unwrap();
    assert_eq!(tree(&world.target.origin).into_keys().collect::<Vec<_>>(), before);
}

/// It was made under a name of its own, to replace another one. After a crash nothing is refused, and the operations are
/// not drawn together any more.
#[test]
fn what_was_to_replace_another_when_a_crash_came_has_its_name_in_the_end() {
    let mut world = world();
    let replaced = file(&world, "a");
    refuse(&world, Refusals { names: Some(b'x'), ..Refusals::default() });
    let new = make(&mut world, "x");
    world.refused_at_last();
    let (from_dir, to_dir, from, to) = (world.root, world.root, name("x"), name("a"));
    let replaced = Some(ReplacedObject { object: replaced, links: 0, base: world.base(replaced) });
    let rename = Rename { from_dir, from, to_dir, to, object: new, is_dir: false, base: None, replaced };
    world.journal(Action::Rename(rename), &[]);
    let is_staged = |path: &String| path.contains(".forebay-");
    while !tree(&world.target.origin).keys().any(is_staged) {
        assert!(world.flush_step(), "it is made beside what it replaces");
    }
    world.crash();
    refuse(&world, Refusals::default());
    write(&mut world, new, b"new");
    world.flush_all().unwrap();
    assert_eq!(world.at_origin("/a").unwrap(), b"new");
    let seen = tree(&world.target.origin);
    assert!(!seen.keys().any(|path| is_staged(path) || path == "/x"), "{:?}", seen.keys());
    assert!(alarms(&world).iter().all(|alarm| alarm.kind != AlarmKind::Dropped));
}
