//! What was fetched ahead and not read yet: how much of reading ahead was worth its bytes. Only counted with, so it may
//! forget: blocks that it has forgotten are counted neither as used nor as evicted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::range::bytes_of_blocks;
use types::{FileId, Version};

use crate::CacheKey;
use crate::block_bits::{MASK, bits_of, masks};

/// Masks in all, about 4 MiB of memory. Beyond, whole files are forgotten.
const MASKS_MAX: usize = 1 << 15;

#[derive(Default)]
pub struct Unread {
    marks: Mutex<Marks>,
    /// There are any. Where all that was fetched ahead has been read, a read takes no lock for it.
    any: AtomicBool,
}

#[derive(Default)]
struct Marks {
    files: BTreeMap<(FileId, Version), UnreadFile>,
    masks: usize,
}

struct UnreadFile {
    size: u64,
    /// One bit for each block, by the number of the mask; none is zero.
    masks: BTreeMap<u64, u64>,
}

impl Unread {
    /// These blocks come ahead of whoever may want them. Before anybody can read them.
    pub fn fetched(&self, key: &CacheKey, blocks: Range<u64>) {
        let mut marks = self.lock();
        let file = marks.files.entry((key.file, key.version));
        let file = file.or_insert_with(|| UnreadFile { size: key.size, masks: BTreeMap::new() });
        let before = file.masks.len();
        for (mask, bits) in masks(blocks) {
            *file.masks.entry(mask).or_default() |= bits;
        }
        marks.masks += marks.files.get(&(key.file, key.version)).map_or(0, |file| file.masks.len()) - before;
        while marks.masks > MASKS_MAX {
            let Some((_, forgotten)) = marks.files.pop_first() else { break };
            marks.masks -= forgotten.masks.len();
        }
        self.any.store(!marks.files.is_empty(), Ordering::Release);
    }

    /// These blocks were read, or are gone: bytes of those that nobody had read before.
    pub fn take(&self, file: FileId, version: Version, blocks: Range<u64>) -> u64 {
        if !self.any.load(Ordering::Acquire) {
            return 0;
        }
        let mut marks = self.lock();
        let Some(unread) = marks.files.get_mut(&(file, version)) else { return 0 };
        let (before, mut bytes) = (unread.masks.len(), 0);
        let within = blocks.start / MASK..blocks.end.div_ceil(MASK);
        let touched: Vec<u64> = unread.masks.range(within).map(|(mask, _)| *mask).collect();
        for mask in touched {
            let (Some(marked), asked) = (unread.masks.get_mut(&mask), bits_of(mask, &blocks)) else {
                continue;
            };
            let found = *marked & asked;
            *marked &= !asked;
            if *marked == 0 {
                unread.masks.remove(&mask);
            }
            bytes += (0..MASK)
                .filter(|bit| found >> bit & 1 == 1)
                .map(|bit| bytes_of_blocks(mask * MASK + bit..mask * MASK + bit + 1, unread.size).length)
                .sum::<u64>();
        }
        let (gone, empty) = (before - unread.masks.len(), unread.masks.is_empty());
        marks.masks -= gone;
        if empty {
            marks.files.remove(&(file, version));
        }
        self.any.store(!marks.files.is_empty(), Ordering::Release);
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use types::BLOCK_SIZE;

    use super::*;

    fn key(n: u32, blocks: u64) -> CacheKey {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        CacheKey { file: FileId(id), version: Version([1; 16]), size: blocks * BLOCK_SIZE - 1 }
    }

    #[test]
    fn every_block_is_taken_once_and_the_last_one_is_as_long_as_it_is() {
        let (unread, key) = (Unread::default(), key(1, 1000));
        unread.fetched(&key, 10..1000);
        let take = |blocks| unread.take(key.file, key.version, blocks);
        assert_eq!(take(0..11), BLOCK_SIZE);
        assert_eq!(take(0..11), 0);
        assert_eq!(take(60..70), 10 * BLOCK_SIZE);
        assert_eq!(take(999..1000), BLOCK_SIZE - 1);
        assert_eq!(take(0..u64::MAX), (1000 - 10 - 1 - 10 - 1) * BLOCK_SIZE);
        assert!(!unread.any.load(Ordering::Relaxed));
        let marks = unread.lock();
        assert_eq!((marks.masks, marks.files.len()), (0, 0));
    }

    #[test]
    fn versions_are_told_apart() {
        let (unread, key) = (Unread::default(), key(1, 100));
        unread.fetched(&key, 0..100);
        assert_eq!(unread.take(key.file, Version([2; 16]), 0..100), 0);
        assert_eq!(unread.take(key.file, key.version, 0..1), BLOCK_SIZE);
    }

    #[test]
    fn memory_stays_bounded_whatever_is_fetched() {
        let unread = Unread::default();
        for n in 0..2 * MASKS_MAX as u32 {
            unread.fetched(&key(n, 2), 0..2);
        }
        assert_eq!(unread.lock().masks, MASKS_MAX);
        unread.fetched(&key(u32::MAX, 10 * MASK * MASKS_MAX as u64), 0..10 * MASK * MASKS_MAX as u64);
        assert!(unread.lock().masks <= MASKS_MAX);
    }
}
