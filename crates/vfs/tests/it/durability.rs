//! Who waits for the disk of the journal, and who does not: its syncs are held up, and calls are made meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use origin::memory::MemoryOrigin;
use testkit::far_origin::Far;
use types::{ByteRange, Caller, CreateHow, Durability, Result, SetAttr, Stability};
use vfs::{Hook, Vfs};

use crate::back::{BackTier, NEVER, back_tier_with, bytes_of, find};
use crate::writable::{name, with_mode};

/// Longer than anything takes here: for what would wait for ever.
const PATIENCE: Duration = Duration::from_secs(20);
/// Who does not wait has answered by then; who waits has not, however long this is.
const MOMENT: Duration = Duration::from_millis(100);

/// Syncs of the journal go on while it is open. One that waits for too long goes on, so that whoever waits for it, against
/// what is promised, is told of.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    gave_up: AtomicBool,
}

impl Gate {
    fn hook(self: &Arc<Gate>) -> Hook {
        let gate = self.clone();
        Arc::new(move |step| {
            if format!("{step:?}") == "BeforeSync" {
                let closed = gate.closed.lock().expect("no panic");
                let waited = gate.opened.wait_timeout_while(closed, PATIENCE, |closed| *closed);
                if waited.expect("no panic").1.timed_out() {
                    gate.gave_up.store(true, Ordering::SeqCst);
                }
            }
        })
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().expect("no panic") = closed;
        self.opened.notify_all();
    }
}

/// A tier whose journal syncs nothing before it is told to. The first field is dropped first, so that a test that fails ends.
struct Held {
    _open: Opener,
    tier: BackTier,
    gate: Arc<Gate>,
}

struct Opener(Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

fn held(origin: Arc<dyn origin::Origin>, delay: Duration, durability: Durability) -> Held {
    let gate = Arc::new(Gate::default());
    let tier = back_tier_with(origin, delay, |journaling| {
        journaling.hook = Some(gate.hook());
        journaling.durability = HashMap::from([("/".to_owned(), durability)]);
    });
    gate.set(true);
    Held { _open: Opener(gate.clone()), tier, gate }
}

/// As a mount calls.
fn program() -> Caller {
    Caller { durability: Durability::Fsync, ..Caller::root() }
}

/// As NFS calls.
fn client() -> Caller {
    Caller::root()
}

impl Held {
    /// Answers although nothing is synced.
    async fn at_once<T>(&self, what: &str, call: impl Future<Output = Result<T>>) -> T {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let waited = answer.is_err() || self.gate.gave_up.load(Ordering::SeqCst);
        assert!(!waited, "{what} waits for the disk");
        answer.expect("not too late").expect(what)
    }

    /// Answers when the journal is synced, and not before.
    async fn when_synced<T: Send + 'static>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> T {
        self.gate.set(true);
        let mut call = tokio::spawn(call);
        let early = tokio::time::timeout(MOMENT, &mut call).await;
        assert!(early.is_err(), "{what} does not wait for the disk");
        self.gate.set(false);
        let answer =
            tokio::time::timeout(PATIENCE, call).await.expect("synced").expect("no panic").expect(what);
        self.gate.set(true);
        answer
    }

    fn vfs(&self) -> Arc<Vfs> {
        self.tier.vfs.clone()
    }

    async fn file(&self, called: &str) -> types::FileId {
        let (vfs, how) = (&self.tier.vfs, CreateHow::Guarded);
        let made = async { vfs.create(&program(), vfs.root(), &name(called), how, with_mode(0o644)).await };
        self.at_once("create", made).await.node.id
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_does_waits_for_no_sync_but_the_one_that_it_asks_for() {
    let t = held(MemoryOrigin::new(), NEVER, Durability::Fsync);
    let (vfs, root) = (t.vfs(), t.tier.vfs.root());
    let file = t.file("file").await;
    let bytes = Bytes::from_static(b"bytes");
    t.at_once("write", vfs.write(&program(), file, 0, bytes, Stability::Unstable)).await;
    let large = Bytes::from(vec![7; 300_000]);
    t.at_once("a large write", vfs.write(&program(), file, 5, large, Stability::Unstable)).await;
    let cut = SetAttr { size: Some(3), ..with_mode(0o600) };
    t.at_once("setattr", vfs.setattr(&program(), file, cut, None)).await;
    t.at_once("close", vfs.close_written(&program(), file)).await;
    let set = with_mode(0o755);
    let dir = t.at_once("mkdir", vfs.mkdir(&program(), root, &name("dir"), set)).await.node.id;
    let target = Bytes::from_static(b"file");
    t.at_once("symlink", vfs.symlink(&program(), root, &name("link"), target, SetAttr::default())).await;
    t.at_once("link", vfs.link(&program(), file, dir, &name("two"))).await;
    t.at_once("rename", vfs.rename(&program(), root, &name("file"), dir, &name("moved"))).await;
    t.at_once("remove", vfs.remove(&program(), root, &name("link"))).await;
    t.at_once("mkdir", vfs.mkdir(&program(), root, &name("empty"), set)).await;
    t.at_once("rmdir", vfs.rmdir(&program(), root, &name("empty"))).await;
    // Of a file that nobody wrote to: it comes with its name, and with all that was done before.
    let made = t.file("made").await;
    let (tier, all) = (t.vfs(), ByteRange::new(0, 0));
    t.when_synced("fsync", async move { tier.commit(&program(), made, all).await }).await;
    t.at_once("fsync of what is synced", vfs.commit(&program(), made, all)).await;
    t.file("another").await;
    let tier = t.vfs();
    t.when_synced("fsync of a directory", async move { tier.sync_names(dir).await }).await;
    t.at_once("the same again", vfs.sync_names(dir)).await;
    let (tier, bytes) = (t.vfs(), Bytes::from_static(b"synced"));
    let write = async move { tier.write(&program(), made, 0, bytes, Stability::DataSync).await };
    t.when_synced("a write with O_DSYNC", write).await;
    assert_eq!(t.tier.read(made).await, b"synced");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_of_a_protocol_is_told_is_on_the_disk_whatever_the_setting() {
    let t = held(MemoryOrigin::new(), NEVER, Durability::Fsync);
    let (vfs, root, how) = (t.vfs(), t.tier.vfs.root(), CreateHow::Guarded);
    let make = async move { vfs.create(&client(), root, &name("file"), how, with_mode(0o644)).await };
    let file = t.when_synced("create", make).await.node.id;
    let bytes = Bytes::from_static(b"later");
    t.at_once("an UNSTABLE write", t.tier.vfs.write(&client(), file, 0, bytes, Stability::Unstable)).await;
    let (vfs, all) = (t.vfs(), ByteRange::new(0, 0));
    t.when_synced("COMMIT", async move { vfs.commit(&client(), file, all).await }).await;
    let vfs = t.vfs();
    let set = async move { vfs.setattr(&client(), file, with_mode(0o600), None).await };
    t.when_synced("setattr", set).await;
    let vfs = t.vfs();
    let rename = async move { vfs.rename(&client(), root, &name("file"), root, &name("renamed")).await };
    t.when_synced("rename", rename).await;
    let vfs = t.vfs();
    t.when_synced("remove", async move { vfs.remove(&client(), root, &name("renamed")).await }).await;
    // A program made it, and was promised less.
    let (vfs, how) = (t.vfs(), CreateHow::Exclusive(*b"verifier"));
    let once = async { vfs.create(&program(), root, &name("once"), how, SetAttr::default()).await };
    let there = t.at_once("create", once).await.node.id;
    let vfs = t.vfs();
    let again = async move { vfs.create(&client(), root, &name("once"), how, SetAttr::default()).await };
    assert_eq!(t.when_synced("a create that finds it", again).await.node.id, there);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_junction_says_always_programs_wait_for_each_change_and_for_each_close() {
    let t = held(MemoryOrigin::new(), NEVER, Durability::Always);
    let make = |called: &'static str| {
        let (vfs, root, how) = (t.vfs(), t.tier.vfs.root(), CreateHow::Guarded);
        async move { vfs.create(&program(), root, &name(called), how, with_mode(0o644)).await }
    };
    let file = t.when_synced("create", make("file")).await.node.id;
    let bytes = Bytes::from_static(b"bytes");
    t.at_once("write", t.tier.vfs.write(&program(), file, 0, bytes, Stability::Unstable)).await;
    let vfs = t.vfs();
    t.when_synced("close", async move { vfs.close_written(&program(), file).await }).await;
    // The setting can be changed meanwhile.
    assert!(t.tier.vfs.set_durability("/", Durability::Fsync));
    t.at_once("create", make("at-once")).await;
    assert!(t.tier.vfs.set_durability("/", Durability::Always));
    t.when_synced("create", make("again")).await;
    assert!(!t.tier.vfs.set_durability("/none", Durability::Always));
}

/// Or, after a power cut, the origin would have what the journal knows nothing of.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_flushed_before_the_journals_disk_has_it() {
    let far = Far::new("far:one");
    let t = held(far.clone(), Duration::ZERO, Durability::Fsync);
    let file = t.file("file").await;
    let bytes = Bytes::from_static(b"bytes");
    t.at_once("write", t.tier.vfs.write(&program(), file, 0, bytes, Stability::Unstable)).await;
    let vfs = t.vfs();
    let mut flush = tokio::spawn(async move { vfs.flush_home(None).await.expect("begun").wait().await });
    assert!(tokio::time::timeout(MOMENT, &mut flush).await.is_err(), "it does not wait for the disk");
    assert!(find(&*far.memory, "/file").await.is_err(), "the origin has what the journal's disk does not");
    t.gate.set(false);
    let refused = tokio::time::timeout(PATIENCE, flush).await.expect("flushed").expect("no panic");
    assert!(refused.is_empty() && !t.gate.gave_up.load(Ordering::SeqCst), "{refused:?}");
    assert_eq!(bytes_of(&*far.memory, "/file").await, b"bytes");
}
