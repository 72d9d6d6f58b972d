//! Objects as they were seen last. What was asked before this tier changed an object and comes after it is not noted: a
//! draft that is begun on it would be refused by the store as if somebody else had changed the object.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use quick_cache::sync::Cache;

use crate::store::Stat;

/// Objects whose ETag is remembered, so that a read can ask for these contents only.
const KNOWN_MAX: usize = 100_000;
/// A path shares its counter with others; that they change costs a look more.
const COUNTERS: usize = 256;

pub struct Known {
    /// By path.
    stats: Cache<Bytes, Arc<Stat>>,
    /// Changes by this tier.
    changes: Vec<Mutex<u64>>,
}

/// A moment in the history of an object, by the changes of this tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

impl Default for Known {
    fn default() -> Known {
        Known { stats: Cache::new(KNOWN_MAX), changes: (0..COUNTERS).map(|_| Mutex::new(0)).collect() }
    }
}

impl Known {
    fn counter(&self, path: &Bytes) -> MutexGuard<'_, u64> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
        self.changes[hash as usize % COUNTERS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before it is looked at.
    pub fn moment(&self, path: &Bytes) -> Moment {
        Moment(*self.counter(path))
    }

    pub fn get(&self, path: &Bytes) -> Option<Arc<Stat>> {
        self.stats.get(path)
    }

    /// It was so at `moment` or later; `None`: nothing has this path.
    pub fn note(&self, path: &Bytes, moment: Moment, stat: Option<&Arc<Stat>>) {
        let counter = self.counter(path);
        match stat {
            Some(stat) if moment == Moment(*counter) => self.stats.insert(path.clone(), stat.clone()),
            Some(_) => {}
            None => drop(self.stats.remove(path)),
        }
    }

    /// By this tier; before others see that it is done.
    pub fn changed(&self, path: &Bytes) {
        *self.counter(path) += 1;
        self.stats.remove(path);
    }

    /// The same by a change that was begun at `moment`, which told this. What another change made of it meanwhile nobody
    /// said.
    pub fn became(&self, path: &Bytes, moment: Moment, stat: Option<&Stat>) {
        let mut counter = self.counter(path);
        let alone = moment == Moment(*counter);
        *counter += 1;
        match stat.filter(|_| alone) {
            Some(stat) => self.stats.insert(path.clone(), Arc::new(stat.clone())),
            None => drop(self.stats.remove(path)),
        }
    }

    /// Nobody counts which.
    pub fn all_changed(&self) {
        for counter in &self.changes {
            *counter.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        self.stats.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_a_change_is_not_noted_after_it() {
        let (known, path) = (Known::default(), Bytes::from_static(b"a/b"));
        let modified = types::Timestamp { seconds: 1, nanos: 0 };
        let stat = Arc::new(Stat { size: 1, etag: "\"e\"".into(), modified, metadata: Default::default() });
        let moment = known.moment(&path);
        known.note(&path, moment, Some(&stat));
        assert!(known.get(&path).is_some());
        known.changed(&path);
        assert!(known.get(&path).is_none());
        known.note(&path, moment, Some(&stat));
        assert!(known.get(&path).is_none(), "it was looked at before");
        known.note(&path, known.moment(&path), Some(&stat));
        assert!(known.get(&path).is_some());
        known.all_changed();
        known.note(&path, moment, Some(&stat));
        assert!(known.get(&path).is_none());
        let moment = known.moment(&path);
        let ours = Stat { size: 2, ..stat.as_ref().clone() };
        known.became(&path, moment, Some(&ours));
        known.note(&path, moment, Some(&stat));
        assert_eq!(known.get(&path).map(|stat| stat.size), Some(2), "it was looked at before");
        let moment = known.moment(&path);
        known.changed(&path);
        known.became(&path, moment, Some(&ours));
        assert!(known.get(&path).is_none(), "it was removed before the answer came");
    }
}
