//! How few questions the origin is asked.

use std::sync::Arc;
use std::time::Duration;

use namespace::{Ask, Freshness};
use tokio::task::JoinSet;
use types::{ErrorKind, FileId};

use crate::harness::{AFTER_TTL, Tier, kind, rule, tier, tier_with};

/// Start `count` getattrs and wait until each has begun.
async fn start_getattrs(t: &Tier, id: FileId, count: usize) -> JoinSet<u64> {
    let mut running = JoinSet::new();
    for _ in 0..count {
        let ns = t.ns.clone();
        running.spawn(async move { ns.getattr(id, Ask::Open).await.unwrap().attr().size });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    running
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_who_ask_at_once_cost_one_call() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let id = t.id(b"/file").await;
    t.pass(Duration::from_secs(120)); // also past the time in which two questions make a suspect
    t.far.forget_calls();
    let held = t.far.gate.write().await;
    // The first alone: the second of a directory would ask for the whole directory.
    let mut running = start_getattrs(&t, id, 1).await;
    assert_eq!(t.far.calls("getattr"), 1);
    let mut others = start_getattrs(&t, id, 49).await;
    drop(held);
    while let Some(size) = running.join_next().await {
        assert_eq!(size.unwrap(), 3);
    }
    while let Some(size) = others.join_next().await {
        assert_eq!(size.unwrap(), 3);
    }
    assert_eq!(t.far.calls("getattr"), 1);
    assert!(t.far.calls_of_all_kinds() <= 2, "one getattr, and one listing of the directory at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn always_joins_only_a_question_that_starts_later() {
    let t = tier_with(rule(Freshness::Always));
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let id = t.id(b"/file").await;
    t.far.forget_calls();
    let held = t.far.gate.write().await;
    let mut first = start_getattrs(&t, id, 1).await;
    let mut others = start_getattrs(&t, id, 49).await;
    assert_eq!(t.far.calls("getattr"), 1, "they wait for the one under way");
    // Let one call through and hold up the next: the gate is passed in the order of arrival.
    let next = t.far.gate.write();
    tokio::pin!(next);
    assert!(tokio::time::timeout(Duration::from_millis(10), &mut next).await.is_err());
    drop(held);
    let held = next.await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(held);
    while let Some(size) = first.join_next().await {
        size.unwrap();
    }
    while let Some(size) = others.join_next().await {
        assert_eq!(size.unwrap(), 3);
    }
    assert_eq!(t.far.calls("getattr"), 2, "and share the next one");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_gives_up_does_not_take_the_answer_from_the_others() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let id = t.id(b"/file").await;
    t.pass(Duration::from_secs(120));
    let held = t.far.gate.write().await;
    let mut first = start_getattrs(&t, id, 1).await;
    let mut second = start_getattrs(&t, id, 1).await;
    first.abort_all();
    while first.join_next().await.is_some() {}
    drop(held);
    assert_eq!(second.join_next().await.unwrap().unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_lookups_in_one_directory_cost_a_few_calls() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    for i in 0..100 {
        t.far.memory.write_file(format!("dir/f{i}").as_bytes(), b"abc").unwrap();
    }
    for round in ["cold", "expired"] {
        t.far.forget_calls();
        for i in 0..100 {
            t.lookup(format!("/dir/f{i}").as_bytes()).await.unwrap();
            assert_eq!(kind(t.lookup(format!("/dir/absent{i}").as_bytes()).await), Some(ErrorKind::NotFound));
        }
        let calls = t.far.calls_of_all_kinds();
        assert!(calls <= 8, "{round}: {calls} calls for 200 names");
        t.pass(AFTER_TTL);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_expires_again_and_again_is_not_listed_for_it() {
    let t = tier();
    t.far.memory.write_file(b"file", b"").unwrap();
    for _ in 0..10 {
        t.getattr(t.ns.root()).await.unwrap();
        t.pass(AFTER_TTL);
    }
    assert_eq!(t.far.calls("readdir"), 0);
    assert_eq!(t.far.calls("root"), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_read_once_per_version() {
    let t = tier();
    t.far.memory.symlink(b"link", b"target").unwrap();
    let id = t.id(b"/link").await;
    for _ in 0..5 {
        let namespace::Found::Node(node) = t.getattr(id).await.unwrap() else { panic!("not of an origin") };
        assert_eq!(t.ns.link_target(&node).await.unwrap(), b"target"[..]);
        t.pass(AFTER_TTL);
    }
    assert_eq!(t.far.calls("readlink"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_lookups_of_one_name_share_a_call() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let root = t.ns.root();
    t.getattr(root).await.unwrap();
    t.far.forget_calls();
    let held = t.far.gate.write().await;
    let mut running = JoinSet::new();
    for _ in 0..50 {
        let ns = Arc::clone(&t.ns);
        running.spawn(async move { ns.lookup(root, &crate::harness::name(b"file")).await.unwrap().id() });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(held);
    let mut ids = std::collections::HashSet::new();
    while let Some(id) = running.join_next().await {
        ids.insert(id.unwrap());
    }
    assert_eq!(ids.len(), 1);
    assert!(t.far.calls_of_all_kinds() <= 3, "{} calls", t.far.calls_of_all_kinds());
}
