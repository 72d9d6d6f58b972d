//! Objects that our own renames move while a stale reference to them is resolved again, at an origin whose references are
//! paths: what was looked for at one moment must not be concluded from at another.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use namespace::{Ask, Freshness, Junction, Namespace};
use origin::count::{Count, OriginMetrics};
use origin::limit::{Limit, LimitConfig};
use origin::posix::PosixOrigin;
use origin::retry::{Retry, RetryConfig};
use origin::{FileToRead, Layer, Origin, OriginAnswer, OriginCall, Sending};
use tokio::sync::oneshot;
use types::{ByteRange, FileId, Result, Timeline};

use crate::harness::{name, open, rule};

/// A moment of a call at which it waits: the test is told, and lets it go on.
struct Gate {
    reached: oneshot::Sender<()>,
    go_on: oneshot::Receiver<()>,
}

/// The test's end of it.
struct Held {
    reached: oneshot::Receiver<()>,
    go_on: oneshot::Sender<()>,
}

fn gate() -> (Gate, Held) {
    let ((reached, is_reached), (go, go_on)) = (oneshot::channel(), oneshot::channel());
    (Gate { reached, go_on }, Held { reached: is_reached, go_on: go })
}

impl Gate {
    async fn pass(self) {
        let _ = self.reached.send(());
        let _ = self.go_on.await;
    }
}

/// An origin of which the test holds the next lookup before it is carried out, or before its answer is told.
struct HeldLookups {
    inner: PosixOrigin,
    before: Mutex<Option<Gate>>,
    after: Mutex<Option<Gate>>,
}

impl Layer for HeldLookups {
    fn inner(&self) -> &dyn Origin {
        &self.inner
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        let is_lookup = matches!(call, OriginCall::Lookup { .. });
        let before = if is_lookup { self.before.lock().unwrap().take() } else { None };
        if let Some(gate) = before {
            gate.pass().await;
        }
        let answer = send().await;
        let after = if is_lookup { self.after.lock().unwrap().take() } else { None };
        if let Some(gate) = after {
            gate.pass().await;
        }
        answer
    }
}

struct Tree {
    ns: Arc<Namespace>,
    origin: Arc<HeldLookups>,
    dir: FileId,
    file: FileId,
    _dirs: (tempfile::TempDir, tempfile::TempDir),
}

impl Tree {
    async fn rename(&self, from: &str, to: &str) {
        let (from, to) = (name(from.as_bytes()), name(to.as_bytes()));
        self.ns.rename(self.dir, &from, self.dir, &to).await.unwrap();
    }

    fn getattr(&self) -> tokio::task::JoinHandle<Result<namespace::Found>> {
        let (ns, file) = (self.ns.clone(), self.file);
        tokio::spawn(async move { ns.getattr(file, Ask::Open).await })
    }

    async fn is_there(&self) {
        let found = self.ns.getattr(self.file, Ask::Open).await.expect("it is there");
        assert_eq!((found.id(), found.attr().size), (self.file, 4));
    }
}

/// The file `a` in a directory that was just renamed, so that the file's reference, which is its path, is stale.
async fn a_file_with_a_stale_reference() -> Tree {
    let (far, db) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(far.path().join("before")).unwrap();
    std::fs::write(far.path().join("before/a"), b"file").unwrap();
    let inner = PosixOrigin::open(far.path()).unwrap();
    let origin = Arc::new(HeldLookups { inner, before: Mutex::default(), after: Mutex::default() });
    let mut junction = Junction::new("/", origin.clone());
    rule(Freshness::Always)(&mut junction);
    let ns = open(db.path(), vec![junction], &Timeline::default()).unwrap();
    let dir = ns.resolve(b"/before").await.unwrap().id();
    let file = ns.resolve(b"/before/a").await.unwrap().id();
    ns.rename(ns.root(), &name(b"before"), ns.root(), &name(b"after")).await.unwrap();
    Tree { ns, origin, dir, file, _dirs: (far, db) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_we_rename_just_after_it_was_found_again_stays_where_we_moved_it() {
    let t = a_file_with_a_stale_reference().await;
    let (gate, found) = gate();
    *t.origin.after.lock().unwrap() = Some(gate);
    let asking = t.getattr();
    found.reached.await.unwrap();
    t.rename("a", "b").await;
    found.go_on.send(()).unwrap();
    assert_eq!(asking.await.unwrap().unwrap().id(), t.file);
    t.is_there().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_we_renamed_and_renamed_back_while_it_was_looked_for_is_not_gone() {
    let t = a_file_with_a_stale_reference().await;
    let ((before, asked), (after, answered)) = (gate(), gate());
    (*t.origin.before.lock().unwrap(), *t.origin.after.lock().unwrap()) = (Some(before), Some(after));
    let asking = t.getattr();
    asked.reached.await.unwrap();
    t.rename("a", "b").await;
    asked.go_on.send(()).unwrap();
    answered.reached.await.unwrap();
    t.rename("b", "a").await;
    answered.go_on.send(()).unwrap();
    assert_eq!(asking.await.unwrap().unwrap().id(), t.file);
    t.is_there().await;
}

/// A layer that has the bytes of files from elsewhere, as that of a cluster.
struct NearBytes(PosixOrigin);

impl Layer for NearBytes {
    fn inner(&self) -> &dyn Origin {
        &self.0
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        _call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        send().await
    }

    async fn around_read_file<'a>(&'a self, _file: &'a FileToRead<'a>, range: ByteRange) -> Result<Bytes> {
        Ok(Bytes::from(vec![b'n'; range.length as usize]))
    }

    fn around_read_file_max(&self) -> u32 {
        4 << 20
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_with_bytes_of_its_own_is_asked_for_them_through_all_that_is_around_it() {
    let (far, db) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(far.path().join("a"), vec![b'f'; 3 << 20]).unwrap();
    let near = Arc::new(NearBytes(PosixOrigin::open(far.path()).unwrap()));
    let limited = Limit::new(Count::new(near, "/", OriginMetrics::default()), LimitConfig::default());
    let around = Retry::new(limited, RetryConfig::default());
    let ns = open(db.path(), vec![Junction::new("/", around)], &Timeline::default()).unwrap();
    let namespace::Found::Node(node) = ns.resolve(b"/a").await.unwrap() else { panic!("it is a file") };
    let (origin, reference) = ns.origin_of(&node).unwrap();
    let file = FileToRead { id: node.id, reference: &reference, version: node.version(), size: 3 << 20 };
    let read = origin.read_file(&file, ByteRange::new(0, 3 << 20)).await.unwrap();
    assert!(read.iter().all(|byte| *byte == b'n'), "the store was asked");
    assert_eq!(origin.read_file_max(), 4 << 20);
}
