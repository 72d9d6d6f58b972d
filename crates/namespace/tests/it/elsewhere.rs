//! Objects that this tier never saw, by a handle that another node of the cluster gave out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use namespace::{Junction, KnownElsewhere, Namespace};
use types::{Error, ErrorKind, FileId, JunctionId, Name, Result};

use crate::harness::{Tier, kind, name, open, tier};

/// Another node over the same origin, which may be away, or tell another path than the file has.
struct Other {
    ns: Arc<Namespace>,
    asked: AtomicUsize,
    away: Mutex<bool>,
    told: Mutex<Option<Vec<Name>>>,
}

#[async_trait]
impl KnownElsewhere for Other {
    async fn path(&self, junction: JunctionId, id: FileId) -> Result<Option<Vec<Name>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        if *self.away.lock().unwrap() {
            return Err(Error::new(ErrorKind::Unavailable, "ask", "it is away"));
        }
        if let Some(told) = self.told.lock().unwrap().clone() {
            return Ok(Some(told));
        }
        let path = self.ns.path_in_junction(junction, id);
        Ok(path.map(|names| names.iter().map(|it| name(it)).collect()))
    }
}

impl Other {
    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

/// A tier, and another one that it asks.
fn two(t: &Tier) -> (Arc<Other>, tempfile::TempDir) {
    t.far.identify_by_number();
    t.far.memory.mkdir(b"a").unwrap();
    t.far.memory.mkdir(b"a/b").unwrap();
    t.far.memory.write_file(b"a/b/file", b"abc").unwrap();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let ns = open(dir.path(), vec![Junction::new("/", t.far.clone())], &t.clock).expect("opens");
    let (asked, away, told) = Default::default();
    let other = Arc::new(Other { ns, asked, away, told });
    t.ns.ask_elsewhere(other.clone());
    (other, dir)
}

const JUNCTION: JunctionId = JunctionId(1);

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_another_node_knows_is_looked_up_under_its_path_and_asked_for_once() {
    let t = tier();
    let (other, _dir) = two(&t);
    let file = other.ns.resolve(b"/a/b/file").await.unwrap().id();
    assert_eq!(kind(t.getattr(file).await), Some(ErrorKind::Stale), "it is unknown here");
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let ns = t.ns.clone();
            tokio::spawn(async move { ns.meet(JUNCTION, file).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().expect("it is found");
    }
    assert_eq!(other.asked(), 1);
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 3);
    // What is above it is known by now.
    let dir = other.ns.resolve(b"/a").await.unwrap().id();
    t.ns.meet(JUNCTION, dir).await.unwrap();
    t.ns.meet(JUNCTION, other.ns.resolve(b"/").await.unwrap().id()).await.unwrap();
    assert_eq!((other.asked(), t.getattr(dir).await.unwrap().id()), (0, dir));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_knows_is_stale_and_not_asked_for_with_each_call() {
    let t = tier();
    let (other, _dir) = two(&t);
    let nobody = FileId([5; 16]);
    for _ in 0..10 {
        t.ns.meet(JUNCTION, nobody).await.expect("all have answered");
    }
    assert_eq!((other.asked(), kind(t.getattr(nobody).await)), (1, Some(ErrorKind::Stale)));
    t.pass(Duration::from_secs(3));
    t.ns.meet(JUNCTION, nobody).await.unwrap();
    assert_eq!(other.asked(), 1, "it may have come meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_node_or_the_origin_is_away_that_may_know_an_object_it_is_not_said_to_be_gone() {
    let t = tier();
    let (other, _dir) = two(&t);
    let file = other.ns.resolve(b"/a/b/file").await.unwrap().id();
    *other.away.lock().unwrap() = true;
    for _ in 0..3 {
        assert_eq!(kind(t.ns.meet(JUNCTION, file).await), Some(ErrorKind::Unavailable));
    }
    assert_eq!(other.asked(), 3);
    *other.away.lock().unwrap() = false;
    t.far.set_down(true);
    assert!(t.ns.meet(JUNCTION, file).await.is_err_and(|e| e.is_retryable()), "the origin is away");
    t.far.set_down(false);
    t.ns.meet(JUNCTION, file).await.unwrap();
    assert_eq!(t.getattr(file).await.unwrap().id(), file);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_leads_elsewhere_or_nowhere_gives_no_handle_another_file() {
    let t = tier();
    let (other, _dir) = two(&t);
    t.far.memory.write_file(b"a/other", b"of somebody else").unwrap();
    let file = other.ns.resolve(b"/a/b/file").await.unwrap().id();
    for wrong in [&["a", "other"][..], &["a", "none"], &["none", "file"], &["a", "other", "file"], &[]] {
        *other.told.lock().unwrap() = Some(wrong.iter().map(|it| name(it.as_bytes())).collect());
        t.ns.meet(JUNCTION, file).await.expect("it was looked up");
        assert_eq!(kind(t.getattr(file).await), Some(ErrorKind::Stale), "{wrong:?}");
        t.pass(Duration::from_secs(3));
    }
    *other.told.lock().unwrap() = None;
    t.ns.meet(JUNCTION, file).await.unwrap();
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 3);
}

/// A name that this tier knew to be absent, and that another node has seen since.
#[tokio::test(flavor = "multi_thread")]
async fn an_absence_that_is_known_here_hides_no_object_that_another_node_has_seen_since() {
    let t = tier();
    let (other, _dir) = two(&t);
    assert_eq!(kind(t.lookup(b"/a/b/late").await), Some(ErrorKind::NotFound));
    assert_eq!(t.names(t.id(b"/a/b").await).await.unwrap().len(), 1);
    t.far.memory.write_file(b"a/b/late", b"1234").unwrap();
    let late = other.ns.resolve(b"/a/b/late").await.unwrap().id();
    t.ns.meet(JUNCTION, late).await.unwrap();
    assert_eq!(t.getattr(late).await.unwrap().attr().size, 4);
}

/// A node that renames an object in a bucket keeps its id, and the id of the old place is another object's at the others.
#[tokio::test(flavor = "multi_thread")]
async fn where_an_identity_is_a_place_no_other_node_is_asked_for_an_object() {
    let bucket = tier();
    let (asked, away, told) = Default::default();
    let other = Arc::new(Other { ns: bucket.ns.clone(), asked, away, told });
    bucket.ns.ask_elsewhere(other.clone());
    bucket.ns.meet(JUNCTION, FileId([5; 16])).await.expect("nobody is asked");
    assert_eq!((other.asked(), bucket.ns.ids_are_own(JUNCTION)), (0, true));
    bucket.far.identify_by_number();
    bucket.ns.meet(JUNCTION, FileId([5; 16])).await.expect("all have answered");
    assert_eq!((other.asked(), bucket.ns.ids_are_own(JUNCTION)), (1, false));
}
