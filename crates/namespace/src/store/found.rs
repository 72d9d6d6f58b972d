//! Entries that were found in the database, so that a name that is looked up again and again costs no search there.
//!
//! Each directory has a sequence counter, as in a seqlock, which it shares with a few others: even while no commit changes
//! its names, odd while one does. An entry that was read under one even value is good for as long as the value lasts. So
//! readers see what the last commit left, as they would in the database, whatever they and the committer do at the same
//! time.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::Equivalent;
use quick_cache::sync::Cache;
use types::FileId;

use super::StoredEntry;

/// The most entries. That many take 21 MiB with names of 26 bytes (resident, measured).
const ENTRIES_MAX: usize = 1 << 16;
const COUNTERS: usize = 1 << 12;

/// The value of a directory's counter before a look. `None`: a commit is changing it, and what is read may be outdated at
/// once.
pub type DirSequence = Option<u64>;

pub struct FoundEntries {
    entries: Cache<(FileId, Bytes), (u64, StoredEntry)>,
    turns: Box<[AtomicU64]>,
}

#[derive(Hash)]
struct EntryKey<'a>(FileId, &'a [u8]);

impl Equivalent<(FileId, Bytes)> for EntryKey<'_> {
    fn equivalent(&self, (dir, name): &(FileId, Bytes)) -> bool {
        self.0 == *dir && self.1 == name
    }
}

/// Directories that a commit changes, until this is dropped.
pub struct Changing<'a>(Vec<&'a AtomicU64>);

impl Default for FoundEntries {
    fn default() -> FoundEntries {
        let turns = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        FoundEntries { entries: Cache::new(ENTRIES_MAX), turns }
    }
}

impl FoundEntries {
    /// The counter's value, taken before the entry is looked for here or in the database.
    pub fn turn(&self, dir: FileId) -> DirSequence {
        let turn = self.turns[counter_of(dir)].load(Ordering::SeqCst);
        turn.is_multiple_of(2).then_some(turn)
    }

    pub fn get(&self, turn: DirSequence, dir: FileId, name: &[u8]) -> Option<StoredEntry> {
        let turn = turn?;
        self.entries.get(&EntryKey(dir, name)).filter(|found| found.0 == turn).map(|found| found.1)
    }

    /// Keeps an entry that was read from the database after `turn` was taken.
    pub fn keep(&self, turn: DirSequence, dir: FileId, entry: &StoredEntry) {
        if let Some(turn) = turn {
            self.entries.insert((dir, entry.name.clone()), (turn, entry.clone()));
        }
    }

    /// Marks these directories as being changed, before a commit. One commit runs at a time.
    pub fn change(&self, dirs: impl Iterator<Item = FileId>) -> Changing<'_> {
        let mut counters: Vec<usize> = dirs.map(counter_of).collect();
        counters.sort_unstable();
        counters.dedup();
        let turns: Vec<_> = counters.into_iter().map(|counter| &self.turns[counter]).collect();
        for turn in &turns {
            turn.fetch_add(1, Ordering::SeqCst);
        }
        Changing(turns)
    }

    /// Invalidates all entries.
    pub fn forget(&self) {
        for turn in &self.turns {
            turn.fetch_add(2, Ordering::SeqCst);
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        for turn in &self.0 {
            turn.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The counter of a directory: ids are hashes.
fn counter_of(dir: FileId) -> usize {
    usize::from(u16::from_le_bytes([dir.0[0], dir.0[1]])) % COUNTERS
}

#[cfg(test)]
mod tests {
    use super::super::{Store, StoreChange};
    use super::*;

    const DIR: FileId = FileId([1; 16]);
    const OTHER: FileId = FileId([2; 16]);

    fn entry(name: &'static [u8], child: u8) -> StoredEntry {
        StoredEntry { cookie: 16, name: Bytes::from_static(name), child: Some(FileId([child; 16])) }
    }

    #[test]
    fn what_was_found_is_good_until_a_commit_changes_its_directory() {
        let found = FoundEntries::default();
        for dir in [DIR, OTHER] {
            found.keep(found.turn(dir), dir, &entry(b"a", 7));
        }
        let get = |dir| found.get(found.turn(dir), dir, b"a");
        assert_eq!((get(DIR), get(OTHER)), (Some(entry(b"a", 7)), Some(entry(b"a", 7))));
        assert_eq!(found.get(found.turn(DIR), DIR, b"b"), None);
        let before = found.turn(DIR);
        let changing = found.change([DIR, DIR].into_iter());
        assert_eq!((found.turn(DIR), get(DIR)), (None, None), "nobody knows which it is");
        found.keep(found.turn(DIR), DIR, &entry(b"a", 8));
        drop(changing);
        assert_eq!((get(DIR), get(OTHER)), (None, Some(entry(b"a", 7))));
        // Read before the commit, by somebody who was slow.
        found.keep(before, DIR, &entry(b"a", 7));
        assert_eq!(get(DIR), None);
        found.keep(found.turn(DIR), DIR, &entry(b"a", 9));
        assert_eq!(get(DIR), Some(entry(b"a", 9)));
        found.forget();
        assert_eq!((get(DIR), get(OTHER)), (None, None));
    }

    /// Each commit gives the name to the next child; what is acknowledged is what readers see, or something newer.
    #[test]
    fn readers_beside_the_committer_see_what_was_acknowledged() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), 1 << 20).expect("opened");
        let acknowledged = AtomicU64::new(0);
        let child_of = |number: u64| FileId(u128::from(number + 1).to_be_bytes());
        let read = || {
            let at_least = acknowledged.load(Ordering::SeqCst);
            let entry = store.find_entry(DIR, b"name").expect("read");
            let child = entry.and_then(|entry| entry.child).map_or(0, |id| u128::from_be_bytes(id.0) - 1);
            assert!(child >= u128::from(at_least), "{child} after {at_least} was acknowledged");
            at_least
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| while read() < 200 {});
            }
            for number in 1..=200 {
                let name = Bytes::from_static(b"name");
                let put = StoreChange::PutEntry { dir: DIR, name, child: Some(child_of(number)) };
                run(store.commit(vec![put])).expect("committed");
                acknowledged.store(number, Ordering::SeqCst);
            }
        });
        store.close();
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(future)
    }
}
