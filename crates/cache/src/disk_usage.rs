//! How much of the disk a cached file takes.

use std::ops::Range;

use types::range::bytes_of_blocks;

/// What file systems hand out room in.
pub const DISK_UNIT: u64 = 4096;

/// Of a file of this many bytes, with its map.
pub fn room_of_whole(size: u64) -> u64 {
    size.next_multiple_of(DISK_UNIT).saturating_add(DISK_UNIT)
}

/// Of one block of a file of `size` bytes; the first one stands for the map file too. (The map grows by one unit for
/// each 32 MiB; that is not counted.)
pub fn room_of_block(block: u64, size: u64) -> u64 {
    let map = if block == 0 { DISK_UNIT } else { 0 };
    bytes_of_blocks(block..block + 1, size).length.next_multiple_of(DISK_UNIT) + map
}

/// As `room_of_block`, of several.
pub fn room_of_blocks(blocks: Range<u64>, size: u64) -> u64 {
    blocks.map(|block| room_of_block(block, size)).sum()
}
