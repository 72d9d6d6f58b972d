//! File contents that are computed from a seed, so that large trees cost little memory.

use bytes::{Bytes, BytesMut};
use types::ByteRange;

/// Byte `offset` of the contents that `seed` stands for.
pub fn generated_byte(seed: u64, offset: u64) -> u8 {
    generated_word(seed, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

fn generated_word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `range` of the contents that `seed` stands for.
pub fn generated(seed: u64, range: ByteRange) -> Bytes {
    let mut out = BytesMut::with_capacity(usize::try_from(range.length).unwrap_or(0) + 16);
    for index in range.offset / 8..range.end().div_ceil(8) {
        out.extend_from_slice(&generated_word(seed, index).to_le_bytes());
    }
    let skip = (range.offset % 8) as usize;
    out.freeze().slice(skip..skip + range.length as usize)
}
