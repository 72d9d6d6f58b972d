//! Bytes that another node is to keep: few of them stay, they go first, and what is kept never makes room for them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cache::{Cache, CacheKey, Lend, Piece, STRIPE_BYTES, Source};
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

const KIB: u64 = 1 << 10;

fn guest_bytes(tier: &Tier) -> u64 {
    u64::try_from(tier.cache().metrics().guest_bytes.get()).expect("never negative")
}

fn as_source(source: &Arc<TestSource>) -> Arc<dyn Source> {
    source.clone()
}

/// Read from the first byte to the last in steps.
fn pass(tier: &Tier, source: &Arc<TestSource>, key: &CacheKey, step: u64) {
    for at in (0..key.size).step_by(step as usize) {
        tier.check(source, key, ByteRange::new(at, step).clamp_to(key.size));
    }
}

fn twice(tier: &Tier, source: &Arc<TestSource>, key: &CacheKey) {
    tier.check(source, key, whole(key));
    tier.check(source, key, whole(key));
}

#[test]
fn a_guest_is_passed_on_at_its_first_read_and_stored_at_the_second() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    // One of a block, one of several with a short last one, and the end of a long one.
    let files = [key(1, 1, 100), key(2, 1, 300 * KIB + 5), key(3, 1, 2 * STRIPE_BYTES)];
    for file in &files {
        source.guest(file);
        let range = ByteRange::new(file.size.saturating_sub(400 * KIB), 400 * KIB).clamp_to(file.size);
        let before = source.bytes_read();
        tier.check(&source, file, range);
        assert_eq!(tier.cached_bytes(file), 0);
        assert!(files_ending(dir.path(), ".map").is_empty(), "a pair was left behind");
        tier.check(&source, file, range);
        let stored = tier.cached_bytes(file);
        assert!(stored >= range.length, "{stored}");
        let fetched = source.bytes_read();
        assert_eq!(fetched - before, 2 * stored, "whole blocks, twice");
        tier.check(&source, file, range);
        assert_eq!(source.bytes_read(), fetched, "the third read is answered here");
        let metrics = tier.cache().metrics();
        assert!(guest_bytes(&tier) >= stored);
        assert_eq!(metrics.read_through_bytes.get(), 0, "nothing is wrong with the disk");
        tier.cache().evict_file(file.file);
        assert_eq!(guest_bytes(&tier), 0);
    }
    let metrics = tier.cache().metrics();
    assert_eq!(metrics.guest_admitted_bytes.get(), metrics.guest_refused_bytes.get(), "one read of each");
    assert!(metrics.guest_dropped_bytes.get() >= metrics.guest_admitted_bytes.get());
}

#[test]
fn a_pass_over_a_guest_fetches_each_byte_once_and_leaves_nothing_behind() {
    for (step, guests_max) in [(16 * KIB, Some(0)), (128 * KIB, Some(0)), (16 * KIB, None), (MIB, None)] {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::open_with(dir.path(), |config| {
            config.guests_max = guests_max;
            config.readahead_max = 4 * MIB;
        });
        let source = TestSource::slow(2);
        let file = key(1, 1, 24 * MIB + 7);
        source.guest(&file);
        pass(&tier, &source, &file, step);
        assert_eq!(source.most_often(), 1, "in steps of {step}");
        assert!(tier.cache().metrics().readahead_bytes.get() > file.size / 2, "it was fetched ahead");
        eventually("all has left", || guest_bytes(&tier) == 0 && tier.cached_bytes(&file) == 0);
        eventually("no pair is left behind", || files_ending(dir.path(), ".data").is_empty());
        assert_eq!(tier.cache().stats().bytes_used, 0);
    }
}

#[test]
fn small_guests_that_are_read_in_pieces_are_fetched_whole_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.guests_max = Some(0));
    let source = TestSource::new();
    for n in 0..20 {
        let file = key(n, 1, 10 * KIB + n * 40 * KIB);
        source.guest(&file);
        pass(&tier, &source, &file, 4 * KIB);
        assert_eq!(source.most_often(), 1, "{} bytes", file.size);
    }
    eventually("all have left", || guest_bytes(&tier) == 0 && files_ending(dir.path(), ".data").is_empty());
}

#[test]
fn what_is_read_ahead_of_guests_takes_two_windows_where_they_have_no_share() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| {
        config.guests_max = Some(0);
        config.readahead_max = 2 * MIB;
    });
    let source = TestSource::new();
    let files: Vec<_> = (0..40).map(|n| key(n, 1, MIB)).collect();
    let started = files.iter().filter(|file| {
        source.guest(file);
        let prefetch =
            tier.run(async { tier.cache().prefetch(file, whole(file), &as_source(&source)).await });
        let is_started = prefetch == cache::Prefetched::Started;
        eventually("it has landed", || !is_started || tier.cached_bytes(file) == file.size);
        is_started
    });
    let started = started.count() as u64;
    assert_eq!(started, 3, "files of a MiB, and their maps, in 4 MiB");
    assert!((3 * MIB..=4 * MIB).contains(&guest_bytes(&tier)));
    // Whoever comes for one finds it, and there is room for another.
    let calls = source.calls();
    tier.check(&source, &files[0], whole(&files[0]));
    assert_eq!(source.calls(), calls);
    eventually("it has left", || tier.cached_bytes(&files[0]) == 0);
    let next = &files[39];
    let prefetch = tier.run(async { tier.cache().prefetch(next, whole(next), &as_source(&source)).await });
    assert_eq!(prefetch, cache::Prefetched::Started);
}

#[test]
fn over_their_share_the_oldest_guests_go_and_nothing_that_is_kept() {
    const SHARE: u64 = 8 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| {
        (config.guests_max, config.readahead_max) = (Some(SHARE), 0);
    });
    let source = TestSource::new();
    let kept: Vec<_> = (0..20).map(|n| key(n, 1, MIB)).collect();
    kept.iter().for_each(|file| tier.check(&source, file, whole(file)));
    let guests: Vec<_> = (100..130).map(|n| key(n, 1, MIB)).collect();
    for file in &guests {
        source.guest(file);
        twice(&tier, &source, file);
        assert!(guest_bytes(&tier) <= SHARE, "{}", guest_bytes(&tier));
        assert_eq!(tier.cached_bytes(file), file.size, "the newest is here");
        let here: u64 = guests.iter().map(|file| tier.cached_bytes(file)).sum();
        assert!(here <= guest_bytes(&tier), "{here} on disk, {} counted", guest_bytes(&tier));
    }
    let here: Vec<bool> = guests.iter().map(|file| tier.cached_bytes(file) > 0).collect();
    let first = here.iter().position(|here| *here).expect("some are here");
    assert!(here[first..].iter().all(|here| *here), "the oldest have gone: {here:?}");
    assert!(here.len() - first >= 6, "the share is used: {here:?}");
    assert!(kept.iter().all(|file| tier.cached_bytes(file) == file.size));
    // Less from now on.
    tier.cache().set_limits(512 * MIB, 0, Some(2 * MIB)).expect("changed");
    eventually("they are in their smaller share", || guest_bytes(&tier) <= 2 * MIB);
    eventually("so they are on disk", || {
        guests.iter().map(|file| tier.cached_bytes(file)).sum::<u64>() <= 2 * MIB
    });
    assert!(kept.iter().all(|file| tier.cached_bytes(file) == file.size));
}

#[test]
fn a_full_cache_gives_guests_no_room_of_what_is_kept_and_takes_theirs_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| {
        config.size_max = 64 * MIB;
        (config.guests_max, config.readahead_max) = (Some(48 * MIB), 0);
    });
    let source = TestSource::new();
    let guests: Vec<_> = (100..140).map(|n| key(n, 1, MIB)).collect();
    guests.iter().for_each(|file| source.guest(file));
    guests.iter().for_each(|file| twice(&tier, &source, file));
    assert!(guest_bytes(&tier) >= 40 * MIB, "{}", guest_bytes(&tier));
    // Together more than the quota, alone less than the mark above which room is made.
    let kept: Vec<_> = (0..55).map(|n| key(n, 1, MIB)).collect();
    kept.iter().for_each(|file| tier.check(&source, file, whole(file)));
    let all_kept = || kept.iter().all(|file| tier.cached_bytes(file) == file.size);
    assert!(all_kept(), "guests have gone in their place");
    guests.iter().for_each(|file| twice(&tier, &source, file));
    assert!(all_kept(), "no guest has taken their place");
    assert!(tier.cache().stats().bytes_used <= 64 * MIB);
    // The room that is left is that of guests which wait for their readers. For another guest they stay, and so does what is kept.
    tier.cache().set_limits(64 * MIB, 0, Some(0)).expect("changed");
    eventually("the guests have left", || guest_bytes(&tier) == 0);
    tier.cache().set_limits(64 * MIB, 0, Some(48 * MIB)).expect("changed");
    let awaited: Vec<_> = (200..208).map(|n| key(n, 1, MIB)).collect();
    for file in &awaited {
        source.guest(file);
        let from = as_source(&source);
        let ahead = tier.run(tier.cache().prefetch(file, whole(file), &from));
        assert_eq!(ahead, cache::Prefetched::Started);
        eventually("it is here", || tier.cached_bytes(file) == file.size);
    }
    let last = key(300, 1, 8 * MIB);
    source.guest(&last);
    twice(&tier, &source, &last);
    assert!(all_kept() && awaited.iter().all(|file| tier.cached_bytes(file) == file.size));
    // For what is to be kept they go.
    let more: Vec<_> = (60..64).map(|n| key(n, 1, MIB)).collect();
    more.iter().for_each(|file| tier.check(&source, file, whole(file)));
    assert!(all_kept() && more.iter().all(|file| tier.cached_bytes(file) == file.size));
    assert!(tier.cache().stats().degraded.is_none(), "nothing is wrong with the disk");
}

#[test]
fn a_stripe_is_labelled_anew_when_it_is_next_used_and_nothing_of_it_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let file = key(1, 1, 3 * MIB + 5);
    tier.check_all(&source, &file);
    assert_eq!(guest_bytes(&tier), 0);
    let fetched = source.bytes_read();
    for _ in 0..2 {
        source.guest(&file);
        tier.check(&source, &file, ByteRange::new(MIB, 10));
        assert!(guest_bytes(&tier) >= file.size, "all that is here of the stripe: {}", guest_bytes(&tier));
        source.kept_again(&file);
        tier.check(&source, &file, ByteRange::new(0, 10));
        assert_eq!(guest_bytes(&tier), 0);
    }
    // A share of nothing takes it if it is a guest, and leaves it if it is not.
    tier.cache().set_limits(512 * MIB, 0, Some(0)).expect("changed");
    assert_eq!(tier.cached_bytes(&file), file.size);
    assert_eq!(source.bytes_read(), fetched, "nothing was fetched again");
}

#[test]
fn guests_of_a_long_file_leave_and_its_kept_stripes_stay() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let file = key(1, 1, 3 * STRIPE_BYTES - 77);
    source.guest_stripe(&file, 1);
    // Across both borders of the guest.
    let ranges =
        [ByteRange::new(STRIPE_BYTES - MIB, 2 * MIB), ByteRange::new(2 * STRIPE_BYTES - MIB, 2 * MIB)];
    let held = || -> Vec<u64> {
        let stripes = tier.run(tier.cache().held_blocks(&file, 0..3));
        let bytes =
            |words: &[u64]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() * BLOCK_SIZE;
        stripes.iter().map(|words| bytes(&words[..])).collect()
    };
    ranges.iter().for_each(|range| tier.check(&source, &file, *range));
    assert_eq!(held(), [MIB, 0, MIB], "the guest was passed on");
    ranges.iter().for_each(|range| tier.check(&source, &file, *range));
    // The first read left its mark in the guest at its beginning; the second read went over it.
    assert_eq!(held(), [MIB, 2 * MIB, MIB]);
    assert_eq!(guest_bytes(&tier), 2 * MIB);
    let fetched = source.bytes_read();
    ranges.iter().for_each(|range| tier.check(&source, &file, *range));
    assert_eq!(source.bytes_read(), fetched);
    tier.cache().set_limits(512 * MIB, 0, Some(0)).expect("changed");
    eventually("the guest has left", || held() == [MIB, 0, MIB]);
    assert_eq!(guest_bytes(&tier), 0);
    tier.check(&source, &file, ByteRange::new(STRIPE_BYTES - MIB, MIB));
    assert_eq!(source.bytes_read(), fetched);
}

#[test]
fn what_is_read_of_a_guest_is_copied_and_right_also_when_the_guest_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    for file in [key(1, 1, MIB), key(2, 1, STRIPE_BYTES + MIB)] {
        source.guest(&file);
        let range = ByteRange::new(0, MIB);
        (0..3).for_each(|_| tier.check(&source, &file, range));
        let from = as_source(&source);
        let pieces = tier.run(tier.cache().read(&file, range, &from, Lend::From(1))).expect("read");
        let lent = pieces.iter().filter(|piece| matches!(piece, Piece::Extent(_))).count();
        assert_eq!(lent, 0, "sockets would hold its pages when it leaves");
        tier.cache().set_limits(512 * MIB, 0, Some(0)).expect("changed");
        eventually("it has left", || tier.cached_bytes(&file) == 0 && guest_bytes(&tier) == 0);
        assert_same(&joined(&pieces), &file, range);
        tier.cache().set_limits(512 * MIB, 0, None).expect("changed");
    }
}

#[test]
fn a_guest_that_was_handed_out_as_a_whole_leaves_the_disk_and_is_read_on() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let file = key(1, 1, 300 * KIB);
    source.guest(&file);
    twice(&tier, &source, &file);
    let lent = tier.run(tier.cache().whole(&file)).expect("all of it is here");
    tier.cache().set_limits(512 * MIB, 0, Some(0)).expect("changed");
    eventually("it has left", || tier.cached_bytes(&file) == 0 && guest_bytes(&tier) == 0);
    let read = tier.run(lent.read(whole(&file))).expect("it is good for as long as it is held");
    assert_same(&read, &file, whole(&file));
}

#[test]
fn a_pinned_file_has_no_guests() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.guests_max = Some(4 * MIB));
    let source = TestSource::new();
    let (before, after) = (key(1, 1, MIB), key(2, 1, MIB));
    source.guest(&before);
    source.guest(&after);
    twice(&tier, &source, &before);
    assert!(guest_bytes(&tier) >= MIB);
    [&before, &after].iter().for_each(|file| tier.cache().pin(file.file));
    assert_eq!(guest_bytes(&tier), 0);
    tier.warm(&source, &after);
    tier.cache().set_limits(512 * MIB, 0, Some(0)).expect("changed");
    tier.check_all(&source, &before);
    assert_eq!([tier.cached_bytes(&before), tier.cached_bytes(&after)], [MIB, MIB]);
}

#[test]
fn warming_a_guest_succeeds_and_stores_nothing_here() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let file = key(1, 1, 5 * MIB);
    source.guest(&file);
    tier.warm(&source, &file);
    assert_eq!(source.bytes_read(), file.size, "it is where it is kept");
    assert_eq!(tier.cached_bytes(&file) + guest_bytes(&tier), 0);
    assert!(files_ending(dir.path(), ".data").is_empty(), "a pair was left behind");
}

#[test]
fn after_a_restart_guests_are_as_what_is_kept_until_they_are_next_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = key(1, 1, MIB);
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    source.guest(&file);
    twice(&tier, &source, &file);
    tier.kill();
    let tier = Tier::open(dir.path());
    let fetched = source.bytes_read();
    assert_eq!((tier.cached_bytes(&file), guest_bytes(&tier)), (MIB, 0));
    tier.check_all(&source, &file);
    assert_eq!(source.bytes_read(), fetched);
    assert!(guest_bytes(&tier) >= MIB);
    tier.cache().set_limits(512 * MIB, 0, Some(0)).expect("changed");
    eventually("it has left", || tier.cached_bytes(&file) == 0);
}

#[test]
fn many_readers_of_a_cold_guest_make_two_fetches_of_each_part_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::slow(50);
    let file = key(1, 1, MIB);
    source.guest(&file);
    let readers: Vec<_> =
        (0..16).map(|_| tier.spawn(read(tier.cache().clone(), source.clone(), file, whole(&file)))).collect();
    for reader in readers {
        assert_same(&tier.run(reader).unwrap().unwrap(), &file, whole(&file));
    }
    assert!(source.most_often() <= 2, "{} times", source.most_often());
    assert_eq!(tier.cached_bytes(&file), file.size);
}

/// One client: reads of guests and of kept files, every byte compared.
async fn client(cache: Arc<Cache>, source: Arc<TestSource>, files: Vec<CacheKey>, seed: u64, most: u64) {
    let mut random = Random(seed);
    for _ in 0..150 {
        let key = files[random.below(files.len() as u64) as usize];
        match random.below(12) {
            0 => drop(cache.prefetch(&key, whole(&key), &as_source(&source)).await),
            1 => drop(cache.evict_file(key.file)),
            2 => drop(cache.whole(&key).await),
            _ => {
                let offset = if random.below(2) == 0 { 0 } else { random.below(key.size) };
                let mut at = offset;
                for _ in 0..1 + random.below(6) {
                    let range = ByteRange::new(at, 1 + random.below(300 * KIB)).clamp_to(key.size);
                    let got = read(cache.clone(), source.clone(), key, range).await.expect("reads succeed");
                    assert_same(&got, &key, range);
                    at = range.end();
                }
            }
        }
        let guests = cache.metrics().guest_bytes.get() as u64;
        assert!(guests <= most, "{guests} bytes of guests");
    }
}

#[test]
fn under_random_reads_guests_stay_in_their_share_and_are_all_counted() {
    for (seed, guests_max) in [(1, 0), (2, MIB), (3, 8 * MIB), (4, 30 * MIB)] {
        println!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        let readahead_max = 2 * MIB;
        let tier = Tier::open_with(dir.path(), |config| {
            config.size_max = 64 * MIB;
            (config.guests_max, config.readahead_max) = (Some(guests_max), readahead_max);
        });
        let source = TestSource::new();
        source.delay_ms.store(seed % 2, Relaxed);
        let sizes = [1, BLOCK_SIZE - 1, BLOCK_SIZE, 200 * KIB, MIB + 3, 5 * MIB, STRIPE_BYTES + 5 * MIB];
        let files: Vec<_> = (0..21).map(|n| key(n, 1, sizes[(n % 7) as usize])).collect();
        let guests: Vec<_> = files.iter().copied().filter(|file| file.file.0[8] % 2 == 1).collect();
        guests.iter().for_each(|file| source.guest(file));
        let most = guests_max.max(2 * readahead_max);
        let clients: Vec<_> = (0..6)
            .map(|n| {
                let (cache, source, files) = (tier.cache().clone(), source.clone(), files.clone());
                tier.spawn(client(cache, source, files, seed * 100 + n, most))
            })
            .collect();
        clients.into_iter().for_each(|client| tier.run(client).expect("no panic"));
        // When all has landed and what was read has left.
        eventually("what is on disk of guests is counted", || {
            let here: u64 = guests.iter().map(|file| tier.cached_bytes(file)).sum();
            let counted = guest_bytes(&tier);
            tier.cache().metrics().inflight_bytes.get() == 0 && here <= counted && counted <= most
        });
        let metrics = tier.cache().metrics();
        assert!(metrics.guest_refused_bytes.get() > 0 && metrics.guest_dropped_bytes.get() > 0);
        assert!(tier.cache().stats().degraded.is_none(), "nothing is wrong with the disk");
    }
}
