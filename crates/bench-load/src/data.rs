//! What is written: bytes that anybody can generate again, and that say what they are.
//!
//! Every block of 4 KiB is a function of (generator, seed, file, version, offset) and begins with a stamp:
//!
//! ```text
//!  0        4        6        8               16              24        28         32
//!  | "FBYB" | gener. | zero   | file          | offset        | version | check    | body ...
//! ```
//!
//! all little-endian; `check` covers the 28 bytes before it. So a reader that got wrong bytes can tell a block
//! of an older version (stale), a block of another place (misplaced) and a block that nobody wrote (corrupt).
//! A change of what is generated is a new [`GENERATOR`], which is part of the data and of every result.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Version of the rule that makes the bytes.
pub const GENERATOR: u16 = 1;

/// Bytes of a stamped block: the smallest unit that storage moves.
pub const BLOCK: usize = 4096;

const STAMP: usize = 32;
const MAGIC: [u8; 4] = *b"FBYB";

/// Versions before the expected one that a range without a stamp is compared with.
const OLDER_TRIED: u32 = 4;

/// Which bytes a data set has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeededData {
    /// Other seeds, other bytes.
    pub seed: u64,
    /// How much of each block is zeros, percent, 0 to 99: what a compressor saves. Default 0, incompressible.
    pub compressible_percent: u8,
}

/// One version of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    pub file: u64,
    pub version: u32,
}

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Of the first wrong byte in the file; of the block's first byte in the range where the block as a whole is
    /// another one.
    pub offset: u64,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nobody wrote this.
    Corrupt,
    /// A version from before the expected one.
    Stale { version: u32 },
    /// A version from after the expected one.
    Newer { version: u32 },
    /// A true block of another file or offset.
    Misplaced { file: u64, offset: u64 },
}

/// The mixing step of splitmix64: every bit of the input moves every bit of the output.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The step of wyrand: one wide multiplication, a third of the cost of [`mix`], random enough to be stored.
fn fold(x: u64) -> u64 {
    let product = u128::from(x) * u128::from(x ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}

/// 2^64 divided by the golden ratio: steps of splitmix64.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A well-mixed number from several; the order matters.
pub(crate) fn mix_all(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, n| mix(state.wrapping_add(GOLDEN) ^ mix(n.wrapping_add(GOLDEN))))
}

impl SeededData {
    /// `length` bytes of the file from `offset`.
    pub fn generate(&self, place: FileVersion, offset: u64, length: usize) -> Bytes {
        let inside = (offset % BLOCK as u64) as usize;
        let mut out = BytesMut::zeroed((inside + length).next_multiple_of(BLOCK));
        for (index, block) in (offset / BLOCK as u64..).zip(out.as_chunks_mut().0) {
            self.block(place, index, block);
        }
        out.freeze().slice(inside..inside + length)
    }

    /// Whether `data` is what the file has at `offset`; the first difference otherwise.
    pub fn verify(&self, place: FileVersion, offset: u64, data: &[u8]) -> Result<(), Mismatch> {
        let mut block = [0; BLOCK];
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (index, inside) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let (now, later) = rest.split_at(rest.len().min(BLOCK - inside));
            self.block(place, index, &mut block);
            if now != &block[inside..inside + now.len()] {
                return Err(self.explain(place, at, now, &block[inside..inside + now.len()]));
            }
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// What the wrong bytes of one block are. `found` and `wanted` are as long.
    fn explain(&self, place: FileVersion, at: u64, found: &[u8], wanted: &[u8]) -> Mismatch {
        let inside = (at % BLOCK as u64) as usize;
        let is = |place: FileVersion, index: u64| {
            let mut block = [0; BLOCK];
            self.block(place, index, &mut block);
            block.get(inside..inside + found.len()) == Some(found)
        };
        if let Some((found_place, index)) = (inside == 0).then(|| read_stamp(found)).flatten() {
            // Only a whole true block counts: a torn one is corrupt.
            if is(found_place, index) {
                let offset = index.saturating_mul(BLOCK as u64);
                let fault = match (found_place.file == place.file && offset == at, found_place.version) {
                    (true, version) if version < place.version => Fault::Stale { version },
                    (true, version) => Fault::Newer { version },
                    (false, _) => Fault::Misplaced { file: found_place.file, offset },
                };
                return Mismatch { offset: at, fault };
            }
        } else if inside != 0 || found.len() < STAMP {
            let older = (place.version.saturating_sub(OLDER_TRIED)..place.version).rev();
            for version in older {
                if is(FileVersion { version, ..place }, at / BLOCK as u64) {
                    return Mismatch { offset: at, fault: Fault::Stale { version } };
                }
            }
        }
        let first = found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0);
        Mismatch { offset: at.saturating_add(first as u64), fault: Fault::Corrupt }
    }

    /// One whole block.
    fn block(&self, place: FileVersion, index: u64, out: &mut [u8; BLOCK]) {
        let FileVersion { file, version } = place;
        let key = mix_all(&[GENERATOR.into(), self.seed, file, version.into(), index]);
        let zeros = BLOCK * usize::from(self.compressible_percent.min(99)) / 100 / 8 * 8;
        let body = BLOCK - zeros.min(BLOCK - STAMP);
        let (words, _) = out.as_chunks_mut::<8>();
        let (random, zero) = words.split_at_mut(body / 8);
        let mut state = key;
        for word in random {
            state = state.wrapping_add(GOLDEN);
            *word = fold(state).to_le_bytes();
        }
        zero.fill([0; 8]);
        out[..STAMP].copy_from_slice(&stamp(place, index.wrapping_mul(BLOCK as u64)));
    }
}

fn stamp(place: FileVersion, offset: u64) -> [u8; STAMP] {
    let mut out = [0; STAMP];
    out[..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&GENERATOR.to_le_bytes());
    out[8..16].copy_from_slice(&place.file.to_le_bytes());
    out[16..24].copy_from_slice(&offset.to_le_bytes());
    out[24..28].copy_from_slice(&place.version.to_le_bytes());
    let check = check(&out);
    out[28..].copy_from_slice(&check.to_le_bytes());
    out
}

fn check(stamp: &[u8; STAMP]) -> u32 {
    let (words, _) = stamp.as_chunks::<4>();
    let numbers = words.iter().take(7).map(|word| u64::from(u32::from_le_bytes(*word)));
    mix_all(&numbers.collect::<Vec<_>>()) as u32
}

/// Whose block it says it is, if the stamp is whole.
fn read_stamp(found: &[u8]) -> Option<(FileVersion, u64)> {
    let stamp: &[u8; STAMP] = found.first_chunk()?;
    let number = |from: usize| {
        let bytes = stamp.get(from..from + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (file, offset, rest) = (number(8)?, number(16)?, number(24)?);
    let (version, told) = (rest as u32, (rest >> 32) as u32);
    let good = stamp.starts_with(&MAGIC) && told == check(stamp) && offset.is_multiple_of(BLOCK as u64);
    good.then_some((FileVersion { file, version }, offset / BLOCK as u64))
}

#[cfg(test)]
mod tests;
