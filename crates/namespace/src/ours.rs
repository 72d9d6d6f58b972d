//! Our own changes and the questions that are in flight while they are made. The invariants: an answer never undoes a change
//! that was made after its question, and a listing stays true over changes whose effects are known.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use tokio::sync::watch;
use types::{FileId, Version};

/// Names of one directory that may change during one listing of it; with more, the listing begins anew.
const TOUCHED_MAX: usize = 100_000;
/// Directories whose states are remembered; when there are more, all are forgotten: their listings are made anew.
const ROWS_MAX: usize = 10_000;
/// States of a directory that are remembered, and changes whose state before is not known yet.
const STATES_MAX: usize = 64;

#[derive(Default)]
pub struct Ours {
    /// The names that our changes touched since a listing began, by the directory that is being listed.
    listings: HashMap<FileId, TouchedNames>,
    /// Whether our changes touched a name that is being looked up.
    lookups: HashMap<(FileId, Bytes), bool>,
    rows: HashMap<FileId, OwnStates>,
    /// The last change of a directory whose commit is under way. Commits are in order: it is the last to become visible.
    unseen: HashMap<FileId, (u64, watch::Receiver<()>)>,
    changes: u64,
    /// The number of touches so far.
    touches: u64,
}

#[derive(Default)]
struct TouchedNames {
    names: HashSet<Bytes>,
    /// The object behind one of the names is unknown.
    spoilt: bool,
}

impl Ours {
    pub fn listing_begins(&mut self, dir: FileId, version: Version) {
        self.listings.insert(dir, TouchedNames::default());
        self.row(dir).starts_at(version);
    }

    pub fn listing_ends(&mut self, dir: FileId) {
        self.listings.remove(&dir);
    }

    /// Whether a listing's word on this name may be older than a change of ours.
    pub fn is_touched(&self, dir: FileId, name: &Bytes) -> bool {
        self.listings.get(&dir).is_some_and(|touched| touched.names.contains(name))
    }

    /// Whether a listing has to begin anew: neither it nor our changes can tell which object has some of the names.
    pub fn is_listing_spoilt(&self, dir: FileId) -> bool {
        self.listings.get(&dir).is_some_and(|touched| touched.spoilt)
    }

    /// Notes that a change of ours leaves the contents of the directory unknown.
    pub fn spoil_listing(&mut self, dir: FileId) {
        if let Some(touched) = self.listings.get_mut(&dir) {
            touched.spoilt = true;
        }
    }

    pub fn lookup_begins(&mut self, dir: FileId, name: &Bytes) {
        self.lookups.insert((dir, name.clone()), false);
    }

    /// True if the answer counts: no change of ours touched the name meanwhile.
    pub fn lookup_ends(&mut self, dir: FileId, name: &Bytes) -> bool {
        !self.lookups.remove(&(dir, name.clone())).unwrap_or(false)
    }

    pub fn touch(&mut self, dir: FileId, name: &Bytes) {
        self.touches += 1;
        if let Some(touched) = self.listings.get_mut(&dir) {
            touched.names.insert(name.clone());
            touched.spoilt |= touched.names.len() >= TOUCHED_MAX;
        }
        if let Some(touched) = self.lookups.get_mut(&(dir, name.clone())) {
            *touched = true;
        }
    }

    /// The number of names that changes of ours have touched so far, whichever they are.
    pub fn touches(&self) -> u64 {
        self.touches
    }

    pub fn hide(&mut self, dirs: &[FileId], end: &watch::Receiver<()>) -> u64 {
        self.changes += 1;
        self.unseen.extend(dirs.iter().map(|dir| (*dir, (self.changes, end.clone()))));
        self.changes
    }

    pub fn show(&mut self, dirs: &[FileId], number: u64) {
        for dir in dirs {
            if self.unseen.get(dir).is_some_and(|(last, _)| *last == number) {
                self.unseen.remove(dir);
            }
        }
    }

    pub fn unseen(&self, dir: FileId) -> Option<watch::Receiver<()>> {
        self.unseen.get(&dir).map(|(_, end)| end.clone())
    }

    /// Notes that a change of ours led from one state of the directory to the other; `listed` is its state when it was
    /// listed.
    pub fn link(&mut self, dir: FileId, listed: Option<Version>, before: Version, after: Version) {
        if listed.is_none() && !self.listings.contains_key(&dir) {
            return;
        }
        let being_listed = self.listings.contains_key(&dir);
        let row = self.row(dir);
        if let Some(listed) = listed.filter(|_| row.states.is_empty() || !being_listed) {
            row.starts_at(listed);
        }
        row.link(before, after);
    }

    /// Whether only changes of ours led from `from` to `to`, as far as states tell.
    pub fn leads(&self, dir: FileId, from: Version, to: Version) -> bool {
        from == to
            || self.rows.get(&dir).is_some_and(|row| row.states.contains(&from) && row.states.contains(&to))
    }

    fn row(&mut self, dir: FileId) -> &mut OwnStates {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&dir) {
            self.rows.clear();
        }
        self.rows.entry(dir).or_default()
    }
}

/// The states through which only changes of ours led a directory. Answers come in any order, so pairs that do not fit yet
/// are kept for a while.
#[derive(Default)]
struct OwnStates {
    states: VecDeque<Version>,
    loose: VecDeque<(Version, Version)>,
}

impl OwnStates {
    fn starts_at(&mut self, version: Version) {
        if !self.states.contains(&version) {
            self.states = VecDeque::from([version]);
            self.join();
        }
    }

    fn link(&mut self, before: Version, after: Version) {
        push(&mut self.loose, (before, after));
        self.join();
    }

    fn join(&mut self) {
        while let Some(at) = self.loose.iter().position(|(before, _)| self.states.contains(before)) {
            if let Some((_, after)) = self.loose.remove(at)
                && !self.states.contains(&after)
            {
                push(&mut self.states, after);
            }
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= STATES_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u8) -> Version {
        Version([number; 16])
    }

    const DIR: FileId = FileId([9; 16]);

    #[test]
    fn answers_in_any_order_lead_from_the_listing_to_now_and_a_foreign_change_does_not() {
        let mut ours = Ours::default();
        let listed = Some(state(0));
        ours.link(DIR, listed, state(1), state(2));
        assert!(!ours.leads(DIR, state(0), state(2)), "who made state 1?");
        ours.link(DIR, listed, state(0), state(1));
        assert!(ours.leads(DIR, state(0), state(2)));
        // Two that looked before either was done.
        ours.link(DIR, listed, state(2), state(4));
        ours.link(DIR, listed, state(2), state(3));
        assert!(ours.leads(DIR, state(0), state(4)));
        ours.link(DIR, listed, state(6), state(7));
        assert!(!ours.leads(DIR, state(0), state(7)), "somebody else made state 6");
        ours.listing_begins(DIR, state(6));
        assert!(ours.leads(DIR, state(6), state(7)));
    }

    #[test]
    fn a_thousand_changes_in_a_row_still_lead_to_now() {
        let mut ours = Ours::default();
        let number = |n: u16| Version([n.to_be_bytes(); 8].concat().try_into().expect("16 bytes"));
        for n in 0..1000 {
            // The listing is moved on with each.
            ours.link(DIR, Some(number(n)), number(n), number(n + 1));
            assert!(ours.leads(DIR, number(n), number(n + 1)), "{n}");
        }
    }

    #[test]
    fn only_questions_that_were_in_flight_are_touched() {
        let (mut ours, name) = (Ours::default(), Bytes::from_static(b"name"));
        ours.touch(DIR, &name);
        ours.lookup_begins(DIR, &name);
        assert!(ours.lookup_ends(DIR, &name));
        ours.lookup_begins(DIR, &name);
        ours.listing_begins(DIR, state(0));
        ours.touch(DIR, &name);
        assert!(!ours.lookup_ends(DIR, &name));
        assert!(ours.is_touched(DIR, &name));
        ours.listing_ends(DIR);
        assert!(!ours.is_touched(DIR, &name));
    }
}
