//! Which operation must wait for which: those that touch the same thing, unless neither alters it.
//!
//! A child does not alter its directory in this sense: children of one directory are independent, and all of them come
//! after it was made and before anything else that is done to it. Where an operation goes ahead of one that it waits for
//! (`plan/undo.rs`), what waits for it waits for that one from then on.

use std::collections::{BTreeSet, HashMap};

use types::{FileId, Name};

use crate::operation::{Action, JournalOperation};
use crate::sabotage::{Bug, Sabotage};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Thing {
    Object(FileId),
    Name(FileId, Name),
    /// Where directories are in the tree: two moves in the wrong order could put each inside the other.
    Tree(types::JunctionId),
}

/// What an operation touches.
#[derive(Clone, Debug, Default)]
pub struct TouchedThings {
    pub altered: Vec<Thing>,
    /// Must be there for it and stay as it is.
    pub beside: Vec<Thing>,
}

impl TouchedThings {
    /// Two operations that share one of these must keep their order.
    pub fn shared<'a>(&'a self, other: &'a TouchedThings) -> impl Iterator<Item = &'a Thing> {
        let altered =
            self.altered.iter().filter(|it| other.altered.contains(it) || other.beside.contains(it));
        altered.chain(self.beside.iter().filter(|it| other.altered.contains(it)))
    }
}

#[derive(Default)]
struct Use {
    /// The last that alters it. Several where that one went ahead of what it waited for: these, then.
    last: BTreeSet<u64>,
    /// Those behind it that do not.
    beside: BTreeSet<u64>,
}

impl Use {
    fn is_empty(&self) -> bool {
        self.last.is_empty() && self.beside.is_empty()
    }
}

#[derive(Default)]
struct Dependents {
    things: Vec<Thing>,
    blockers: BTreeSet<u64>,
    waiting: Vec<u64>,
}

#[derive(Default)]
pub struct Depend {
    uses: HashMap<Thing, Use>,
    nodes: HashMap<u64, Dependents>,
    sabotage: Sabotage,
}

impl Depend {
    pub fn new(sabotage: Sabotage) -> Depend {
        Depend { sabotage, ..Depend::default() }
    }

    /// Operations that touch the same thing come in the order of their sequences.
    pub fn add(&mut self, sequence: u64, operation: &JournalOperation) {
        let TouchedThings { altered, beside } = TouchedThings::by(operation, self.sabotage);
        let mut node = Dependents::default();
        for (thing, alters) in
            altered.into_iter().map(|it| (it, true)).chain(beside.into_iter().map(|it| (it, false)))
        {
            let used = self.uses.entry(thing.clone()).or_default();
            node.blockers.extend(&used.last);
            if alters {
                node.blockers.append(&mut used.beside);
                used.last = BTreeSet::from([sequence]);
            } else {
                used.beside.insert(sequence);
            }
            node.things.push(thing);
        }
        // It may alter a thing and touch it again.
        node.blockers.remove(&sequence);
        for blocker in &node.blockers {
            if let Some(blocker) = self.nodes.get_mut(blocker) {
                blocker.waiting.push(sequence);
            }
        }
        self.nodes.insert(sequence, node);
    }

    /// What must be done before it.
    pub fn blockers(&self, sequence: u64) -> impl Iterator<Item = u64> {
        self.nodes.get(&sequence).into_iter().flat_map(|node| node.blockers.iter().copied())
    }

    /// Those that wait for it, and perhaps for others.
    pub fn followers(&self, sequence: u64) -> impl Iterator<Item = u64> {
        let waiting = self.nodes.get(&sequence).into_iter().flat_map(|node| node.waiting.iter().copied());
        waiting
            .filter(move |later| self.nodes.get(later).is_some_and(|node| node.blockers.contains(&sequence)))
    }

    pub fn is_free(&self, sequence: u64) -> bool {
        self.blockers(sequence).next().is_none()
    }

    /// Returns those that wait for nothing any more. What it waited for itself is waited for by its followers.
    pub fn remove(&mut self, sequence: u64) -> Vec<u64> {
        let Some(node) = self.nodes.remove(&sequence) else { return Vec::new() };
        let inherited = if self.sabotage.is(Bug::ForgetOver) { BTreeSet::new() } else { node.blockers };
        for thing in node.things {
            if let Some(used) = self.uses.get_mut(&thing) {
                if used.last.remove(&sequence) {
                    for blocker in &inherited {
                        if let Some(node) = self.nodes.get_mut(blocker) {
                            used.last.insert(*blocker);
                            node.things.push(thing.clone());
                        }
                    }
                }
                used.beside.remove(&sequence);
                if used.is_empty() {
                    self.uses.remove(&thing);
                }
            }
        }
        let mut free = Vec::new();
        for waiting in node.waiting {
            let Some(follower) = self.nodes.get_mut(&waiting) else { continue };
            if !follower.blockers.remove(&sequence) {
                continue;
            }
            follower.blockers.extend(&inherited);
            if follower.blockers.is_empty() {
                free.push(waiting);
            }
            for blocker in &inherited {
                if let Some(blocker) = self.nodes.get_mut(blocker) {
                    blocker.waiting.push(waiting);
                }
            }
        }
        free
    }
}

/// The later one is about what the earlier one altered, or alters what that one was done with: without it, it is another
/// thing. Two moves of directories that merely come one after the other are not.
pub fn leans_on(later: &JournalOperation, earlier: &JournalOperation) -> bool {
    let (later, earlier) =
        (TouchedThings::by(later, Sabotage::default()), TouchedThings::by(earlier, Sabotage::default()));
    later.shared(&earlier).any(|thing| !matches!(thing, Thing::Tree(_)))
}

impl TouchedThings {
    pub fn by(operation: &JournalOperation, sabotage: Sabotage) -> TouchedThings {
        let object = Thing::Object(operation.object());
        let (mut altered, beside) = match &operation.action {
            Action::Make { dir, name, .. }
            | Action::Link { dir, name, .. }
            | Action::Remove { dir, name, .. }
            | Action::Rmdir { dir, name, .. } => {
                (vec![Thing::Name(*dir, name.clone())], vec![Thing::Object(*dir)])
            }
            Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. } => (vec![], vec![]),
            Action::Rename(it) => {
                let mut altered =
                    vec![Thing::Name(it.from_dir, it.from.clone()), Thing::Name(it.to_dir, it.to.clone())];
                altered.extend(it.replaced.map(|replaced| Thing::Object(replaced.object)));
                if it.is_dir {
                    altered.push(Thing::Tree(operation.junction));
                }
                (altered, vec![Thing::Object(it.from_dir), Thing::Object(it.to_dir)])
            }
        };
        if sabotage.is(Bug::ForgetNames) {
            altered.retain(|thing| !matches!(thing, Thing::Name(..)));
        }
        altered.push(object);
        TouchedThings { altered, beside }
    }
}

#[cfg(test)]
mod tests {
    use types::{JunctionId, Timestamp};

    use super::*;
    use crate::operation::{Attributes, NewObject, Rename};

    const DIR: FileId = FileId([1; 16]);

    fn id(number: u8) -> FileId {
        FileId([number; 16])
    }

    fn name(name: &'static str) -> Name {
        Name::new(name.as_bytes()).unwrap()
    }

    fn make(dir: FileId, given: &'static str, id: FileId, what: NewObject) -> Action {
        Action::Make { dir, name: name(given), id, what, set: Attributes::default() }
    }

    fn depend(actions: Vec<Action>) -> Depend {
        let mut depend = Depend::default();
        for (sequence, action) in (1..).zip(actions) {
            let (junction, acknowledged, since) = (JunctionId(1), Timestamp::default(), Timestamp::default());
            depend.add(sequence, &JournalOperation { junction, acknowledged, since, action });
        }
        depend
    }

    fn blockers(depend: &Depend, sequence: u64) -> Vec<u64> {
        depend.blockers(sequence).collect()
    }

    #[test]
    fn what_is_in_a_directory_waits_for_it_and_not_for_each_other() {
        let mut depend = depend(vec![
            make(DIR, "d", id(2), NewObject::Directory),
            make(id(2), "a", id(3), NewObject::File),
            make(id(2), "b", id(4), NewObject::File),
            Action::Write { file: id(3), offset: 0, size_before: 0, base: None },
            Action::Set { object: id(2), set: Attributes::default(), base: None },
            Action::Rmdir { dir: DIR, name: name("d"), object: id(2) },
        ]);
        assert_eq!(blockers(&depend, 2), [1]);
        assert_eq!(blockers(&depend, 3), [1]);
        assert_eq!(blockers(&depend, 4), [2]);
        assert_eq!(blockers(&depend, 5), [1, 2, 3], "the directory's own times come after its files");
        assert_eq!(blockers(&depend, 6), [1, 5]);
        assert_eq!(depend.remove(1), [2, 3]);
        assert_eq!(depend.remove(2), [4]);
        assert_eq!(depend.remove(3), [5]);
        assert_eq!(depend.remove(5), [6]);
    }

    #[test]
    fn a_name_given_anew_waits_until_it_is_free() {
        let rename = Rename {
            from_dir: DIR,
            from: name("a"),
            to_dir: DIR,
            to: name("b"),
            object: id(2),
            is_dir: false,
            base: None,
            replaced: None,
        };
        let depend = depend(vec![
            make(DIR, "a", id(2), NewObject::File),
            Action::Remove { dir: DIR, name: name("b"), object: id(9), links: 0, base: None },
            Action::Rename(rename),
            make(DIR, "a", id(3), NewObject::File),
            make(DIR, "c", id(4), NewObject::File),
        ]);
        assert_eq!(blockers(&depend, 3), [1, 2]);
        assert_eq!(blockers(&depend, 4), [3]);
        assert!(depend.is_free(5));
    }

    #[test]
    fn who_waited_for_what_went_ahead_waits_for_what_that_one_waited_for() {
        let mut depend = depend(vec![
            make(DIR, "d", id(2), NewObject::Directory),
            make(id(2), "f", id(3), NewObject::File),
            Action::Remove { dir: id(2), name: name("f"), object: id(3), links: 0, base: None },
            make(id(2), "f", id(4), NewObject::File),
        ]);
        assert_eq!(depend.remove(2), []);
        assert_eq!(depend.remove(3), []);
        assert_eq!(blockers(&depend, 4), [1]);
        assert_eq!(depend.remove(1), [4]);
    }

    #[test]
    fn nothing_is_left_of_what_was_done() {
        let mut depend = depend(vec![
            make(DIR, "a", id(2), NewObject::File),
            make(DIR, "b", id(3), NewObject::File),
            Action::Write { file: id(2), offset: 0, size_before: 0, base: None },
        ]);
        (1..=3).for_each(|sequence| drop(depend.remove(sequence)));
        assert!(depend.uses.is_empty() && depend.nodes.is_empty());
    }
}
