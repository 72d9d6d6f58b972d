//! A cached file handed out as a whole, for a front that lets the kernel read it directly.
//!
//! Only files of which every block is here and was checked against its checksum. After a restart the whole file is
//! checked first, in the background; until then ordinary reads serve it. What is handed out loses no block: it is
//! evicted by unlinking only.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tracing::warn;
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange, Error, ErrorKind, FileId, Result, Version};

use crate::file::{CachedFile, ReadBack};
use crate::folio_history::FolioHistory;
use crate::{Cache, CacheKey};

/// Files that wait to be checked; more are asked for again at their next use.
const CHECKS_MAX: usize = 256;
/// Blocks checked at a time: 1 MiB.
const CHECK_BLOCKS: u64 = 16;

/// Every byte of one version of a file, good for as long as this is held.
pub struct WholeFile {
    file: Arc<CachedFile>,
    folios: Arc<FolioHistory>,
}

impl WholeFile {
    pub fn key(&self) -> &CacheKey {
        &self.file.key
    }

    /// To be called before the kernel is given the file to read it by itself. From then on it loses no block.
    pub fn note_kernel_reads(&self) {
        self.folios.note_any_size();
        self.file.note_kernel_reads();
    }

    /// Bytes of `range`, which lies inside the file.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes> {
        match crate::read::read_file(&self.file, range).await {
            Ok(ReadBack::Bytes(bytes)) => Ok(bytes),
            Ok(ReadBack::Missing { .. }) => {
                Err(Error::new(ErrorKind::Corrupt, "read cached file", self.file.key.file))
            }
            Err(e) => Err(Error::io("read cached file", self.file.key.file, e)),
        }
    }
}

impl AsFd for WholeFile {
    /// For reading only, and only while the `WholeFile` is held or the kernel holds what was made from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.data().as_fd()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        self.file.take_back();
    }
}

/// Files that are being checked as a whole, or wait for it. One at a time: nobody waits for it.
pub struct Checks {
    wanted: Mutex<HashSet<(FileId, Version)>>,
    turn: Arc<Semaphore>,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { wanted: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Cache {
    /// The whole file, if every block of it is on disk and was checked. Where the check is missing, it is begun in
    /// the background, so that a later call succeeds.
    pub async fn whole(self: &Arc<Self>, key: &CacheKey) -> Option<WholeFile> {
        if self.config.bypass || key.size == 0 {
            return None;
        }
        let file = self.open_existing(key).await?;
        if file.lend() {
            // Reads through it are not seen here: each handing out counts as one visit.
            self.space().touch(key.file, key.version, key.size.saturating_add(BLOCK_SIZE));
            let ahead = self.unread.take(key.file, key.version, 0..u64::MAX);
            self.metrics.readahead_used_bytes.inc_by(ahead);
            self.guests_were_lent(key);
            return Some(WholeFile { file, folios: self.files.folios().clone() });
        }
        if file.unchecked_run(1).is_some() {
            self.start_check(file);
        }
        None
    }

    fn start_check(self: &Arc<Self>, file: Arc<CachedFile>) {
        let id = (file.key.file, file.key.version);
        {
            let mut wanted = self.checks.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if wanted.len() >= CHECKS_MAX || !wanted.insert(id) {
                return;
            }
        }
        let cache = Arc::downgrade(self);
        let turn = self.checks.turn.clone();
        tokio::spawn(async move {
            let _turn = turn.acquire_owned().await;
            let Some(cache) = cache.upgrade() else { return };
            let checked = tokio::task::spawn_blocking(move || {
                cache.check(&file);
                cache.checks.wanted.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            });
            let _ = checked.await; // a check that failed leaves the file unchecked
        });
    }

    /// Check block after block, as far as they are here. Ends: each round checks some, or drops one, or stops.
    fn check(&self, file: &CachedFile) {
        while let Some(run) = file.unchecked_run(CHECK_BLOCKS) {
            if self.stopping.load(std::sync::atomic::Ordering::Relaxed) || file.is_doomed() {
                return;
            }
            match file.read(bytes_of_blocks(run, file.key.size), false) {
                Ok(Some(ReadBack::Bytes(_))) => {}
                Ok(Some(ReadBack::Missing { corrupt })) => {
                    self.note_corrupt(file, corrupt);
                    return;
                }
                Ok(None) => return,
                Err(e) => {
                    warn!("check a cached file: {e}");
                    return;
                }
            }
        }
    }

    pub(crate) fn note_corrupt(&self, file: &CachedFile, blocks: u64) {
        if blocks == 0 {
            return;
        }
        self.metrics.corrupt_blocks.inc_by(blocks);
        self.space().shrink(file.key.file, file.key.version, blocks * BLOCK_SIZE);
        warn!(file = %file.key.file, blocks, "cached blocks are corrupt, fetching them again");
    }
}
