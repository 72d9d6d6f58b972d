//! Which cached files are open: each version once, so that it has one state; not more than a number at a time.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use types::{Error, FileId, Result, Version};

use crate::CacheKey;
use crate::file::CachedFile;
use crate::format;

/// The cached files that are open; the ones not used for longest are closed when there are too many.
pub struct OpenFiles {
    dir: PathBuf,
    max: usize,
    clock: AtomicU64,
    open: Mutex<OpenMap>,
}

/// With the time of the last use, by `OpenFiles::clock`.
type OpenMap = HashMap<(FileId, Version), (Arc<CachedFile>, u64)>;

impl OpenFiles {
    pub fn new(dir: PathBuf, max: usize) -> OpenFiles {
        OpenFiles { dir, max, clock: AtomicU64::new(0), open: Mutex::default() }
    }

    /// The file, created if need be.
    pub fn open(&self, key: &CacheKey) -> Result<Arc<CachedFile>> {
        self.get_or_open(key, true).map_err(|e| Error::io("open cache file", key.file, e))
    }

    /// The file if it is on disk.
    pub fn open_existing(&self, key: &CacheKey) -> Option<Arc<CachedFile>> {
        self.get_or_open(key, false).ok()
    }

    fn get_or_open(&self, key: &CacheKey, create: bool) -> std::io::Result<Arc<CachedFile>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (key.file, key.version);
        match open.get_mut(&id) {
            Some((file, used)) if file.key == *key => {
                *used = now;
                return Ok(file.clone());
            }
            // The same version with another size: no origin does that; do not mix the two.
            Some(_) => self.unlink_locked(&mut open, id),
            None => {}
        }
        // Opened under the lock, so that one version never has two states. A few system calls.
        let file = Arc::new(CachedFile::open(&self.dir, key, now, create)?);
        if open.len() >= self.max {
            self.close_oldest(&mut open);
        }
        open.insert(id, (file.clone(), now));
        Ok(file)
    }

    /// Close a quarter of those that nobody uses.
    fn close_oldest(&self, open: &mut OpenMap) {
        let mut idle: Vec<_> = open
            .iter()
            .filter(|(_, (file, _))| Arc::strong_count(file) == 1)
            .map(|(id, (_, used))| (*used, *id))
            .collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        for (_, id) in idle.into_iter().take(self.max / 4 + 1) {
            open.remove(&id);
        }
    }

    /// Take the files of a version off the disk and, before anybody can open them anew, do `then`. Those who have
    /// them open go on.
    pub fn unlink<T>(&self, file: FileId, version: Version, then: impl FnOnce() -> T) -> T {
        // Held open until the lock is free again: the last close of a large file takes long.
        let _large = File::open(self.path(file, version, "data"));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let _open = open.get(&(file, version)).map(|(file, _)| file.clone());
        self.unlink_locked(&mut open, (file, version));
        let done = then();
        drop(open);
        done
    }

    fn unlink_locked(&self, open: &mut OpenMap, id: (FileId, Version)) {
        if let Some((file, _)) = open.remove(&id) {
            file.doom();
        }
        for ending in ["map", "data"] {
            let path = self.path(id.0, id.1, ending);
            if let Err(e) = std::fs::remove_file(&path)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!("evict {}: {e}", path.display());
            }
        }
    }

    /// The pair of `old` under the key `new`, without the blocks `stale`, unless somebody uses it: then `None`. It must
    /// be on disk, and nothing under `new`. After an error it is under neither.
    pub fn relabel(
        &self,
        old: &CacheKey,
        new: &CacheKey,
        stale: &[Range<u64>],
    ) -> std::io::Result<Option<Arc<CachedFile>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let id = (old.file, old.version);
        let file = match open.remove(&id) {
            Some((file, used)) => match Arc::try_unwrap(file) {
                Ok(file) => file,
                Err(file) => {
                    open.insert(id, (file, used));
                    return Ok(None);
                }
            },
            None => CachedFile::open(&self.dir, old, now, false)?,
        };
        // Only the headers tell whose the files are: whatever lies between these steps is begun anew.
        let file = file.relabel(new, stale, now)?;
        for ending in ["map", "data"] {
            std::fs::rename(
                self.path(old.file, old.version, ending),
                self.path(new.file, new.version, ending),
            )?;
        }
        let file = Arc::new(file);
        open.insert((new.file, new.version), (file.clone(), now));
        Ok(Some(file))
    }

    fn path(&self, file: FileId, version: Version, ending: &str) -> PathBuf {
        self.dir.join(format::stem(file, version)).with_extension(ending)
    }

    /// A file on disk whose size only its map knows.
    pub fn open_whatever(&self, file: FileId, version: Version) -> Option<Arc<CachedFile>> {
        let map = File::open(self.path(file, version, "map")).ok()?;
        let mut header = [0; format::HEADER_BYTES as usize];
        map.read_exact_at(&mut header, 0).ok()?;
        let key = CacheKey { file, version, size: format::size_in(&header)? };
        format::label_in(&header, &key)?;
        self.open_existing(&key)
    }

    pub fn get_open(&self, file: FileId, version: Version) -> Option<Arc<CachedFile>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&(file, version)).map(|(file, _)| file.clone())
    }
}
