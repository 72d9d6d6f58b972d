//! What is fetched that nobody asked for, and what is not.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cache::Prefetched;
use types::ByteRange;

use crate::harness::*;

const KIB: u64 = 1 << 10;

#[test]
fn what_still_queues_when_its_last_reader_has_gone_is_never_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| {
        config.inflight_max = 4 * MIB;
        config.readahead_max = 0;
    });
    let source = TestSource::slow(400);
    let (busy, wanted, left) = (key(1, 1, 4 * MIB), key(2, 1, 2 * MIB), key(3, 1, 2 * MIB));
    let start = |key: cache::CacheKey| {
        let (cache, source) = (tier.cache().clone(), source.clone());
        let task = tier.spawn(read(cache, source, key, ByteRange::new(0, key.size)));
        std::thread::sleep(Duration::from_millis(50));
        task
    };
    let (first, queued) = (start(busy), start(left));
    let (gone, stays) = (start(wanted), start(wanted));
    queued.abort();
    gone.abort();
    tier.run(first).unwrap().unwrap();
    assert_same(&tier.run(stays).unwrap().unwrap(), &wanted, ByteRange::new(0, wanted.size));
    assert_eq!(
        source.bytes_read(),
        busy.size + wanted.size,
        "one of two readers had gone, and both of the other's"
    );
    assert_eq!(tier.cache().metrics().abandoned_fetches.get(), 4, "parts of 512 KiB");
    // It can be read afterwards as if nothing had been.
    tier.check_all(&source, &left);
}

#[test]
fn small_cold_reads_at_random_cost_small_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 1 << 30);
    let mut random = Random(5);
    let reads = 1000;
    for _ in 0..reads {
        let offset = random.below(key.size / 4096) * 4096;
        tier.check(&source, &key, ByteRange::new(offset, 4096));
    }
    std::thread::sleep(Duration::from_millis(100));
    let amplified = source.bytes_read() as f64 / (reads * 4096) as f64;
    assert!(amplified <= 20.0, "{amplified:.1} times the bytes that were asked for");
}

#[test]
fn backward_and_strided_readers_find_their_bytes_there() {
    let backward: Vec<u64> = (0..48).rev().map(|n| n * 512 * KIB).collect();
    let strided: Vec<u64> = (0..48).map(|n| MIB + n * 3 * MIB).collect();
    for (offsets, length) in [(backward, 512 * KIB), (strided, 64 * KIB)] {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::open(dir.path());
        let source = TestSource::slow(20);
        let key = key(1, 1, 256 * MIB);
        for offset in &offsets {
            tier.check(&source, &key, ByteRange::new(*offset, length));
        }
        let metrics = tier.cache().metrics();
        let ahead = metrics.readahead_bytes.get();
        let read = offsets.len() as u64 * length;
        assert!(ahead >= read / 2, "{} of {} KiB ahead", ahead / KIB, read / KIB);
        assert_eq!(source.most_often(), 1);
    }
}

#[test]
fn a_prefetch_takes_only_room_to_spare_and_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.inflight_max = 4 * MIB);
    let source = TestSource::slow(50);
    let far: std::sync::Arc<dyn cache::Source> = source.clone();
    let whole = |key: &cache::CacheKey| ByteRange::new(0, key.size);
    let files: Vec<_> = (0..8).map(|n| key(n, 1, MIB)).collect();
    let results = tier.run(async {
        let mut results = Vec::new();
        for key in &files {
            results.push(tier.cache().prefetch(key, whole(key), &far).await);
        }
        results
    });
    let started = results.iter().filter(|result| **result == Prefetched::Started).count();
    assert_eq!(started, 3, "a quarter of the budget stays free: {results:?}");
    tier.check_all(&source, &files[0]);
    let again = tier.run(async { tier.cache().prefetch(&files[0], whole(&files[0]), &far).await });
    assert_eq!(again, Prefetched::Here);
    assert!(source.in_flight_peak.load(Relaxed) <= 4 * MIB);
    assert_eq!(source.most_often(), 1);
}
