//! Many readers, one fetch.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cache::{Lend, Piece, Source};
use tokio::sync::Semaphore;
use types::{BLOCK_SIZE, ByteRange, Supplier};

use crate::harness::*;

/// `readers` tasks that each read the whole file in pieces of `piece` bytes.
fn read_by_many(tier: &Tier, source: &Arc<TestSource>, key: cache::CacheKey, readers: u64, piece: u64) {
    let tasks: Vec<_> = (0..readers)
        .map(|reader| {
            let (cache, source) = (tier.cache().clone(), source.clone());
            tier.spawn(async move {
                let pieces = key.size.div_ceil(piece);
                for step in 0..pieces {
                    // Readers start at different places and go round.
                    let at = (step + reader * 7 % 4 * pieces / 4) % pieces * piece;
                    let range = ByteRange::new(at, piece).clamp_to(key.size);
                    let got = read(cache.clone(), source.clone(), key, range).await.unwrap();
                    assert_same(&got, &key, range);
                }
            })
        })
        .collect();
    for task in tasks {
        tier.run(task).unwrap();
    }
}

#[test]
fn sixty_four_readers_cost_one_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::slow(2);
    let key = key(1, 1, 8 * MIB + 4321);
    read_by_many(&tier, &source, key, 64, 256 << 10);
    assert_eq!(source.bytes_read(), key.size);
    assert_eq!(source.most_often(), 1);
}

#[test]
fn readers_of_odd_pieces_share_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::slow(1);
    let key = key(1, 1, 3 * MIB + 1);
    read_by_many(&tier, &source, key, 16, 50_021);
    assert_eq!(source.bytes_read(), key.size);
}

#[test]
fn bytes_in_flight_stay_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let budget = 4 * MIB;
    let tier = Tier::open_with(dir.path(), |config| config.inflight_max = budget);
    let source = TestSource::slow(5);
    let tasks: Vec<_> = (0..32)
        .map(|file| {
            let key = key(file, 1, 2 * MIB);
            tier.spawn(read(tier.cache().clone(), source.clone(), key, whole(&key)))
        })
        .collect();
    for (file, task) in (0..32).zip(tasks) {
        let key = key(file, 1, 2 * MIB);
        assert_same(&tier.run(task).unwrap().unwrap(), &key, whole(&key));
    }
    let peak = source.in_flight_peak.load(Relaxed);
    assert!(peak <= budget, "{peak} bytes were in flight, the budget is {budget}");
    assert_eq!(source.most_often(), 1);
}

#[test]
fn who_waits_for_other_nodes_takes_no_room_from_who_waits_for_the_origin() {
    for (stuck, free) in [
        (Supplier::Copy, Supplier::Primary),
        (Supplier::Copy, Supplier::Origin),
        (Supplier::Primary, Supplier::Origin),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::open_with(dir.path(), |config| config.inflight_max = 4 * MIB);
        // For longer than any test: a node that waits for this one.
        let away = TestSource::slow(3_600_000);
        *away.supplier.lock().unwrap() = stuck;
        let tasks: Vec<_> = (0..32)
            .map(|file| {
                let key = key(file, 1, 2 * MIB);
                tier.spawn(read(tier.cache().clone(), away.clone(), key, whole(&key)))
            })
            .collect();
        eventually("the budget is used up", || away.in_flight.load(Relaxed) == 2 * MIB);
        let near = TestSource::new();
        *near.supplier.lock().unwrap() = free;
        let key = key(100, 1, 3 * MIB);
        tier.check(&near, &key, whole(&key));
        assert_eq!(away.in_flight.load(Relaxed), 2 * MIB, "as many as before, {stuck:?}");
        tasks.iter().for_each(|task| task.abort());
    }
}

#[test]
fn a_read_joins_no_fetch_that_may_wait_for_its_own_node_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    // For longer than any test: a node that waits for this one.
    let away = TestSource::slow(3_600_000);
    *away.supplier.lock().unwrap() = Supplier::Primary;
    let key = key(1, 1, MIB);
    let stuck = tier.spawn(read(tier.cache().clone(), away.clone(), key, whole(&key)));
    eventually("the fetch is under way", || away.calls() > 0);
    let near = TestSource::new();
    *near.supplier.lock().unwrap() = Supplier::Origin;
    tier.check(&near, &key, whole(&key));
    assert_eq!(tier.cache().metrics().unjoined_bytes.get(), key.size);
    stuck.abort();
}

#[test]
fn a_reader_that_leaves_takes_nothing_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::slow(200);
    let key = key(1, 1, MIB);
    let leaves = tier.spawn(read(tier.cache().clone(), source.clone(), key, whole(&key)));
    eventually("the fetch runs", || source.calls() > 0);
    let stays = tier.spawn(read(tier.cache().clone(), source.clone(), key, whole(&key)));
    leaves.abort();
    assert_same(&tier.run(stays).unwrap().unwrap(), &key, whole(&key));
    assert_eq!(source.most_often(), 1);
}

#[test]
fn a_small_cold_read_costs_one_block() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 100 * MIB);
    tier.check(&source, &key, ByteRange::new(50 * MIB + 17, 100));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(source.bytes_read(), BLOCK_SIZE);
}

#[test]
fn a_random_reader_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 400 * MIB);
    let mut random = Random(7);
    let reads = 60;
    for _ in 0..reads {
        let block = random.below(key.size / BLOCK_SIZE);
        tier.check(&source, &key, ByteRange::new(block * BLOCK_SIZE, 4096));
    }
    std::thread::sleep(Duration::from_millis(100));
    // Two of 60 random blocks out of 6400 may be neighbours and look like a stream for a moment.
    assert!(
        source.bytes_read() <= 2 * reads * BLOCK_SIZE,
        "{} bytes for {reads} blocks",
        source.bytes_read()
    );
}

#[test]
fn a_sequential_reader_is_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 64 * MIB);
    for step in 0..8 {
        tier.check(&source, &key, ByteRange::new(step * 128 * 1024, 128 * 1024));
    }
    eventually("more than was asked for is fetched", || source.bytes_read() >= 2 * MIB);
    assert_eq!(source.most_often(), 1);
}

#[test]
fn a_small_file_comes_whole_on_first_touch() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 700_000);
    tier.check(&source, &key, ByteRange::new(0, 10));
    eventually("the rest follows", || tier.cached_bytes(&key) == key.size);
    assert_eq!(source.bytes_read(), key.size);
}

#[test]
fn read_ahead_and_disk_off_give_the_same_bytes() {
    let key = key(1, 1, 3 * MIB + 77);
    for (readahead_max, bypass) in [(32 * MIB, false), (0, false), (32 * MIB, true), (0, true)] {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::open_with(dir.path(), |config| {
            config.readahead_max = readahead_max;
            config.bypass = bypass;
        });
        let source = TestSource::new();
        let mut random = Random(3);
        for _ in 0..100 {
            let offset = random.below(key.size);
            tier.check(&source, &key, ByteRange::new(offset, random.below(300_000)).clamp_to(key.size));
        }
        tier.check_all(&source, &key);
        assert_eq!(bypass, tier.cached_bytes(&key) == 0);
        if bypass {
            assert!(files_ending(dir.path(), ".data").is_empty());
        }
    }
}

#[test]
fn empty_ranges_and_empty_files_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    tier.check(&source, &key(1, 1, 0), ByteRange::new(0, 0));
    let file = key(2, 1, 100);
    tier.check(&source, &file, ByteRange::new(100, 0));
    tier.check(&source, &file, ByteRange::new(7, 0));
    tier.warm(&source, &key(3, 1, 0));
    assert_eq!(source.calls(), 0);
}

#[test]
fn warm_fetches_what_is_missing_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let key = key(1, 1, 9 * MIB + 5);
    tier.check(&source, &key, ByteRange::new(MIB, MIB));
    tier.warm(&source, &key);
    assert_eq!(source.bytes_read(), key.size);
    assert_eq!(tier.cached_bytes(&key), key.size);
    tier.warm(&source, &key);
    assert_eq!(source.bytes_read(), key.size, "warm again costs nothing");
    tier.check_all(&source, &key);
    assert_eq!(source.most_often(), 1);
}

#[test]
fn a_reader_of_what_a_warm_up_waits_for_does_not_wait_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let key = key(1, 1, 4 * MIB);
    source.turns.forget_permits(Semaphore::MAX_PERMITS - 1);
    let held = tier.run({
        let source = source.clone();
        async move { source.turn(&key).await }
    });
    std::thread::scope(|scope| {
        let warmer = scope.spawn(|| tier.warm(&source, &key));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(source.calls(), 0, "it is not the warm-up's turn");
        tier.check(&source, &key, ByteRange::new(0, 4096));
        assert!(!warmer.is_finished());
        drop(held);
        warmer.join().unwrap();
    });
    assert_eq!(source.bytes_read(), key.size);
    assert_eq!(source.turns.available_permits(), 1, "each turn is given back");
}

#[test]
fn an_origin_with_small_reads_is_asked_in_small_reads() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    // The source asserts that no call is larger.
    source.read_max.store(64 << 10, Relaxed);
    let key = key(1, 1, 2 * MIB + 3);
    tier.check_all(&source, &key);
    assert_eq!(source.bytes_read(), key.size);
}

#[test]
fn what_was_read_stays_valid_after_the_file_is_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 2 * MIB);
    let as_source: Arc<dyn Source> = source.clone();
    let held = tier.run(tier.cache().read(&key, whole(&key), &as_source, Lend::From(1))).unwrap();
    assert!(tier.cache().evict_file(key.file) >= key.size);
    assert_eq!(tier.cached_bytes(&key), 0);
    assert_same(&joined(&held), &key, whole(&key));
    tier.check_all(&source, &key);
    assert_eq!(source.bytes_read(), 2 * key.size, "an evicted file is fetched again");
}

#[test]
fn a_fetch_begun_while_the_runtime_shuts_down_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let key = key(1, 1, 2 * MIB);
    tier.check(&source, &key, ByteRange::new(0, MIB)); // so that the file is open
    let (cache, source): (_, Arc<dyn Source>) = (tier.cache().clone(), source);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    let (done, wait_for_it) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let _in = handle.enter();
        let begun = std::pin::pin!(cache.prefetch(&key, ByteRange::new(MIB, MIB), &source));
        let polled = begun.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(polled, std::task::Poll::Ready(cache::Prefetched::Started)), "{polled:?}");
        let _ = done.send(());
    });
    wait_for_it.recv_timeout(Duration::from_secs(20)).expect("the lock is held by who waits for it");
}

#[test]
fn nobody_is_lent_pages_of_a_cache_that_lends_none() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, MIB);
    for lends in [true, false] {
        let tier = Tier::open_with(dir.path(), |config| config.lends = lends);
        let source = TestSource::new();
        tier.check(&source, &key, whole(&key));
        let as_source: Arc<dyn Source> = source;
        let pieces = tier.run(tier.cache().read(&key, whole(&key), &as_source, Lend::From(1))).unwrap();
        assert_eq!(pieces.iter().any(|piece| matches!(piece, Piece::Extent(_))), lends);
    }
}
