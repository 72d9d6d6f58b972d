//! Entries that prove who they are: head and data follow from a number.

use bytes::Bytes;
use types::ByteRange;
use writeback::{Config, Journal, Recovered};

pub const SEGMENT: u64 = (4 << 20) + (128 << 10);

pub fn config(dir: &std::path::Path, segments: u64) -> Config {
    Config { size_max: segments * SEGMENT, segment_size: SEGMENT, ..Config::new(dir) }
}

pub fn head(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

/// 0 to 200 KB.
pub fn data(number: u64) -> Bytes {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let length = (state >> 32) % 25_000;
    let words = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
}

/// Sequences and numbers of all that was recovered; every byte is compared.
pub async fn check_all(journal: &Journal, recovered: Recovered) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for entry in recovered {
        let entry = entry.expect("its head is whole");
        let number = u64::from_le_bytes(entry.head.as_ref().try_into().expect("a head of ours"));
        let whole = ByteRange::new(0, entry.position.data_length.into());
        let bytes = journal.read(entry.position, whole).await.expect("its data is whole");
        assert_eq!(bytes, data(number), "entry {} has other bytes", entry.sequence);
        found.push((entry.sequence, number));
    }
    assert!(found.is_sorted(), "in the order of sequences");
    found
}
