//! Which cached files are open: each version once, so that it has one state; not more than a number at a time.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use types::{BLOCK_SIZE, Error, FileId, Result, Version};

use crate::CacheKey;
use crate::file::CachedFile;
use crate::file::sent::ClosedSentFiles;
use crate::folio_history::FolioHistory;
use crate::format;

/// Locks on the pairs of files on disk, more than threads wait for the disk at a time. Two versions share one seldom.
const PAIR_LOCKS: usize = 1024;
/// Files whose pages in the kernel's memory something is known of.
const IDS_MAX: usize = 1 << 18;
/// The kernel has written what was changed so long ago.
const WRITTEN_AFTER: Duration = Duration::from_secs(60);

/// The cached files that are open; the ones not used for longest are closed when there are too many.
///
/// No system call is made under the lock of the map: a disk that hangs while one file is opened holds up those who want
/// that file. Whatever happens to the pair of a version on disk (it is opened, unlinked, given another name) happens
/// under the lock of this pair, so a version never has two states. A pair's lock comes before the map's.
pub struct OpenFiles {
    dir: PathBuf,
    max: usize,
    folios: Arc<FolioHistory>,
    clock: AtomicU64,
    open: Mutex<OpenMap>,
    begun: SystemTime,
    /// Files that the kernel reads by itself, and that are closed: see `CachedFile::has_kernel_reads`.
    kernel_read: Mutex<IdSet>,
    /// Files that are closed, and of which sockets may hold pages.
    sent: Mutex<ClosedSentFiles>,
    /// Files of former processes whose pages were taken out of the kernel's memory.
    forgotten: Mutex<IdSet>,
    pairs: Box<[Mutex<()>]>,
}

/// Versions of files, so many at most.
#[derive(Default)]
struct IdSet {
    ids: HashSet<(FileId, Version)>,
    /// There were more than are remembered: each may be one.
    is_full: bool,
}

impl IdSet {
    fn note(&mut self, id: (FileId, Version), what: &str) {
        if self.ids.len() < IDS_MAX {
            self.ids.insert(id);
        } else if !std::mem::replace(&mut self.is_full, true) {
            tracing::info!(
                "more than {IDS_MAX} cached files {what}; until a restart files are evicted whole"
            );
        }
    }
}

/// What came of giving a pair of files another key.
pub enum Relabelled {
    Done(Arc<CachedFile>),
    InUse,
    /// And will be for longer than anybody waits.
    InSockets,
}

/// With the time of the last use, by `OpenFiles::clock`.
type OpenMap = HashMap<(FileId, Version), (Arc<CachedFile>, u64)>;

impl OpenFiles {
    pub fn new(dir: PathBuf, max: usize, folios: FolioHistory) -> OpenFiles {
        let pairs = (0..PAIR_LOCKS).map(|_| Mutex::default()).collect();
        let (clock, begun) = (AtomicU64::new(0), SystemTime::now());
        let folios = Arc::new(folios);
        let (open, kernel_read, sent, forgotten) = Default::default();
        OpenFiles { dir, max, folios, clock, open, begun, kernel_read, sent, forgotten, pairs }
    }

    fn map(&self) -> MutexGuard<'_, OpenMap> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pair(&self, number: usize) -> MutexGuard<'_, ()> {
        self.pairs[number].lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(file) = self.use_open(key) {
            return Ok(file);
        }
        let id = (key.file, key.version);
        let _pair = self.pair(pair_of(id));
        if let Some(file) = self.use_open(key) {
            return Ok(file);
        }
        // The same version with another size: no origin does that; do not mix the two.
        let other = self.map().contains_key(&id);
        if other && !create {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        if other {
            drop(self.unlink_pair(id));
        }
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(self.open_pair(key, now, create)?);
        let _closed = {
            let mut open = self.map();
            let closed = if open.len() >= self.max { self.take_oldest(&mut open) } else { Vec::new() };
            open.insert(id, (file.clone(), now));
            closed
        };
        Ok(file)
    }

    fn open_pair(&self, key: &CacheKey, now: u64, create: bool) -> std::io::Result<CachedFile> {
        let file = CachedFile::open(&self.dir, key, now, create, self.folios.rule())?;
        if file.has_kernel_reads() {
            self.folios.note_any_size(); // it would not be told how to read the file
        }
        let id = (key.file, key.version);
        let known = lock(&self.kernel_read);
        if known.is_full || known.ids.contains(&id) {
            file.note_kernel_reads();
        }
        drop(known);
        file.restore_sent(lock(&self.sent).until(id));
        self.forget_former(&file, id);
        Ok(file)
    }

    /// What a former process left of the file in the kernel's memory may be in folios of many blocks.
    fn forget_former(&self, file: &CachedFile, id: (FileId, Version)) {
        let changed = file.changed().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_former = self.folios.forgets_former() && file.key.size > BLOCK_SIZE && changed < self.begun;
        if !is_former || lock(&self.forgotten).ids.contains(&id) {
            return;
        }
        let is_written = self.begun.duration_since(changed).is_ok_and(|age| age > WRITTEN_AFTER);
        if let Err(e) = file.forget_pages(is_written) {
            tracing::debug!(file = %id.0, "forget the pages of a cached file: {e}");
            file.note_kernel_reads();
        }
        let mut forgotten = lock(&self.forgotten);
        forgotten.note(id, "of former processes were opened");
        if forgotten.is_full && !forgotten.ids.contains(&id) {
            file.note_kernel_reads();
        }
    }

    pub fn folios(&self) -> &Arc<FolioHistory> {
        &self.folios
    }

    /// The file if it is open.
    pub fn use_open(&self, key: &CacheKey) -> Option<Arc<CachedFile>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut open = self.map();
        let (file, used) = open.get_mut(&(key.file, key.version)).filter(|(file, _)| file.key == *key)?;
        *used = now;
        Some(file.clone())
    }

    /// A quarter of those that nobody uses, to be closed.
    fn take_oldest(&self, open: &mut OpenMap) -> Vec<Arc<CachedFile>> {
        let mut idle: Vec<_> = open
            .iter()
            .filter(|(_, (file, _))| Arc::strong_count(file) == 1)
            .map(|(id, (_, used))| (*used, *id))
            .collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        let oldest = idle.into_iter().take(self.max / 4 + 1);
        let closed: Vec<_> = oldest.filter_map(|(_, id)| open.remove(&id)).map(|(file, _)| file).collect();
        let mut known = lock(&self.kernel_read);
        for file in closed.iter().filter(|file| file.has_kernel_reads()) {
            known.note((file.key.file, file.key.version), "were read by the kernel itself");
        }
        drop(known);
        let (mut sent, now) = (lock(&self.sent), Instant::now());
        closed.iter().for_each(|file| file.note_sent_in(&mut sent, now));
        drop(sent);
        closed
    }

    /// Take the files of a version off the disk and, before anybody can open them anew, do `then`. Those who have
    /// them open go on.
    pub fn unlink<T>(&self, file: FileId, version: Version, then: impl FnOnce() -> T) -> T {
        let id = (file, version);
        // Held open until the lock is free again: the last close of a large file takes long.
        let _large = File::open(self.path(file, version, "data"));
        let pair = self.pair(pair_of(id));
        let _open = self.unlink_pair(id);
        let done = then();
        drop(pair);
        done
    }

    /// The caller has the lock of the pair. Returns the file if it was open.
    fn unlink_pair(&self, id: (FileId, Version)) -> Option<Arc<CachedFile>> {
        let was_open = self.map().remove(&id).map(|(file, _)| file);
        lock(&self.kernel_read).ids.remove(&id);
        lock(&self.forgotten).ids.remove(&id);
        lock(&self.sent).forget(id);
        if let Some(file) = &was_open {
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
        was_open
    }

    /// The pair of `old` under the key `new`, without the blocks `stale`, unless somebody uses it or sockets hold what is stale: then
    /// it is refused. It must be on disk, and nothing under `new`. After an error it is under neither.
    pub fn relabel(
        &self,
        old: &CacheKey,
        new: &CacheKey,
        stale: &[Range<u64>],
    ) -> std::io::Result<Relabelled> {
        let (from, to) = ((old.file, old.version), (new.file, new.version));
        // Both pairs, in the order of their locks.
        let mut locks = vec![pair_of(from), pair_of(to)];
        locks.sort_unstable();
        locks.dedup();
        let _pairs: Vec<_> = locks.into_iter().map(|number| self.pair(number)).collect();
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let was_open = {
            let mut open = self.map();
            // Others come by it through this map only.
            let is_in_use = |file: &Arc<CachedFile>| Arc::strong_count(file) > 1 || file.has_kernel_reads();
            if open.get(&from).is_some_and(|(file, _)| is_in_use(file)) {
                return Ok(Relabelled::InUse);
            }
            open.remove(&from).and_then(|(file, _)| Arc::into_inner(file))
        };
        let mut file = match was_open {
            Some(file) => file,
            None => self.open_pair(old, now, false)?,
        };
        if file.has_kernel_reads() {
            return Ok(Relabelled::InUse);
        }
        if !file.detach_sent(stale, new.size)? {
            self.map().insert(from, (Arc::new(file), now));
            return Ok(Relabelled::InSockets);
        }
        // Only the headers tell whose the files are: whatever lies between these steps is begun anew.
        let file = file.relabel(new, stale, now)?;
        for ending in ["map", "data"] {
            std::fs::rename(
                self.path(old.file, old.version, ending),
                self.path(new.file, new.version, ending),
            )?;
        }
        let file = Arc::new(file);
        self.map().insert(to, (file.clone(), now));
        Ok(Relabelled::Done(file))
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
        self.map().get(&(file, version)).map(|(file, _)| file.clone())
    }
}

fn lock<T>(set: &Mutex<T>) -> MutexGuard<'_, T> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the lock of this version's pair. Ids and versions are hashes, but for a version that is the file's id with
/// other first bytes, which stands for what is not at the origin yet: so other bytes are taken of the id.
fn pair_of((file, version): (FileId, Version)) -> usize {
    let half = |bytes: [u8; 16], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    (half(file.0, 8) ^ half(version.0, 0)) % PAIR_LOCKS
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use async_trait::async_trait;
    use bytes::Bytes;
    use types::ByteRange;

    use super::*;
    use crate::file::pages::FolioRule;
    use crate::{Cache, Config, Lend, Source};

    struct Zeros;

    #[async_trait]
    impl Source for Zeros {
        async fn read(&self, _key: &CacheKey, range: ByteRange) -> Result<Bytes> {
            Ok(Bytes::from(vec![0; range.length as usize]))
        }

        fn read_max(&self) -> u32 {
            1 << 20
        }
    }

    fn key(number: u8) -> CacheKey {
        CacheKey { file: FileId([number; 16]), version: Version([0; 16]), size: 100 }
    }

    /// As a process finds it after `said` was said by the former one.
    fn history(dir: &Path, said: &str, is_new: bool) -> FolioHistory {
        std::fs::write(dir.join("LOCK"), said).expect("written");
        FolioHistory::begin(&dir.join("LOCK"), FolioRule::OneBlock, is_new)
    }

    #[test]
    fn what_a_former_process_left_in_memory_is_not_sent_unless_its_folios_had_one_block() {
        let dir = tempfile::tempdir().expect("a directory");
        let key = CacheKey { size: 4 * BLOCK_SIZE, ..key(1) };
        let former = CachedFile::open(dir.path(), &key, 0, true, FolioRule::OneBlock).expect("made");
        former.fill(0..4, &vec![7; 4 * BLOCK_SIZE as usize]).expect("filled");
        let whole = ByteRange::new(0, key.size);
        assert!(former.is_resident(whole));
        // The kernel's timestamps are as coarse as its ticks.
        std::thread::sleep(Duration::from_millis(20));
        let open = |history| {
            let files = OpenFiles::new(dir.path().to_owned(), 9, history);
            files.open_existing(&key).expect("it is there")
        };
        let file = open(history(dir.path(), "folios: one block\n", false));
        assert!(file.is_resident(whole), "all of them had one block, so what they left stays");
        let file = open(history(dir.path(), "", false));
        assert!(!file.is_resident(whole));
        assert!(file.read_block(2).is_some_and(|block| block == vec![7; BLOCK_SIZE as usize]));
    }

    #[test]
    fn a_file_that_the_kernel_reads_is_known_as_such_when_it_is_opened_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = OpenFiles::new(dir.path().to_owned(), 1, history(dir.path(), "", true));
        files.open(&key(1)).expect("made").note_kernel_reads();
        for number in 2..5 {
            assert!(!files.open(&key(number)).expect("made").has_kernel_reads());
        }
        assert!(files.get_open(key(1).file, key(1).version).is_none(), "it was closed for the others");
        assert!(files.open(&key(1)).expect("made").has_kernel_reads());
    }

    #[test]
    fn a_file_whose_opening_hangs_holds_up_neither_other_files_nor_the_runtime() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Config { dir: dir.path().to_owned(), ..Config::default() };
        // One thread: a task that waits for the disk on it would be noticed.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let cache = Cache::open(config).expect("opened");
            let source: Arc<dyn Source> = Arc::new(Zeros);
            let read = |key: CacheKey| {
                let (cache, source) = (cache.clone(), source.clone());
                async move { cache.read(&key, ByteRange::new(0, 100), &source, Lend::Nothing).await }
            };
            let (hang, go_on) = std::sync::mpsc::sync_channel::<()>(1);
            let (begin, begun) = tokio::sync::oneshot::channel();
            let held = std::thread::spawn({
                let cache = cache.clone();
                move || {
                    let _pair = cache.files.pair(pair_of((key(1).file, key(1).version)));
                    let _ = begin.send(());
                    go_on.recv()
                }
            });
            begun.await.expect("the lock is held");
            let mut hanging = tokio::spawn(read(key(1)));
            assert!(tokio::time::timeout(Duration::from_millis(100), &mut hanging).await.is_err());
            let patience = Duration::from_secs(20);
            let other = tokio::time::timeout(patience, read(key(2))).await.expect("it does not wait");
            assert_eq!(other.expect("read").len(), 1);
            cache.forget(key(2)).await;
            assert!(!cache.has(&key(2)).await);
            hang.send(()).expect("told to go on");
            assert_eq!(hanging.await.expect("no panic").expect("read").len(), 1);
            held.join().expect("no panic").expect("told");
        });
    }
}
