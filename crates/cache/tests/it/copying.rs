//! What a node of a cluster asks its cache to keep copies of what others hold.

use std::collections::BTreeSet;

use bytes::Bytes;
use cache::{BlockBits, CacheKey};
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

/// The blocks of the bits, counted from those of the first piece.
fn blocks(bits: &[BlockBits]) -> Vec<u64> {
    let is_set =
        |block: &u64| bits[(block / 1024) as usize][(block % 1024 / 64) as usize] >> (block % 64) & 1 == 1;
    (0..bits.len() as u64 * 1024).filter(is_set).collect()
}

fn walked(tier: &Tier, slots: usize) -> Vec<CacheKey> {
    eventually("all is counted", || tier.cache().is_counted());
    let (mut keys, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let held = tier.run(tier.cache().walk(from, slots));
        keys.extend(held.keys);
        next = held.next;
    }
    keys
}

#[test]
fn a_walk_meets_all_files_with_their_sizes_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let source = TestSource::new();
    let keys: Vec<CacheKey> = (0..50).map(|file| key(file, 1, 1000 + file)).collect();
    let mut tier = Tier::open(dir.path());
    keys.iter().for_each(|key| tier.check_all(&source, key));
    let ids = |keys: &[CacheKey]| keys.iter().map(|key| (key.file, key.size)).collect::<BTreeSet<_>>();
    for slots in [1, 7, 1000] {
        let met = walked(&tier, slots);
        assert_eq!((met.len(), ids(&met)), (50, ids(&keys)), "{slots} at a time");
        tier.kill();
        tier = Tier::open(dir.path());
    }
    tier.cache().evict_file(keys[7].file);
    assert_eq!(walked(&tier, 3).len(), 49);
}

#[test]
fn the_blocks_that_are_here_are_told_and_only_those() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let file = key(1, 1, 1030 * BLOCK_SIZE - 7);
    assert_eq!(tier.run(tier.cache().held_blocks(&file, 0..2)), [[0; 16]; 2]);
    for block in [0, 1, 500, 1023, 1029] {
        tier.check(&source, &file, ByteRange::new(block * BLOCK_SIZE, 1));
    }
    assert_eq!(blocks(&tier.run(tier.cache().held_blocks(&file, 0..2))), [0, 1, 500, 1023, 1029]);
    assert_eq!(blocks(&tier.run(tier.cache().held_blocks(&file, 1..3))), [5], "and nothing beyond the file");
    let other = CacheKey { size: file.size - 1, ..file };
    assert_eq!(tier.run(tier.cache().held_blocks(&other, 0..1)), [[0; 16]], "it is another file");
}

#[test]
fn a_copy_is_kept_served_and_checked_as_what_was_fetched_is() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let file = key(1, 1, 5 * BLOCK_SIZE + 9);
    let whole = ByteRange::new(0, file.size);
    let keep = |blocks: std::ops::Range<u64>| {
        let range = ByteRange::new(blocks.start * BLOCK_SIZE, (blocks.end - blocks.start) * BLOCK_SIZE);
        let bytes = Bytes::from(content(&file, range.clamp_to(file.size)));
        tier.run(tier.cache().keep_copy(&file, blocks, bytes))
    };
    assert!(keep(4..6) && keep(0..2));
    assert!(tier.run(tier.cache().read_to_copy(&file, whole)).unwrap().is_none(), "two blocks are missing");
    assert!(keep(1..4), "one of them is here already");
    let bytes = tier.run(tier.cache().read_to_copy(&file, whole)).unwrap().expect("all is here");
    assert_same(&bytes, &file, whole);
    tier.check_all(&source, &file);
    assert_eq!((source.bytes_read(), tier.cache().stats().files), (0, 1));
    tier.kill();
    let tier = Tier::open(dir.path());
    tier.check_all(&source, &file);
    assert_eq!(source.bytes_read(), 0, "its checksums are there");
}

#[test]
fn room_for_copies_ends_before_anything_has_to_leave_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = 64 * MIB);
    let mut kept = 0;
    while tier.cache().room_for_copies() > 0 {
        let file = key(kept, 1, MIB);
        let bytes = Bytes::from(content(&file, ByteRange::new(0, MIB)));
        assert!(tier.run(tier.cache().keep_copy(&file, 0..16, bytes)));
        kept += 1;
        assert!(kept < 64, "it never ends");
    }
    assert!(kept > 50, "the room is used: {kept}");
    assert_eq!(walked(&tier, 100).len() as u64, kept, "all of them are here");
    tier.cache().set_limits(64 * MIB, u64::MAX / 2, None).expect("legal");
    assert_eq!(tier.cache().room_for_copies(), 0, "the disk is full of other things");
}
