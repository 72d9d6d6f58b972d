//! How much is kept, and who must go when it is too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::{FileId, Version};

use crate::Cache;
use crate::eviction::{Policy, Sieve};

/// The worker begins to make room above this share of the quota, and goes on until a little below it, so that
/// fills seldom have to.
const HIGH_WATER_PERCENT: u64 = 95;
const LOW_WATER_PERCENT: u64 = 92;
/// A file above this share of the quota loses ranges instead of leaving as a whole.
const GIANT_SHARE: u64 = 8;
/// Bytes punched out of a giant file at a time.
const PUNCH: u64 = 16 << 20;
/// Free space of the file system is looked at this often.
const FREE_CHECK: Duration = Duration::from_secs(1);
/// Victims tried in a row before a fill gives up.
const VICTIMS_MAX: usize = 4096;

type Id = (FileId, Version);

/// The books: what is on disk, in which order it leaves.
pub struct Space {
    files: HashMap<Id, Kept>,
    versions: HashMap<FileId, Vec<Version>>,
    order: Sieve<Id>,
    bytes: u64,
    same_visit: Duration,
    /// Room in the file system, as last looked at.
    pub free: u64,
}

struct Kept {
    bytes: u64,
    touched: Instant,
}

impl Space {
    pub fn new(same_visit: Duration) -> Space {
        Space {
            files: HashMap::new(),
            versions: HashMap::new(),
            order: Sieve::new(),
            bytes: 0,
            same_visit,
            free: u64::MAX,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    pub fn versions_of(&self, file: FileId) -> Vec<Version> {
        self.versions.get(&file).cloned().unwrap_or_default()
    }

    pub fn knows(&self, file: FileId, version: Version) -> bool {
        self.files.contains_key(&(file, version))
    }

    /// `bytes` more are on disk. Returns the versions of the same file that were there before another one came.
    pub fn add(&mut self, file: FileId, version: Version, bytes: u64) -> Vec<Version> {
        let id = (file, version);
        self.bytes += bytes;
        self.free = self.free.saturating_sub(bytes);
        if let Some(kept) = self.files.get_mut(&id) {
            kept.bytes += bytes;
            return Vec::new();
        }
        self.files.insert(id, Kept { bytes, touched: Instant::now() });
        self.order.insert(id);
        let versions = self.versions.entry(file).or_default();
        let outdated = versions.clone();
        versions.push(version);
        outdated
    }

    /// Found on disk at start, where several versions may be left over.
    pub fn found(&mut self, file: FileId, version: Version, bytes: u64) {
        if !self.knows(file, version) {
            self.add(file, version, bytes);
        }
    }

    pub fn touch(&mut self, file: FileId, version: Version) {
        let now = Instant::now();
        if let Some(kept) = self.files.get_mut(&(file, version)) {
            if now.duration_since(kept.touched) >= self.same_visit {
                self.order.visit(&(file, version));
            }
            kept.touched = now;
        }
    }

    /// Off the books; the bytes it had.
    pub fn remove(&mut self, file: FileId, version: Version) -> u64 {
        let Some(kept) = self.files.remove(&(file, version)) else { return 0 };
        self.order.remove(&(file, version));
        if let Some(versions) = self.versions.get_mut(&file) {
            versions.retain(|v| *v != version);
            if versions.is_empty() {
                self.versions.remove(&file);
            }
        }
        self.give_back(kept.bytes);
        kept.bytes
    }

    fn shrink(&mut self, id: Id, bytes: u64) {
        if let Some(kept) = self.files.get_mut(&id) {
            kept.bytes = kept.bytes.saturating_sub(bytes);
        }
        self.give_back(bytes);
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.free = self.free.saturating_add(bytes);
    }

    fn victim(&mut self) -> Option<(Id, u64)> {
        let id = self.order.candidate()?;
        Some((id, self.files.get(&id).map_or(0, |kept| kept.bytes)))
    }
}

impl Cache {
    /// Room for `length` more bytes, evicting now if the worker has fallen behind.
    pub(crate) fn make_room(&self, length: u64) -> Result<(), String> {
        if self.excess(length, 100) > 0 {
            self.reclaim(self.excess(length, 100));
        }
        self.pressure.notify_one();
        match self.excess(length, 100) {
            0 => Ok(()),
            _ => Err(format!("no room in {}", self.config.dir.display())),
        }
    }

    /// Bytes by which `length` more would exceed `percent` of the quota, or go below the free floor.
    fn excess(&self, length: u64, percent: u64) -> u64 {
        let space = self.space();
        let quota = self.config.size_max / 100 * percent;
        let over_quota = (space.bytes + length).saturating_sub(quota);
        let below_floor = (self.config.free_floor + length).saturating_sub(space.free);
        over_quota.max(below_floor)
    }

    /// Evict until about `wanted` bytes are given back, or nothing is left that may go.
    pub(crate) fn reclaim(&self, wanted: u64) {
        let mut freed = 0;
        for _ in 0..VICTIMS_MAX {
            if freed >= wanted {
                break;
            }
            let Some(((file, version), bytes)) = self.space().victim() else { break };
            freed += if bytes > self.config.size_max / GIANT_SHARE {
                self.punch(file, version, (wanted - freed).max(PUNCH))
            } else {
                self.drop_file(file, version)
            };
        }
        self.note_used();
    }

    fn punch(&self, file: FileId, version: Version, wanted: u64) -> u64 {
        let Some(open) = self.files.get_open(file, version) else {
            return self.drop_file(file, version); // nobody reads it: it can go as a whole
        };
        match open.punch(wanted) {
            Ok(freed) => {
                self.space().shrink((file, version), freed);
                self.metrics.evicted_bytes.inc_by(freed);
                freed
            }
            Err(e) => {
                tracing::warn!("punch holes into a cache file: {e}");
                self.drop_file(file, version)
            }
        }
    }

    /// Unlink a version; reads that are under way finish. Returns the bytes given back.
    pub(crate) fn drop_file(&self, file: FileId, version: Version) -> u64 {
        self.files.unlink(file, version);
        let bytes = self.space().remove(file, version);
        self.metrics.evicted_bytes.inc_by(bytes);
        self.note_used();
        bytes
    }

    pub(crate) fn note_used(&self) {
        self.metrics.used_bytes.set(i64::try_from(self.space().bytes).unwrap_or(i64::MAX));
    }

    fn look_at_free_space(&self) {
        if let Ok(stat) = rustix::fs::statvfs(&self.config.dir) {
            self.space().free = stat.f_bavail.saturating_mul(stat.f_frsize);
        }
    }
}

/// Keeps some room ahead of the fills, and an eye on the file system that others fill too.
pub fn start_reclaimer(cache: &Arc<Cache>) -> tokio::task::JoinHandle<()> {
    cache.look_at_free_space();
    let cache = Arc::downgrade(cache);
    tokio::spawn(async move {
        loop {
            let Some(held) = cache.upgrade() else { return };
            let work = tokio::task::spawn_blocking(move || {
                held.look_at_free_space();
                if held.excess(0, HIGH_WATER_PERCENT) > 0 {
                    held.reclaim(held.excess(0, LOW_WATER_PERCENT));
                }
                held
            });
            let Ok(held) = work.await else { return };
            let _ = tokio::time::timeout(FREE_CHECK, held.pressure.notified()).await;
            drop(held);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}
