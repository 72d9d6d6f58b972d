//! Whatever happens to the files on the cache disk, clients get right bytes and no error.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cache::CacheKey;
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

/// A cache directory that holds all of `key`, nobody running on it.
fn filled(key: &CacheKey) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    tier.check_all(&TestSource::new(), key);
    assert_eq!(tier.cached_bytes(key), key.size);
    tier.kill();
    dir
}

/// Start on the directory, read all, and say how many bytes were fetched for it.
fn refetched(dir: &Path, key: &CacheKey) -> u64 {
    let source = TestSource::new();
    let tier = Tier::open_with(dir, |config| config.readahead_max = 0);
    tier.check_all(&source, key);
    let fetched = source.bytes_read();
    // And now it is whole again.
    let again = TestSource::new();
    tier.check_all(&again, key);
    assert_eq!(again.bytes_read(), 0, "what was fetched again is cached again");
    fetched
}

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_flipped_byte_is_refetched() {
    let key = key(1, 1, 10 * BLOCK_SIZE + 77);
    let dir = filled(&key);
    let (data, _) = files_of(dir.path(), &key);
    flip(&data, 3 * BLOCK_SIZE + 1000);
    assert_eq!(refetched(dir.path(), &key), BLOCK_SIZE, "one block, no more");
}

#[test]
fn a_flipped_byte_in_the_short_last_block_is_refetched() {
    let key = key(1, 1, 10 * BLOCK_SIZE + 77);
    let dir = filled(&key);
    let (data, _) = files_of(dir.path(), &key);
    flip(&data, 10 * BLOCK_SIZE + 76);
    assert_eq!(refetched(dir.path(), &key), 77);
}

#[test]
fn a_flipped_byte_is_found_by_a_read_of_a_few_other_bytes_of_its_block() {
    let key = key(1, 1, 4 * BLOCK_SIZE);
    let dir = filled(&key);
    let (data, _) = files_of(dir.path(), &key);
    flip(&data, BLOCK_SIZE + 5);
    let source = TestSource::new();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    tier.check(&source, &key, ByteRange::new(BLOCK_SIZE + 3, 8));
    assert_eq!(source.bytes_read(), BLOCK_SIZE);
}

/// Two changes of a file that are not farther apart may have the same timestamp.
const TICK: std::time::Duration = std::time::Duration::from_millis(20);

#[test]
fn rot_while_running_is_found_by_the_next_read_of_the_whole_block() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 4 * BLOCK_SIZE);
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    tier.check_all(&source, &key);
    let (data, _) = files_of(dir.path(), &key);
    std::thread::sleep(TICK);
    flip(&data, 2 * BLOCK_SIZE);
    // Also when the reader is lent the bytes of the file, as this one is.
    tier.check(&source, &key, whole(&key));
    assert_eq!(source.bytes_read(), key.size + BLOCK_SIZE);
}

#[test]
fn rot_while_running_is_found_by_reads_of_pieces_of_its_block() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 4 * BLOCK_SIZE);
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    tier.check_all(&source, &key);
    let (data, _) = files_of(dir.path(), &key);
    for (times, piece) in [(1, 4096), (2, 8192), (3, 100)] {
        std::thread::sleep(TICK);
        flip(&data, 2 * BLOCK_SIZE + 5000);
        (0..BLOCK_SIZE / 4096).for_each(|n| {
            tier.check(&source, &key, ByteRange::new(2 * BLOCK_SIZE + n * 4096, piece));
        });
        assert_eq!(source.bytes_read(), key.size + times * BLOCK_SIZE);
    }
}

#[test]
fn any_flipped_byte_of_the_map_is_harmless() {
    let key = key(1, 1, 5 * BLOCK_SIZE + 9);
    let dir = filled(&key);
    let (_, map) = files_of(dir.path(), &key);
    let length = fs::metadata(&map).unwrap().len();
    let right = fs::read(&map).unwrap();
    for at in 0..length {
        if let Ok((_, map)) = std::panic::catch_unwind(|| files_of(dir.path(), &key)) {
            flip(&map, at);
        }
        refetched(dir.path(), &key);
        let (_, map) = files_of(dir.path(), &key);
        assert_eq!(fs::read(&map).unwrap(), right, "after damage at {at} the map is as it was");
    }
}

#[test]
fn truncated_files_are_missing_blocks() {
    let key = key(1, 1, 6 * BLOCK_SIZE + 100);
    for keep in [0, 1, 100, BLOCK_SIZE, 3 * BLOCK_SIZE + 1, key.size - 1] {
        let dir = filled(&key);
        let (data, _) = files_of(dir.path(), &key);
        fs::OpenOptions::new().write(true).open(&data).unwrap().set_len(keep).unwrap();
        let lost = key.size - keep / BLOCK_SIZE * BLOCK_SIZE;
        let fetched = refetched(dir.path(), &key);
        assert!((lost..=key.size).contains(&fetched), "data cut to {keep}: {fetched} fetched again");
    }
    let dir = filled(&key);
    let (_, map) = files_of(dir.path(), &key);
    for keep in (0..fs::metadata(&map).unwrap().len()).rev().step_by(5) {
        let (_, map) = files_of(dir.path(), &key);
        fs::OpenOptions::new().write(true).open(&map).unwrap().set_len(keep).unwrap();
        refetched(dir.path(), &key);
    }
}

#[test]
fn missing_and_garbage_files_are_missing_blocks() {
    let key = key(1, 1, 3 * BLOCK_SIZE);
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 6] = [
        ("no data", |data, _| fs::remove_file(data).unwrap()),
        ("no map", |_, map| fs::remove_file(map).unwrap()),
        ("a data file of zeros", |data, _| fs::write(data, vec![0; 3 * BLOCK_SIZE as usize]).unwrap()),
        ("a map of zeros", |_, map| fs::write(map, vec![0; 4096]).unwrap()),
        ("a map of ones", |_, map| fs::write(map, vec![0xff; 100_000]).unwrap()),
        ("a directory for a map", |_, map| {
            fs::remove_file(map).unwrap();
            fs::create_dir(map).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let dir = filled(&key);
        let (data, map) = files_of(dir.path(), &key);
        damage(&data, &map);
        let source = TestSource::new();
        let tier = Tier::open(dir.path());
        tier.check_all(&source, &key);
        assert_eq!(source.bytes_read(), key.size, "{what}");
    }
}

/// Swap `size` bytes at two places of a file.
fn swap(path: &Path, a: u64, b: u64, size: usize) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (mut one, mut two) = (vec![0; size], vec![0; size]);
    file.read_exact_at(&mut one, a).unwrap();
    file.read_exact_at(&mut two, b).unwrap();
    file.write_all_at(&two, a).unwrap();
    file.write_all_at(&one, b).unwrap();
}

#[test]
fn swapped_blocks_are_noticed_even_when_their_checksums_are_swapped_too() {
    let key = key(1, 1, 6 * BLOCK_SIZE);
    let dir = filled(&key);
    let (data, map) = files_of(dir.path(), &key);
    swap(&data, BLOCK_SIZE, 4 * BLOCK_SIZE, BLOCK_SIZE as usize);
    assert_eq!(refetched(dir.path(), &key), 2 * BLOCK_SIZE);
    let header = fs::metadata(&map).unwrap().len() - 6 * 8;
    swap(&data, BLOCK_SIZE, 4 * BLOCK_SIZE, BLOCK_SIZE as usize);
    swap(&map, header + 8, header + 4 * 8, 8);
    assert_eq!(refetched(dir.path(), &key), 2 * BLOCK_SIZE);
}

#[test]
fn files_of_another_version_or_file_are_not_believed() {
    let mine = key(1, 1, 3 * BLOCK_SIZE);
    for other in [key(1, 2, 3 * BLOCK_SIZE), key(2, 1, 3 * BLOCK_SIZE)] {
        let dir = filled(&mine);
        let elsewhere = filled(&other);
        let (data, map) = files_of(dir.path(), &mine);
        let (data2, map2) = files_of(elsewhere.path(), &other);
        fs::copy(&map2, &map).unwrap();
        assert_eq!(refetched(dir.path(), &mine), mine.size, "a foreign map is no map");
        fs::copy(&map2, &map).unwrap();
        fs::copy(&data2, &data).unwrap();
        assert_eq!(refetched(dir.path(), &mine), mine.size, "a foreign pair is no pair");
    }
}

#[test]
fn foreign_blocks_under_my_header_are_not_believed() {
    let (mine, other) = (key(1, 1, 3 * BLOCK_SIZE), key(2, 1, 3 * BLOCK_SIZE));
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    tier.check_all(&source, &mine);
    tier.check_all(&source, &other);
    let (data, map) = files_of(dir.path(), &mine);
    let (data2, map2) = files_of(dir.path(), &other);
    tier.kill();
    fs::copy(&data2, &data).unwrap();
    let (mut bytes, foreign) = (fs::read(&map).unwrap(), fs::read(&map2).unwrap());
    let entries = bytes.len() - 3 * 8;
    bytes[entries..].copy_from_slice(&foreign[entries..]);
    fs::write(&map, bytes).unwrap();
    assert_eq!(refetched(dir.path(), &mine), mine.size);
}

#[test]
fn a_file_of_another_size_under_the_same_version_is_not_mixed_in() {
    let short = key(1, 1, 2 * BLOCK_SIZE + 10);
    let dir = filled(&short);
    let long = CacheKey { size: 5 * BLOCK_SIZE, ..short };
    let tier = Tier::open(dir.path());
    tier.check_all(&TestSource::new(), &long);
}

#[test]
fn a_file_cut_short_while_running_is_noticed_by_the_smallest_read() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 4 * BLOCK_SIZE);
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    tier.check_all(&source, &key);
    let (data, _) = files_of(dir.path(), &key);
    fs::OpenOptions::new().write(true).open(&data).unwrap().set_len(BLOCK_SIZE + 100).unwrap();
    tier.check(&source, &key, ByteRange::new(BLOCK_SIZE + 90, 30));
    tier.check(&source, &key, ByteRange::new(3 * BLOCK_SIZE + 1, 1));
    tier.check(&source, &key, ByteRange::new(2 * BLOCK_SIZE - 1, 2));
    tier.check_all(&source, &key);
    assert_eq!(source.bytes_read(), key.size + 3 * BLOCK_SIZE);
}

#[test]
fn damage_under_many_readers_is_mended_once() {
    let key = key(1, 1, 16 * BLOCK_SIZE);
    let dir = filled(&key);
    let (data, _) = files_of(dir.path(), &key);
    flip(&data, 7 * BLOCK_SIZE);
    let tier = Tier::open(dir.path());
    let source = TestSource::slow(20);
    let readers: Vec<_> = (0..16)
        .map(|_| tier.spawn(read(tier.cache().clone(), Arc::clone(&source), key, whole(&key))))
        .collect();
    for reader in readers {
        assert_same(&tier.run(reader).unwrap().unwrap(), &key, whole(&key));
    }
    assert_eq!(source.bytes_read(), BLOCK_SIZE);
}

#[test]
fn the_directory_may_vanish_while_running() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let (old, new) = (key(1, 1, 2 * MIB), key(2, 1, 2 * MIB));
    tier.check_all(&source, &old);
    for entry in fs::read_dir(dir.path()).unwrap().flatten() {
        if entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    tier.check_all(&source, &new);
    tier.check_all(&source, &old);
}

/// FOREBAY_FLIPS=2000 tries so many, at rest and while it runs; a few always.
#[test]
fn a_flipped_bit_of_any_block_or_map_is_never_a_wrong_byte() {
    let flips = std::env::var("FOREBAY_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(40);
    let key = key(1, 1, 3 * BLOCK_SIZE + 4321);
    let dir = filled(&key);
    let (data, map) = files_of(dir.path(), &key);
    let (mut random, mut fetched) = (Random(13), 0);
    let mut tier = None;
    for number in 0..flips {
        let path = if number % 4 == 0 { &map } else { &data };
        let at = random.below(fs::metadata(path).unwrap().len());
        if number % 2 == 0 {
            drop(tier.take());
            flip(path, at);
        } else {
            // The one before is at work, and has read all of it.
            std::thread::sleep(TICK);
            flip(path, at);
        }
        let running =
            tier.get_or_insert_with(|| Tier::open_with(dir.path(), |config| config.readahead_max = 0));
        let source = TestSource::new();
        let from = random.below(key.size);
        running.check(&source, &key, ByteRange::new(from, (1 + random.below(9000)).min(key.size - from)));
        running.check_all(&source, &key);
        fetched += u64::from(source.bytes_read() > 0);
    }
    println!("{flips} flips: {fetched} found and fetched again");
    assert!(fetched > flips / 4, "{fetched} of {flips}");
}
