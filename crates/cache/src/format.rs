//! Bytes of the map file that stands beside each data file. docs/design/disk-format.md has the diagrams.

use std::sync::LazyLock;

use types::{FileId, Version};

use crate::CacheKey;

pub const HEADER_BYTES: u64 = 64;
pub const ENTRY_BYTES: u64 = 8;
const MAGIC: [u8; 8] = *b"FOREBAY1";
/// High half of an entry whose block is on disk. Not all ones and not zero, so that neither a hole nor a wiped
/// sector reads as "present".
const PRESENT: u64 = 0x00f0_4eba_0000_0000;

/// How a pair came to its label. All zeros for one that was never relabelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// What the checksums of its blocks are off by, because they were made under earlier versions: see [`seed`].
    pub twist: u32,
    /// In which run of the machine it was relabelled last. Nothing of a cache is synced, so after a power cut such a
    /// pair may have its new label and, under it, blocks from before: then it is not believed.
    pub boot: [u8; 8],
}

impl Label {
    /// Of a pair under `old` that gets the key `new`, in this run of the machine.
    pub fn relabelled(&self, old: &CacheKey, new: &CacheKey) -> Label {
        let twist = self.twist ^ place_sum(old, 0) ^ place_sum(new, 0);
        Label { twist, boot: *THIS_BOOT }
    }
}

/// Not all zeros, whatever the system says.
static THIS_BOOT: LazyLock<[u8; 8]> = LazyLock::new(|| {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (low, high) = (crc32c::crc32c(id.as_bytes()), crc32c::crc32c_append(1, id.as_bytes()) | 1);
    (u64::from(high) << 32 | u64::from(low)).to_le_bytes()
});

/// The first 64 bytes of a map file.
pub fn encode_header(key: &CacheKey, label: &Label) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..24].copy_from_slice(&key.file.0);
    header[24..40].copy_from_slice(&key.version.0);
    header[40..48].copy_from_slice(&key.size.to_le_bytes());
    header[48..52].copy_from_slice(&label.twist.to_le_bytes());
    header[52..60].copy_from_slice(&label.boot);
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The label, if this map belongs to this key, in this format, whole, and is to be believed.
pub fn label_in(header: &[u8], key: &CacheKey) -> Option<Label> {
    let twist = u32::from_le_bytes(header.get(48..52)?.try_into().ok()?);
    let boot: [u8; 8] = header.get(52..60)?.try_into().ok()?;
    let label = Label { twist, boot };
    let believed = boot == *THIS_BOOT || label == Label::default();
    (believed && header == encode_header(key, &label)).then_some(label)
}

/// The size that a header tells; to be believed only together with [`label_in`].
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
pub fn checksum(key: &CacheKey, label: &Label, block: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed(key, label, block), bytes)
}

/// A CRC is linear: two places that differ in their version alone have sums that differ by the same bits for every
/// block. So a pair that is relabelled keeps its checksums, and its header says by which bits (`twist`).
fn seed(key: &CacheKey, label: &Label, block: u64) -> u32 {
    place_sum(key, block) ^ label.twist
}

fn place_sum(key: &CacheKey, block: u64) -> u32 {
    let mut place = [0; 40];
    place[..16].copy_from_slice(&key.file.0);
    place[16..32].copy_from_slice(&key.version.0);
    place[32..].copy_from_slice(&block.to_le_bytes());
    crc32c::crc32c(&place)
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
    const PLAIN: Label = Label { twist: 0, boot: [0; 8] };

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
        let header = encode_header(&key, &PLAIN);
        assert_eq!(label_in(&header, &key), Some(PLAIN));
        assert_eq!(size_in(&header), Some(key.size));
        for bit in 0..header.len() * 8 {
            let mut other = header;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(label_in(&other, &key), None, "bit {bit}");
        }
        assert_eq!(label_in(&header, &CacheKey { size: 5, ..key }), None);
        assert_eq!(label_in(&header[..60], &key), None);
        let label = PLAIN.relabelled(&CacheKey { version: Version([9; 16]), ..key }, &key);
        assert_eq!(label_in(&encode_header(&key, &label), &key), Some(label));
        let before_the_power_cut = Label { boot: [1; 8], ..label };
        assert_eq!(label_in(&encode_header(&key, &before_the_power_cut), &key), None);
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
        let sum = checksum(&key, &PLAIN, 3, b"bytes");
        assert_ne!(sum, checksum(&key, &PLAIN, 4, b"bytes"));
        assert_ne!(sum, checksum(&key, &PLAIN, 3, b"bytez"));
        assert_ne!(sum, checksum(&CacheKey { file: FileId([0; 16]), ..key }, &PLAIN, 3, b"bytes"));
        assert_ne!(sum, checksum(&CacheKey { version: Version([0; 16]), ..key }, &PLAIN, 3, b"bytes"));
    }

    #[test]
    fn a_pair_that_is_relabelled_again_and_again_keeps_its_checksums() {
        let mut key = CacheKey { file: FILE, version: VERSION, size: 10 };
        let blocks: [(u64, &[u8]); 3] = [(0, b"bytes"), (3, b"others"), (u64::MAX, b"")];
        let sums = blocks.map(|(block, bytes)| checksum(&key, &PLAIN, block, bytes));
        let mut label = PLAIN;
        for n in 2..9 {
            let new = CacheKey { version: Version([n; 16]), size: u64::from(n), ..key };
            label = label.relabelled(&key, &new);
            key = new;
            assert_eq!(blocks.map(|(block, bytes)| checksum(&key, &label, block, bytes)), sums);
            assert_ne!(checksum(&key, &PLAIN, 0, b"bytes"), sums[0]);
        }
    }

    #[test]
    fn the_layout_is_the_one_that_is_written_down() {
        let key = CacheKey { file: FILE, version: VERSION, size: 0x0102_0304 };
        let header = encode_header(&key, &PLAIN);
        assert_eq!(&header[..8], b"FOREBAY1");
        assert_eq!((&header[8..24], &header[24..40]), (&[0xab; 16][..], &[0x01; 16][..]));
        assert_eq!(header[40..60], [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode_entry(0x1122_3344).to_le_bytes(), [0x44, 0x33, 0x22, 0x11, 0xba, 0x4e, 0xf0, 0]);
    }
}
