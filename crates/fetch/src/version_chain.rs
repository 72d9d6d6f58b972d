//! Which version of a file follows which by our own doing: who has it open under the old one goes on. Whether with the same
//! bytes, or with what was written to it through us, is told apart: not everybody wants to see that.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::{Cache, CacheKey};
use namespace::Renewed;
use types::{FileId, Version};

const VERSIONS_MAX: usize = 65_536;
#[derive(Default)]
pub struct VersionChain(Mutex<State>);

#[derive(Default)]
struct State {
    /// What is a version now follows nothing, so following comes to an end.
    next: HashMap<(FileId, Version), Successor>,
    oldest: VecDeque<(FileId, Version)>,
}

#[derive(Clone, Copy)]
struct Successor {
    now: CacheKey,
    changed: BytesChanged,
}

/// Whether the bytes are other ones since a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesChanged {
    No,
    Yes,
}

fn key_of(renewed: &Renewed, version: Version) -> CacheKey {
    CacheKey { file: renewed.id, version, size: renewed.size }
}

/// What is cached stays so.
pub async fn relabel(cache: &Arc<Cache>, renewed: &Renewed) {
    let (before, after) = (key_of(renewed, renewed.before), key_of(renewed, renewed.after));
    cache.rebase(before, after, Vec::new(), Vec::new()).await;
}

impl VersionChain {
    pub fn note(&self, before: (FileId, Version), now: CacheKey, changed: BytesChanged) {
        if before == (now.file, now.version) {
            return;
        }
        let mut state = self.lock();
        state.next.remove(&(now.file, now.version)); // it came again
        if state.next.insert(before, Successor { now, changed }).is_none() {
            state.oldest.push_back(before);
        }
        if state.oldest.len() > VERSIONS_MAX
            && let Some(oldest) = state.oldest.pop_front()
        {
            state.next.remove(&oldest);
        }
    }

    pub fn note_renewed(&self, renewed: &Renewed) {
        self.note((renewed.id, renewed.before), key_of(renewed, renewed.after), BytesChanged::No);
    }

    /// And what is cached stays so.
    pub async fn keep(&self, cache: &Arc<Cache>, renewed: &Renewed) {
        self.note_renewed(renewed);
        relabel(cache, renewed).await;
    }

    /// The last one, and what became of the bytes on the way; itself, if none is known.
    pub fn of(&self, key: CacheKey) -> (CacheKey, BytesChanged) {
        let mut state = self.lock();
        let (mut at, mut changed) = (key, BytesChanged::No);
        while let Some(next) = state.next.get(&(at.file, at.version)) {
            at = next.now;
            changed = if next.changed == BytesChanged::No { changed } else { BytesChanged::Yes };
        }
        // Who asks again is there in one step.
        if let Some(first) = state.next.get_mut(&(key.file, key.version)) {
            *first = Successor { now: at, changed };
        }
        (at, changed)
    }

    /// It is the version now.
    pub fn is_now(&self, key: &CacheKey) {
        self.lock().next.remove(&(key.file, key.version));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(version: u8) -> CacheKey {
        CacheKey { file: FileId([1; 16]), version: Version([version; 16]), size: 7 }
    }

    fn before(version: u8) -> (FileId, Version) {
        (key(version).file, key(version).version)
    }

    #[test]
    fn the_last_one_is_found_by_each_before_it() {
        let version_chain = VersionChain::default();
        for n in 1..200 {
            version_chain.note(before(n), key(n + 1), BytesChanged::No);
        }
        for n in 1..=200 {
            assert_eq!(version_chain.of(key(n)), (key(200), BytesChanged::No));
        }
        assert_eq!(version_chain.of(key(201)), (key(201), BytesChanged::No));
    }

    #[test]
    fn what_was_written_on_the_way_is_told() {
        let version_chain = VersionChain::default();
        for (n, since) in [(1, BytesChanged::No), (2, BytesChanged::Yes), (3, BytesChanged::No)] {
            version_chain.note(before(n), key(n + 1), since);
        }
        for _ in 0..2 {
            assert_eq!(version_chain.of(key(1)), (key(4), BytesChanged::Yes));
            assert_eq!(version_chain.of(key(3)), (key(4), BytesChanged::No));
        }
    }

    #[test]
    fn a_version_that_comes_again_is_the_last_one() {
        let version_chain = VersionChain::default();
        version_chain.note(before(1), key(2), BytesChanged::Yes);
        version_chain.note(before(2), key(1), BytesChanged::Yes);
        assert_eq!(version_chain.of(key(2)), (key(1), BytesChanged::Yes));
        assert_eq!(version_chain.of(key(1)), (key(1), BytesChanged::No));
        // By others' doing.
        version_chain.is_now(&key(2));
        assert_eq!(version_chain.of(key(2)), (key(2), BytesChanged::No));
        version_chain.note(before(3), key(3), BytesChanged::No);
        assert_eq!(version_chain.of(key(3)), (key(3), BytesChanged::No));
    }
}
