//! What another node of a cluster says it changed: it is asked for, whatever the ttl, and nothing else is.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use namespace::{Ask, Found, New, Old};
use origin::{Identity, Origin as _};
use testkit::far_origin::Far;
use types::{CreateHow, ErrorKind, FileId, SetAttr};

use crate::harness::{Tier, kind, name, tier};

async fn size(t: &Tier, id: FileId) -> u64 {
    t.getattr(id).await.expect("is there").attr().size
}

/// The id that the file has at a node which has met it.
async fn id_of(t: &Tier, called: &[u8]) -> FileId {
    let root = t.far.root().await.expect("a root").reference;
    let Identity(identity) = t.far.lookup(&root, &name(called)).await.expect("is there").identity;
    let junction = t.ns.getattr_known(t.ns.root()).expect("the root was met").junction();
    FileId::derive(junction, &identity)
}

/// Waits until an answer is on its way, so that what it tells is fixed.
async fn until_an_answer_is_late(far: &Far, before: u64) {
    let begun = Instant::now();
    while far.late_answers() == before {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody asks");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_notice_names_is_asked_for_again_and_its_neighbour_is_not() {
    let t = tier();
    t.far.memory.write_file(b"/file", b"old").unwrap();
    t.far.memory.write_file(b"/other", b"old").unwrap();
    let (file, other) = (t.id(b"/file").await, t.id(b"/other").await);
    let mut changes = t.ns.changes();
    t.far.memory.write_file(b"/file", b"longer").unwrap();
    assert_eq!(size(&t, file).await, 3, "within the ttl");
    t.ns.take_in_notice(&[file]).await.expect("taken in");
    assert_eq!(changes.try_next(), Some(Some(file)), "fronts with clients that cache are told");
    t.far.forget_calls();
    assert_eq!(size(&t, other).await, 3);
    assert_eq!(t.far.calls_of_all_kinds(), 0);
    assert_eq!(size(&t, file).await, 6);
    assert_eq!(t.far.calls_of_all_kinds(), 1);
    assert_eq!(size(&t, file).await, 6);
    assert_eq!(t.far.calls_of_all_kinds(), 1, "once");
}

/// The clock of the origin stands still: the directory's version does not show the change.
#[tokio::test(flavor = "multi_thread")]
async fn names_in_a_directory_that_a_notice_names_are_asked_for_again_present_and_absent() {
    let t = tier();
    t.far.memory.stop_clock();
    t.far.memory.write_file(b"/gone", b"").unwrap();
    let root = t.ns.root();
    assert_eq!(t.names(root).await.unwrap(), [b"gone".to_vec()]);
    assert_eq!(kind(t.lookup(b"/new").await), Some(ErrorKind::NotFound));
    t.far.memory.remove(b"/gone").unwrap();
    t.far.memory.write_file(b"/new", b"").unwrap();
    assert_eq!(kind(t.lookup(b"/new").await), Some(ErrorKind::NotFound), "within the ttl");
    t.ns.take_in_notice(&[root]).await.expect("taken in");
    assert!(t.lookup(b"/new").await.is_ok());
    assert_eq!(kind(t.lookup(b"/gone").await), Some(ErrorKind::NotFound));
    assert_eq!(t.names(root).await.unwrap(), [b"new".to_vec()]);
    // Of single names as well, of which no listing tells.
    t.far.memory.write_file(b"/late", b"").unwrap();
    assert_eq!(kind(t.lookup(b"/late").await), Some(ErrorKind::NotFound), "within the ttl");
    t.ns.take_in_notice(&[root]).await.expect("taken in");
    assert!(t.lookup(b"/late").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_shows_what_a_file_is_since_a_notice_named_it() {
    let t = tier();
    for file in [b"/a", b"/b", b"/c"] {
        t.far.memory.write_file(file, b"old").unwrap();
    }
    let root = t.ns.root();
    t.names(root).await.unwrap();
    let (a, b) = (t.id(b"/a").await, t.id(b"/b").await);
    t.far.memory.write_file(b"/a", b"longer").unwrap();
    t.far.memory.write_file(b"/b", b"longest").unwrap();
    t.ns.take_in_notice(&[a, b]).await.expect("taken in");
    let listed = t.ns.readdir(root, 0, 100).await.unwrap().entries;
    let mut sizes: Vec<u64> =
        listed.iter().map(|entry| entry.child.as_ref().expect("is there").attr().size).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [3, 6, 7]);
}

/// The file is not known when the notice comes: its first description is under way.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_notice_overtook_is_not_trusted() {
    let t = tier();
    t.far.memory.write_file(b"/file", b"old").unwrap();
    t.ns.getattr(t.ns.root(), Ask::Open).await.unwrap();
    let file = id_of(&t, b"file").await;
    t.far.answer_late(Duration::from_millis(300));
    let late = t.far.late_answers();
    let ns = t.ns.clone();
    let asked_before = tokio::spawn(async move { ns.resolve(b"/file").await });
    until_an_answer_is_late(&t.far, late).await;
    t.far.memory.write_file(b"/file", b"longer").unwrap();
    t.ns.take_in_notice(&[file]).await.expect("taken in");
    // This one asks after the notice, and joins the question that is under way.
    let after = t.lookup(b"/file").await.expect("is there");
    assert_eq!(after.attr().size, 6);
    asked_before.await.unwrap().expect("is there");
    t.far.answer_late(Duration::ZERO);
    assert_eq!(size(&t, file).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_a_notice_overtook_proves_no_names() {
    let t = tier();
    t.far.memory.stop_clock();
    t.far.memory.write_file(b"/file", b"").unwrap();
    let root = t.ns.root();
    t.ns.getattr(root, Ask::Open).await.unwrap();
    t.far.answer_late(Duration::from_millis(300));
    let late = t.far.late_answers();
    let ns = t.ns.clone();
    let asked_before = tokio::spawn(async move { ns.readdir(root, 0, 100).await });
    until_an_answer_is_late(&t.far, late).await;
    t.far.memory.write_file(b"/new", b"").unwrap();
    t.ns.take_in_notice(&[root]).await.expect("taken in");
    assert_eq!(t.names(root).await.unwrap(), [b"file".to_vec(), b"new".to_vec()], "it joins the first");
    asked_before.await.unwrap().expect("listed");
    t.far.answer_late(Duration::ZERO);
    assert_eq!(t.names(root).await.unwrap(), [b"file".to_vec(), b"new".to_vec()]);
    assert!(t.lookup(b"/new").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_that_a_notice_overtook_proves_no_absence() {
    let t = tier();
    t.far.memory.stop_clock();
    t.far.memory.mkdir(b"/dir").unwrap();
    let dir = t.id(b"/dir").await;
    t.far.answer_late(Duration::from_millis(300));
    let late = t.far.late_answers();
    let ns = t.ns.clone();
    let asked_before = tokio::spawn(async move { ns.lookup_now(dir, &name(b"new")).await });
    until_an_answer_is_late(&t.far, late).await;
    t.far.memory.write_file(b"/dir/new", b"").unwrap();
    t.ns.take_in_notice(&[dir]).await.expect("taken in");
    assert!(t.lookup(b"/dir/new").await.is_ok());
    assert!(asked_before.await.unwrap().expect("answered").is_none());
    t.far.answer_late(Duration::ZERO);
    assert!(t.lookup(b"/dir/new").await.is_ok());
}

/// Our own change was made first, and its answer comes last.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_change_of_ours_that_a_notice_overtook_is_not_trusted() {
    let t = tier();
    t.far.memory.write_file(b"/file", b"old").unwrap();
    let file = t.id(b"/file").await;
    t.far.answer_late(Duration::from_millis(300));
    let late = t.far.late_answers();
    let ns = t.ns.clone();
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let ours = tokio::spawn(async move { ns.set(file, set, None).await });
    until_an_answer_is_late(&t.far, late).await;
    t.far.memory.write_file(b"/file", b"longer").unwrap();
    t.ns.take_in_notice(&[file]).await.expect("taken in");
    ours.await.unwrap().expect("set");
    t.far.answer_late(Duration::ZERO);
    assert_eq!(size(&t, file).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_notice_names_is_served_in_an_outage_as_before() {
    let t = tier();
    t.far.memory.write_file(b"/file", b"old").unwrap();
    let (root, file) = (t.ns.root(), t.id(b"/file").await);
    t.names(root).await.unwrap();
    t.ns.take_in_notice(&[root, file]).await.expect("taken in");
    t.far.set_down(true);
    // The first who asks finds the outage, and waits for nothing more.
    let _ = t.getattr(file).await;
    assert_eq!(size(&t, file).await, 3);
    assert_eq!(t.names(root).await.unwrap(), [b"file".to_vec()]);
    assert!(t.lookup(b"/file").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_notice_named_is_asked_for_after_a_restart_as_well() {
    let t = tier();
    t.far.memory.stop_clock();
    t.far.memory.write_file(b"/file", b"old").unwrap();
    let (root, file) = (t.ns.root(), t.id(b"/file").await);
    t.names(root).await.unwrap();
    t.ns.take_in_notice(&[root, file]).await.expect("taken in");
    t.far.memory.write_file(b"/file", b"longer").unwrap();
    t.far.memory.write_file(b"/new", b"").unwrap();
    let t = t.after_a_restart().await;
    assert_eq!(size(&t, file).await, 6);
    assert_eq!(t.names(root).await.unwrap(), [b"file".to_vec(), b"new".to_vec()]);
}

/// A node may send whatever it likes: ids of nothing, and the same ones all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_notices_costs_nothing_until_somebody_asks_and_then_one_question() {
    let t = tier();
    t.far.memory.write_file(b"/file", b"old").unwrap();
    let file = t.id(b"/file").await;
    let nothing: Vec<FileId> =
        (0..1000_u64).map(|n| FileId::derive(types::JunctionId(9), &n.to_le_bytes())).collect();
    t.far.forget_calls();
    for _ in 0..100 {
        t.ns.take_in_notice(&[file]).await.expect("taken in");
        t.ns.take_in_notice(&nothing).await.expect("taken in");
    }
    assert_eq!(t.far.calls_of_all_kinds(), 0);
    assert_eq!(size(&t, file).await, 3);
    assert_eq!(t.far.calls_of_all_kinds(), 1);
    assert_eq!(kind(t.getattr(nothing[0]).await), Some(ErrorKind::Stale), "it is nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_here_is_announced_and_what_was_refused_is_not() {
    let t = tier();
    let told: Arc<Mutex<Vec<FileId>>> = Arc::default();
    let tell = told.clone();
    t.ns.announce_to(move |ids| tell.lock().unwrap().extend(ids));
    let take = || {
        let mut ids = std::mem::take(&mut *told.lock().unwrap());
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let sorted = |mut ids: Vec<FileId>| {
        ids.sort_unstable();
        ids
    };
    let root = t.ns.root();
    t.ns.getattr(root, Ask::Open).await.unwrap();
    t.far.memory.mkdir(b"/dir").unwrap();
    let dir = t.id(b"/dir").await;
    assert_eq!(take(), [], "questions change nothing");
    let new = New::File { how: CreateHow::Guarded, set: SetAttr::default() };
    let made = t.ns.make(root, &name(b"file"), &new).await.expect("made");
    let Found::Node(node) = made.found else { panic!("is no file") };
    let file = node.id;
    assert_eq!(take(), sorted(vec![root, file]));
    assert_eq!(kind(t.ns.make(root, &name(b"file"), &new).await), Some(ErrorKind::Exists));
    assert_eq!(take(), [], "it was refused");
    t.ns.set(file, SetAttr { mode: Some(0o600), ..SetAttr::default() }, None).await.expect("set");
    assert_eq!(take(), [file]);
    t.ns.make(dir, &name(b"link"), &New::Link { file }).await.expect("linked");
    assert_eq!(take(), sorted(vec![dir, file]));
    t.ns.remove(dir, &name(b"link"), Old::File).await.expect("removed");
    assert_eq!(take(), sorted(vec![dir, file]));
    t.ns.rename(root, &name(b"file"), dir, &name(b"moved")).await.expect("renamed");
    assert_eq!(take(), sorted(vec![root, dir, file]));
    // Nobody can say whether it was made.
    t.far.lose_an_answer();
    let _ = t.ns.remove(dir, &name(b"moved"), Old::File).await;
    assert_eq!(take(), sorted(vec![dir, file]));
}
