//! The cache stays within its room, and what is used stays longest.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

const QUOTA: u64 = 64 * MIB;

/// Bytes that the cache directory really occupies.
fn allocated(dir: &std::path::Path) -> u64 {
    let of = |ending| files_ending(dir, ending).into_iter();
    of(".data")
        .chain(of(".map"))
        .filter_map(|path| path.metadata().ok())
        .map(|meta| meta.blocks() * 512)
        .sum()
}

/// What the quota may be passed by: bytes in flight while the reclaim works.
const SLACK: u64 = 8 * MIB;

#[test]
fn the_quota_holds_under_churn() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    let source = TestSource::new();
    for file in 0..60 {
        let key = key(file, 1, 4 * MIB);
        tier.check_all(&source, &key);
        // At once, but for a reclaim that a busy machine lets wait.
        eventually("the quota holds", || allocated(dir.path()) <= QUOTA + SLACK);
    }
    eventually("the cache is below its quota", || allocated(dir.path()) <= QUOTA);
    let stats = tier.cache().stats();
    assert!(stats.bytes_used <= QUOTA, "{stats:?}");
    assert!(stats.bytes_used >= QUOTA / 2, "the room is used: {stats:?}");
    // A reclaim may come between the two looks.
    let differ = || tier.cache().stats().bytes_used.abs_diff(allocated(dir.path()));
    eventually("the books are what is on the disk", || differ() <= MIB);
}

#[test]
fn a_quota_that_is_changed_holds_at_once_and_what_would_be_too_little_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| {
        (config.size_max, config.inflight_max, config.readahead_max) = (2 * QUOTA, 8 * MIB, 0);
    });
    let source = TestSource::new();
    let fill = || {
        for file in 0..40 {
            tier.check_all(&source, &key(file, 1, 4 * MIB));
        }
    };
    fill();
    eventually("the cache is below its quota", || allocated(dir.path()) <= 2 * QUOTA);
    assert!(tier.cache().stats().bytes_used > QUOTA, "{:?}", tier.cache().stats());
    tier.cache().set_limits(QUOTA, 0, None).expect("8 MiB in flight are an eighth of it");
    eventually("it is below the smaller one", || allocated(dir.path()) <= QUOTA);
    assert_eq!(tier.cache().stats().bytes_max, QUOTA);
    tier.cache().set_limits(2 * QUOTA, 0, None).expect("more");
    fill();
    eventually("the room is used", || tier.cache().stats().bytes_used > QUOTA);
    for least in [32 * MIB, 64 * MIB - 1] {
        let error = tier.cache().set_limits(least, 0, None).expect_err("refused").to_string();
        assert!(error.contains("64 MiB"), "{error}");
    }
    assert_eq!(tier.cache().stats().bytes_max, 2 * QUOTA);
}

#[test]
fn many_fills_at_once_do_not_pass_the_quota_together() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| {
        config.size_max = QUOTA;
        config.readahead_max = 0;
    });
    let source = TestSource::slow(3);
    let tasks: Vec<_> = (0..48)
        .map(|file| {
            let key = key(file, 1, 4 * MIB);
            tier.spawn(read(tier.cache().clone(), source.clone(), key, whole(&key)))
        })
        .collect();
    let mut peak = 0;
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        peak = peak.max(allocated(dir.path()));
    }
    for (file, task) in (0..48).zip(tasks) {
        let key = key(file, 1, 4 * MIB);
        assert_same(&tier.run(task).unwrap().unwrap(), &key, whole(&key));
    }
    // The map files' units, the moment between a fill and its entry in the books, and that the sum is of no one moment: what
    // goes from a file that was looked at already may be in another one by then. Of 192 MiB that come at once.
    assert!(peak <= QUOTA + 8 * MIB, "{peak} bytes on disk at the highest");
    assert!(tier.cache().stats().degraded.is_none(), "{:?}", tier.cache().stats());
}

#[test]
fn many_small_files_are_accounted_by_what_they_occupy() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    for file in 0..500 {
        tier.check_all(&source, &key(file, 1, 100 + file));
    }
    let (used, real) = (tier.cache().stats().bytes_used, allocated(dir.path()));
    assert!(used.abs_diff(real) <= real / 4, "accounted {used}, occupied {real}");
}

#[test]
fn a_one_pass_scan_does_not_drive_out_the_hot_set() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    let source = TestSource::new();
    let hot: Vec<_> = (0..20).map(|file| key(file, 1, MIB)).collect();
    for _ in 0..3 {
        hot.iter().for_each(|key| tier.check_all(&source, key));
    }
    for scanned in 100..300 {
        tier.check_all(&source, &key(scanned, 1, MIB));
        if scanned % 20 == 0 {
            (0..2).for_each(|_| hot.iter().for_each(|key| tier.check_all(&source, key)));
        }
    }
    let kept: u64 = hot.iter().map(|key| tier.cached_bytes(key)).sum();
    assert!(kept >= 19 * MIB, "{kept} of {} hot bytes are left after a scan", 20 * MIB);
}

#[test]
fn a_giant_file_read_once_does_not_drive_out_what_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    let source = TestSource::new();
    let hot: Vec<_> = (0..10).map(|file| key(file, 1, MIB)).collect();
    for _ in 0..3 {
        hot.iter().for_each(|key| tier.check_all(&source, key));
    }
    tier.check_all(&source, &key(100, 1, 300 * MIB));
    let kept: u64 = hot.iter().map(|key| tier.cached_bytes(key)).sum();
    assert!(kept >= 9 * MIB, "{kept} of {} hot bytes are left after one pass over a giant file", 10 * MIB);
}

#[test]
fn an_old_version_leaves_before_anything_else() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    let source = TestSource::new();
    let others: Vec<_> = (10..14).map(|file| key(file, 1, 6 * MIB)).collect();
    others.iter().for_each(|key| tier.check_all(&source, key));
    let (old, new) = (key(1, 1, 14 * MIB), key(1, 2, 14 * MIB));
    for _ in 0..3 {
        tier.check_all(&source, &old);
    }
    tier.check_all(&source, &new);
    tier.check_all(&source, &key(20, 1, 6 * MIB));
    tier.check_all(&source, &key(21, 1, 6 * MIB));
    eventually("the old version is gone", || tier.cached_bytes(&old) == 0);
    assert!(tier.cached_bytes(&new) > 0);
    for key in others {
        assert_eq!(tier.cached_bytes(&key), key.size, "no other file had to leave");
    }
}

#[test]
fn a_giant_file_loses_ranges_and_its_bytes_stay_right() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    let source = TestSource::new();
    let giant = key(1, 1, 150 * MIB);
    let small = key(2, 1, MIB);
    tier.check_all(&source, &small);
    tier.check_all(&source, &small);
    tier.check_all(&source, &giant);
    eventually("the cache is below its quota", || allocated(dir.path()) <= QUOTA);
    let kept = tier.cached_bytes(&giant);
    assert!(kept >= QUOTA / 4, "ranges leave, not the whole file: {kept} bytes are left");
    tier.check_all(&source, &small);
    let mut random = Random(11);
    for _ in 0..200 {
        let offset = random.below(giant.size);
        tier.check(&source, &giant, ByteRange::new(offset, 10_000).clamp_to(giant.size));
    }
    tier.check_all(&source, &giant);
}

#[test]
fn readers_of_a_giant_file_under_reclaim_see_right_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    let source = TestSource::new();
    let giant = key(1, 1, 100 * MIB);
    let tasks: Vec<_> = (0..4)
        .map(|reader| {
            let (cache, source) = (tier.cache().clone(), Arc::clone(&source));
            tier.spawn(async move {
                let mut random = Random(1000 + reader);
                for step in 0..150 {
                    let at = if reader % 2 == 0 { step * 700_000 } else { random.below(giant.size) };
                    let range = ByteRange::new(at, 700_000).clamp_to(giant.size);
                    let got = read(cache.clone(), source.clone(), giant, range).await.unwrap();
                    assert_same(&got, &giant, range);
                }
            })
        })
        .collect();
    for task in tasks {
        tier.run(task).unwrap();
    }
}

#[test]
fn evicting_a_file_removes_all_its_versions_and_frees_its_room() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let (one, two, other) = (key(1, 1, 5 * MIB), key(1, 2, 3 * MIB), key(2, 1, MIB));
    [one, other].iter().for_each(|key| tier.check_all(&source, key));
    let freed = tier.cache().evict_file(one.file);
    assert!(freed >= 5 * MIB, "{freed}");
    assert_eq!(tier.cached_bytes(&one) + tier.cached_bytes(&two), 0);
    eventually("its room is free", || allocated(dir.path()) <= MIB + 16 * BLOCK_SIZE);
    let stats = tier.cache().stats();
    assert!(stats.files == 1 && stats.bytes_used <= MIB + 16 * BLOCK_SIZE, "{stats:?}");
    assert_eq!(tier.cache().evict_file(one.file), 0, "nothing is left");
    let before = source.bytes_read();
    tier.check_all(&source, &other);
    assert_eq!(source.bytes_read(), before, "the other file stayed");
}

#[test]
fn a_file_evicted_after_a_restart_is_gone_even_before_it_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = key(1, 1, MIB);
    let tier = Tier::open(dir.path());
    tier.check_all(&TestSource::new(), &file);
    tier.kill();
    let tier = Tier::open(dir.path());
    assert!(tier.cache().evict_file(file.file) >= file.size);
    assert!(files_ending(dir.path(), ".data").is_empty());
}

#[test]
fn a_smaller_quota_after_a_restart_is_reached_without_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    for file in 0..30 {
        tier.check_all(&source, &key(file, 1, 4 * MIB));
    }
    tier.kill();
    let _tier = Tier::open_with(dir.path(), |config| config.size_max = QUOTA);
    eventually("the cache shrinks to its quota", || allocated(dir.path()) <= QUOTA);
}
