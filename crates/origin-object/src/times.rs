//! When directories changed: no store notes it, so it is what we saw. Clients believe what they know of a directory for
//! as long as its times are what they were.

use std::hash::Hasher as _;
use std::time::{SystemTime, UNIX_EPOCH};

use ::origin::Reference;
use bytes::Bytes;
use quick_cache::sync::Cache;
use siphasher::sip::SipHasher13;
use types::{Name, Timestamp};

/// Directories of which it is remembered what was in them. A forgotten one counts as changed when it is listed again.
const KNOWN_MAX: usize = 100_000;

/// The names of a directory, in any order: how many, and a number that another set hardly has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    count: u64,
    sum: u64,
}

impl Names {
    pub fn add(&mut self, name: &Name) {
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        (self.count, self.sum) = (self.count + 1, self.sum.wrapping_add(hasher.finish()));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub at: Timestamp,
    /// Something did change; else it is the time since when we look.
    pub seen: bool,
}

pub struct Times {
    since: Timestamp,
    known: Cache<Bytes, (Changed, Option<Names>)>,
}

impl Default for Times {
    fn default() -> Times {
        Times { since: now(), known: Cache::new(KNOWN_MAX) }
    }
}

impl Times {
    pub fn of(&self, dir: &Reference) -> Changed {
        self.known.get(&dir.0).map_or(Changed { at: self.since, seen: false }, |(changed, _)| changed)
    }

    /// By us.
    pub fn changed(&self, dir: &Reference, at: Timestamp) {
        self.known.insert(dir.0.clone(), (Changed { at, seen: true }, None));
    }

    /// What is in it, all of it.
    pub fn listed(&self, dir: &Reference, names: Names, at: Timestamp) {
        let (known, before) = match self.known.get(&dir.0) {
            Some((changed, before)) => (changed, before),
            None => (self.of(dir), None),
        };
        let changed = match before {
            Some(before) if before != names => Changed { at, seen: true },
            _ => known,
        };
        self.known.insert(dir.0.clone(), (changed, Some(names)));
    }
}

/// By the clock of this machine.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Names {
        let mut names = Names::default();
        all.iter().for_each(|name| names.add(&Name::new(name.as_bytes().to_vec()).unwrap()));
        names
    }

    #[test]
    fn a_directory_changes_when_its_names_do() {
        let (times, dir) = (Times::default(), Reference(Bytes::from_static(b"d/")));
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let first = times.of(&dir);
        times.listed(&dir, names(&["a", "b"]), at(1));
        times.listed(&dir, names(&["b", "a"]), at(2));
        assert_eq!((times.of(&dir), first.seen), (first, false));
        times.listed(&dir, names(&["b"]), at(3));
        assert_eq!(times.of(&dir), Changed { at: at(3), seen: true });
        times.listed(&dir, names(&["c"]), at(4));
        assert_eq!(times.of(&dir).at, at(4));
        times.changed(&dir, at(5));
        times.listed(&dir, names(&["c", "ours"]), at(6));
        assert_eq!(times.of(&dir).at, at(5), "that was us");
    }
}
