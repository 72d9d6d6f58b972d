//! A cached file gets another key: what it holds is true of another version too.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use types::BLOCK_SIZE;

use super::{CachedFile, changed_at, entry_offset, pages};
use crate::CacheKey;
use crate::block_bits::runs;
use crate::format;
use crate::rebase::COPY_MAX;

/// Blocks that are detached at once: 16 MiB, which are written to the disk once more.
const DETACH_MAX: usize = 256;

/// The blocks of a file that go, or whose bytes will be others, when it becomes `after` bytes long.
fn touched(stale: &[Range<u64>], before: u64, after: u64) -> Vec<Range<u64>> {
    let (before, after) = (before.div_ceil(BLOCK_SIZE), after.div_ceil(BLOCK_SIZE));
    let cut = after..before.max(after);
    let clamped = stale.iter().chain([&cut]).map(|run| run.start..run.end.min(before));
    clamped.filter(|run| !run.is_empty()).collect()
}

impl CachedFile {
    /// Before it is relabelled in the same way: blocks that go, or whose bytes will be others, are taken out of the kernel's memory where
    /// sockets may hold their pages. `false`: another pair costs less, or the kernel does not do that here and another pair can have all
    /// that stays. Where it cannot, holes have to do.
    pub fn detach_sent(&mut self, stale: &[Range<u64>], size: u64) -> std::io::Result<bool> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (now, is_ours) = (Instant::now(), state.left == changed_at(&self.data));
        let touched = touched(stale, self.key.size, size);
        let blocks = touched.iter().cloned().flatten();
        let mut is_sent = |block: u64| {
            state.sent_runs.may_be_in_sockets(block, now) && state.entry(&self.map, block).is_some()
        };
        let here: Vec<u64> = blocks.filter(|block| is_sent(*block)).take(DETACH_MAX + 1).collect();
        if here.is_empty() {
            return Ok(true);
        }
        let nothing_stays = touched.iter().map(|run| run.end - run.start).sum::<u64>() >= state.blocks;
        let mut is_detached = !nothing_stays && here.len() <= DETACH_MAX;
        for run in runs(here.into_iter()) {
            is_detached = is_detached && pages::detach(&self.data, run.clone(), self.key.size)?;
            run.filter(|_| is_detached).for_each(|block| state.sent_runs.detached(block));
        }
        if is_ours {
            state.left = changed_at(&self.data);
        }
        Ok(is_detached || !nothing_stays && state.blocks > COPY_MAX)
    }

    /// The same pair under `new`, without the blocks `stale` and what is behind its end. Nobody else has it, and the
    /// caller renames it.
    ///
    /// Entries first, then the header: a pair that was left in between has a header that is not its name's. What sockets hold of the
    /// blocks that go is taken off the file, since it is cut and written over after this: by [`Self::detach_sent`] before, and what is
    /// left by a hole.
    pub fn relabel(self, new: &CacheKey, stale: &[Range<u64>], opened: u64) -> std::io::Result<CachedFile> {
        let CachedFile { key, label, data, map, folios, state, .. } = self;
        let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (key.size.div_ceil(BLOCK_SIZE), new.size.div_ceil(BLOCK_SIZE));
        let is_ours = state.left == changed_at(&data);
        for run in touched(stale, key.size, new.size) {
            let zeros = vec![0; ((run.end - run.start) * format::ENTRY_BYTES) as usize];
            map.write_all_at(&zeros, entry_offset(run.start))?;
            run.clone().for_each(|block| state.verified.set(block, false));
            if state.was_sent {
                pages::punch(&data, run)?;
            }
        }
        let label = label.relabelled(&key, new);
        map.write_all_at(&format::encode_header(new, &label), 0)?;
        if after < before {
            map.set_len(entry_offset(after))?;
        }
        if key.size != new.size {
            data.set_len(new.size)?;
        }
        state.pieces.clear();
        state.blocks = after;
        // If somebody else has written into it, that is found out as before.
        if is_ours {
            state.left = changed_at(&data);
        }
        Ok(CachedFile { key: *new, label, opened, data, map, folios, state: Mutex::new(state) })
    }

    /// Room given back by the blocks `blocks`, as far as they are here.
    pub fn room_in(&self, blocks: Range<u64>) -> u64 {
        let mut state = self.lock();
        let here = blocks.filter(|block| state.entry(&self.map, *block).is_some());
        here.map(|block| crate::disk_usage::room_of_block(block, self.key.size)).sum()
    }
}
