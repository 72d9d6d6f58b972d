//! A cache of objects' stats. A stat that was requested before a change of ours and arrives after it is not stored:
//! a writer that began on it would be refused by the store as if others had changed the object.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use quick_cache::sync::Cache;

use crate::store::ObjectStat;

/// The most objects whose ETag is cached, so that a read can ask for these contents only.
const KNOWN_MAX: usize = 100_000;
/// The number of counters; paths share them, and a change of another path costs one more HEAD.
const COUNTERS: usize = 256;

pub struct StatCache {
    /// The stats, by path.
    stats: Cache<Bytes, Arc<ObjectStat>>,
    /// The numbers of changes by this tier.
    changes: Vec<Mutex<u64>>,
}

/// The number of our changes at some moment: tells whether there was one since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeCount(u64);

impl Default for StatCache {
    fn default() -> StatCache {
        StatCache { stats: Cache::new(KNOWN_MAX), changes: (0..COUNTERS).map(|_| Mutex::new(0)).collect() }
    }
}

impl StatCache {
    fn counter(&self, path: &Bytes) -> MutexGuard<'_, u64> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
        self.changes[hash as usize % COUNTERS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The change count to take before the HEAD.
    pub fn change_count(&self, path: &Bytes) -> ChangeCount {
        ChangeCount(*self.counter(path))
    }

    pub fn get(&self, path: &Bytes) -> Option<Arc<ObjectStat>> {
        self.stats.get(path)
    }

    /// Stores a stat that was requested at `moment`; `None`: no object has this path.
    pub fn insert(&self, path: &Bytes, moment: ChangeCount, stat: Option<&Arc<ObjectStat>>) {
        let counter = self.counter(path);
        match stat {
            Some(stat) if moment == ChangeCount(*counter) => self.stats.insert(path.clone(), stat.clone()),
            Some(_) => {}
            None => drop(self.stats.remove(path)),
        }
    }

    /// Records a change by this tier, before others see that it is done.
    pub fn changed(&self, path: &Bytes) {
        *self.counter(path) += 1;
        self.stats.remove(path);
    }

    /// Records a change that was begun at `moment`, with its result. If others of ours came between, the result is
    /// unknown.
    pub fn changed_to(&self, path: &Bytes, moment: ChangeCount, stat: Option<&ObjectStat>) {
        let mut counter = self.counter(path);
        let alone = moment == ChangeCount(*counter);
        *counter += 1;
        match stat.filter(|_| alone) {
            Some(stat) => self.stats.insert(path.clone(), Arc::new(stat.clone())),
            None => drop(self.stats.remove(path)),
        }
    }

    /// Records changes of unknown paths.
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
        let (known, path) = (StatCache::default(), Bytes::from_static(b"a/b"));
        let modified = types::Timestamp { seconds: 1, nanos: 0 };
        let stat =
            Arc::new(ObjectStat { size: 1, etag: "\"e\"".into(), modified, metadata: Default::default() });
        let moment = known.change_count(&path);
        known.insert(&path, moment, Some(&stat));
        assert!(known.get(&path).is_some());
        known.changed(&path);
        assert!(known.get(&path).is_none());
        known.insert(&path, moment, Some(&stat));
        assert!(known.get(&path).is_none(), "it was looked at before");
        known.insert(&path, known.change_count(&path), Some(&stat));
        assert!(known.get(&path).is_some());
        known.all_changed();
        known.insert(&path, moment, Some(&stat));
        assert!(known.get(&path).is_none());
        let moment = known.change_count(&path);
        let ours = ObjectStat { size: 2, ..stat.as_ref().clone() };
        known.changed_to(&path, moment, Some(&ours));
        known.insert(&path, moment, Some(&stat));
        assert_eq!(known.get(&path).map(|stat| stat.size), Some(2), "it was looked at before");
        let moment = known.change_count(&path);
        known.changed(&path);
        known.changed_to(&path, moment, Some(&ours));
        assert!(known.get(&path).is_none(), "it was removed before the answer came");
    }
}
