//! What was flushed is clean cache: the bytes that clients wrote, under the version that they became at the origin.
//!
//! Those of a new file are laid while they travel, under a version that nobody asks for: all that is left to do when the
//! origin has them is to give them their name. Of a file that the origin has already, readers need what is cached of it
//! until then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::{Cache, CacheKey};
use tokio::sync::Semaphore;
use types::{ByteRange, FileId, Result, Version};
use writeback::{ContentChange, DirtyPiece, Journal, TargetObject};

use super::overlay::{CleanBase, DirtyOverlay};

/// Bytes of a file given to the cache at a time.
const LAY_MAX: u64 = 8 << 20;
/// Files whose bytes are given to the cache at a time: they are in memory then, twice.
const LAYS_TOGETHER: usize = 2;

pub struct CacheFiller {
    cache: Arc<Cache>,
    overlay: Arc<DirtyOverlay>,
    journal: Arc<Journal>,
    turns: Semaphore,
    /// Laid while they travelled.
    ahead: Mutex<HashMap<FileId, Ahead>>,
}

struct Ahead {
    content: ContentChange,
    key: CacheKey,
}

/// A version that no origin gives, of the file on its way to another.
fn draft(id: FileId, number: u64) -> Version {
    let mut version = id.0;
    version.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, more)| *byte ^= more);
    Version(version)
}

/// A file without bytes.
fn nothing(id: FileId) -> CacheKey {
    CacheKey { file: id, version: draft(id, 0), size: 0 }
}

impl CacheFiller {
    pub fn new(cache: Arc<Cache>, overlay: Arc<DirtyOverlay>, journal: Arc<Journal>) -> CacheFiller {
        CacheFiller { cache, overlay, journal, turns: Semaphore::new(LAYS_TOGETHER), ahead: Mutex::default() }
    }

    fn ahead(&self) -> MutexGuard<'_, HashMap<FileId, Ahead>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this travels: an attempt that may fail.
    pub async fn lay_ahead(&self, id: FileId, content: &ContentChange) {
        self.forget_ahead(id).await;
        let is_large = content.pieces.iter().map(|piece| piece.range().length).sum::<u64>() > LAY_MAX;
        if !is_large || !matches!(self.overlay.below(id), CleanBase::Nothing) {
            return;
        }
        let size = content.pieces.iter().map(|piece| piece.range().end()).max().unwrap_or(0);
        let key = CacheKey { file: id, version: draft(id, 1), size };
        match self.lay_pieces(nothing(id), key, &content.pieces).await {
            Ok(()) => drop(self.ahead().insert(id, Ahead { content: content.clone(), key })),
            Err(e) => tracing::debug!("bytes of {id} are not laid ahead: {e}"),
        }
    }

    /// It came to nothing.
    pub async fn forget_ahead(&self, id: FileId) {
        let old = self.ahead().remove(&id);
        if let Some(old) = old {
            self.cache.forget(old.key).await;
        }
    }

    /// The file's bytes are clean now under the version that the flush left: those below it, cut, with what was written
    /// over them. Exactly what was flushed, whatever clients wrote since.
    pub async fn lay(&self, id: FileId, content: &ContentChange, now: &TargetObject) -> Result<()> {
        let new = CacheKey { file: id, version: now.version, size: now.attr.size };
        let below = self.overlay.below(id);
        let ahead = self.ahead().remove(&id);
        if let Some(Ahead { content: laid, key }) = ahead {
            if laid == *content && matches!(below, CleanBase::Nothing) {
                self.cache.rebase(key, new, Vec::new(), Vec::new()).await;
                return Ok(());
            }
            self.cache.forget(key).await;
        }
        let mut old = match below {
            CleanBase::Version(key) => key,
            CleanBase::Nothing => nothing(id),
            CleanBase::Unknown => {
                self.forget_begun(new).await;
                return Ok(());
            }
        };
        // What lies beyond a cut comes back as zeros.
        if let Some(size) = content.cut.filter(|cut| *cut < old.size) {
            let cut = CacheKey { version: draft(id, 1), size, ..old };
            self.cache.rebase(old, cut, Vec::new(), Vec::new()).await;
            old = cut;
        }
        self.lay_pieces(old, new, &content.pieces).await
    }

    /// `to` is `from` with these over it. So much is in memory at a time: who has a turn.
    async fn lay_pieces(&self, mut from: CacheKey, to: CacheKey, pieces: &[DirtyPiece]) -> Result<()> {
        let (mut batch, mut bytes, mut number) = (Vec::new(), 0, 2);
        let mut turn = None;
        for piece in pieces {
            let DirtyPiece::Dirty { range, position, skip } = piece else { continue };
            if turn.is_none() {
                turn = Some(self.turns.acquire().await.expect("never closed"));
            }
            match self.journal.read(*position, ByteRange::new(*skip, range.length)).await {
                Ok(data) => batch.push((range.offset, data)),
                Err(e) => {
                    self.cache.forget(from).await;
                    return Err(e);
                }
            }
            bytes += range.length;
            if bytes >= LAY_MAX {
                let size = from.size.max(range.end());
                let next = CacheKey { version: draft(from.file, number), size, ..from };
                self.cache.rebase(from, next, std::mem::take(&mut batch), Vec::new()).await;
                (from, bytes, number, turn) = (next, 0, number + 1, None);
            }
        }
        self.cache.rebase(from, to, batch, Vec::new()).await;
        drop(turn);
        Ok(())
    }

    /// The origin may show a version before it has all bytes of it: the kernel notes the time of a write first. So what was
    /// fetched while we wrote (ahead of readers, by what a listing told) may be from before.
    pub async fn forget_begun(&self, key: CacheKey) {
        self.cache.forget(key).await;
    }
}
