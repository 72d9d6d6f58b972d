//! How much of the disk a cached file takes.

/// What file systems hand out room in.
pub const DISK_UNIT: u64 = 4096;

/// Of a file of this many bytes, with its map.
pub fn room_of_whole(size: u64) -> u64 {
    size.next_multiple_of(DISK_UNIT).saturating_add(DISK_UNIT)
}
