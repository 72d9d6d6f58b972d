//! Another storage answers at the origin's place, or one that lost everything at once.

use std::time::Duration;

use namespace::{Junction, JunctionStatus, Namespace, Old};
use origin::Origin;
use origin::memory::MemoryOrigin;
use testkit::far_origin::Replaced;
use types::{ErrorKind, OutageReason};

use crate::harness::{AFTER_TTL, Tier, kind, name, reopen, tier};

/// Three names in a directory, seen.
async fn filled() -> Tier {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    for path in [&b"dir/one"[..], b"dir/two", b"top"] {
        t.far.memory.write_file(path, b"abc").unwrap();
    }
    seen(&t).await;
    t
}

async fn seen(t: &Tier) {
    let dir = t.id(b"/dir").await;
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [&b"dir"[..], b"top"]);
    assert_eq!(t.names(dir).await.unwrap(), [&b"one"[..], b"two"]);
    assert_eq!(t.lookup(b"/dir/one").await.unwrap().attr().size, 3);
}

fn status(ns: &Namespace) -> JunctionStatus {
    ns.junctions().remove(0)
}

fn is_replaced(t: &Tier) -> bool {
    status(&t.ns).outage.is_some_and(|outage| outage.reason == OutageReason::Replaced)
}

/// Asks until it is as it should be again.
async fn until_it_is_over(t: &Tier) {
    for _ in 0..1000 {
        t.pass(AFTER_TTL);
        let _ = t.lookup(b"/dir/three").await;
        if status(&t.ns).outage.is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the right origin is back, and the outage goes on: {:?}", status(&t.ns));
}

/// What is known is served, what is not is unavailable, and nothing is forgotten.
async fn holds_out(t: &Tier) {
    for _ in 0..3 {
        t.pass(AFTER_TTL);
        seen(t).await;
        assert_eq!(kind(t.lookup(b"/dir/three").await), Some(ErrorKind::Unavailable));
        assert_eq!(kind(t.lookup(b"/unheard-of").await), Some(ErrorKind::Unavailable));
    }
    assert!(is_replaced(t), "{:?}", status(&t.ns));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_storage_at_the_same_place_is_an_outage_that_ends_by_itself() {
    let t = filled().await;
    let another = MemoryOrigin::new();
    another.write_file(b"three", b"another's").unwrap();
    t.far.replace_with(another, Replaced::Wholly);
    holds_out(&t).await;
    let told = status(&t.ns).outage.unwrap().error;
    assert!(told.contains("expected the tree in memory; found another tree in memory"), "{told}");
    assert!(told.contains("forebay junction accept /"), "{told}");
    t.far.bring_back();
    until_it_is_over(&t).await;
    seen(&t).await;
}

/// The origin was looked at less than a second ago, and names are good in either: a bucket.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_bucket_says_of_names_is_not_believed_right_after_a_look() {
    for asked in ["only-theirs", "only-ours", "nobodys"] {
        let t = tier();
        t.far.memory.write_file(b"top", b"abc").unwrap();
        t.far.memory.write_file(b"only-ours", b"abc").unwrap();
        let another = MemoryOrigin::new();
        another.write_file(b"only-theirs", b"theirs").unwrap();
        t.lookup(b"/top").await.unwrap();
        t.far.replace_with(another, Replaced::Bucket);
        let told = t.ns.lookup_now(t.ns.root(), &name(asked.as_bytes())).await.map(|found| found.is_some());
        assert_eq!(told.map_err(|e| e.kind()), Err(ErrorKind::Unavailable), "{asked}");
        assert!(is_replaced(&t), "{:?}", status(&t.ns));
        t.far.bring_back();
        until_it_is_over(&t).await;
        assert_eq!(kind(t.lookup(b"/only-theirs").await), Some(ErrorKind::NotFound));
        assert_eq!(t.lookup(b"/only-ours").await.unwrap().attr().size, 3);
    }
}

/// What a container says of itself changes with its access policy, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_says_something_else_of_itself_is_the_same_if_a_known_file_is_as_it_was() {
    let t = filled().await;
    t.far.memory.remove(b"top").unwrap();
    t.far.memory.write_file(b"dir/two", b"changed").unwrap();
    t.far.replace_with(t.far.memory.clone(), Replaced::BucketThatMayBeTheSame);
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.lookup(b"/dir/three").await), Some(ErrorKind::NotFound));
    assert_eq!(t.lookup(b"/dir/two").await.unwrap().attr().size, 7);
    // From then on that is what it says, though nothing of before is there.
    for path in [&b"dir/one"[..], b"dir/two"] {
        t.far.memory.write_file(path, b"all changed").unwrap();
    }
    let t = t.after_a_restart().await;
    t.pass(AFTER_TTL);
    assert_eq!(t.lookup(b"/dir/one").await.unwrap().attr().size, 11);
    assert!(status(&t.ns).outage.is_none(), "{:?}", status(&t.ns));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_says_something_else_of_itself_and_has_no_known_file_as_it_was_is_another() {
    let theirs = || {
        let another = MemoryOrigin::new();
        // A tree that is made in the same steps at the same time has the same versions.
        another.set_clock(std::time::SystemTime::now());
        another.mkdir(b"dir").unwrap();
        for path in [&b"dir/one"[..], b"dir/two", b"top"] {
            another.write_file(path, b"theirs").unwrap();
        }
        another
    };
    let t = filled().await;
    t.far.replace_with(theirs(), Replaced::BucketThatMayBeTheSame);
    holds_out(&t).await;
    t.far.bring_back();
    until_it_is_over(&t).await;
    seen(&t).await;
    // Where nothing is known that could be compared, it is not believed either.
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    assert!(t.lookup(b"/dir").await.unwrap().attr().is_dir());
    t.far.replace_with(theirs(), Replaced::BucketThatMayBeTheSame);
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.lookup(b"/top").await), Some(ErrorKind::Unavailable));
    assert!(is_replaced(&t), "{:?}", status(&t.ns));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_became_empty_at_once_is_an_outage_that_ends_by_itself() {
    let t = filled().await;
    t.far.replace_with(MemoryOrigin::new(), Replaced::InSilence);
    holds_out(&t).await;
    t.far.bring_back();
    until_it_is_over(&t).await;
    seen(&t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_another_storage_or_an_empty_one_serves_what_is_cached() {
    for how in [Replaced::Wholly, Replaced::InSilence] {
        let t = filled().await;
        t.far.replace_with(MemoryOrigin::new(), how);
        let t = t.after_a_restart().await;
        holds_out(&t).await;
        t.far.bring_back();
        until_it_is_over(&t).await;
        seen(&t).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_another_storage_is_told_though_nobody_asks() {
    let t = filled().await;
    t.far.replace_with(MemoryOrigin::new(), Replaced::Wholly);
    let t = t.after_a_restart().await;
    assert!(!is_replaced(&t));
    t.ns.look_at_roots();
    for _ in 0..1000 {
        if is_replaced(&t) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody was told: {:?}", status(&t.ns));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_storage_is_the_right_one_from_then_on() {
    let t = filled().await;
    let another = MemoryOrigin::new();
    another.write_file(b"three", b"another's").unwrap();
    t.far.replace_with(another, Replaced::Wholly);
    holds_out(&t).await;
    assert_eq!(kind(t.ns.accept_origin("/elsewhere", |_| {}).await), Some(ErrorKind::NotFound));
    assert_eq!(t.ns.accept_origin("/", |_| {}).await.unwrap().shown, "another tree in memory");
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"three"]);
    assert_eq!(kind(t.lookup(b"/dir/one").await), Some(ErrorKind::NotFound));
    assert_eq!(status(&t.ns).outage, None);
    let t = t.after_a_restart().await;
    t.pass(AFTER_TTL);
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"three"]);
    // The one before is another one now.
    t.far.bring_back();
    t.pass(AFTER_TTL);
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [b"three"]);
    assert!(is_replaced(&t));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_empty_tree_is_empty() {
    let t = filled().await;
    t.far.replace_with(MemoryOrigin::new(), Replaced::InSilence);
    holds_out(&t).await;
    t.ns.accept_origin("/", |_| {}).await.unwrap();
    assert_eq!(t.names(t.ns.root()).await.unwrap(), Vec::<Vec<u8>>::new());
    let t = t.after_a_restart().await;
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.lookup(b"/dir").await), Some(ErrorKind::NotFound));
    assert_eq!(status(&t.ns).outage, None);
}

/// Its file, `metadata/ORIGINS`, lies beside the database.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_origin_is_outlives_a_database_that_is_begun_anew() {
    let t = filled().await;
    let another = MemoryOrigin::new();
    another.write_file(b"three", b"another's").unwrap();
    t.far.replace_with(another, Replaced::Wholly);
    let Tier { ns, far, clock, dir } = t;
    ns.shutdown().await;
    drop(ns);
    std::fs::write(dir.path().join("namespace.redb"), b"not a database".repeat(1000)).unwrap();
    let ns = reopen(dir.path(), || vec![Junction::new("/", far.clone())], &clock).await;
    assert!(ns.database_trouble().1.is_some(), "it was begun anew");
    let t = Tier { ns, far, clock, dir };
    assert_eq!(kind(t.lookup(b"/three").await), Some(ErrorKind::Unavailable));
    assert!(is_replaced(&t), "{:?}", status(&t.ns));
    t.far.bring_back();
    until_it_is_over(&t).await;
    seen(&t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_note_of_what_the_origin_is_makes_nothing_the_right_one_until_it_is_accepted() {
    let t = filled().await;
    let Tier { ns, far, clock, dir } = t;
    ns.shutdown().await;
    drop(ns);
    let path = dir.path().join("ORIGINS");
    let mut kept = std::fs::read(&path).unwrap();
    *kept.last_mut().unwrap() ^= 1;
    std::fs::write(&path, kept).unwrap();
    let ns = reopen(dir.path(), || vec![Junction::new("/", far.clone())], &clock).await;
    let t = Tier { ns, far, clock, dir };
    holds_out(&t).await;
    t.ns.accept_origin("/", |_| {}).await.unwrap();
    seen(&t).await;
    let t = t.after_a_restart().await;
    seen(&t).await;
    assert_eq!(status(&t.ns).outage, None);
}

/// A name is not missed because others are gone: only where all are gone at once.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_others_remove_one_by_one_are_gone() {
    let t = tier();
    for path in [&b"one"[..], b"two"] {
        t.far.memory.write_file(path, b"abc").unwrap();
    }
    assert_eq!(t.names(t.ns.root()).await.unwrap(), [&b"one"[..], b"two"]);
    for (path, left) in [(&b"one"[..], vec![b"two".to_vec()]), (b"two", vec![])] {
        t.far.memory.remove(path).unwrap();
        t.pass(AFTER_TTL);
        assert_eq!(t.names(t.ns.root()).await.unwrap(), left);
    }
    assert_eq!(status(&t.ns).outage, None);
}

/// The database knows later than the origin that they are gone.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_names_that_we_take_away_ourselves_are_no_sign_of_another_storage() {
    let t = tier();
    for path in [&b"one"[..], b"two"] {
        t.far.memory.mkdir(path).unwrap();
    }
    let root = t.id(b"/").await;
    assert_eq!(t.names(root).await.unwrap(), [&b"one"[..], b"two"]);
    t.ns.remove(root, &name(b"one"), Old::Directory).await.unwrap();
    // While the answer is on its way, which is when others look.
    t.far.answer_late(Duration::from_millis(300));
    let ns = t.ns.clone();
    let removing = tokio::spawn(async move { ns.remove(root, &name(b"two"), Old::Directory).await });
    while !t.far.memory.is_empty().await.unwrap() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let junction = status(&t.ns).id;
    t.ns.vouch_for_junction(junction).await.unwrap();
    removing.await.unwrap().unwrap();
    assert_eq!(status(&t.ns).outage, None);
}
