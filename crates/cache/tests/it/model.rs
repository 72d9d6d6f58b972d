//! Random operations by several clients at once, over restarts and damage, against the one truth: the
//! origin's bytes.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cache::{Cache, CacheKey, Source};
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

/// Sizes around the edges of blocks and parts, and one that is giant for the quota used here.
const SIZES: [u64; 12] = [
    0,
    1,
    4095,
    BLOCK_SIZE - 1,
    BLOCK_SIZE,
    BLOCK_SIZE + 1,
    512 << 10,
    (512 << 10) + 1,
    MIB + 3,
    3 * MIB,
    7 * MIB + 65_535,
    20 * MIB,
];

fn some_key(random: &mut Random) -> CacheKey {
    let file = random.below(24);
    let version = random.below(2);
    key(file, version, SIZES[(file % 12) as usize])
}

fn some_range(random: &mut Random, size: u64) -> ByteRange {
    let length = match random.below(4) {
        0 => random.below(100),
        1 => random.below(BLOCK_SIZE * 2),
        2 => BLOCK_SIZE * (1 + random.below(8)),
        _ => random.below(2 * MIB),
    };
    let offset = match random.below(3) {
        0 => 0,
        1 => random.below(size + 1) / BLOCK_SIZE * BLOCK_SIZE,
        _ => random.below(size + 1),
    };
    ByteRange::new(offset, length).clamp_to(size)
}

/// One client: a number of random operations, every byte compared.
async fn client(cache: Arc<Cache>, source: Arc<TestSource>, seed: u64, steps: u64, with_guests: bool) {
    let mut random = Random(seed);
    for _ in 0..steps {
        let key = some_key(&mut random);
        match random.below(40) {
            0 => {
                cache.evict_file(key.file);
            }
            1 => {
                let source: Arc<dyn Source> = source.clone();
                cache.warm(&key, &source, |_| {}).await.expect("warm succeeds");
            }
            2 => assert!(cache.cached_bytes(&key).await <= key.size),
            // The map changes: another node is to keep the file from now on, or this one.
            5 if with_guests => source.guest(&key),
            6 if with_guests => source.kept_again(&key),
            3 => {
                // A client that gives up in the middle.
                let work = read(cache.clone(), source.clone(), key, whole(&key));
                let _ = tokio::time::timeout(std::time::Duration::from_micros(300), work).await;
            }
            4 => {
                // A reader in order.
                let mut at = 0;
                while at < key.size.min(4 * MIB) {
                    let range = ByteRange::new(at, 128 << 10).clamp_to(key.size);
                    let got = read(cache.clone(), source.clone(), key, range).await.expect("reads succeed");
                    assert_same(&got, &key, range);
                    at = range.end();
                }
            }
            _ => {
                let range = some_range(&mut random, key.size);
                let got = read(cache.clone(), source.clone(), key, range).await.expect("reads succeed");
                assert_same(&got, &key, range);
            }
        }
    }
}

/// Damage a few bytes anywhere in the cache's files while nobody runs.
fn damage(dir: &std::path::Path, random: &mut Random) {
    let files: Vec<_> = files_ending(dir, ".data").into_iter().chain(files_ending(dir, ".map")).collect();
    for _ in 0..random.below(6) {
        let Some(path) = files.get(random.below(files.len() as u64) as usize) else { return };
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        match random.below(4) {
            0 => file.set_len(random.below(length + 1)).unwrap(),
            _ => file.write_all_at(&random.next().to_le_bytes(), random.below(length + 1)).unwrap(),
        }
    }
}

fn one_life_after_another(seed: u64, with_damage: bool, with_guests: bool) {
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    for life in 0..4 {
        let source = TestSource::new();
        source.delay_ms.store(random.below(2), Relaxed);
        let tier = Tier::open_with(dir.path(), |config| {
            config.size_max = 64 * MIB;
            config.inflight_max = 4 * MIB;
            config.guests_max = with_guests.then(|| random.below(3) * 4 * MIB);
            config.readahead_max = [0, MIB, 8 * MIB][random.below(3) as usize];
        });
        let clients: Vec<_> = (0..6)
            .map(|_| tier.spawn(client(tier.cache().clone(), source.clone(), random.next(), 60, with_guests)))
            .collect();
        for client in clients {
            if let Err(panic) = tier.run(client) {
                panic!("seed {seed}, life {life}: {panic}");
            }
        }
        eventually("guests are in their share", || {
            tier.cache().metrics().guest_bytes.get() as u64 <= 16 * MIB
        });
        tier.kill();
        if with_damage {
            damage(dir.path(), &mut random);
        }
    }
}

#[test]
fn random_operations_give_the_origins_bytes() {
    for seed in [1, 2, 3] {
        one_life_after_another(seed, false, false);
    }
}

#[test]
fn random_operations_over_a_damaged_disk_give_the_origins_bytes() {
    for seed in [10, 11, 12] {
        one_life_after_another(seed, true, false);
    }
}

#[test]
fn random_operations_give_the_origins_bytes_while_stripes_change_hands() {
    for seed in [20, 21, 22] {
        one_life_after_another(seed, false, true);
        one_life_after_another(seed + 10, true, true);
    }
}
