//! What the operator does with paths.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use namespace::Freshness;
use types::ErrorKind;
use vfs::{WarmMode, WarmProgress};

use crate::harness::{Mode, kind, rule, tier, tier_with};

#[tokio::test(flavor = "multi_thread")]
async fn a_warmed_tree_needs_the_origin_no_more() {
    let t = tier(Mode::Cached);
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.mkdir(b"dir/sub").unwrap();
    let mut total = 0;
    for i in 0..40_u64 {
        let size = i * 10_000;
        total += size;
        t.far.memory.generate_file(format!("dir/sub/f{i}").as_bytes(), i, size).unwrap();
    }
    let progress = Arc::new(WarmProgress::default());
    t.vfs.warm(&[b"/dir".to_vec()], WarmMode::Data, &progress).await;
    assert_eq!((progress.files_done.load(Relaxed), progress.files.load(Relaxed)), (40, 40));
    assert_eq!((progress.bytes_done.load(Relaxed), progress.bytes.load(Relaxed)), (total, total));
    assert_eq!((progress.bytes_fetched.load(Relaxed), progress.bytes_here.load(Relaxed)), (total, 0));
    let again = Arc::new(WarmProgress::default());
    t.vfs.warm(&[b"/dir".to_vec()], WarmMode::Data, &again).await;
    assert_eq!((again.bytes_fetched.load(Relaxed), again.bytes_here.load(Relaxed)), (0, total));
    assert_eq!(again.bytes_done.load(Relaxed), total);
    assert_eq!(progress.errors.load(Relaxed), 0);
    assert_eq!(t.vfs.stat(b"/dir/sub/f30").await.unwrap().cached_bytes, 300_000);
    t.far.set_down(true);
    for i in 0..40_u64 {
        let bytes = t.read_path(format!("/dir/sub/f{i}").as_bytes()).await.unwrap();
        assert_eq!(bytes, origin::memory::generated(i, types::ByteRange::new(0, i * 10_000)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warming_metadata_reads_no_byte_and_leaves_nothing_to_look_up() {
    let t = tier(Mode::Cached);
    for d in 0..3 {
        t.far.memory.mkdir(format!("d{d}").as_bytes()).unwrap();
        t.far.memory.write_file(format!("d{d}/f").as_bytes(), &[1; 1000]).unwrap();
    }
    let progress = Arc::new(WarmProgress::default());
    t.vfs.warm(&[b"/".to_vec()], WarmMode::Metadata, &progress).await;
    assert_eq!((progress.directories.load(Relaxed), progress.files.load(Relaxed)), (4, 3));
    assert_eq!((progress.bytes.load(Relaxed), t.far.calls("read")), (3000, 0));
    let calls = t.far.calls_of_all_kinds();
    for d in 0..3 {
        assert_eq!(t.vfs.resolve(format!("/d{d}/f").as_bytes()).await.unwrap().attr.size, 1000);
    }
    assert_eq!(t.far.calls_of_all_kinds(), calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_up_that_was_stopped_goes_on_where_it_was() {
    const SIZE: u64 = 40_000_000;
    let t = tier(Mode::Cached);
    t.far.memory.generate_file(b"big", 7, SIZE).unwrap();
    let first = Arc::new(WarmProgress::default());
    let (vfs, progress) = (t.vfs.clone(), first.clone());
    let warming = tokio::spawn(async move { vfs.warm(&[b"/big".to_vec()], WarmMode::Data, &progress).await });
    while first.bytes_fetched.load(Relaxed) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    first.stop();
    warming.abort();
    let _ = warming.await;
    assert!(t.vfs.stat(b"/big").await.unwrap().cached_bytes > 0);
    let second = Arc::new(WarmProgress::default());
    t.vfs.warm(&[b"/big".to_vec()], WarmMode::Data, &second).await;
    assert_eq!(t.vfs.stat(b"/big").await.unwrap().cached_bytes, SIZE);
    // What was on its way lands, and is counted by who finds it so: the origin knows better.
    assert_eq!(t.far.calls("read"), SIZE.div_ceil(512 << 10), "each part was read once");
}

#[tokio::test(flavor = "multi_thread")]
async fn warming_in_an_outage_says_so() {
    let t = tier(Mode::Cached);
    t.far.memory.write_file(b"file", &[1; 100_000]).unwrap();
    t.id(b"/file").await;
    t.far.set_down(true);
    let progress = Arc::new(WarmProgress::default());
    t.vfs.warm(&[b"/file".to_vec()], WarmMode::Data, &progress).await;
    assert_eq!(progress.errors.load(Relaxed), 1);
    assert!(progress.last_error().is_some_and(|e| e.contains("switched off")));
    t.vfs.warm(&[b"/not/known".to_vec()], WarmMode::Data, &progress).await;
    assert_eq!(progress.errors.load(Relaxed), 1, "a path that cannot be found counts too");
}

#[tokio::test(flavor = "multi_thread")]
async fn evict_gives_the_bytes_back_and_ends_staleness() {
    // The reader of one file is not to have the next one fetched again.
    let t = tier_with(Mode::NoReadahead, rule(Freshness::Immutable));
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/a", &[1; 200_000]).unwrap();
    t.far.memory.write_file(b"dir/b", &[2; 200_000]).unwrap();
    t.vfs.warm(&[b"/".to_vec()], WarmMode::Data, &Arc::default()).await;
    t.far.memory.write_file(b"dir/a", &[3; 100_000]).unwrap();
    assert_eq!(t.read_path(b"/dir/a").await.unwrap(), [1; 200_000]);

    let evicted = t.vfs.evict(b"/dir").await.unwrap();
    assert_eq!(evicted.files, 2);
    assert!(evicted.bytes >= 400_000, "{} bytes", evicted.bytes);
    assert_eq!(t.vfs.stat(b"/dir/b").await.unwrap().cached_bytes, 0);
    assert_eq!(t.read_path(b"/dir/a").await.unwrap(), [3; 100_000]);
    assert_eq!(t.read_path(b"/dir/b").await.unwrap(), [2; 200_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stat_tells_the_junction_the_rule_and_the_age() {
    let t = tier(Mode::Cached);
    t.far.memory.write_file(b"file", b"abc").unwrap();
    t.id(b"/file").await;
    t.pass(std::time::Duration::from_secs(10));
    let stat = t.vfs.stat(b"/file").await.unwrap();
    assert_eq!(stat.junction, Some(("/".to_owned(), "far:one".to_owned())));
    assert!((10_000..30_000).contains(&stat.age_ms), "{} ms", stat.age_ms);
    assert_eq!(stat.freshness, "ttl 30s");
    assert_eq!(kind(t.vfs.stat(b"/none").await), Some(ErrorKind::NotFound));
}
