//! Open files that lost their last name. At an origin the object goes with that name, and who has it open would lose
//! it; so it gets a hidden name in the same directory, as NFS clients do it, until the last close. What a killed
//! process leaves is found by `find -name '.forebay-*'`.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use types::{FileId, Name};

/// How every hidden name begins.
pub const PREFIX: &str = ".forebay-";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub dir: FileId,
    pub name: Name,
}

#[derive(Default)]
struct Table {
    /// Files that are open.
    kept: HashMap<FileId, Orphan>,
    /// Being removed since the last close.
    leaving: HashMap<FileId, Orphan>,
}

#[derive(Default)]
pub struct Orphans {
    table: Mutex<Table>,
    /// One of them is gone.
    gone: Notify,
    names: std::hash::RandomState,
}

impl Orphans {
    /// A name that nobody has: 64 random bits.
    pub fn new_name(&self) -> Name {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("{PREFIX}{:016x}", self.names.hash_one(number));
        Name::new(name).expect("short, and without a slash")
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, file: FileId, orphan: Orphan) {
        self.lock().kept.insert(file, orphan);
    }

    /// Nobody has it open any more: it is the caller's to remove, who says when it is `removed`.
    pub fn take(&self, file: FileId) -> Option<Orphan> {
        let mut table = self.lock();
        let orphan = table.kept.remove(&file)?;
        table.leaving.insert(file, orphan.clone());
        Some(orphan)
    }

    pub fn take_all(&self) -> Vec<(FileId, Orphan)> {
        let files: Vec<FileId> = self.lock().kept.keys().copied().collect();
        files.into_iter().filter_map(|file| Some((file, self.take(file)?))).collect()
    }

    pub fn removed(&self, file: FileId) {
        self.lock().leaving.remove(&file);
        self.gone.notify_waiters();
    }

    pub fn contains(&self, file: FileId) -> bool {
        self.lock().kept.contains_key(&file)
    }

    /// Not to be shown in a listing.
    pub fn hides(&self, file: FileId, name: &[u8]) -> bool {
        if !name.starts_with(PREFIX.as_bytes()) {
            return false;
        }
        let table = self.lock();
        let orphan = table.kept.get(&file).or_else(|| table.leaving.get(&file));
        orphan.is_some_and(|orphan| orphan.name.as_bytes() == name)
    }

    /// Returns when none is being removed from `dir`. Those that are open stay.
    pub async fn none_leaving(&self, dir: FileId) {
        loop {
            let mut gone = std::pin::pin!(self.gone.notified());
            gone.as_mut().enable(); // before looking: none is missed
            if !self.lock().leaving.values().any(|orphan| orphan.dir == dir) {
                return;
            }
            gone.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_differ_and_are_hidden_until_they_are_gone() {
        let orphans = Orphans::default();
        let (name, other) = (orphans.new_name(), orphans.new_name());
        assert_ne!(name, other);
        let (file, dir) = (FileId([1; 16]), FileId([2; 16]));
        orphans.add(file, Orphan { dir, name: name.clone() });
        assert!(orphans.contains(file) && orphans.hides(file, name.as_bytes()));
        assert!(!orphans.hides(file, b"file") && !orphans.hides(file, other.as_bytes()));
        assert_eq!(orphans.take(file), Some(Orphan { dir, name: name.clone() }));
        assert_eq!(orphans.take(file), None, "one removes it");
        assert!(orphans.hides(file, name.as_bytes()) && !orphans.contains(file));
        orphans.removed(file);
        assert!(!orphans.hides(file, name.as_bytes()));
    }

    #[tokio::test]
    async fn who_removes_the_directory_waits_for_those_that_leave_and_not_for_the_open_ones() {
        let orphans = std::sync::Arc::new(Orphans::default());
        let dir = FileId([2; 16]);
        for file in [1, 3] {
            orphans.add(FileId([file; 16]), Orphan { dir, name: orphans.new_name() });
        }
        orphans.none_leaving(dir).await;
        orphans.take(FileId([1; 16])).expect("kept");
        let waiting = tokio::spawn({
            let orphans = orphans.clone();
            async move { orphans.none_leaving(dir).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        orphans.removed(FileId([1; 16]));
        waiting.await.expect("it ends");
    }
}
