//! Bytes of the map file that stands beside each data file. docs/design/disk-format.md has the diagrams.

use types::{FileId, Version};

use crate::CacheKey;

pub const HEADER_BYTES: u64 = 64;
pub const ENTRY_BYTES: u64 = 8;
const MAGIC: [u8; 8] = *b"FOREBAY1";
/// High half of an entry whose block is on disk. Not all ones and not zero, so that neither a hole nor a wiped
/// sector reads as "present".
const PRESENT: u64 = 0x00f0_4eba_0000_0000;

/// The first 64 bytes of a map file.
pub fn encode_header(key: &CacheKey) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..24].copy_from_slice(&key.file.0);
    header[24..40].copy_from_slice(&key.version.0);
    header[40..48].copy_from_slice(&key.size.to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Does this map belong to this key, in this format, whole?
pub fn is_header_of(header: &[u8], key: &CacheKey) -> bool {
    header == encode_header(key)
}

/// The size that a header tells; to be believed only together with [`is_header_of`].
pub fn size_in(header: &[u8; HEADER_BYTES as usize]) -> Option<u64> {
    header.get(40..48)?.try_into().ok().map(u64::from_le_bytes)
}

/// A block on disk with this checksum.
pub fn encode_entry(crc: u32) -> u64 {
    PRESENT | u64::from(crc)
}

/// The checksum of a block that is on disk; `None` if it is not.
pub fn decode_entry(entry: u64) -> Option<u32> {
    let crc = entry & 0xffff_ffff;
    (entry ^ crc == PRESENT).then_some(crc as u32)
}

/// Checksum of a block's bytes, bound to where they belong: bytes of another file, version or block do not pass.
pub fn checksum(key: &CacheKey, block: u64, bytes: &[u8]) -> u32 {
    let mut place = [0; 40];
    place[..16].copy_from_slice(&key.file.0);
    place[16..32].copy_from_slice(&key.version.0);
    place[32..].copy_from_slice(&block.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

/// Files are spread over 256 directories by the first byte of their id.
pub fn subdirectory(file: FileId) -> String {
    format!("{:02x}", file.0[0])
}

/// `ab/<file id>-<version>`, without the ending.
pub fn stem(file: FileId, version: Version) -> String {
    format!("{}/{file}-{version}", subdirectory(file))
}

/// The key in a file's name, if it is one of ours with this ending.
pub fn parse_name(name: &str, ending: &str) -> Option<(FileId, Version)> {
    let (file, version) = name.strip_suffix(ending)?.split_once('-')?;
    Some((FileId(parse_hex(file)?), Version(parse_hex(version)?)))
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId([0xab; 16]);
    const VERSION: Version = Version([0x01; 16]);

    #[test]
    fn names_are_read_back_and_others_are_not_ours() {
        let stem = stem(FILE, VERSION);
        let name = stem.strip_prefix("ab/").expect("the first byte names the directory");
        assert_eq!(parse_name(&format!("{name}.data"), ".data"), Some((FILE, VERSION)));
        let wrong = ["", ".data", "-.data", "ab-01.data", "\u{e9}-\u{e9}.data", "lost.txt"];
        wrong.iter().for_each(|name| assert_eq!(parse_name(name, ".data"), None, "{name}"));
        for cut in 0..name.len() {
            assert_eq!(parse_name(&format!("{}.data", &name[..cut]), ".data"), None);
        }
        assert_eq!(parse_name(&format!("{name}.map"), ".data"), None);
    }

    #[test]
    fn headers_are_believed_to_the_bit() {
        let key = CacheKey { file: FILE, version: VERSION, size: 123_456_789_012 };
        let header = encode_header(&key);
        assert!(is_header_of(&header, &key));
        assert_eq!(size_in(&header), Some(key.size));
        for bit in 0..header.len() * 8 {
            let mut other = header;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_header_of(&other, &key), "bit {bit}");
        }
        assert!(!is_header_of(&header, &CacheKey { size: 5, ..key }));
        assert!(!is_header_of(&header[..60], &key));
    }

    #[test]
    fn holes_and_wiped_sectors_are_not_blocks() {
        for crc in [0, 1, 0xffff_ffff, 0x00f0_4eba] {
            assert_eq!(decode_entry(encode_entry(crc)), Some(crc));
        }
        for entry in [0, u64::MAX, 0xffff_ffff, 0xffff_ffff_0000_0000, PRESENT << 8] {
            assert_eq!(decode_entry(entry), None, "{entry:x}");
        }
    }

    #[test]
    fn a_checksum_is_bound_to_file_version_and_block() {
        let key = CacheKey { file: FILE, version: VERSION, size: 10 };
        let sum = checksum(&key, 3, b"bytes");
        assert_ne!(sum, checksum(&key, 4, b"bytes"));
        assert_ne!(sum, checksum(&key, 3, b"bytez"));
        assert_ne!(sum, checksum(&CacheKey { file: FileId([0; 16]), ..key }, 3, b"bytes"));
        assert_ne!(sum, checksum(&CacheKey { version: Version([0; 16]), ..key }, 3, b"bytes"));
    }

    #[test]
    fn the_layout_is_the_one_that_is_written_down() {
        let key = CacheKey { file: FILE, version: VERSION, size: 0x0102_0304 };
        let header = encode_header(&key);
        assert_eq!(&header[..8], b"FOREBAY1");
        assert_eq!((&header[8..24], &header[24..40]), (&[0xab; 16][..], &[0x01; 16][..]));
        assert_eq!(header[40..60], [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode_entry(0x1122_3344).to_le_bytes(), [0x44, 0x33, 0x22, 0x11, 0xba, 0x4e, 0xf0, 0]);
    }
}
