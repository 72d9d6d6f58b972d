//! For how long an answer may be told again: never longer than the origin is not asked.

use std::time::Duration;

use namespace::Freshness;
use types::ErrorKind;

use crate::harness::{AFTER_TTL, TTL, kind, name, rule, tier, tier_with};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_is_fresh_for_what_is_left_of_the_ttl() {
    let t = tier();
    t.far.memory.write_file(b"file", b"x").unwrap();
    let told = t.lookup(b"/file").await.unwrap();
    let first = t.ns.fresh_for(&told);
    assert!(first <= TTL && first > TTL - Duration::from_secs(5), "{first:?}");
    assert!(t.ns.name_fresh_for(t.ns.root(), &name(b"file"), false) <= TTL);
    t.pass(Duration::from_secs(20));
    let later = t.ns.fresh_for(&told);
    assert!(later <= TTL - Duration::from_secs(20) && !later.is_zero(), "{later:?}");
    t.far.forget_calls();
    t.getattr(told.id()).await.unwrap();
    assert_eq!(t.far.calls_of_all_kinds(), 0, "while it is fresh nobody is asked");
    t.pass(later);
    assert_eq!(t.ns.fresh_for(&told), Duration::ZERO);
    t.getattr(told.id()).await.unwrap();
    assert!(t.far.calls_of_all_kinds() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsettled_directory_proves_its_names_only_from_when_they_were_asked_for() {
    let t = tier();
    t.far.memory.set_clock(std::time::SystemTime::now());
    t.far.memory.write_file(b"file", b"x").unwrap();
    t.lookup(b"/file").await.unwrap();
    t.pass(Duration::from_secs(20));
    // The directory by itself is fresh again, its names are not.
    t.ns.refresh_changed(t.ns.root()).await.unwrap();
    let left = t.ns.name_fresh_for(t.ns.root(), &name(b"file"), false);
    assert!(left <= TTL - Duration::from_secs(20), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn absence_is_told_no_longer_than_it_is_believed() {
    let t = tier_with(|junction| junction.negative_ttl = Duration::from_secs(5));
    assert_eq!(kind(t.lookup(b"/new").await), Some(ErrorKind::NotFound));
    let left = t.ns.name_fresh_for(t.ns.root(), &name(b"new"), true);
    assert!(left <= Duration::from_secs(5) && !left.is_zero(), "{left:?}");
    t.pass(Duration::from_secs(5));
    assert_eq!(t.ns.name_fresh_for(t.ns.root(), &name(b"new"), true), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn always_is_fresh_for_no_time_and_immutable_for_long() {
    for (freshness, zero) in [(Freshness::Always, true), (Freshness::Immutable, false)] {
        let t = tier_with(rule(freshness));
        t.far.memory.write_file(b"file", b"x").unwrap();
        let told = t.lookup(b"/file").await.unwrap();
        t.pass(AFTER_TTL);
        assert_eq!(t.ns.fresh_for(&told).is_zero(), zero, "{freshness}");
        assert_eq!(t.ns.name_fresh_for(t.ns.root(), &name(b"file"), false).is_zero(), zero, "{freshness}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_or_is_expired_is_told_to_who_listens() {
    let t = tier();
    t.far.memory.write_file(b"file", b"x").unwrap();
    let told = t.lookup(b"/file").await.unwrap();
    let mut changes = t.ns.changes();
    t.ns.refresh_changed(told.id()).await.unwrap();
    assert_eq!(changes.try_next(), None, "nothing has changed");
    t.far.memory.write_file(b"file", b"other").unwrap();
    t.ns.refresh_changed(told.id()).await.unwrap();
    assert_eq!(changes.try_next(), Some(Some(told.id())));
    t.ns.expire_tree(told.id(), |_| {}).await.unwrap();
    assert_eq!(changes.try_next(), Some(Some(told.id())));
    let expired = t.ns.getattr_known(told.id()).unwrap();
    assert_eq!(t.ns.fresh_for(&expired), Duration::ZERO);
}
