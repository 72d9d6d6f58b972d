//! The files that will be read next are there before they are asked for.

use std::time::Duration;

use types::Distance;

use crate::harness::{Mode, Tier, tier};

fn name(n: usize) -> String {
    format!("dir/frame{n}.exr") // counted as people count: 9 before 10
}

async fn with_files(mode: Mode, files: usize) -> Tier {
    let t = tier(mode);
    t.far.memory.mkdir(b"dir").unwrap();
    for n in 0..files {
        t.far.memory.generate_file(name(n).as_bytes(), n as u64, 20_000).unwrap();
    }
    t
}

/// Until the origin was read from so often, or for long.
async fn reads_reach(t: &Tier, reads: u64) -> u64 {
    for _ in 0..500 {
        if t.far.calls("read") >= reads {
            break;
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    t.far.calls("read")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_file_after_file_finds_the_next_ones_there() {
    let t = with_files(Mode::Cached, 60).await;
    for n in 0..4 {
        t.read_path(name(n).as_bytes()).await.unwrap();
        reads_reach(&t, if n == 0 { 17 } else { 20 }).await;
    }
    assert_eq!(reads_reach(&t, 60).await, 60, "all of them, by the fourth file");
    let before = t.far.calls_of_all_kinds();
    for n in 4..60 {
        t.read_path(name(n).as_bytes()).await.unwrap();
    }
    assert_eq!(t.far.calls_of_all_kinds(), before, "and the origin is asked nothing more");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_here_and_there_gets_what_it_asks_for() {
    let t = with_files(Mode::Cached, 400).await;
    let here_and_there: Vec<usize> = (1..20).map(|n| (n * 173) % 400).collect();
    for n in &here_and_there {
        t.read_path(name(*n).as_bytes()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let reads = t.far.calls("read");
    assert!(reads <= here_and_there.len() as u64 + 8, "{reads} reads of {} files", here_and_there.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_readahead_nothing_is_fetched_that_nobody_asked_for() {
    let t = with_files(Mode::NoReadahead, 20).await;
    for n in 0..5 {
        t.read_path(name(n).as_bytes()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(t.far.calls("read"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_before_it_is_read_is_read_as_it_is_then() {
    let t = with_files(Mode::Cached, 10).await;
    t.read_path(name(0).as_bytes()).await.unwrap();
    reads_reach(&t, 10).await;
    t.far.memory.write_file(name(5).as_bytes(), b"new").unwrap();
    t.pass(crate::harness::AFTER_TTL);
    assert_eq!(t.read_path(name(5).as_bytes()).await.unwrap(), b"new");
}

/// A near and quick origin had a small cache filled with files that nobody had asked for yet, and what had been read
/// made room for them.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_nobody_asked_for_take_an_eighth_of_the_cache_at_most() {
    let t = tier(Mode::Cached);
    t.far.set_distance(Distance { latency: Duration::from_secs(1), rate: 1_000_000_000 });
    t.far.memory.mkdir(b"dir").unwrap();
    for n in 0..300 {
        t.far.memory.generate_file(name(n).as_bytes(), n as u64, 512 << 10).unwrap();
    }
    for n in 0..40 {
        t.read_path(name(n).as_bytes()).await.unwrap();
    }
    // Of 256 MiB, in files of one read each; some few more are seen, why is not known.
    let reads = reads_reach(&t, 121).await;
    assert!((100..=120).contains(&reads), "{reads} files of which 40 were read");
}

/// Reads of a version that is kept open were ahead by what is believed of an origin that nobody has measured: 67 MB/s
/// of a line that gave 308.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_kept_version_is_ahead_by_the_distance_of_its_origin() {
    let t = tier(Mode::Cached);
    t.far.set_distance(Distance { latency: Duration::from_millis(100), rate: 125_000_000 });
    t.far.memory.generate_file(b"big", 1, 64 << 20).unwrap();
    let id = t.id(b"/big").await;
    let node = t.vfs.getattr(id).await.unwrap();
    for mib in 0..4 {
        t.vfs.read_version(&node, mib << 20, 1 << 20, vfs::Lend::Nothing).await.unwrap();
    }
    // 4 MiB that were read and 25 MiB ahead, in parts of 512 KiB; of an unknown origin 13 MiB ahead.
    assert!(reads_reach(&t, 57).await >= 57, "{}", t.far.calls("read"));
}
