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
