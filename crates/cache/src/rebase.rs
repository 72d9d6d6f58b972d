//! One version of a file follows another of which only some bytes differ, and these are known: the tier's own writes.
//! What is here of the old version is kept under the new one, and the new bytes are laid in, so that nothing of it is
//! fetched again. This invalidates nothing: the old version was that, and the new one is this.
//!
//! The pair of files is relabelled where it is, which costs the same however large it is. It is not if somebody uses it:
//! a range that was handed out, and a file that the kernel reads by itself, are never rewritten, nor is what sockets may hold unless
//! its pages can be detached (`file/pages.rs`). Then the new version is another pair, into which some of the old blocks are copied; the others are fetched again when they are wanted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange};

use crate::block_bits::runs;
use crate::file::CachedFile;
use crate::open_files::Relabelled;
use crate::{Cache, CacheKey};

/// A file in use is looked at again this often, with this pause: a read of bytes that are here is over by then.
const TRIES_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);
/// Blocks copied out of a file in use: 64 MiB.
pub const COPY_MAX: u64 = 1024;

impl Cache {
    /// Version `new` of a file is `old` with `written` over it (in order, not overlapping); where `new` is longer than
    /// that, with zeros. At `unknown` it is something else. Whatever cannot be kept is missing, and is fetched when somebody
    /// reads it.
    pub async fn rebase(
        self: &Arc<Self>,
        old: CacheKey,
        new: CacheKey,
        written: Vec<(u64, Bytes)>,
        unknown: Vec<ByteRange>,
    ) {
        if self.config.bypass || old.file != new.file {
            return;
        }
        let cache = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            cache.rebase_now(&old, &new, &written, &unknown);
        })
        .await;
        if let Err(e) = done {
            tracing::warn!("keep a file under its new version: {e}");
        }
    }

    fn rebase_now(&self, old: &CacheKey, new: &CacheKey, written: &[(u64, Bytes)], unknown: &[ByteRange]) {
        let before = self.files.open_existing(old);
        let read = |block| before.as_ref().and_then(|file| file.read_block(block));
        let mut blocks = successors(old, new, written, read);
        let unknown = unknown.iter().flat_map(|range| range.clamp_to(new.size).blocks());
        blocks.extend(unknown.map(|block| (block, None)));
        let fresh: Vec<_> =
            blocks.iter().filter_map(|(block, bytes)| Some((*block, bytes.clone()?))).collect();
        let stale = runs(blocks.keys().copied());
        if old != new {
            self.drop_file(new.file, new.version); // begun by a reader who heard of it before us
        }
        let file = match before {
            Some(before) => self.follow(before, old, new, &stale),
            None if fresh.is_empty() => None,
            None => self.files.open(new).ok(),
        };
        // Whose they are is found out when they are next used.
        self.forget_guests(old.file, old.version, 0..u64::MAX);
        let ahead = self.unread.take(old.file, old.version, 0..u64::MAX);
        self.metrics.readahead_evicted_bytes.inc_by(ahead);
        if let Some(file) = file
            && self.health.may_fill()
        {
            self.lay(&file, &fresh);
        }
    }

    /// The pair of the new version, with what it has of the old one.
    fn follow(
        &self,
        before: Arc<CachedFile>,
        old: &CacheKey,
        new: &CacheKey,
        stale: &[Range<u64>],
    ) -> Option<Arc<CachedFile>> {
        let cut = new.size.div_ceil(BLOCK_SIZE)..old.size.div_ceil(BLOCK_SIZE);
        let gone: u64 = stale.iter().cloned().chain([cut]).map(|run| before.room_in(run)).sum();
        let mut before = Some(before);
        for _ in 0..TRIES_MAX {
            let lent = before.take().is_none_or(|before| before.is_lent() || before.has_kernel_reads());
            match self.files.relabel(old, new, stale) {
                Ok(Relabelled::Done(file)) => {
                    let mut space = self.space();
                    space.relabel(new.file, old.version, new.version);
                    space.shrink(new.file, new.version, gone);
                    return Some(file);
                }
                Ok(Relabelled::InSockets) => break,
                Ok(Relabelled::InUse) if lent => break,
                Ok(Relabelled::InUse) => std::thread::sleep(PAUSE),
                Err(e) => {
                    tracing::warn!("keep a cached file under its new version: {e}");
                    self.drop_file(old.file, old.version);
                    return self.files.open(new).ok();
                }
            }
            before = self.files.open_existing(old);
        }
        let before = before.or_else(|| self.files.open_existing(old));
        // Who has it open goes on. Nobody else has a use for it, and its version may come to mean other bytes.
        let drop_old = || self.drop_file(old.file, old.version);
        if old == new {
            drop_old();
        }
        let file = self.files.open(new).ok()?;
        if let Some(before) = before {
            self.copy(&before, &file, stale);
        }
        if old != new {
            drop_old();
        }
        Some(file)
    }

    fn copy(&self, from: &CachedFile, to: &CachedFile, stale: &[Range<u64>]) {
        let end = from.key.size.min(to.key.size).div_ceil(BLOCK_SIZE);
        let kept = (0..end).filter(|block| !stale.iter().any(|run| run.contains(block)));
        let here = kept.filter(|block| from.room_in(*block..*block + 1) > 0).take(COPY_MAX as usize);
        for block in here {
            let Some(bytes) = from.read_block(block) else { continue };
            if !self.lay(to, &[(block, bytes)]) {
                return;
            }
        }
    }

    /// False if the disk does not take them.
    fn lay(&self, file: &CachedFile, blocks: &[(u64, Bytes)]) -> bool {
        blocks.iter().all(|(block, bytes)| self.store(file, *block..*block + 1, bytes))
    }
}

/// The blocks of `new` that are not as in `old`, with their bytes as far as these can be known.
fn successors(
    old: &CacheKey,
    new: &CacheKey,
    written: &[(u64, Bytes)],
    read: impl Fn(u64) -> Option<Bytes>,
) -> BTreeMap<u64, Option<Bytes>> {
    let mut touched: BTreeMap<u64, Vec<(u64, Bytes)>> = BTreeMap::new();
    for (offset, bytes) in written {
        let range = ByteRange::new(*offset, bytes.len() as u64).clamp_to(new.size);
        for block in range.blocks() {
            let whole = bytes_of_blocks(block..block + 1, new.size);
            let (from, to) = (whole.offset.max(range.offset), whole.end().min(range.end()));
            let piece = bytes.slice((from - offset) as usize..(to - offset) as usize);
            touched.entry(block).or_default().push((from, piece));
        }
    }
    let end = old.size.min(new.size);
    if old.size != new.size && !end.is_multiple_of(BLOCK_SIZE) {
        touched.entry(end / BLOCK_SIZE).or_default(); // its length changes
    }
    let build = |(block, pieces): (u64, Vec<(u64, Bytes)>)| (block, build(block, &pieces, end, new, &read));
    touched.into_iter().map(build).collect()
}

/// One block: the old bytes up to `old_end`, then zeros, and the pieces over both.
fn build(
    block: u64,
    pieces: &[(u64, Bytes)],
    old_end: u64,
    new: &CacheKey,
    read: impl Fn(u64) -> Option<Bytes>,
) -> Option<Bytes> {
    let whole = bytes_of_blocks(block..block + 1, new.size);
    if let [(_, piece)] = pieces
        && piece.len() as u64 == whole.length
    {
        return Some(piece.clone());
    }
    let mut bytes = BytesMut::zeroed(whole.length as usize);
    let kept = old_end.clamp(whole.offset, whole.end()) - whole.offset;
    let mut covered = whole.offset;
    for (offset, piece) in pieces {
        covered = if *offset <= covered { covered.max(offset + piece.len() as u64) } else { covered };
    }
    if covered < whole.offset + kept {
        bytes[..kept as usize].copy_from_slice(read(block)?.get(..kept as usize)?);
    }
    for (offset, piece) in pieces {
        bytes[(offset - whole.offset) as usize..][..piece.len()].copy_from_slice(piece);
    }
    Some(bytes.freeze())
}
