//! For how long an answer is believed.

use std::time::{Duration, SystemTime};

use namespace::Freshness;
use origin::Origin;
use types::ErrorKind;
use types::Timeline;

use crate::harness::{AFTER_TTL, TTL, Tier, kind, rule, tier, tier_with};

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_entry_lives_for_its_stated_time() {
    let t = tier_with(|junction| junction.negative_ttl = Duration::from_secs(5));
    assert_eq!(kind(t.lookup(b"/new").await), Some(ErrorKind::NotFound));
    t.far.memory.write_file(b"new", b"x").unwrap();
    t.far.forget_calls();

    t.pass(Duration::from_secs(4));
    assert_eq!(kind(t.lookup(b"/new").await), Some(ErrorKind::NotFound));
    assert_eq!(t.far.calls_of_all_kinds(), 0, "absence is believed without asking");

    t.pass(Duration::from_secs(2));
    assert_eq!(t.lookup(b"/new").await.unwrap().attr().size, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_absent_from_a_listing_is_absent_no_longer_than_a_name_looked_up() {
    let t = tier_with(|junction| junction.negative_ttl = Duration::from_secs(5));
    t.far.memory.write_file(b"old", b"x").unwrap();
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"old"]);
    t.far.memory.write_file(b"new", b"x").unwrap();
    t.far.forget_calls();
    assert_eq!(kind(t.lookup(b"/new").await), Some(ErrorKind::NotFound));
    assert_eq!(t.far.calls_of_all_kinds(), 0, "the listing says that it is absent");
    t.pass(Duration::from_secs(6));
    t.lookup(b"/new").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_within_the_timestamp_tick_is_seen_after_the_ttl() {
    let t = tier();
    let now = SystemTime::now();
    t.far.memory.set_clock(now);
    t.far.memory.write_file(b"first", b"").unwrap();
    let before = t.far.memory.root().await.unwrap();
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"first".to_vec()]);
    assert_eq!(kind(t.lookup(b"/second").await), Some(ErrorKind::NotFound));

    t.far.memory.set_clock(now);
    t.far.memory.write_file(b"second", b"").unwrap();
    let after = t.far.memory.root().await.unwrap();
    assert_eq!(before.version, after.version, "the change must not show in the timestamps");

    t.pass(AFTER_TTL);
    t.lookup(b"/second").await.unwrap();
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"first".to_vec(), b"second".to_vec()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_a_settled_directory_is_proved_again_without_listing_it() {
    let t = tier();
    t.far.memory.write_file(b"old", b"").unwrap(); // the origin's clock is years behind: settled
    t.names(t.ns.root()).await.unwrap();
    t.pass(AFTER_TTL);
    t.far.forget_calls();
    let root = t.getattr(t.ns.root()).await.unwrap();
    assert!(root.attr().is_dir());
    assert_eq!(t.far.calls_of_all_kinds(), 1);
    assert_eq!(t.far.calls("root"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn within_the_ttl_nothing_is_asked_twice() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    let id = t.id(b"/dir/file").await;
    t.far.forget_calls();
    t.far.memory.write_file(b"dir/file", b"abcdef").unwrap();
    t.pass(TTL - Duration::from_secs(5));
    for _ in 0..10 {
        assert_eq!(t.getattr(id).await.unwrap().attr().size, 3);
        assert_eq!(t.id(b"/dir/file").await, id);
    }
    assert_eq!(t.far.calls_of_all_kinds(), 0);
    t.pass(Duration::from_secs(6));
    assert_eq!(t.getattr(id).await.unwrap().attr().size, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn always_sees_each_change_at_the_next_open() {
    let t = tier_with(rule(Freshness::Always));
    for round in 0..20_u64 {
        let contents = vec![0; round as usize];
        t.far.memory.write_file(b"file", &contents).unwrap();
        assert_eq!(t.lookup(b"/file").await.unwrap().attr().size, round);
        let gone = format!("gone{round}");
        t.far.memory.write_file(gone.as_bytes(), b"").unwrap();
        t.lookup(gone.as_bytes()).await.unwrap();
        t.far.memory.remove(gone.as_bytes()).unwrap();
        assert_eq!(kind(t.lookup(gone.as_bytes()).await), Some(ErrorKind::NotFound));
        assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"file".to_vec()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn immutable_is_never_asked_again() {
    let t = tier_with(rule(Freshness::Immutable));
    t.far.memory.write_file(b"file", b"abc").unwrap();
    t.names(t.ns.root()).await.unwrap();
    t.far.memory.write_file(b"file", b"abcdef").unwrap();
    t.far.forget_calls();
    t.pass(Duration::from_secs(400 * 86_400));
    assert_eq!(t.lookup(b"/file").await.unwrap().attr().size, 3);
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"file".to_vec()]);
    assert_eq!(t.far.calls_of_all_kinds(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn evict_makes_the_next_use_ask() {
    let t = tier_with(rule(Freshness::Immutable));
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    let (dir, file) = (t.id(b"/dir").await, t.id(b"/dir/file").await);
    t.names(dir).await.unwrap();
    t.far.memory.write_file(b"dir/file", b"abcdef").unwrap();
    t.far.memory.write_file(b"dir/new", b"").unwrap();
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 3, "known before, so old news");

    let mut files = Vec::new();
    t.ns.expire_tree(t.ns.root(), |id| files.push(id)).await.unwrap();
    assert_eq!(files, [file]);
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 6, "the handle is good and the news are new");
    assert_eq!(t.names(dir).await.unwrap(), [b"file".to_vec(), b"new".to_vec()]);
    assert_eq!(t.id(b"/dir/file").await, file);
}

#[tokio::test(flavor = "multi_thread")]
async fn evict_of_one_file_asks_for_that_file() {
    let t = tier_with(rule(Freshness::Immutable));
    t.far.memory.write_file(b"a", b"abc").unwrap();
    t.far.memory.write_file(b"b", b"abc").unwrap();
    t.names(t.ns.root()).await.unwrap();
    t.far.memory.write_file(b"a", b"abcdef").unwrap();
    t.far.memory.write_file(b"b", b"abcdef").unwrap();
    t.ns.expire_tree(t.id(b"/a").await, |_| {}).await.unwrap();
    assert_eq!(t.lookup(b"/a").await.unwrap().attr().size, 6);
    assert_eq!(t.lookup(b"/b").await.unwrap().attr().size, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn evict_ends_the_belief_in_an_absent_name_even_within_the_timestamp_tick() {
    let t = tier();
    let now = SystemTime::now();
    t.far.memory.set_clock(now);
    t.far.memory.write_file(b"first", b"").unwrap();
    assert_eq!(kind(t.lookup(b"/second").await), Some(ErrorKind::NotFound));
    t.far.memory.set_clock(now);
    t.far.memory.write_file(b"second", b"").unwrap();
    t.ns.expire_tree(t.ns.root(), |_| {}).await.unwrap();
    t.lookup(b"/second").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_clock_was_set_back_all_is_asked_for_once_and_believed_again() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    t.pass(Duration::from_secs(86_400));
    let (dir, file) = (t.id(b"/dir").await, t.id(b"/dir/file").await);
    t.names(dir).await.unwrap();

    let t = Tier { clock: Timeline::default(), ..t }.after_a_restart().await;
    t.far.memory.write_file(b"dir/file", b"abcdef").unwrap();
    for id in [t.ns.root(), dir, file] {
        t.getattr(id).await.unwrap();
    }
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 6, "news from tomorrow are not believed");
    t.names(dir).await.unwrap();
    assert_eq!(t.id(b"/dir/file").await, file);
    t.far.forget_calls();
    for _ in 0..5 {
        t.id(b"/dir/file").await;
        t.names(dir).await.unwrap();
    }
    assert_eq!(t.far.calls_of_all_kinds(), 0);
}
