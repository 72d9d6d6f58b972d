//! Files with several names, that we take away or move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use namespace::{New, Old};
use types::{ErrorKind, FileId, SetAttr};

use crate::harness::*;

/// `/a/one` and `/b/two` are one file.
async fn linked() -> (Tier, FileId) {
    let t = tier();
    t.far.memory.mkdir(b"a").unwrap();
    t.far.memory.mkdir(b"b").unwrap();
    t.far.memory.write_file(b"a/one", b"abc").unwrap();
    let (file, dir) = (t.id(b"/a/one").await, t.id(b"/b").await);
    t.ns.make(dir, &name(b"two"), &New::Link { file }).await.unwrap();
    (t, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_loses_one_of_its_names_is_found_under_another_also_after_a_restart() {
    let (t, file) = linked().await;
    let t = t.after_a_restart().await;
    let dir = t.id(b"/a").await;
    t.ns.remove(dir, &name(b"one"), Old::File).await.unwrap();
    t.far.change_references();
    assert_eq!(t.getattr(file).await.unwrap().attr().nlink, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_loses_a_name_at_the_origin_is_found_under_another() {
    let (t, file) = linked().await;
    let t = t.after_a_restart().await;
    t.far.memory.remove(b"a/one").unwrap();
    t.far.change_references();
    t.pass(AFTER_TTL);
    assert_eq!(t.getattr(file).await.unwrap().attr().nlink, 1);
}

/// The link was made before the tier was killed, and the tier did not hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_name_that_is_looked_up_does_not_make_the_first_one_forgotten() {
    let t = tier();
    t.far.memory.mkdir(b"a").unwrap();
    t.far.memory.mkdir(b"b").unwrap();
    t.far.memory.write_file(b"a/one", b"abc").unwrap();
    let file = t.id(b"/a/one").await;
    t.far.memory.link(b"a/one", b"b/two").unwrap();
    assert_eq!(t.id(b"/b/two").await, file);
    let dir = t.id(b"/b").await;
    t.ns.remove(dir, &name(b"two"), Old::File).await.unwrap();
    t.far.change_references();
    assert_eq!(t.getattr(file).await.unwrap().attr().nlink, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_lost_sight_of_and_seen_again_has_the_names_it_had() {
    let (t, file) = linked().await;
    t.far.memory.remove(b"a/one").unwrap();
    t.far.memory.rename(b"b/two", b"b/elsewhere").unwrap();
    t.far.change_references();
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.getattr(file).await), Some(ErrorKind::Stale));
    t.far.memory.rename(b"b/elsewhere", b"b/two").unwrap();
    t.far.memory.link(b"b/two", b"a/three").unwrap();
    assert_eq!(t.id(b"/a/three").await, file);
    let dir = t.id(b"/a").await;
    t.ns.remove(dir, &name(b"three"), Old::File).await.unwrap();
    t.far.change_references();
    assert_eq!(t.getattr(file).await.unwrap().attr().nlink, 1);
}

/// It is not known whether the old name stays when one of several is moved; the one that is left is another.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_lost_for_a_name_that_it_may_have_had() {
    let t = tier();
    t.far.memory.mkdir(b"d").unwrap();
    t.far.memory.write_file(b"d/a", b"abc").unwrap();
    let (file, dir) = (t.id(b"/d/a").await, t.id(b"/d").await);
    t.ns.make(dir, &name(b"c"), &New::Link { file }).await.unwrap();
    t.ns.rename(dir, &name(b"a"), dir, &name(b"e")).await.unwrap();
    t.ns.remove(dir, &name(b"e"), Old::File).await.unwrap();
    t.far.change_references();
    assert_eq!(t.getattr(file).await.unwrap().attr().nlink, 1);
}

/// Nobody knows whether a name stays when one of several is moved: what was listed before does not tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_was_under_way_when_one_of_several_names_was_moved_does_not_keep_it() {
    let (t, _) = linked().await;
    let dir = t.id(b"/b").await;
    t.pass(AFTER_TTL);
    t.far.answer_late(Duration::from_millis(200));
    let ns = t.ns.clone();
    let listing = tokio::spawn(async move { names_in_pieces(&ns, dir, 1000).await });
    tokio::time::sleep(Duration::from_millis(60)).await;
    t.ns.rename(dir, &name(b"two"), dir, &name(b"three")).await.unwrap();
    listing.await.unwrap().unwrap();
    t.far.answer_late(Duration::ZERO);
    assert_eq!(t.names(dir).await.unwrap(), [b"three"]);
}

/// The same between a listing's commit and its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_ends_while_one_of_several_names_is_moved_does_not_keep_it() {
    let (t, _) = linked().await;
    let dir = t.id(b"/b").await;
    let (from, to) = (name(b"two"), name(b"three"));
    for round in 0..300_u64 {
        // Nobody knows what is in the directory now.
        t.ns.rename(dir, &from, dir, &to).await.unwrap();
        let ns = t.ns.clone();
        let listing = tokio::spawn(async move { names_in_pieces(&ns, dir, 1000).await });
        // Timers are too coarse for it.
        let moment = Instant::now() + Duration::from_micros(round * 10);
        while Instant::now() < moment {
            tokio::task::yield_now().await;
        }
        t.ns.rename(dir, &to, dir, &from).await.unwrap();
        listing.await.unwrap().unwrap();
        // A change of ours in the directory, which a listing that is there would be moved on with.
        let new = New::Directory { set: SetAttr::default() };
        t.ns.make(dir, &name(b"d"), &new).await.unwrap();
        t.ns.remove(dir, &name(b"d"), Old::Directory).await.unwrap();
        assert_eq!(t.names(dir).await.unwrap(), [from.as_bytes()], "round {round}");
    }
}

/// What the store has not taken back yet is not read from it once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_listing_that_is_taken_back_does_not_come_back_from_the_store() {
    let (t, _) = linked().await;
    let dir = t.id(b"/b").await;
    let (mut from, mut to) = (name(b"two"), name(b"three"));
    for round in 0..200 {
        t.names(dir).await.unwrap();
        let (ns, told) = (t.ns.clone(), Arc::new(AtomicBool::new(false)));
        let looking = tokio::task::spawn_blocking({
            let told = told.clone();
            move || {
                while !told.load(Ordering::SeqCst) {
                    let _ = ns.listed_at(dir);
                }
            }
        });
        t.ns.rename(dir, &from, dir, &to).await.unwrap();
        told.store(true, Ordering::SeqCst);
        looking.await.unwrap();
        let new = New::Directory { set: SetAttr::default() };
        t.ns.make(dir, &name(b"d"), &new).await.unwrap();
        assert_eq!(kind(t.ns.lookup(dir, &from).await), Some(ErrorKind::NotFound), "round {round}");
        t.ns.remove(dir, &name(b"d"), Old::Directory).await.unwrap();
        (from, to) = (to, from);
    }
}
