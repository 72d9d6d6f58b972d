//! Clean bytes on local disk, keyed by file *and version*; fetched once, checked before they are served.
//!
//! Nothing here knows of names, freshness, clients or dirty data. The kernel's page cache is the memory tier; user memory
//! holds only bytes in flight, under one budget.
//!
//! - [`Cache`]: all calls. `read.rs` answers reads, `rebase.rs` gives a file the name of its next version, `whole.rs` lends
//!   complete files, `pins.rs` keeps files for an operator
//! - `CachedFile` (`file.rs`): one version of one file on disk, with its map of blocks (`format.rs`); `open_files.rs`: those
//!   that are open; `file/reading.rs`: its bytes are read and checked; `verified.rs`: blocks whose checksum was checked;
//!   `file/pages.rs`: what the kernel has of one in memory; `folio_history.rs`: what former processes left there; `file/sent.rs`: what went to sockets a short while ago;
//!   [`Extent`]: a range of it that the kernel sends
//! - `fetch.rs`: a task for each missing part, which all that want it wait for (`fetch_in_flight.rs`); [`Source`]: where the
//!   bytes come from; `budgets.rs`: how many may be in flight
//! - `unread.rs`: what was fetched ahead of readers (the crate `readahead` says what) and never read
//! - `guests.rs`: bytes that another node is to keep; few of them stay, and they go first
//! - `DiskSpace` (`space.rs`): what is on disk, and what leaves it, in the order of `eviction.rs`; `recovery.rs`: what a start
//!   finds; `health.rs`: a disk that fails; `limits.rs`: how much may be kept
//! - `copying.rs`: what a node of a cluster needs to keep copies of what others hold, and to tell what it holds
//!
//! The way of a read: blocks that are here and verified are answered from disk; for the others a fetch is joined or begun,
//! which fills the file; then read-ahead is asked. No read fails because the disk takes nothing: its bytes pass through.
//!
//! Invariants: the version is in the key, so there is no "invalidate because it changed": a changed file is another key.
//! Data is written before its map entry. A block is checked against its checksum before it is first served after a start.
//! A pinned block is not evicted. Guests take no room from what is kept. Begin with `read.rs`.

mod block_bits;
mod budgets;
mod config;
mod copying;
mod disk_usage;
mod eviction;
mod extent;
mod fetch;
mod fetch_in_flight;
mod file;
mod folio_history;
mod format;
mod guests;
mod health;
mod limits;
mod metrics;
mod open_files;
mod pins;
mod private_files;
mod read;
mod rebase;
mod recovery;
mod space;
mod unread;
mod verified;
mod whole;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use readahead::Readers;
use tokio::sync::Semaphore;
use types::{ByteRange, Distance, FileId, Result, Supplier, Turn};

pub use config::{CACHE_SIZE_MIN, Config};
pub use copying::{BlockBits, HeldVersions};
pub use extent::{Extent, Lend, Piece};
pub use guests::STRIPE_BYTES;
pub use metrics::Metrics;
pub use pins::room_for;
pub use private_files::private_file;
pub use types::CacheKey;
pub use whole::WholeFile;

use budgets::FetchBudgets;
use config::{IN_FLIGHT_SHARE, READAHEAD_SHARE};
use folio_history::FolioHistory;
use health::DiskHealth;
use limits::CacheLimits;
use open_files::OpenFiles;
use space::DiskSpace;

/// Where missing bytes come from. `vfs` implements it by joining the namespace (which reference?) and the
/// origin (the bytes).
#[async_trait]
pub trait Source: Send + Sync {
    /// Exactly the bytes of `range` of the key's version; `VersionChanged` if that version is gone.
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes>;

    /// Most bytes that one `read` should ask for; a multiple of the block size.
    fn read_max(&self) -> u32;

    /// Whom `read` will ask for these bytes.
    fn supplier(&self, _key: &CacheKey, _range: ByteRange) -> Supplier {
        Supplier::Origin
    }

    /// Whether this node is to keep all of these bytes. The others are guests: see `guests.rs`.
    fn keeps(&self, _key: &CacheKey, _range: ByteRange) -> bool {
        true
    }

    /// Whether what follows is fetched, too. Who asks for another node leaves that to it.
    fn reads_ahead(&self) -> bool {
        true
    }

    /// How far the origin of this file is, as far as that is known: read-ahead is sized by it.
    fn distance(&self, _key: &CacheKey) -> Option<Distance> {
        None
    }

    /// Wait until the origin of this file has room for a read that nobody waits for.
    async fn turn(&self, _key: &CacheKey) -> Turn {
        Turn::default()
    }
}

/// What became of a [`Cache::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetched {
    /// It was here or on its way.
    Here,
    Started,
    /// Not now: no room in the budget, or the disk takes nothing.
    NoRoom,
}

/// How full the cache is, for `status`.
#[derive(Clone, Debug)]
pub struct Stats {
    pub bytes_used: u64,
    pub bytes_max: u64,
    pub files: u64,
    /// Of these bytes, those that are not evicted to make room.
    pub pinned_bytes: u64,
    /// Why nothing can be kept at the moment, if that is so.
    pub degraded: Option<String>,
}

pub struct Cache {
    config: Config,
    /// What of the configuration can be changed.
    limits: CacheLimits,
    files: OpenFiles,
    space: Mutex<DiskSpace>,
    /// Bytes that may be in flight.
    budgets: FetchBudgets,
    /// Of what is in flight, the half that warm-up may take, in KiB.
    warm_budget: Arc<Semaphore>,
    readers: Mutex<Readers>,
    opened: Instant,
    checks: whole::Checks,
    health: DiskHealth,
    unread: unread::Unread,
    guests: guests::Guests,
    metrics: Metrics,
    /// Wakes the reclaim worker.
    pressure: Arc<tokio::sync::Notify>,
    /// Held by the one who makes room.
    reclaiming: Mutex<()>,
    /// Held by the one who writes the list of what is pinned.
    pinning: Mutex<()>,
    /// All that was on disk at the start is on the books.
    counted: AtomicBool,
    /// The cache is being shut down.
    stopping: AtomicBool,
    workers: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    /// Held for as long as this tier uses the directory.
    _lock: Option<std::fs::File>,
}

impl Cache {
    /// Open or create the cache directory; needs a tokio runtime. What is on disk is served at once and counted
    /// in the background.
    pub fn open(mut config: Config) -> Result<Arc<Cache>> {
        config.validate()?;
        if !config.bypass {
            // What is in flight must find room on disk at the same time, beside what is in use.
            config.inflight_max = config.inflight_max.min(config.size_max / IN_FLIGHT_SHARE);
            // What nobody may ever read must not push out what was read.
            config.readahead_max = config.readahead_max.min(config.size_max / READAHEAD_SHARE);
        }
        let (lock, folios) = match config.bypass {
            true => (None, FolioHistory::none(config.folios())),
            false => {
                recovery::claim(&config.dir, config.folios()).map(|(lock, folios)| (Some(lock), folios))?
            }
        };
        let pins = if config.bypass { Default::default() } else { pins::load(&config.dir) };
        let cache = Arc::new(Cache {
            files: OpenFiles::new(config.dir.clone(), config.open_files_max / 2, folios),
            space: Mutex::new(DiskSpace::new(config.same_visit, pins)),
            budgets: FetchBudgets::new(config.inflight_max),
            warm_budget: Arc::new(Semaphore::new(
                usize::try_from(config.inflight_max / 2 / 1024).unwrap_or(usize::MAX >> 4),
            )),
            readers: Mutex::new(Readers::new(config.readahead_max)),
            opened: Instant::now(),
            checks: whole::Checks::default(),
            health: DiskHealth::default(),
            unread: unread::Unread::default(),
            guests: guests::Guests::default(),
            metrics: Metrics::default(),
            pressure: Arc::default(),
            reclaiming: Mutex::default(),
            pinning: Mutex::default(),
            counted: AtomicBool::new(config.bypass),
            stopping: AtomicBool::new(false),
            workers: Mutex::default(),
            _lock: lock,
            limits: CacheLimits::new(&config),
            config,
        });
        cache.tell_limits();
        if !cache.config.bypass {
            let workers = vec![recovery::start_scan(&cache), space::start_reclaimer(&cache)];
            *cache.workers.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = workers;
        }
        Ok(cache)
    }

    /// Some of this version is on disk, or may be soon.
    pub async fn has(self: &Arc<Self>, key: &CacheKey) -> bool {
        !self.config.bypass && self.open_existing(key).await.is_some()
    }

    /// Bytes of this version that are on disk.
    pub async fn cached_bytes(self: &Arc<Self>, key: &CacheKey) -> u64 {
        if self.config.bypass {
            return 0;
        }
        let (cache, key) = (self.clone(), *key);
        let count = move || cache.files.open_existing(&key).map_or(0, |file| file.present_bytes());
        tokio::task::spawn_blocking(count).await.unwrap_or(0) // the runtime is being shut down
    }

    /// Check these blocks again: bytes that left here did not pass where they arrived. Those that are bad here are dropped.
    pub async fn recheck(self: &Arc<Self>, key: &CacheKey, blocks: &[u64]) {
        if self.config.bypass {
            return;
        }
        let (cache, key, blocks) = (self.clone(), *key, blocks.to_vec());
        let check = move || {
            let Some(file) = cache.files.open_existing(&key) else { return };
            for block in blocks {
                match file.recheck(block) {
                    Ok(is_bad) => cache.note_corrupt(&file, u64::from(is_bad)),
                    Err(e) => cache.health.failed(format!("read {}: {e}", cache.config.dir.display())),
                }
            }
        };
        let _ = tokio::task::spawn_blocking(check).await; // the runtime is being shut down
    }

    /// Drop this version of a file; reads that are under way finish, and what is fetched of it now is not kept.
    pub async fn forget(self: &Arc<Self>, key: CacheKey) {
        let cache = self.clone();
        let done = tokio::task::spawn_blocking(move || cache.drop_file(key.file, key.version)).await;
        if let Err(e) = done {
            tracing::warn!("forget a version of a file: {e}");
        }
    }

    /// Drop all versions of a file, pinned or not; it is not pinned any more. Reads that are under way finish. Returns the bytes given back.
    pub fn evict_file(&self, file: FileId) -> u64 {
        // Before the count is through, the disk knows more than the books.
        if !self.counted.load(Ordering::Acquire) {
            recovery::count_versions(self, file);
        }
        let versions = {
            let mut space = self.space();
            space.unpin(file);
            space.versions_of(file)
        };
        versions.into_iter().map(|version| self.drop_file(file, version)).sum()
    }

    /// Farthest read-ahead of one reader in bytes; 0: nothing is fetched that nobody asked for.
    pub fn readahead_max(&self) -> u64 {
        if self.config.bypass { 0 } else { self.config.readahead_max }
    }

    /// Bytes that one reader of an origin at this distance should have ahead of it.
    pub fn ahead_of_one(&self, distance: Distance) -> u64 {
        readahead::window::share(distance, 1, self.readahead_max())
    }

    pub fn stats(&self) -> Stats {
        let space = self.space();
        Stats {
            bytes_used: space.bytes(),
            bytes_max: self.limits.size_max(),
            files: space.files(),
            pinned_bytes: space.pinned_bytes(),
            degraded: self.health.degraded(),
        }
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// All bytes that readers have got so far, from the disk and from the source; copies for other nodes are none of these.
    pub fn served_bytes(&self) -> u64 {
        self.metrics.hit_bytes.get().saturating_add(self.metrics.miss_bytes.get())
    }

    pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.metrics.register(registry);
    }

    /// Stop the workers. Nothing has to be written: all that is on disk is valid at any moment.
    pub async fn shutdown(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let workers =
            std::mem::take(&mut *self.workers.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for worker in workers {
            worker.abort();
            let _ = worker.await; // cancelled, as it should be
        }
    }

    fn space(&self) -> std::sync::MutexGuard<'_, DiskSpace> {
        self.space.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Milliseconds since the cache was opened.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
