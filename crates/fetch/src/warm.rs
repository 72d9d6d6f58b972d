//! Warm-up: names and attributes of whole trees, and bytes if wanted, before anybody asks for them.
//!
//! A first walk counts what there is, which is all that is to be done for metadata. A second one, over names that are
//! known by then, brings the bytes, if they fit: what would push itself out again is not begun. Nothing is kept of the walks, so a tree may be of any size, and what is here is not
//! fetched again, so a warm-up that was ended goes on where it was.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use cache::{Cache, Source};
use namespace::{Found, Namespace};
use tokio::task::JoinSet;
use tracing::warn;
use types::{Distance, Error, ErrorKind, Result};

use crate::{DirtyFiles, OriginSource, TreeWalk, key_of};

/// Files warmed at the same time: enough to hide the distance for small files; large ones are parallel inside.
const TOGETHER: usize = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmMode {
    /// Names and attributes.
    Metadata,
    /// These, and all bytes of files.
    #[default]
    Data,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmOrder {
    pub mode: WarmMode,
    /// The files stay: nothing of them is evicted to make room, until an operator evicts them.
    pub pin: bool,
}

impl From<WarmMode> for WarmOrder {
    fn from(mode: WarmMode) -> WarmOrder {
        WarmOrder { mode, pin: false }
    }
}

/// Counters of a running or finished warm-up; shared, so that a front can show progress.
#[derive(Debug, Default)]
pub struct WarmProgress {
    /// What the walk has found.
    pub directories: AtomicU64,
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    /// Of these bytes, on the cache disk before.
    pub bytes_here: AtomicU64,
    /// What all of it takes on the cache disk, without what is pinned there already.
    pub needed: AtomicU64,
    /// What is there for it; told with `counted`.
    pub room: AtomicU64,
    /// The walk is over: what it has found is all.
    pub counted: AtomicBool,
    /// Bytes per second that the origin gives, as far as it was seen busy; 0 before.
    pub rate: AtomicU64,
    /// What is done: files, and their bytes as they come, fetched or already there.
    pub files_done: AtomicU64,
    pub bytes_done: AtomicU64,
    pub bytes_fetched: AtomicU64,
    pub errors: AtomicU64,
    last_error: Mutex<Option<String>>,
    stop: AtomicBool,
}

impl WarmProgress {
    /// For a person to read.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begin nothing more; what is under way is given up.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// All that was found can be here at the same time; known with `counted`.
    pub fn fits(&self) -> bool {
        self.needed.load(Relaxed) <= self.room.load(Relaxed)
    }

    fn failed(&self, error: &Error) {
        warn!("warm: {error}");
        self.errors.fetch_add(1, Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    /// What failed on the way to count fails again on the way to fetch, or is no failure.
    fn forget_failures(&self) {
        self.errors.store(0, Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Fetches trees on the operator's order.
pub struct Warmer {
    pub namespace: Arc<Namespace>,
    pub cache: Arc<Cache>,
    pub dirty: Arc<dyn DirtyFiles>,
}

impl Warmer {
    /// Bring what is below these paths here. One bad path does not stop the rest; errors are counted in `progress`, and
    /// make the whole an error in the end. Bytes that do not fit are not begun with: `progress` says so.
    pub async fn warm(&self, paths: &[Vec<u8>], order: impl Into<WarmOrder>, progress: &Arc<WarmProgress>) {
        let order = order.into();
        self.warm_metadata(paths, order.pin, progress).await;
        match order.mode {
            WarmMode::Metadata => progress.files_done.store(progress.files.load(Relaxed), Relaxed),
            WarmMode::Data if progress.is_stopped() || !progress.fits() => {}
            WarmMode::Data => {
                self.warm_data(paths, order.pin, progress).await;
                if order.pin
                    && let Err(e) = self.cache.keep_pins()
                {
                    progress.failed(&e);
                }
            }
        }
    }

    /// Find what is below these paths.
    async fn warm_metadata(&self, paths: &[Vec<u8>], pin: bool, progress: &WarmProgress) {
        for path in paths {
            let mut walk = TreeWalk::from(&self.namespace, path).await;
            while let Some(files) = walk.next().await {
                let found = match files {
                    Ok(found) => found,
                    Err(e) => {
                        progress.failed(&e);
                        continue;
                    }
                };
                for file in &found {
                    self.count(file, progress).await;
                }
                if progress.is_stopped() {
                    return;
                }
            }
            progress.directories.fetch_add(walk.directories, Relaxed);
        }
        progress.room.store(self.cache.room_to_warm(pin), Relaxed);
        progress.counted.store(true, Relaxed);
    }

    async fn count(&self, file: &Found, progress: &WarmProgress) {
        progress.files.fetch_add(1, Relaxed);
        progress.bytes.fetch_add(file.attr().size, Relaxed);
        if !self.cache.is_pinned(file.id()) {
            progress.needed.fetch_add(cache::room_for(file.attr().size), Relaxed);
        }
        let here = match key_of(file) {
            Ok(key) => self.cache.cached_bytes(&key).await,
            Err(_) => 0,
        };
        progress.bytes_here.fetch_add(here, Relaxed);
        if let Found::Node(node) = file
            && let Ok((origin, _)) = self.namespace.origin_of(node)
            && let Some(distance) = origin.distance().filter(|d| d.rate != Distance::UNKNOWN.rate)
        {
            progress.rate.store(distance.rate, Relaxed);
        }
    }

    async fn warm_data(&self, paths: &[Vec<u8>], pin: bool, progress: &Arc<WarmProgress>) {
        progress.forget_failures();
        let mut tasks = JoinSet::new();
        let note = |outcome: Option<std::result::Result<Result<()>, tokio::task::JoinError>>| match outcome {
            Some(Ok(Ok(()))) => {
                progress.files_done.fetch_add(1, Relaxed);
            }
            Some(Ok(Err(e))) => progress.failed(&e),
            Some(Err(e)) => progress.failed(&Error::new(ErrorKind::Io, "warm a file", "").with_source(e)),
            None => {}
        };
        for path in paths {
            let mut walk = TreeWalk::from(&self.namespace, path).await;
            while let Some(files) = walk.next().await {
                for file in files.unwrap_or_else(|e| {
                    progress.failed(&e);
                    Vec::new()
                }) {
                    while tasks.len() >= TOGETHER {
                        note(tasks.join_next().await);
                    }
                    if progress.is_stopped() {
                        return; // the tasks end with their set
                    }
                    if pin {
                        self.cache.pin(file.id());
                    }
                    tasks.spawn(self.file_warmer(file, progress.clone()));
                }
            }
        }
        while !tasks.is_empty() && !progress.is_stopped() {
            note(tasks.join_next().await);
        }
    }

    /// A task of its own that brings one file in.
    fn file_warmer(
        &self,
        found: Found,
        progress: Arc<WarmProgress>,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let origin = match &found {
            Found::Node(node) => self.namespace.origin_of(node).ok().map(|(origin, _)| origin),
            Found::Virtual { .. } => None,
        };
        let source: Arc<dyn Source> = Arc::new(OriginSource::new(self.namespace.clone(), origin));
        let (namespace, cache, dirty) = (self.namespace.clone(), self.cache.clone(), self.dirty.clone());
        async move {
            let mut key = key_of(&found)?;
            if dirty.has_dirty_bytes(found.junction(), key.file) {
                // What is here of it is newer than what its origin has.
                progress.bytes_done.fetch_add(key.size, Relaxed);
                return Ok(());
            }
            let mut fetched = 0;
            let landed = |bytes| {
                fetched += bytes;
                progress.bytes_fetched.fetch_add(bytes, Relaxed);
                progress.bytes_done.fetch_add(bytes, Relaxed);
            };
            match cache.warm(&key, &source, landed).await {
                Err(e) if e.kind() == ErrorKind::VersionChanged => {
                    key = key_of(&namespace.refresh_changed(key.file).await?)?;
                    cache.warm(&key, &source, |_| {}).await?;
                }
                other => other?,
            }
            progress.bytes_done.fetch_add(key.size.saturating_sub(fetched), Relaxed);
            Ok(())
        }
    }
}

/// What an eviction would drop although nobody could bring it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnlyCopies {
    /// Paths of junctions whose origin is away.
    pub junctions: Vec<String>,
    pub files: u64,
    pub bytes: u64,
}

impl Warmer {
    /// Of what is at this path and below it, what is here while its origin is away.
    pub async fn only_copies(&self, path: &[u8]) -> Result<OnlyCopies> {
        let away: HashMap<_, _> = self
            .namespace
            .junctions()
            .into_iter()
            .filter(|j| j.outage.is_some())
            .map(|j| (j.id, j.path))
            .collect();
        let mut copies = OnlyCopies::default();
        if away.is_empty() {
            return Ok(copies);
        }
        let mut walk = TreeWalk::from(&self.namespace, path).await;
        while let Some(files) = walk.next().await {
            // What cannot be listed now is not found by an eviction either.
            for file in files.unwrap_or_default() {
                let Found::Node(node) = &file else { continue };
                let Some(junction) = away.get(&node.junction()) else { continue };
                let bytes = match key_of(&file) {
                    Ok(key) => self.cache.cached_bytes(&key).await,
                    Err(_) => 0,
                };
                if bytes > 0 {
                    copies.files += 1;
                    copies.bytes += bytes;
                    if !copies.junctions.contains(junction) {
                        copies.junctions.push(junction.clone());
                    }
                }
            }
        }
        Ok(copies)
    }
}
