//! When directories changed: no store records it, so it is what we saw. Clients trust what they know of a directory
//! as long as its times stay.

use std::hash::Hasher as _;
use std::time::{SystemTime, UNIX_EPOCH};

use ::origin::Reference;
use bytes::Bytes;
use quick_cache::sync::Cache;
use siphasher::sip::SipHasher13;
use types::{Name, Timestamp};

/// The most directories whose names are remembered. A forgotten one counts as changed when it is listed again.
const KNOWN_MAX: usize = 100_000;

/// The fingerprint of a directory's names, in any order: their number and a sum of hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameFingerprint {
    count: u64,
    sum: u64,
}

impl NameFingerprint {
    pub fn add(&mut self, name: &Name) {
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        (self.count, self.sum) = (self.count + 1, self.sum.wrapping_add(hasher.finish()));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirChange {
    pub at: Timestamp,
    /// A change was seen; otherwise `at` is the time since when we look.
    pub seen: bool,
}

pub struct DirTimes {
    since: Timestamp,
    known: Cache<Bytes, (DirChange, Option<NameFingerprint>)>,
}

impl Default for DirTimes {
    fn default() -> DirTimes {
        DirTimes { since: now(), known: Cache::new(KNOWN_MAX) }
    }
}

impl DirTimes {
    pub fn of(&self, dir: &Reference) -> DirChange {
        self.known.get(&dir.0).map_or(DirChange { at: self.since, seen: false }, |(changed, _)| changed)
    }

    /// Records our own change.
    pub fn changed(&self, dir: &Reference, at: Timestamp) {
        self.known.insert(dir.0.clone(), (DirChange { at, seen: true }, None));
    }

    /// Records a complete listing.
    pub fn record_listing(&self, dir: &Reference, names: NameFingerprint, at: Timestamp) {
        let (known, before) = match self.known.get(&dir.0) {
            Some((changed, before)) => (changed, before),
            None => (self.of(dir), None),
        };
        let changed = match before {
            Some(before) if before != names => DirChange { at, seen: true },
            _ => known,
        };
        self.known.insert(dir.0.clone(), (changed, Some(names)));
    }
}

/// The time by this machine's clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> NameFingerprint {
        let mut names = NameFingerprint::default();
        all.iter().for_each(|name| names.add(&Name::new(name.as_bytes().to_vec()).unwrap()));
        names
    }

    #[test]
    fn a_directory_changes_when_its_names_do() {
        let (times, dir) = (DirTimes::default(), Reference(Bytes::from_static(b"d/")));
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let first = times.of(&dir);
        times.record_listing(&dir, names(&["a", "b"]), at(1));
        times.record_listing(&dir, names(&["b", "a"]), at(2));
        assert_eq!((times.of(&dir), first.seen), (first, false));
        times.record_listing(&dir, names(&["b"]), at(3));
        assert_eq!(times.of(&dir), DirChange { at: at(3), seen: true });
        times.record_listing(&dir, names(&["c"]), at(4));
        assert_eq!(times.of(&dir).at, at(4));
        times.changed(&dir, at(5));
        times.record_listing(&dir, names(&["c", "ours"]), at(6));
        assert_eq!(times.of(&dir).at, at(5), "that was us");
    }
}
