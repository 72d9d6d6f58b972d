//! Byte ranges, and the blocks they touch.

use std::ops::Range;

/// The unit in which the cache keeps, checks and fetches bytes.
///
/// 64 KiB: a small cold read costs one small ranged read of the origin, and the map of a 1 TiB file
/// still fits in 128 MiB of disk.
pub const BLOCK_SIZE: u64 = 64 * 1024;

/// `length` bytes from `offset`; the end never exceeds `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    pub offset: u64,
    pub length: u64,
}

impl ByteRange {
    /// Saturates instead of wrapping: a range can end at `u64::MAX` at most.
    pub fn new(offset: u64, length: u64) -> ByteRange {
        ByteRange { offset, length: length.min(u64::MAX - offset) }
    }

    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    pub fn overlaps(&self, other: &ByteRange) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part of this range that lies inside a file of `size` bytes.
    pub fn clamp_to(&self, size: u64) -> ByteRange {
        let offset = self.offset.min(size);
        ByteRange { offset, length: self.end().min(size) - offset }
    }

    /// The indexes of the blocks that this range touches.
    pub fn blocks(&self) -> Range<u64> {
        if self.is_empty() {
            let at = self.offset / BLOCK_SIZE;
            return at..at;
        }
        self.offset / BLOCK_SIZE..self.end().div_ceil(BLOCK_SIZE)
    }
}

/// The bytes of a file of `size` bytes that the blocks `blocks` hold (the last may be short).
pub fn bytes_of_blocks(blocks: Range<u64>, size: u64) -> ByteRange {
    let offset = blocks.start.saturating_mul(BLOCK_SIZE);
    let end = blocks.end.saturating_mul(BLOCK_SIZE).max(offset);
    ByteRange::new(offset, end - offset).clamp_to(size)
}
