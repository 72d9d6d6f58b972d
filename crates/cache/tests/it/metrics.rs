//! The counters say what happened.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

/// The value of one metric as Prometheus would scrape it.
fn value(registry: &Registry, name: &str) -> u64 {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("{name} is in {text}"));
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn counters_tell_hits_from_misses_and_name_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let mut registry = Registry::default();
    tier.cache().register(&mut registry);
    let source = TestSource::new();
    let key = key(1, 1, 10 * BLOCK_SIZE);
    let piece = ByteRange::new(BLOCK_SIZE, 2 * BLOCK_SIZE);
    tier.check(&source, &key, piece);
    tier.check(&source, &key, piece);
    tier.check(&source, &key, piece);
    assert_eq!(value(&registry, "forebay_cache_misses_total"), 1);
    assert_eq!(value(&registry, "forebay_cache_hits_total"), 2);
    assert_eq!(value(&registry, "forebay_cache_miss_bytes_total"), piece.length);
    assert_eq!(value(&registry, "forebay_cache_hit_bytes_total"), 2 * piece.length);
    assert_eq!(value(&registry, "forebay_cache_fetched_bytes_total"), piece.length);
    assert_eq!(value(&registry, "forebay_cache_inflight_bytes"), 0);
    assert_eq!(value(&registry, "forebay_cache_used_bytes"), tier.cache().stats().bytes_used);
    source.failing.store(true, std::sync::atomic::Ordering::Relaxed);
    tier.try_read(&source, &key, ByteRange::new(0, 1)).unwrap_err();
    assert_eq!(value(&registry, "forebay_cache_fetch_errors_total"), 1);
    tier.cache().evict_file(key.file);
    assert!(value(&registry, "forebay_cache_evicted_bytes_total") >= piece.length);
    assert_eq!(value(&registry, "forebay_cache_used_bytes"), 0);
}

#[test]
fn waiting_for_anothers_fetch_and_reading_ahead_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let mut registry = Registry::default();
    tier.cache().register(&mut registry);
    let source = TestSource::slow(100);
    let key = key(1, 1, 40 * MIB);
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let range = ByteRange::new(0, BLOCK_SIZE);
            tier.spawn(read(tier.cache().clone(), source.clone(), key, range))
        })
        .collect();
    for reader in readers {
        tier.run(reader).unwrap().unwrap();
    }
    assert_eq!(value(&registry, "forebay_cache_coalesced_waits_total"), 4);
    eventually("the start of the file is read ahead", || {
        value(&registry, "forebay_cache_readahead_bytes_total") >= MIB / 2
    });
}

/// Bytes fetched ahead, of these read later, of these evicted unread.
fn ahead(registry: &Registry) -> [u64; 3] {
    ["", "_used", "_evicted"]
        .map(|which| value(registry, &format!("forebay_cache_readahead{which}_bytes_total")))
}

#[test]
fn what_was_fetched_ahead_is_counted_once_as_read_or_as_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let mut registry = Registry::default();
    tier.cache().register(&mut registry);
    let source = TestSource::new();
    // Small files are fetched whole at the first touch.
    let files: Vec<_> = (0..2).map(|n| key(n, 1, MIB - 1)).collect();
    for file in &files {
        tier.check(&source, file, ByteRange::new(0, BLOCK_SIZE));
    }
    let each = MIB - 1 - BLOCK_SIZE;
    eventually("both are here", || files.iter().all(|file| tier.cached_bytes(file) == file.size));
    assert_eq!(ahead(&registry), [2 * each, 0, 0]);
    for _ in 0..2 {
        tier.check(&source, &files[0], ByteRange::new(0, files[0].size));
        tier.check(&source, &files[1], ByteRange::new(MIB - BLOCK_SIZE, 1));
    }
    let used = each + BLOCK_SIZE - 1;
    assert_eq!(ahead(&registry), [2 * each, used, 0]);
    for file in &files {
        tier.cache().evict_file(file.file);
    }
    assert_eq!(ahead(&registry), [2 * each, used, 2 * each - used]);
}

#[test]
fn what_a_giant_file_loses_unread_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = 64 * MIB);
    let mut registry = Registry::default();
    tier.cache().register(&mut registry);
    let source = TestSource::new();
    let from: std::sync::Arc<dyn cache::Source> = source.clone();
    let giant = key(1, 1, 256 * MIB);
    for part in 0..giant.size / (512 << 10) {
        let range = ByteRange::new(part * (512 << 10), 512 << 10);
        eventually("room", || {
            tier.run(async { tier.cache().prefetch(&giant, range, &from).await }) != cache::Prefetched::NoRoom
        });
    }
    eventually("all has come", || {
        value(&registry, "forebay_cache_inflight_bytes") == 0 && ahead(&registry)[0] == giant.size
    });
    eventually("room was made", || ahead(&registry)[2] >= giant.size - 64 * MIB);
    // While room is made, the one counter runs ahead of the other.
    eventually("nobody read any of it", || {
        let [_, used, evicted] = ahead(&registry);
        used == 0 && evicted == value(&registry, "forebay_cache_evicted_bytes_total")
    });
}
