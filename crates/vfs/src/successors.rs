//! Which version of a file follows which by our own doing, with the same bytes: who has it open under the old one goes on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use cache::{Cache, CacheKey};
use namespace::Renewed;
use types::{FileId, Version};

const VERSIONS_MAX: usize = 65_536;
/// Versions that one is followed over.
const STEPS_MAX: usize = 64;

#[derive(Default)]
pub struct Successors(Mutex<State>);

#[derive(Default)]
struct State {
    next: HashMap<(FileId, Version), CacheKey>,
    oldest: VecDeque<(FileId, Version)>,
}

impl Successors {
    pub fn note(&self, before: (FileId, Version), now: CacheKey) {
        if before == (now.file, now.version) {
            return;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next.insert(before, now).is_none() {
            state.oldest.push_back(before);
        }
        if state.oldest.len() > VERSIONS_MAX
            && let Some(oldest) = state.oldest.pop_front()
        {
            state.next.remove(&oldest);
        }
    }

    /// And what is cached stays so.
    pub async fn keep(&self, cache: &Arc<Cache>, renewed: &Renewed) {
        let key = |version| CacheKey { file: renewed.id, version, size: renewed.size };
        self.note((renewed.id, renewed.before), key(renewed.after));
        cache.succeed(key(renewed.before), key(renewed.after), Vec::new(), Vec::new()).await;
    }

    /// Itself, if none is known.
    pub fn of(&self, key: CacheKey) -> CacheKey {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let follow = |at: &CacheKey| state.next.get(&(at.file, at.version)).copied();
        std::iter::successors(Some(key), follow).take(STEPS_MAX).last().unwrap_or(key)
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
        let successors = Successors::default();
        for n in 1..5 {
            successors.note(before(n), key(n + 1));
        }
        for n in 1..=5 {
            assert_eq!(successors.of(key(n)), key(5));
        }
        assert_eq!(successors.of(key(6)), key(6));
    }

    #[test]
    fn versions_that_come_again_are_followed_to_an_end() {
        let successors = Successors::default();
        successors.note(before(1), key(2));
        successors.note(before(2), key(1));
        successors.note(before(3), key(3));
        successors.of(key(1));
        assert_eq!(successors.of(key(3)), key(3));
    }
}
