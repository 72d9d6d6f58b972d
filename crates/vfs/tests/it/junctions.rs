//! Junctions that come and go while clients are served.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::Cache;
use namespace::{Junction, Namespace};
use testkit::far_origin::Far;
use types::{ByteRange, Caller, CreateHow, Durability, ErrorKind, FileId, Result, Stability, Timeline};
use vfs::{FlushPolicy, Journaling, Lend, NewJunction, Vfs, WritePolicy, Writing};

use crate::back::{NEVER, bytes_of};
use crate::harness::{joined, kind, patiently};
use crate::writable::{name, with_mode};

struct Bed {
    vfs: Arc<Vfs>,
    namespace: Arc<Namespace>,
    cache: Arc<Cache>,
    dir: tempfile::TempDir,
}

fn open(
    dir: &Path,
    junctions: Vec<(Junction, WritePolicy)>,
) -> Result<(Arc<Namespace>, Arc<Cache>, Arc<Vfs>)> {
    let policies = junctions.iter().map(|(junction, policy)| (junction.path.clone(), *policy)).collect();
    let names = namespace::Config { dir: dir.join("meta"), ..namespace::Config::default() };
    let junctions = junctions.into_iter().map(|(junction, _)| junction).collect();
    let namespace = Namespace::open_with_clock(names, junctions, Timeline::default())?;
    let blocks =
        cache::Config { dir: dir.join("cache"), size_max: 64 << 20, free_floor: 0, ..Default::default() };
    let cache = Cache::open(blocks)?;
    let writing = Writing { junctions: policies, ..Writing::default() };
    let vfs = match dir.join("journal").exists() {
        true => Vfs::with_journal(namespace.clone(), cache.clone(), writing, journaling(dir))?,
        false => Vfs::new(namespace.clone(), cache.clone(), writing),
    };
    Ok((namespace, cache, vfs))
}

fn journaling(dir: &Path) -> Journaling {
    Journaling {
        dir: dir.join("journal"),
        size_max: 1 << 30,
        host: "here".into(),
        utc_offset: |_| 0,
        flush: HashMap::new(),
        durability: HashMap::new(),
        accept_damage: false,
        bond: Some(dir.join("JOURNAL")),
        hook: None,
    }
}

/// A tier that serves one origin at `/kept`.
fn bed() -> Bed {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (namespace, cache, vfs) = open(dir.path(), vec![kept()]).expect("opens");
    Bed { vfs, namespace, cache, dir }
}

fn kept() -> (Junction, WritePolicy) {
    let far = Far::new("far:kept");
    far.memory.write_file(b"file", b"kept").expect("written");
    (Junction::new("/kept", far), WritePolicy::Through)
}

fn new(far: &Arc<Far>, write: WritePolicy, delay: Duration) -> NewJunction {
    let junction = Junction { changes: true, ..Junction::new("/b", far.clone()) };
    let flush = FlushPolicy { delay, ..FlushPolicy::default() };
    NewJunction { junction, write, flush, durability: Durability::Fsync }
}

impl Bed {
    async fn id(&self, path: &str) -> Result<FileId> {
        self.vfs.resolve(path.as_bytes()).await.map(|node| node.id)
    }

    async fn read(&self, id: FileId) -> Result<Vec<u8>> {
        self.vfs.read(&Caller::root(), id, 0, 1 << 20, Lend::Nothing).await.map(|read| joined(&read))
    }

    async fn create(&self, last: &str) -> Result<FileId> {
        let dir = self.id("/b").await?;
        let how = CreateHow::Guarded;
        Ok(self.vfs.create(&Caller::root(), dir, &name(last), how, with_mode(0o644)).await?.node.id)
    }

    async fn write(&self, id: FileId, data: &'static [u8], stability: Stability) -> Result<()> {
        self.vfs.write(&Caller::root(), id, 0, Bytes::from_static(data), stability).await.map(drop)
    }

    /// As a process that was killed, with these junctions only.
    async fn after_a_crash(self) -> Bed {
        let Bed { vfs, namespace, cache, dir } = self;
        drop(vfs);
        namespace.shutdown().await;
        drop((namespace, cache));
        let (namespace, cache, vfs) = patiently(|| open(dir.path(), vec![kept()])).await;
        Bed { vfs, namespace, cache, dir }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_through_is_stored_before_its_junction_goes_and_nothing_of_it_is_told_afterwards() {
    let t = bed();
    let far = Far::new("far:b");
    far.memory.write_file(b"file", b"old").expect("written");
    t.vfs.add_junction(new(&far, WritePolicy::Through, NEVER)).await.expect("added");
    let file = t.id("/b/file").await.expect("served at once");
    t.write(file, b"new", Stability::Unstable).await.expect("taken");
    t.vfs.remove_junction("/b").await.expect("removed");
    assert_eq!(bytes_of(far.as_ref(), "/file").await, b"new", "acknowledged, if not as stable");
    assert_eq!(kind(t.id("/b").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(t.read(file).await), Some(ErrorKind::Stale));
    assert_eq!(kind(t.write(file, b"newer", Stability::FileSync).await), Some(ErrorKind::Stale));
    let range = ByteRange::new(0, 0);
    assert_eq!(kind(t.vfs.commit(&Caller::root(), file, range).await), Some(ErrorKind::Stale));
    let kept = t.id("/kept/file").await.expect("it stays");
    assert_eq!(t.read(kept).await.expect("read"), b"kept");
    assert_eq!(bytes_of(far.as_ref(), "/file").await, b"new");

    t.vfs.add_junction(new(&far, WritePolicy::ReadOnly, NEVER)).await.expect("it comes again");
    assert_eq!(t.read(file).await.expect("read"), b"new", "by the handle of before");
    assert_eq!(kind(t.write(file, b"newer", Stability::FileSync).await), Some(ErrorKind::ReadOnly));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_junction_does_not_go_while_bytes_written_through_cannot_be_stored() {
    let t = bed();
    let far = Far::new("far:b");
    far.memory.write_file(b"file", b"old").expect("written");
    t.vfs.add_junction(new(&far, WritePolicy::Through, NEVER)).await.expect("added");
    let file = t.id("/b/file").await.expect("there");
    far.set_down(true);
    t.write(file, b"new", Stability::Unstable).await.expect("taken");
    let refused = t.vfs.remove_junction("/b").await.expect_err("refused").to_string();
    assert!(refused.contains("/b") && refused.contains("3 bytes"), "{refused}");
    assert_eq!(t.read(file).await.expect("it stays"), b"new");
    far.set_down(false);
    t.write(file, b"anew", Stability::FileSync).await.expect("and takes changes");
    t.vfs.remove_junction("/b").await.expect("removed");
    assert_eq!(bytes_of(far.as_ref(), "/file").await, b"anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_junction_written_back_comes_to_a_tier_without_a_journal_and_goes_when_its_origin_has_all() {
    let t = bed();
    let far = Far::new("far:b");
    let early = t.vfs.add_junction(new(&far, WritePolicy::Back, NEVER)).await;
    assert_eq!(kind(early), Some(ErrorKind::Config), "no journal is open");
    assert!(t.vfs.open_journal(journaling(t.dir.path())).await.expect("opened"));
    assert!(!t.vfs.open_journal(journaling(t.dir.path())).await.expect("it is there"));
    t.vfs.add_junction(new(&far, WritePolicy::Back, NEVER)).await.expect("added");
    let file = t.create("plan").await.expect("made");
    t.write(file, b"not there yet", Stability::Unstable).await.expect("taken");
    for shown in [&b"not there yet"[..], b"not there now"] {
        let refused = t.vfs.remove_junction("/b").await.expect_err("refused").to_string();
        assert!(
            refused.contains("bytes of data") && refused.contains("forebay flush --wait /b"),
            "{refused}"
        );
        assert_eq!(t.read(file).await.expect("it stays"), shown);
        t.write(file, b"not there now", Stability::FileSync).await.expect("and takes changes");
    }
    let refused = t.vfs.flush_home(Some(b"/b")).await.expect("begun").wait().await;
    assert!(refused.is_empty(), "{refused:?}");
    t.vfs.remove_junction("/b").await.expect("removed");
    assert_eq!(bytes_of(far.as_ref(), "/plan").await, b"not there now");
    assert_eq!(kind(t.read(file).await), Some(ErrorKind::Stale));
    assert!(t.vfs.unflushed().junctions.is_empty());

    // A start would refuse a journal with changes of a junction that is not there.
    let t = t.after_a_crash().await;
    assert_eq!(kind(t.id("/b").await), Some(ErrorKind::NotFound));
    t.vfs.add_junction(new(&far, WritePolicy::Back, NEVER)).await.expect("it comes again");
    assert_eq!(t.read(t.id("/b/plan").await.expect("there")).await.expect("read"), b"not there now");
    t.create("next").await.expect("made");
    assert_eq!(t.vfs.unflushed().journal.expect("there is one").operations, 1);
}

/// Nothing that a client was told is done may be lost, whenever the junction goes.
#[tokio::test(flavor = "multi_thread")]
async fn who_writes_while_a_junction_goes_is_told_or_has_written() {
    for write in [WritePolicy::Through, WritePolicy::Back] {
        let t = Arc::new(bed());
        let far = Far::new("far:b");
        t.vfs.open_journal(journaling(t.dir.path())).await.expect("opened");
        t.vfs.add_junction(new(&far, write, Duration::ZERO)).await.expect("added");
        let dir = t.id("/b").await.expect("there");
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let t = t.clone();
                tokio::spawn(async move {
                    let mut made = Vec::new();
                    for file in 0..100 {
                        let last = format!("{writer}-{file}");
                        let (root, how) = (Caller::root(), CreateHow::Guarded);
                        let created = t.vfs.create(&root, dir, &name(&last), how, with_mode(0o644)).await;
                        let written = match created {
                            Ok(created) => t.write(created.node.id, b"all", Stability::FileSync).await,
                            Err(e) => Err(e),
                        };
                        match written {
                            Ok(()) => made.push(last),
                            Err(e) if e.kind() == ErrorKind::Stale => break,
                            Err(e) => panic!("{last}: {e:?}"),
                        }
                    }
                    made
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
        // Written back it may have dirty data at any moment; it does not go then.
        while t.vfs.remove_junction("/b").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut files = 0;
        for writer in writers {
            for last in writer.await.expect("ends") {
                assert_eq!(bytes_of(far.as_ref(), &format!("/{last}")).await, b"all", "{write} {last}");
                files += 1;
            }
        }
        assert!(files > 0, "{write}: nobody wrote anything");
    }
}
