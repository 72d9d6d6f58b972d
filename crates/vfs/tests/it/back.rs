//! Junctions that are written `back`: what is shown before the origin has it, what a restart leaves, what the flush does.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::Cache;
use namespace::{Junction, Namespace};
use origin::memory::MemoryOrigin;
use origin::{Object, Origin};
use testkit::far_origin::Far;
use types::Timeline;
use types::{ByteRange, Caller, CreateHow, Durability, ErrorKind, FileId, Result, SetAttr, Stability};
use vfs::{ConflictPolicy, FlushPolicy, Journaling, Lend, Vfs, WaitingFilter, WritePolicy, Writing};

use crate::copies::Copies;
use crate::harness::{AFTER_TTL, kind, patiently};
use crate::writable::{name, names, with_mode};

/// A tier over one origin at "/".
pub struct BackTier {
    pub vfs: Arc<Vfs>,
    pub clock: Timeline,
    pub origin: Arc<dyn Origin>,
    delay: Duration,
    namespace: Arc<Namespace>,
    cache: Arc<Cache>,
    dir: tempfile::TempDir,
}

pub const NEVER: Duration = Duration::from_secs(3600);

pub fn back_tier(origin: Arc<dyn Origin>, delay: Duration) -> BackTier {
    back_tier_with(origin, delay, |_| {})
}

/// Whose journal is opened so, until a restart.
pub fn back_tier_with(
    origin: Arc<dyn Origin>,
    delay: Duration,
    edit: impl FnOnce(&mut Journaling),
) -> BackTier {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let clock = Timeline::default();
    let (namespace, cache) = (open_namespace(dir.path(), &origin, &clock), open_cache(dir.path()));
    let (namespace, cache) = (namespace.expect("opens"), cache.expect("opens"));
    let vfs = open_vfs_with(dir.path(), &namespace, &cache, (delay, WritePolicy::Back), edit).expect("opens");
    BackTier { vfs, clock, origin, delay, namespace, cache, dir }
}

fn open_namespace(dir: &Path, origin: &Arc<dyn Origin>, clock: &Timeline) -> Result<Arc<Namespace>> {
    let config = namespace::Config { dir: dir.join("meta"), ..namespace::Config::default() };
    Namespace::open_with_clock(config, vec![Junction::new("/", origin.clone())], clock.clone())
}

fn open_cache(dir: &Path) -> Result<Arc<Cache>> {
    let (dir, size_max) = (dir.join("cache"), 64 << 20);
    Cache::open(cache::Config { dir, size_max, free_floor: 0, ..cache::Config::default() })
}

fn open_vfs(
    dir: &Path,
    namespace: &Arc<Namespace>,
    cache: &Arc<Cache>,
    delay: Duration,
    policy: WritePolicy,
) -> Result<Arc<Vfs>> {
    open_vfs_with(dir, namespace, cache, (delay, policy), |_| {})
}

fn open_vfs_with(
    dir: &Path,
    namespace: &Arc<Namespace>,
    cache: &Arc<Cache>,
    (delay, policy): (Duration, WritePolicy),
    edit: impl FnOnce(&mut Journaling),
) -> Result<Arc<Vfs>> {
    let policies = HashMap::from([("/".to_owned(), policy)]);
    let flush = FlushPolicy { delay, conflict: ConflictPolicy::KeepBoth, ..FlushPolicy::default() };
    let mut journaling = Journaling {
        dir: dir.join("journal"),
        size_max: 1 << 30,
        host: "here".into(),
        utc_offset: |_| 0,
        flush: HashMap::from([("/".to_owned(), flush)]),
        durability: HashMap::from([("/".to_owned(), Durability::Fsync)]),
        accept_damage: false,
        bond: Some(dir.join("JOURNAL")),
        hook: None,
    };
    edit(&mut journaling);
    let writing = Writing { junctions: policies, ..Writing::default() };
    Vfs::with_journal(namespace.clone(), cache.clone(), writing, journaling)
}

impl BackTier {
    /// As a process that was killed: nothing is closed, and what is on the disk is all there is.
    pub async fn after_a_crash(self) -> BackTier {
        self.again().await
    }

    pub async fn after_a_restart(self) -> BackTier {
        self.vfs.close().await.expect("closed");
        self.again().await
    }

    async fn again(self) -> BackTier {
        let BackTier { vfs, clock, origin, delay, namespace, cache, dir } = self;
        drop(vfs);
        namespace.shutdown().await;
        drop((namespace, cache));
        let namespace = patiently(|| open_namespace(dir.path(), &origin, &clock)).await;
        let cache = patiently(|| open_cache(dir.path())).await;
        let vfs = patiently(|| open_vfs(dir.path(), &namespace, &cache, delay, WritePolicy::Back)).await;
        BackTier { vfs, clock, origin, delay, namespace, cache, dir }
    }

    pub async fn flush(&self) {
        let refused = self.vfs.flush_home(None).await.expect("begun").wait().await;
        assert!(refused.is_empty(), "{refused:?}");
    }

    pub async fn id(&self, path: &str) -> FileId {
        self.vfs.resolve(path.as_bytes()).await.expect("is there").id
    }

    pub async fn create(&self, path: &str) -> FileId {
        let (dir, last) = path.rsplit_once('/').expect("absolute");
        let how = CreateHow::Guarded;
        let dir = self.id(dir).await;
        let made = self.vfs.create(&Caller::root(), dir, &name(last), how, with_mode(0o644)).await;
        made.expect("made").node.id
    }

    pub async fn write(&self, id: FileId, at: u64, data: &[u8]) {
        let data = Bytes::copy_from_slice(data);
        self.vfs.write(&Caller::root(), id, at, data, Stability::FileSync).await.expect("written");
    }

    pub async fn read(&self, id: FileId) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let read = self.vfs.read(&Caller::root(), id, all.len() as u64, 256 << 10, Lend::Nothing).await;
            let read = read.expect("read");
            read.data.iter().for_each(|piece| all.extend_from_slice(&piece.to_bytes().expect("bytes")));
            if read.eof {
                return all;
            }
        }
    }
}

pub async fn find(origin: &dyn Origin, path: &str) -> Result<Object> {
    let mut at = origin.root().await?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = origin.lookup(&at.reference, &name(part)).await?;
    }
    Ok(at)
}

pub async fn bytes_of(origin: &dyn Origin, path: &str) -> Vec<u8> {
    let file = find(origin, path).await.expect("is there");
    let all = ByteRange::new(0, file.attr.size);
    origin.read(&file.reference, file.version, all).await.expect("read").to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_here_is_seen_at_once_and_at_the_origin_after_the_flush() {
    let far = Far::new("far:one");
    far.memory.write_file(b"old", b"old bytes").unwrap();
    let t = back_tier(far.clone(), NEVER);
    let (caller, root) = (Caller::root(), t.vfs.root());
    let dir = t.vfs.mkdir(&caller, root, &name("dir"), with_mode(0o751)).await.unwrap().node.id;
    let file = t.create("/dir/file").await;
    t.write(file, 0, b"hello").await;
    t.write(file, 3, b"p!").await;
    t.vfs.rename(&caller, root, &name("old"), dir, &name("moved")).await.unwrap();
    far.forget_calls();
    assert_eq!(names(&t.vfs, root).await, ["dir"]);
    assert_eq!(names(&t.vfs, dir).await, ["file", "moved"]);
    assert_eq!(t.read(file).await, b"help!");
    assert_eq!(t.read(t.id("/dir/moved").await).await, b"old bytes");
    assert_eq!(t.vfs.parent(&caller, dir).await.unwrap().id, root);
    assert_eq!(far.calls("create") + far.calls("write") + far.calls("rename"), 0);
    let waiting = t.vfs.unflushed();
    assert_eq!(waiting.junctions[0].dirty_bytes, 7);
    assert!(waiting.junctions[0].oldest.is_some() && waiting.journal.unwrap().operations >= 5);
    t.flush().await;
    assert_eq!(t.vfs.unflushed().journal.unwrap().operations, 0);
    assert_eq!(bytes_of(&*far.memory, "/dir/file").await, b"help!");
    assert_eq!(bytes_of(&*far.memory, "/dir/moved").await, b"old bytes");
    assert_eq!(find(&*far.memory, "/dir").await.unwrap().attr.mode, 0o751);
    // The same ids, and the bytes are here.
    far.forget_calls();
    assert_eq!((t.id("/dir").await, t.id("/dir/file").await), (dir, file));
    assert_eq!(t.read(file).await, b"help!");
    assert_eq!(far.calls("read"), 0);
    t.clock.advance(AFTER_TTL);
    assert_eq!((t.id("/dir").await, t.id("/dir/file").await), (dir, file));
    assert_eq!(t.read(file).await, b"help!");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_what_was_acknowledged_and_handles_stay_good() {
    let origin = MemoryOrigin::new();
    let t = back_tier(origin.clone(), NEVER);
    let file = t.create("/file").await;
    t.write(file, 0, b"first").await;
    let t = t.after_a_crash().await;
    assert_eq!(t.id("/file").await, file);
    assert_eq!(t.read(file).await, b"first");
    t.write(file, 5, b" second").await;
    t.flush().await;
    let t = t.after_a_crash().await;
    assert_eq!(t.id("/file").await, file);
    assert_eq!(t.read(file).await, b"first second");
    assert_eq!(t.vfs.getattr(file).await.unwrap().attr.size, 12);
    assert_eq!(bytes_of(&*origin, "/file").await, b"first second");
}

/// An interrupted flush left the file as another version than the operations that wait were made on.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_in_a_flush_the_bytes_below_what_waits_are_those_of_the_origin() {
    let origin = MemoryOrigin::new();
    origin.write_file(b"file", b"these bytes are here").unwrap();
    let t = back_tier(origin.clone(), NEVER);
    let file = t.id("/file").await;
    assert_eq!(t.read(file).await, b"these bytes are here");
    t.vfs.setattr(&Caller::root(), file, with_mode(0o600), None).await.unwrap();
    origin.chmod(b"file", 0o600).unwrap();
    t.namespace.refresh_changed(file).await.unwrap();
    let t = t.after_a_crash().await;
    assert_eq!(t.read(file).await, b"these bytes are here");
    t.write(file, 6, b"BYTES").await;
    assert_eq!(t.read(file).await, b"these BYTES are here");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_before_it_travels_never_travels() {
    let far = Far::new("far:one");
    let t = back_tier(far.clone(), NEVER);
    let file = t.create("/temporary").await;
    t.write(file, 0, &[7; 100_000]).await;
    far.forget_calls();
    t.vfs.remove(&Caller::root(), t.vfs.root(), &name("temporary")).await.unwrap();
    t.flush().await;
    let changes = far.calls("create") + far.calls("write") + far.calls("remove");
    assert_eq!(changes, 0);
    assert!(names(&t.vfs, t.vfs.root()).await.is_empty());
    assert_eq!(kind(t.vfs.getattr(file).await), Some(ErrorKind::Stale));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_not_changed_while_the_origin_is_owed_something() {
    let t = back_tier(MemoryOrigin::new(), NEVER);
    t.create("/file").await;
    t.vfs.close().await.unwrap();
    let BackTier { vfs, namespace, cache, dir, .. } = t;
    drop(vfs);
    for _ in 0..500 {
        match open_vfs(dir.path(), &namespace, &cache, NEVER, WritePolicy::Through).map(drop) {
            Err(e) if e.to_string().contains("1 operations that the origin of / does not have yet") => return,
            // The tier before has not let go of the journal.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            Ok(()) => panic!("it must refuse"),
        }
    }
    panic!("it must say why");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_holds_up_the_flush_and_no_client() {
    let far = Far::new("far:one");
    far.memory.write_file(b"known", b"known").unwrap();
    let t = back_tier(far.clone(), Duration::ZERO);
    assert_eq!(names(&t.vfs, t.vfs.root()).await, ["known"]);
    far.set_down(true);
    let file = t.create("/file").await;
    t.write(file, 0, b"written in the dark").await;
    assert_eq!(t.read(file).await, b"written in the dark");
    let flushing = t.vfs.flush_home(None).await.unwrap();
    far.set_down(false);
    assert!(flushing.wait().await.is_empty());
    assert_eq!(bytes_of(&*far.memory, "/file").await, b"written in the dark");
}

/// A tier whose origin was away for so long that the flush waits for half a minute between two tries; and how often it tried.
async fn after_a_long_outage(far: &Arc<Far>) -> (BackTier, impl Fn() -> u64) {
    far.memory.write_file(b"known", b"known").unwrap();
    let t = back_tier(far.clone(), Duration::ZERO);
    assert_eq!(names(&t.vfs, t.vfs.root()).await, ["known"]);
    let mut registry = prometheus_client::registry::Registry::default();
    t.vfs.register(&mut registry);
    let tries = move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("told");
        let line = text.lines().find_map(|line| line.strip_prefix("forebay_flush_retries_total "));
        line.map_or(0, |value| value.parse::<u64>().expect("a number"))
    };
    far.set_down(true);
    let file = t.create("/file").await;
    t.write(file, 0, b"written in the dark").await;
    for tried in 1..=6 {
        while tries() < tried {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        t.clock.advance(Duration::from_secs(if tried < 6 { 31 } else { 0 }));
    }
    (t, tries)
}

async fn ends_soon(far: &Far, flushing: vfs::FlushRequest) {
    let refused = tokio::time::timeout(Duration::from_secs(10), flushing.wait()).await.expect("soon");
    assert!(refused.is_empty());
    assert_eq!(bytes_of(&*far.memory, "/file").await, b"written in the dark");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_goes_on_when_anybody_reaches_the_origin_again() {
    let far = Far::new("far:one");
    let (t, tries) = after_a_long_outage(&far).await;
    let tried = tries();
    let flushing = t.vfs.flush_home(None).await.unwrap();
    while tries() == tried {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    far.set_down(false);
    t.vfs.resolve(b"/unheard-of").await.unwrap_err();
    ends_soon(&far, flushing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_an_operator_asks_for_does_not_wait_for_the_next_try() {
    let far = Far::new("far:one");
    let (t, _) = after_a_long_outage(&far).await;
    far.set_down(false);
    ends_soon(&far, t.vfs.flush_home(None).await.unwrap()).await;
}

/// What the flush tried in vain is no reason to hide the file, or what else is in its directory.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_flush_tried_in_an_outage_is_shown_and_changed_on() {
    let far = Far::new("far:one");
    far.memory.mkdir(b"dir").unwrap();
    for name in ["dir/cut", "dir/removed", "dir/renamed", "dir/other"] {
        far.memory.write_file(name.as_bytes(), b"before").unwrap();
    }
    let t = back_tier(far.clone(), Duration::ZERO);
    let (dir, caller) = (t.id("/dir").await, Caller::root());
    let (cut, other) = (t.id("/dir/cut").await, t.id("/dir/other").await);
    assert_eq!(names(&t.vfs, dir).await, ["cut", "other", "removed", "renamed"]);
    assert_eq!((t.read(cut).await, t.read(other).await), (b"before".to_vec(), b"before".to_vec()));
    // The outage begins in the middle of a flush.
    for kind in ["set", "remove", "rename"] {
        far.fail(kind, ErrorKind::Unavailable, u64::MAX);
    }
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    t.vfs.setattr(&caller, cut, set, None).await.expect("cut");
    t.vfs.remove(&caller, dir, &name("removed")).await.expect("removed");
    t.vfs.rename(&caller, dir, &name("renamed"), dir, &name("elsewhere")).await.expect("renamed");
    far.forget_calls();
    let flushing = t.vfs.flush_home(None).await.unwrap();
    for kind in ["set", "remove", "rename"] {
        let begun = std::time::Instant::now();
        while far.calls(kind) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the flush tries a {kind}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    far.set_down(true);
    // What was known is out of date too.
    t.clock.advance(Duration::from_secs(60));
    for round in 0..3 {
        let text = format!("round {round}");
        t.write(cut, 0, text.as_bytes()).await;
        assert_eq!(t.read(cut).await, text.as_bytes());
        assert_eq!(t.id("/dir/cut").await, cut);
        assert_eq!(t.read(t.id("/dir/other").await).await, b"before");
        assert_eq!(names(&t.vfs, dir).await, ["cut", "elsewhere", "other"]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for kind in ["set", "remove", "rename"] {
        far.fail(kind, ErrorKind::Unavailable, 0);
    }
    far.set_down(false);
    assert!(flushing.wait().await.is_empty());
    t.flush().await;
    assert_eq!(bytes_of(&*far.memory, "/dir/cut").await, b"round 2");
    assert_eq!(bytes_of(&*far.memory, "/dir/elsewhere").await, b"before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_comes_twice_finds_what_it_made() {
    let t = back_tier(MemoryOrigin::new(), NEVER);
    let (caller, root, how) = (Caller::root(), t.vfs.root(), CreateHow::Exclusive(*b"verifier"));
    let made = async |how| t.vfs.create(&caller, root, &name("x"), how, SetAttr::default()).await;
    let first = made(how).await.unwrap().node.id;
    assert_eq!(made(how).await.unwrap().node.id, first);
    assert_eq!(kind(made(CreateHow::Exclusive(*b"another!")).await), Some(ErrorKind::Exists));
}

/// The flush moves the file's ctime, and by that its version.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_file_open_goes_on_after_it_was_renamed_or_written_and_flushed() {
    let far = Far::new("far:one");
    far.memory.write_file(b"one", &[7; 300_000]).unwrap();
    far.memory.write_file(b"cold", &[8; 300_000]).unwrap();
    let t = back_tier(far.clone(), NEVER);
    let (root, caller) = (t.vfs.root(), Caller::root());
    let (one, cold) = (t.id("/one").await, t.id("/cold").await);
    let opened = [t.vfs.getattr(one).await.unwrap(), t.vfs.getattr(cold).await.unwrap()];
    assert_eq!(t.read(one).await, [7; 300_000]);
    for (from, to) in [("one", "two"), ("cold", "still cold")] {
        t.vfs.rename(&caller, root, &name(from), root, &name(to)).await.unwrap();
    }
    t.flush().await;
    far.forget_calls();
    let seen = async |node| {
        let mut all = Vec::new();
        for piece in t.vfs.read_version(node, 0, 300_000, Lend::Nothing).await.expect("read") {
            all.extend_from_slice(&piece.to_bytes().expect("bytes"));
        }
        all
    };
    assert_eq!(seen(&opened[0]).await, [7; 300_000]);
    assert_eq!(far.calls("read"), 0);
    assert_eq!(seen(&opened[1]).await, [8; 300_000]);
    // Who wants the bytes that it was opened with, and no others, has them for as long as nobody writes.
    let same = async || t.vfs.read_same(&opened[0], 0, 300_000, Lend::Nothing).await;
    assert!(same().await.is_ok());
    t.write(one, 0, b"ours").await;
    assert_eq!(same().await.err().map(|e| e.kind()), Some(ErrorKind::VersionChanged));
    t.flush().await;
    assert_eq!(seen(&opened[0]).await[..5], *b"ours\x07");
    assert_eq!(same().await.err().map(|e| e.kind()), Some(ErrorKind::VersionChanged));
}

/// At a store each file below it has another version then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_below_a_directory_that_is_renamed_is_no_conflict() {
    let memory = MemoryOrigin::new();
    let answers_after = Duration::from_millis(100);
    let t = back_tier(Copies::new(memory.clone(), answers_after), NEVER);
    let (caller, root) = (Caller::root(), t.vfs.root());
    t.vfs.mkdir(&caller, root, &name("dir"), with_mode(0o755)).await.unwrap();
    let all: Vec<String> = (0..300).map(|n| format!("file {n}")).collect();
    for one in &all {
        let file = t.create(&format!("/dir/{one}")).await;
        t.write(file, 0, b"in the beginning").await;
    }
    t.flush().await;
    let last = all.iter().max_by_key(|one| namespace::cookie_of(one.as_bytes())).expect("some");
    for (from, to, meanwhile) in [("dir", "moved", true), ("moved", "again", false)] {
        let file = t.id(&format!("/{from}/{last}")).await;
        t.vfs.rename(&caller, root, &name(from), root, &name(to)).await.unwrap();
        if meanwhile {
            t.vfs.flush_home(None).await.unwrap();
            while find(&*memory, to).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        t.write(file, 0, to.as_bytes()).await;
        t.flush().await;
        let told = t.vfs.unflushed();
        assert!(told.alarms.is_empty(), "{:?}", told.alarms);
        assert_eq!(&bytes_of(&*t.origin, &format!("/{to}/{last}")).await[..to.len()], to.as_bytes());
        t.clock.advance(AFTER_TTL);
        let left = t.read(t.id(&format!("/{to}/{}", all[0])).await).await;
        assert_eq!(left, b"in the beginning");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renames_and_removals_are_refused_as_a_file_system_does() {
    let origin = MemoryOrigin::new();
    let t = back_tier(origin.clone(), NEVER);
    let (caller, root) = (Caller::root(), t.vfs.root());
    let a = t.vfs.mkdir(&caller, root, &name("a"), with_mode(0o755)).await.unwrap().node.id;
    let b = t.vfs.mkdir(&caller, a, &name("b"), with_mode(0o755)).await.unwrap().node.id;
    t.create("/file").await;
    let rename = async |from, to: (FileId, &str)| {
        kind(t.vfs.rename(&caller, root, &name(from), to.0, &name(to.1)).await)
    };
    assert_eq!(rename("a", (b, "inside")).await, Some(ErrorKind::InvalidArgument));
    assert_eq!(rename("file", (root, "a")).await, Some(ErrorKind::IsADirectory));
    assert_eq!(rename("a", (root, "file")).await, Some(ErrorKind::NotADirectory));
    assert_eq!(kind(t.vfs.rmdir(&caller, root, &name("a")).await), Some(ErrorKind::NotEmpty));
    assert_eq!(kind(t.vfs.remove(&caller, root, &name("a")).await), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(t.vfs.rmdir(&caller, root, &name("file")).await), Some(ErrorKind::NotADirectory));
    assert_eq!(kind(t.vfs.remove(&caller, root, &name("none")).await), Some(ErrorKind::NotFound));
    t.vfs.rmdir(&caller, a, &name("b")).await.unwrap();
    assert!(t.vfs.mkdir(&caller, b, &name("late"), with_mode(0o755)).await.is_err(), "it is removed");
    t.flush().await;
    assert_eq!(names(&t.vfs, root).await, ["a", "file"]);
    assert!(find(&*origin, "/a/b").await.is_err());
}

/// Its bytes are laid into the cache while they travel.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_new_file_is_read_after_its_flush_without_the_origin() {
    for far in [Far::new("far:one"), Far::of_whole_files("far:one")] {
        let t = back_tier(far.clone(), NEVER);
        let file = t.create("/file").await;
        let mut expected = Vec::new();
        let mut write = async |at: usize, byte: u8, length: usize| {
            expected.resize(expected.len().max(at + length), 0);
            expected[at..at + length].fill(byte);
            t.write(file, at as u64, &vec![byte; length]).await;
            expected.clone()
        };
        for mib in 0..20 {
            write(mib << 20, mib as u8 + 1, 1 << 20).await;
        }
        write((5 << 20) + 7, 50, 600_000).await;
        // What the first attempt laid is not what the second one brings home.
        far.fail("commit", ErrorKind::Unavailable, 1);
        let flushing = t.vfs.flush_home(None).await.unwrap();
        tokio::time::timeout(NEVER, async {
            while far.calls("commit") == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("tried");
        let now = write((9 << 20) + 11, 51, 600_000).await;
        assert!(t.read(file).await == now, "while it is tried again");
        assert!(flushing.wait().await.is_empty());
        assert!(t.read(file).await == now, "as it was written");
        t.flush().await;
        assert!(t.read(file).await == now, "as it was written, at the origin");
        assert_eq!(far.calls("read"), 0);
        assert!(bytes_of(&*far.memory, "/file").await == now);
    }
}

/// An operator holds operations back, and thinks better of it, or gives them up; the tier is killed either way.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_to_be_dropped_goes_on_if_it_is_not_and_is_gone_after_a_crash_if_it_is() {
    let origin = MemoryOrigin::new();
    origin.write_file(b"old", b"old bytes").unwrap();
    let t = back_tier(origin.clone(), NEVER);
    let (old, new) = (t.id("/old").await, t.create("/new").await);
    t.write(new, 0, b"new bytes").await;
    t.write(old, 0, b"OLD").await;
    let all = t.vfs.waiting(0, 100, &WaitingFilter::default()).await.expect("listed");
    let of = |path: &str| all.iter().filter(|it| it.path == path).map(|it| it.sequence).collect::<Vec<_>>();
    assert_eq!((of("/new").len(), of("/old").len()), (2, 1), "{all:?}");
    let refused = t.vfs.begin_drop(&of("/new")[..1], false).await.err().expect("the write needs it");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let dropping = t.vfs.begin_drop(&of("/new")[..1], true).await.expect("held");
    assert_eq!(dropping.operations.len(), 2);
    let written = dropping.operations.iter().find(|it| it.kind == "write").expect("it is of them");
    assert_eq!(dropping.data(written).await.expect("read"), "new bytes");
    drop(dropping);
    let t = t.after_a_crash().await;
    assert_eq!(t.read(t.id("/new").await).await, b"new bytes");

    let dropping = t.vfs.begin_drop(&of("/old"), false).await.expect("held");
    dropping.finish().await.expect("given up");
    assert_eq!(t.read(t.id("/old").await).await, b"old bytes");
    let dropping = t.vfs.begin_drop(&of("/new"), false).await.expect("held");
    dropping.finish().await.expect("given up");
    assert_eq!(names(&t.vfs, t.vfs.root()).await, ["old"]);
    assert_eq!(kind(t.vfs.getattr(new).await), Some(ErrorKind::Stale));
    let t = t.after_a_crash().await;
    assert_eq!(names(&t.vfs, t.vfs.root()).await, ["old"]);
    t.write(t.id("/old").await, 4, b"BYTES").await;
    t.flush().await;
    assert_eq!(bytes_of(&*origin, "/old").await, b"old BYTES");
    assert_eq!(t.vfs.unflushed().journal.unwrap().operations, 0);
}
