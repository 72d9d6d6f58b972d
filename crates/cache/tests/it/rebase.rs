//! A version that follows another, of which the tier knows the bytes that differ.

use bytes::Bytes;
use cache::{CacheKey, Lend, Piece, Source, WholeFile};
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

/// `old` cut or grown to the new size, with `written` over it.
fn model(old: &[u8], new: &CacheKey, written: &[(u64, Bytes)]) -> Vec<u8> {
    let mut bytes = old.to_vec();
    bytes.resize(new.size as usize, 0);
    for (offset, data) in written {
        let range = ByteRange::new(*offset, data.len() as u64).clamp_to(new.size);
        bytes[range.offset as usize..range.end() as usize].copy_from_slice(&data[..range.length as usize]);
    }
    bytes
}

fn rebase(tier: &Tier, old: &CacheKey, new: &CacheKey, written: &[(u64, Bytes)]) {
    let (cache, old, new, written) = (tier.cache().clone(), *old, *new, written.to_vec());
    tier.run(async move { cache.rebase(old, new, written, Vec::new()).await });
}

/// What is here of `range`, from the disk alone.
fn present(tier: &Tier, key: &CacheKey, range: ByteRange) -> Option<Vec<u8>> {
    let (cache, key) = (tier.cache().clone(), *key);
    let pieces = tier.run(async move { cache.read_present(&key, range).await }).unwrap()?;
    Some(pieces.iter().flat_map(|piece| piece.to_bytes().unwrap()).collect())
}

/// Every block is missing or right; returns how many are here.
fn check_blocks(tier: &Tier, key: &CacheKey, model: &[u8]) -> u64 {
    let mut here = 0;
    for block in 0..key.size.div_ceil(BLOCK_SIZE) {
        let range = ByteRange::new(block * BLOCK_SIZE, BLOCK_SIZE).clamp_to(key.size);
        if let Some(bytes) = present(tier, key, range) {
            assert!(bytes == model[range.offset as usize..range.end() as usize], "block {block}");
            here += 1;
        }
    }
    here
}

#[test]
fn what_is_here_is_kept_and_what_was_written_is_laid_in() {
    let sizes = [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, 5 * BLOCK_SIZE + 7, 9 * BLOCK_SIZE];
    for (before, after) in sizes.iter().flat_map(|a| sizes.iter().map(move |b| (*a, *b))) {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::open(dir.path());
        let (old, new) = (key(1, 1, before), key(1, 2, after));
        tier.check_all(&TestSource::new(), &old);
        let written = [(3, Bytes::from(vec![7; 100])), (4 * BLOCK_SIZE - 5, Bytes::from(vec![8; 70_000]))];
        let expected = model(&content(&old, ByteRange::new(0, before)), &new, &written);
        rebase(&tier, &old, &new, &written);
        let here = check_blocks(&tier, &new, &expected);
        // All that was here and is still part of the file, whatever was written into it.
        let kept = before.min(after).div_ceil(BLOCK_SIZE);
        assert!(here >= kept, "{before} to {after}: {here} blocks");
        assert_eq!(tier.cached_bytes(&old), 0);
        tier.kill();
        let tier = Tier::open(dir.path());
        assert_eq!(check_blocks(&tier, &new, &expected), here, "{before} to {after}, after a kill");
    }
}

#[test]
fn a_block_of_which_the_rest_is_not_here_is_left_to_be_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let (old, new) = (key(1, 1, 4 * BLOCK_SIZE), key(1, 2, 4 * BLOCK_SIZE));
    tier.check(&TestSource::new(), &old, ByteRange::new(0, 10));
    let written =
        [(BLOCK_SIZE + 5, Bytes::from_static(b"some")), (2 * BLOCK_SIZE, Bytes::from(vec![1; 65_536]))];
    rebase(&tier, &old, &new, &written);
    let expected = model(&content(&old, ByteRange::new(0, old.size)), &new, &written);
    assert_eq!(check_blocks(&tier, &new, &expected), 2);
    assert_eq!(present(&tier, &new, ByteRange::new(BLOCK_SIZE, 1)), None);
}

#[test]
fn many_small_steps_keep_the_books_and_the_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let mut random = Random(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("SEED={}", random.0);
    let mut now = key(1, 0, 3 * MIB);
    tier.check_all(&TestSource::new(), &now);
    let mut expected = content(&now, ByteRange::new(0, now.size));
    for step in 1..200 {
        let size = if random.below(4) == 0 { random.below(4 * MIB) } else { now.size };
        let next = key(1, step, size);
        let at = random.below(4 * MIB);
        let written = [(at, Bytes::from(vec![step as u8; random.below(200_000) as usize]))];
        rebase(&tier, &now, &next, &written);
        expected = model(&expected, &next, &written);
        now = next;
    }
    check_blocks(&tier, &now, &expected);
    let stats = tier.cache().stats();
    assert_eq!(stats.files, 1);
    assert!(stats.bytes_used <= 4 * MIB + 128 * 1024, "{} bytes", stats.bytes_used);
}

#[test]
fn what_somebody_reads_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let (old, new) = (key(1, 1, 10 * BLOCK_SIZE + 9), key(1, 2, 10 * BLOCK_SIZE + 9));
    tier.check_all(&TestSource::new(), &old);
    let lent: WholeFile = tier.run(async { tier.cache().whole(&old).await }).expect("all of it is here");
    let written =
        [(BLOCK_SIZE + 5, Bytes::from_static(b"some")), (2 * BLOCK_SIZE, Bytes::from(vec![1; 70_000]))];
    rebase(&tier, &old, &new, &written);
    let before = content(&old, ByteRange::new(0, old.size));
    assert!(tier.run(lent.read(ByteRange::new(0, old.size))).unwrap() == before);
    assert_eq!(check_blocks(&tier, &new, &model(&before, &new, &written)), 11, "copied");
}

/// What is written over little of it is laid in where it is, and over much of it into another pair of files.
#[test]
fn what_was_sent_just_now_is_kept_and_what_is_read_again_has_what_was_written() {
    for (length, next) in [(70_000, 2), (70_000, 1), (17 * MIB as usize, 2), (17 * MIB as usize, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::open(dir.path());
        let (old, new) = (key(1, 1, 20 * MIB + 9), key(1, next, 20 * MIB + 9));
        let source = TestSource::new();
        tier.check_all(&source, &old);
        let from: std::sync::Arc<dyn Source> = source;
        for mib in 0..20 {
            let range = ByteRange::new(mib * MIB, MIB);
            let sent = tier.run(tier.cache().read(&old, range, &from, Lend::From(1))).unwrap();
            assert!(sent.iter().any(|piece| matches!(piece, Piece::Extent(_))), "sent where it lies");
        }
        let written = [
            (BLOCK_SIZE + 5, Bytes::from_static(b"some")),
            (2 * BLOCK_SIZE, Bytes::from(vec![1; length])),
            (new.size - 3, Bytes::from_static(b"end")),
        ];
        rebase(&tier, &old, &new, &written);
        let before = content(&old, ByteRange::new(0, old.size));
        let here = check_blocks(&tier, &new, &model(&before, &new, &written));
        assert_eq!(here, 321, "{length} bytes, version {next}");
    }
}
