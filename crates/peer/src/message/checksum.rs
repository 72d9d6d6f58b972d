//! The checksum of a block on the wire: CRC-32C of the block's bytes, begun with the CRC-32C of where they belong, which
//! is file, version and block number (little-endian). Bytes of another file, version or block do not pass.
//!
//! It is the checksum that stands in a cache's map file, for a file that was never relabelled
//! (docs/design/disk-format.md): a node whose file has no twist can send what it has on disk.

use types::range::bytes_of_blocks;
use types::{ByteRange, FileId, Version};

pub fn block_checksum(file: FileId, version: Version, block: u64, bytes: &[u8]) -> u32 {
    let mut place = [0; 40];
    place[..16].copy_from_slice(&file.0);
    place[16..32].copy_from_slice(&version.0);
    place[32..].copy_from_slice(&block.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

/// Of all blocks of `range`, which is whole blocks of a file of `size` bytes. `pieces` are its bytes, in order, cut
/// anywhere.
pub fn checksums<'a>(
    file: FileId,
    version: Version,
    range: ByteRange,
    size: u64,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u32> {
    let mut pieces = pieces.into_iter();
    let mut rest: &[u8] = &[];
    let of_block = |block| {
        let mut missing = bytes_of_blocks(block..block + 1, size).length as usize;
        let mut sum = block_checksum(file, version, block, &[]);
        while missing > 0 {
            if rest.is_empty() {
                match pieces.next() {
                    Some(piece) => rest = piece,
                    None => break,
                }
            }
            let (part, behind) = rest.split_at(missing.min(rest.len()));
            sum = crc32c::crc32c_append(sum, part);
            (missing, rest) = (missing - part.len(), behind);
        }
        sum
    };
    range.blocks().map(of_block).collect()
}

#[cfg(test)]
mod tests {
    use types::BLOCK_SIZE;

    use super::*;

    const FILE: FileId = FileId([0xab; 16]);
    const VERSION: Version = Version([1; 16]);

    #[test]
    fn a_checksum_is_bound_to_file_version_and_block_and_is_the_one_on_disk() {
        let sum = block_checksum(FILE, VERSION, 3, b"bytes");
        for other in [
            block_checksum(FileId([0; 16]), VERSION, 3, b"bytes"),
            block_checksum(FILE, Version([0; 16]), 3, b"bytes"),
            block_checksum(FILE, VERSION, 4, b"bytes"),
            block_checksum(FILE, VERSION, 3, b"bytez"),
        ] {
            assert_ne!(sum, other);
        }
        // As docs/design/disk-format.md writes it down.
        let place = [&[0xab; 16][..], &[1; 16], &[3, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(sum, crc32c::crc32c_append(crc32c::crc32c(&place), b"bytes"));
    }

    #[test]
    fn pieces_may_be_cut_anywhere() {
        let bytes: Vec<u8> = (0..3 * BLOCK_SIZE + 100).map(|at| (at * 7 + at / 251) as u8).collect();
        let size = 2 * BLOCK_SIZE + bytes.len() as u64;
        let range = ByteRange::new(2 * BLOCK_SIZE, bytes.len() as u64);
        let blocks = bytes.chunks(BLOCK_SIZE as usize).zip(2..);
        let expected: Vec<u32> =
            blocks.map(|(bytes, block)| block_checksum(FILE, VERSION, block, bytes)).collect();
        for cut in [1, 7, 4096, 65_535, 65_536, 65_537, 200_000] {
            let sums = checksums(FILE, VERSION, range, size, bytes.chunks(cut));
            assert_eq!(sums, expected, "pieces of {cut}");
        }
        assert_ne!(checksums(FILE, VERSION, range, size, [&bytes[..100]]), expected);
    }
}
