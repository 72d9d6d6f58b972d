//! What a node of a cluster needs of its cache to keep copies of what others hold: which versions and blocks are here, room for
//! more of them, and bytes that came from another node.
//!
//! What is here is read from the maps on disk, without opening the files: a walk over all of them would close those that
//! readers use. It does not count as a use, so it keeps nothing from leaving.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::task::spawn_blocking;
use types::{BLOCK_SIZE, ByteRange, ErrorKind, FileId, Result, Version};

use crate::block_bits::runs;
use crate::file::{PIECE, ReadBack, load_entries};
use crate::{Cache, CacheKey, format};

/// Of the quota: copies that nobody asked for take no more. It is less than what a cache that makes room for readers comes down to,
/// so they never push out anything.
const COPIES_MAX_PERCENT: u64 = 90;

/// Which of 1,024 blocks are here: bit `n % 64` of word `n / 64` for block `n`.
pub type BlockBits = [u64; (PIECE / 64) as usize];

/// A piece of a walk over all versions that are here.
#[derive(Debug)]
pub struct HeldVersions {
    pub keys: Vec<CacheKey>,
    /// Where to go on; `None`: these were the last ones.
    pub next: Option<usize>,
}

impl Cache {
    /// All that was here at the start is on the books, so a walk meets it.
    pub fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Acquire)
    }

    /// The versions in the next `slots` places from `from` on. What comes or goes meanwhile may be missed, or met twice.
    pub async fn walk(self: &Arc<Self>, from: usize, slots: usize) -> HeldVersions {
        let (versions, next) = self.space().walk(from, slots);
        let cache = self.clone();
        let keys = spawn_blocking(move || {
            let known = |(file, version)| cache.map_of(file, version).map(|(_, key)| key);
            versions.into_iter().filter_map(known).collect()
        });
        HeldVersions { keys: keys.await.unwrap_or_default(), next } // an error: the runtime is being shut down
    }

    /// Of each of these pieces of 1,024 blocks which ones are here.
    pub async fn held_blocks(self: &Arc<Self>, key: &CacheKey, pieces: Range<u64>) -> Vec<BlockBits> {
        let nothing = vec![BlockBits::default(); (pieces.end.saturating_sub(pieces.start)) as usize];
        if self.config.bypass {
            return nothing;
        }
        let (cache, key, none) = (self.clone(), *key, nothing.clone());
        let read = spawn_blocking(move || {
            let Some((map, _)) = cache.map_of(key.file, key.version).filter(|(_, found)| *found == key)
            else {
                return none;
            };
            let blocks = key.size.div_ceil(BLOCK_SIZE);
            pieces.map(|piece| bits_of(&load_entries(&map, piece, blocks))).collect()
        });
        read.await.unwrap_or(nothing) // the runtime is being shut down
    }

    /// Those of these blocks that are neither here nor being fetched.
    pub async fn lacking(self: &Arc<Self>, key: &CacheKey, blocks: Range<u64>) -> Vec<Range<u64>> {
        let all = vec![blocks.clone()];
        let Some(file) = self.open_existing(key).await else { return all };
        let first = blocks.start;
        let mut lacking = all;
        file.with_absent(blocks, |absent| {
            lacking = runs(absent.blocks().map(|block| first + block));
        });
        lacking
    }

    /// The versions of this file that are here, as far as they are on the books ([`Cache::is_counted`]).
    pub fn versions_held(&self, file: FileId) -> Vec<Version> {
        self.space().versions_of(file)
    }

    /// The bytes of `range` if all of them are here, as another node asks for them that makes a copy: nobody has used them.
    pub async fn read_to_copy(self: &Arc<Self>, key: &CacheKey, range: ByteRange) -> Result<Option<Bytes>> {
        if self.config.bypass {
            return Ok(None);
        }
        let Some(file) = self.open_existing(key).await else { return Ok(None) };
        let _pin = file.pin(range.blocks());
        match crate::read::read_file(&file, range).await {
            Ok(ReadBack::Bytes(bytes)) => Ok(Some(bytes)),
            Ok(ReadBack::Missing { corrupt }) => {
                self.note_corrupt(&file, corrupt);
                Ok(None)
            }
            Err(e) => Err(types::Error::io("read cached file", key.file, e)),
        }
    }

    /// Keeps `bytes`, which are those of `blocks` and were checked. Where other bytes have to leave for them, they do. `false`: the
    /// disk does not take them.
    pub async fn keep_copy(self: &Arc<Self>, key: &CacheKey, blocks: Range<u64>, bytes: Bytes) -> bool {
        if self.config.bypass || !self.health.may_fill() {
            return false;
        }
        let (cache, key) = (self.clone(), *key);
        let kept = spawn_blocking(move || match cache.files.open(&key) {
            Ok(file) => {
                let _pin = file.pin(blocks.clone());
                // A stripe is a guest or kept as a whole: it is kept from now on.
                cache.forget_guests(key.file, key.version, crate::guests::stripes_around(blocks.clone()));
                cache.store(&file, blocks, &bytes)
            }
            Err(e) => {
                // It is longer than a file of this disk can be: no fault of the disk's.
                if !matches!(e.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidArgument) {
                    cache.health.failed(e.to_string());
                }
                false
            }
        });
        kept.await.unwrap_or(false) // the runtime is being shut down
    }

    /// Whether the disk takes bytes at all, as far as is known.
    pub fn takes_fills(&self) -> bool {
        !self.config.bypass && !self.health.is_ailing()
    }

    /// Bytes of copies that nobody asked for which have room here and push out nothing.
    pub fn room_for_copies(&self) -> u64 {
        if !self.takes_fills() {
            return 0;
        }
        // Guests make room for what is kept.
        let guests = self.guest_bytes();
        let kept = self.space().bytes().saturating_sub(guests);
        let by_quota = (self.limits.size_max() / 100 * COPIES_MAX_PERCENT).saturating_sub(kept);
        let space = self.space();
        let by_disk = space.reachable(self.limits.free_floor()).saturating_sub(space.bytes());
        by_quota.min(by_disk)
    }

    /// The map of a version on disk, and the whole key, which it tells.
    fn map_of(&self, file: FileId, version: Version) -> Option<(File, CacheKey)> {
        let path = self.config.dir.join(format::stem(file, version)).with_extension("map");
        let map = File::open(path).ok()?;
        let mut header = [0; format::HEADER_BYTES as usize];
        map.read_exact_at(&mut header, 0).ok()?;
        let key = CacheKey { file, version, size: format::size_in(&header)? };
        format::label_in(&header, &key)?;
        Some((map, key))
    }
}

fn bits_of(entries: &[u64]) -> BlockBits {
    let mut bits = BlockBits::default();
    for (at, entry) in entries.iter().enumerate() {
        bits[at / 64] |= u64::from(format::decode_entry(*entry).is_some()) << (at % 64);
    }
    bits
}
