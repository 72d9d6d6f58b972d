//! Places to which renames without an answer may have brought objects. Where an object's identity is its place, it has
//! another identity there, and is looked for there if it is not found where it was.

use std::collections::{HashMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};

use types::{FileId, Name};

use crate::Namespace;

/// The most objects that are remembered, the last ones. An outage leaves as many as were being renamed when it began.
const OBJECTS_MAX: usize = 4096;
/// The most places of each, the last ones.
const PLACES_MAX: usize = 8;

#[derive(Default)]
pub struct Astray {
    places: HashMap<FileId, Vec<(FileId, Name)>>,
    /// The last one at the end.
    order: VecDeque<FileId>,
}

impl Astray {
    fn note(&mut self, id: FileId, dir: FileId, name: &Name) {
        if !self.places.contains_key(&id) {
            self.order.push_back(id);
            if self.order.len() > OBJECTS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.places.remove(&oldest);
            }
        }
        let places = self.places.entry(id).or_default();
        places.retain(|place| (place.0, &place.1) != (dir, name));
        places.push((dir, name.clone()));
        if places.len() > PLACES_MAX {
            places.remove(0);
        }
    }

    /// Forgets an object whose place is known again. True if this was one of the places where it might be.
    pub fn forget_at(&mut self, id: FileId, dir: FileId, name: &[u8]) -> bool {
        let places = self.forget(id);
        places.iter().any(|place| (place.0, place.1.as_bytes()) == (dir, name))
    }

    pub fn forget(&mut self, id: FileId) -> Vec<(FileId, Name)> {
        let places = self.places.remove(&id);
        if places.is_some() {
            self.order.retain(|known| *known != id);
        }
        places.unwrap_or_default()
    }

    /// The places where the object may be, the last one first.
    pub fn places(&self, id: FileId) -> Vec<(FileId, Name)> {
        self.places.get(&id).into_iter().flat_map(|places| places.iter().rev().cloned()).collect()
    }
}

impl Namespace {
    /// Notes that a rename without an answer was to bring the object there.
    pub fn may_be_at(&self, id: FileId, dir: FileId, name: &Name) {
        self.astray().note(id, dir, name);
    }

    pub(crate) fn astray(&self) -> MutexGuard<'_, Astray> {
        self.astray.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> FileId {
        FileId((number as u128).to_be_bytes())
    }

    fn name(number: usize) -> Name {
        Name::new(number.to_string()).unwrap()
    }

    #[test]
    fn of_many_the_last_ones_are_looked_for_at_the_last_places() {
        let mut astray = Astray::default();
        for number in 1..=OBJECTS_MAX + 10 {
            astray.note(id(number), id(0), &name(0));
        }
        assert!(astray.places(id(10)).is_empty() && !astray.places(id(11)).is_empty());
        assert_eq!((astray.places.len(), astray.order.len()), (OBJECTS_MAX, OBJECTS_MAX));
        for number in 1..=PLACES_MAX + 1 {
            astray.note(id(11), id(0), &name(number));
        }
        astray.note(id(11), id(0), &name(5));
        let places = astray.places(id(11));
        assert_eq!((places.len(), &places[0].1, &places[1].1), (PLACES_MAX, &name(5), &name(PLACES_MAX + 1)));
        assert!(places.iter().all(|place| place.1 != name(1)), "the oldest one");
    }

    #[test]
    fn what_is_found_or_gone_leaves_nothing() {
        let mut astray = Astray::default();
        for number in 1..=3 {
            astray.note(id(number), id(0), &name(1));
            astray.note(id(number), id(0), &name(2));
        }
        assert!(astray.forget_at(id(1), id(0), b"1") && !astray.forget_at(id(2), id(0), b"3"));
        assert!(!astray.forget_at(id(2), id(0), b"1"), "it is forgotten");
        assert_eq!(astray.forget(id(3)).len(), 2);
        assert!(astray.places.is_empty() && astray.order.is_empty());
    }
}
