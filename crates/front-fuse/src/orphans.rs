//! Orphans: open files that lost their last name. At an origin the object would be gone with the name; so it gets a
//! hidden name in the same directory until the last close, as NFS clients do it. What a killed process leaves is
//! found by `find -name '.forebay-*'`.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use types::{FileId, Name};

/// The prefix of hidden names.
pub const PREFIX: &str = ".forebay-";

/// How long a file that is closed already may be open here: the kernel tells of a close when it comes to it, and a process that was just
/// started has the open files of the one before until it runs its own program.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub dir: FileId,
    pub name: Name,
}

#[derive(Default)]
struct OrphanTable {
    /// Orphans that are open.
    open: HashMap<FileId, Orphan>,
    /// Orphans that are being removed after their last close.
    removing: HashMap<FileId, Orphan>,
}

#[derive(Default)]
pub struct Orphans {
    table: Mutex<OrphanTable>,
    /// Notified when one has been closed for the last time, or removed.
    news: Notify,
    names: std::hash::RandomState,
}

impl Orphans {
    /// A new hidden name: 64 random bits.
    pub fn new_name(&self) -> Name {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("{PREFIX}{:016x}", self.names.hash_one(number));
        Name::new(name).expect("short, and without a slash")
    }

    fn lock(&self) -> MutexGuard<'_, OrphanTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, file: FileId, orphan: Orphan) {
        self.lock().open.insert(file, orphan);
    }

    /// Hands an orphan to the caller for removal, after its last close; `end_removal` must follow.
    pub fn begin_removal(&self, file: FileId) -> Option<Orphan> {
        let mut table = self.lock();
        let orphan = table.open.remove(&file)?;
        table.removing.insert(file, orphan.clone());
        drop(table);
        self.news.notify_waiters();
        Some(orphan)
    }

    pub fn begin_all_removals(&self) -> Vec<(FileId, Orphan)> {
        let files: Vec<FileId> = self.lock().open.keys().copied().collect();
        files.into_iter().filter_map(|file| Some((file, self.begin_removal(file)?))).collect()
    }

    pub fn end_removal(&self, file: FileId) {
        self.lock().removing.remove(&file);
        self.news.notify_waiters();
    }

    pub fn contains(&self, file: FileId) -> bool {
        self.lock().open.contains_key(&file)
    }

    /// Whether a listing must leave this name out.
    pub fn hides(&self, file: FileId, name: &[u8]) -> bool {
        if !name.starts_with(PREFIX.as_bytes()) {
            return false;
        }
        let table = self.lock();
        let orphan = table.open.get(&file).or_else(|| table.removing.get(&file));
        orphan.is_some_and(|orphan| orphan.name.as_bytes() == name)
    }

    /// Waits until no orphan is being removed from `dir`. Open ones stay, but for those that are closed within [`CLOSE_PATIENCE`].
    pub async fn wait_until_removed_from(&self, dir: FileId) {
        let closed = self.wait_until(|table| !table.open.values().any(|orphan| orphan.dir == dir));
        let _ = tokio::time::timeout(CLOSE_PATIENCE, closed).await; // what is open after that stays
        self.wait_until(|table| !table.removing.values().any(|orphan| orphan.dir == dir)).await;
    }

    async fn wait_until(&self, holds: impl Fn(&OrphanTable) -> bool) {
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            news.as_mut().enable(); // before looking: none is missed
            if holds(&self.lock()) {
                return;
            }
            news.await;
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
        assert_eq!(orphans.begin_removal(file), Some(Orphan { dir, name: name.clone() }));
        assert_eq!(orphans.begin_removal(file), None, "one removes it");
        assert!(orphans.hides(file, name.as_bytes()) && !orphans.contains(file));
        orphans.end_removal(file);
        assert!(!orphans.hides(file, name.as_bytes()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_removes_the_directory_waits_for_those_that_leave_and_only_a_moment_for_the_open_ones() {
        let orphans = std::sync::Arc::new(Orphans::default());
        let dir = FileId([2; 16]);
        let [closed, open] = [1, 3].map(|file| FileId([file; 16]));
        for file in [closed, open] {
            orphans.add(file, Orphan { dir, name: orphans.new_name() });
        }
        let begun = tokio::time::Instant::now();
        orphans.begin_removal(closed).expect("kept");
        let waiting = tokio::spawn({
            let orphans = orphans.clone();
            async move { orphans.wait_until_removed_from(dir).await }
        });
        tokio::time::sleep(2 * CLOSE_PATIENCE).await;
        assert!(!waiting.is_finished(), "one is being removed");
        orphans.end_removal(closed);
        waiting.await.expect("it ends");
        assert_eq!(begun.elapsed(), 2 * CLOSE_PATIENCE, "the open one is not waited for any longer");

        let waiting = tokio::spawn({
            let orphans = orphans.clone();
            async move { orphans.wait_until_removed_from(dir).await }
        });
        tokio::task::yield_now().await;
        orphans.begin_removal(open).expect("kept");
        orphans.end_removal(open);
        waiting.await.expect("it ends");
        assert_eq!(begun.elapsed(), 2 * CLOSE_PATIENCE, "nor is one that is closed and gone");
    }
}
