//! A cached file gets another key: what it holds is true of another version too.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use super::{CachedFile, changed_at, entry_offset, pages};
use crate::CacheKey;
use crate::format;

impl CachedFile {
    /// The same pair under `new`, without the blocks `stale` and what is behind its end. Nobody else has it, and the
    /// caller renames it.
    ///
    /// Entries first, then the header: a pair that was left in between has a header that is not its name's. What sockets hold of the
    /// blocks that go is taken off the file: it is cut and written over after this.
    pub fn relabel(self, new: &CacheKey, stale: &[Range<u64>], opened: u64) -> std::io::Result<CachedFile> {
        let CachedFile { key, label, data, map, state, .. } = self;
        let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (key.size.div_ceil(types::BLOCK_SIZE), new.size.div_ceil(types::BLOCK_SIZE));
        let cut = after..before.max(after);
        let is_ours = state.left == changed_at(&data);
        for run in stale.iter().chain([&cut]) {
            let here = run.start..run.end.min(before);
            if !here.is_empty() {
                let zeros = vec![0; ((run.end - run.start) * format::ENTRY_BYTES) as usize];
                map.write_all_at(&zeros, entry_offset(run.start))?;
                if state.was_sent {
                    pages::punch(&data, here)?;
                }
            }
            run.clone().for_each(|block| state.verified.set(block, false));
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
        Ok(CachedFile { key: *new, label, opened, data, map, state: Mutex::new(state) })
    }

    /// Room given back by the blocks `blocks`, as far as they are here.
    pub fn room_in(&self, blocks: Range<u64>) -> u64 {
        let mut state = self.lock();
        let here = blocks.filter(|block| state.entry(&self.map, *block).is_some());
        here.map(|block| crate::disk_usage::room_of_block(block, self.key.size)).sum()
    }

    /// A block that is here and good, from the disk.
    pub fn read_block(&self, block: u64) -> Option<bytes::Bytes> {
        let range = types::range::bytes_of_blocks(block..block + 1, self.key.size);
        match self.read(range, false) {
            Ok(Some(super::ReadBack::Bytes(bytes))) => Some(bytes),
            _ => None,
        }
    }
}
