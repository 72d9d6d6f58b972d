//! A whole tier over one far origin, in each way to run the cache.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cache::Cache;
use namespace::{Freshness, Junction, Namespace};
use origin::{Origin, Reference};
use testkit::far_origin::Far;
use types::Timeline;
use types::{ByteRange, Caller, Error, ErrorKind, FileId, Name, Result};
use vfs::{Lend, ReadOut, Vfs, WritePolicy, Writing};

/// Past the default ttl of 30 s.
pub const AFTER_TTL: Duration = Duration::from_secs(31);
/// Longer than anything here takes on a slow machine; a wait that reaches it is a hang.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What clients see must not depend on it.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Cached,
    NoReadahead,
    Bypass,
}

/// The test functions named, once in each mode.
macro_rules! in_every_mode {
    ($($test:ident),* $(,)?) => {
        mod cached {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() { super::$test(crate::harness::Mode::Cached).await })*
        }
        mod without_readahead {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() { super::$test(crate::harness::Mode::NoReadahead).await })*
        }
        mod bypassed {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() { super::$test(crate::harness::Mode::Bypass).await })*
        }
    };
}
pub(crate) use in_every_mode;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Another one each time; to see a run again, give what it printed.
    pub fn seeded() -> Random {
        let fresh = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
        let given = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(fresh);
        println!("FOREBAY_TEST_SEED={seed}");
        Random(seed)
    }

    pub fn of(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub struct Tier {
    pub vfs: Arc<Vfs>,
    pub far: Arc<Far>,
    clock: Timeline,
    mode: Mode,
    writing: Writing,
    junction: Junction,
    namespace: Arc<Namespace>,
    cache: Arc<Cache>,
    dir: tempfile::TempDir,
}

pub fn tier(mode: Mode) -> Tier {
    tier_with(mode, |_| {})
}

/// Writers wait above `bytes_max`.
pub fn writable_tier(mode: Mode, bytes_max: u64, edit: impl FnOnce(&mut Junction)) -> Tier {
    let junctions = [("/".to_owned(), WritePolicy::Through)].into();
    tier_as(mode, edit, Writing { junctions, bytes_max })
}

/// The same over an origin that shows what is written when it is committed.
pub fn tier_over_whole_files(mode: Mode, bytes_max: u64) -> Tier {
    let junctions = [("/".to_owned(), WritePolicy::Through)].into();
    tier_over(Far::of_whole_files("far:one"), mode, |_| {}, Writing { junctions, bytes_max })
}

pub fn tier_with(mode: Mode, edit: impl FnOnce(&mut Junction)) -> Tier {
    tier_as(mode, edit, Writing::default())
}

fn tier_as(mode: Mode, edit: impl FnOnce(&mut Junction), writing: Writing) -> Tier {
    tier_over(Far::new("far:one"), mode, edit, writing)
}

fn tier_over(far: Arc<Far>, mode: Mode, edit: impl FnOnce(&mut Junction), writing: Writing) -> Tier {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let clock = Timeline::default();
    let mut junction = Junction::new("/", far.clone());
    edit(&mut junction);
    let namespace = open_namespace(dir.path(), &junction, &clock).expect("opens");
    let cache = open_cache(dir.path(), mode).expect("opens");
    let vfs = Vfs::new(namespace.clone(), cache.clone(), writing.clone());
    Tier { vfs, far, clock, mode, writing, junction, namespace, cache, dir }
}

fn open_namespace(dir: &Path, junction: &Junction, clock: &Timeline) -> Result<Arc<Namespace>> {
    let config = namespace::Config { dir: dir.join("meta"), ..namespace::Config::default() };
    Namespace::open_with_clock(config, vec![junction.clone()], clock.clone())
}

fn open_cache(dir: &Path, mode: Mode) -> Result<Arc<Cache>> {
    let mut config = cache::Config {
        dir: dir.join("cache"),
        size_max: 256 << 20,
        free_floor: 0,
        ..cache::Config::default()
    };
    match mode {
        Mode::Cached => {}
        Mode::NoReadahead => config.readahead_max = 0,
        Mode::Bypass => config.bypass = true,
    }
    Cache::open(config)
}

/// Try until what used the same files before has let go of them.
pub async fn patiently<T>(open: impl Fn() -> Result<T>) -> T {
    for _ in 0..500 {
        match open() {
            Ok(opened) => return opened,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    open().expect("opens once the tier before it is gone")
}

struct Direct(Arc<Far>, Reference);

#[async_trait]
impl cache::Source for Direct {
    async fn read(&self, key: &cache::CacheKey, range: ByteRange) -> Result<Bytes> {
        self.0.read(&self.1, key.version, range).await
    }

    fn read_max(&self) -> u32 {
        1 << 20
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("readable");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("readable").is_dir() {
            std::fs::create_dir(&to).expect("made");
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copied");
        }
    }
}

pub fn rule(rule: Freshness) -> impl FnOnce(&mut Junction) {
    move |junction| (junction.files, junction.directories) = (rule, rule)
}

pub fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().as_ref().map(Error::kind)
}

/// Every other read takes the bytes where they lie, so that all tests try both ways.
fn lend_at(offset: u64) -> Lend {
    if offset.is_multiple_of(2) { Lend::From(1) } else { Lend::Nothing }
}

pub fn joined(read: &ReadOut) -> Vec<u8> {
    read.data.iter().map(|piece| piece.to_bytes().expect("readable")).collect::<Vec<_>>().concat()
}

impl Tier {
    pub fn pass(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub async fn after_a_restart(self) -> Tier {
        let Tier { vfs, far, clock, mode, writing, junction, namespace, cache, dir } = self;
        namespace.shutdown().await;
        cache.shutdown().await;
        drop((vfs, namespace, cache));
        let namespace = patiently(|| open_namespace(dir.path(), &junction, &clock)).await;
        let cache = patiently(|| open_cache(dir.path(), mode)).await;
        let vfs = Vfs::new(namespace.clone(), cache.clone(), writing.clone());
        Tier { vfs, far, clock, mode, writing, junction, namespace, cache, dir }
    }

    /// A tier that starts with the disk as it is now, as if this one had been killed. Nobody is to ask this one any more.
    pub fn after_a_kill(&self) -> Tier {
        let dir = tempfile::tempdir().expect("a directory for the test");
        copy(self.dir.path(), dir.path());
        let (far, clock, mode) = (self.far.clone(), self.clock.clone(), self.mode);
        let (writing, junction) = (self.writing.clone(), self.junction.clone());
        let namespace = open_namespace(dir.path(), &junction, &clock).expect("opens");
        let cache = open_cache(dir.path(), mode).expect("opens");
        let vfs = Vfs::new(namespace.clone(), cache.clone(), writing.clone());
        Tier { vfs, far, clock, mode, writing, junction, namespace, cache, dir }
    }

    /// Fetches what the origin has now under the version that it tells, as a reader does who knows of no writer.
    pub async fn fetch(&self, id: FileId, name: &str) {
        let root = self.far.root().await.expect("there").reference;
        let name = Name::new(name.to_owned()).expect("a good name");
        let found = self.far.lookup(&root, &name).await.expect("there");
        let key = cache::CacheKey { file: id, version: found.version, size: found.attr.size };
        let source: Arc<dyn cache::Source> = Arc::new(Direct(self.far.clone(), found.reference));
        self.cache.warm(&key, &source, |_| {}).await.expect("fetched");
    }

    /// Its state is known anew, as after a listing that somebody asked for.
    pub async fn is_asked_about(&self, id: FileId) {
        self.namespace.refresh_changed(id).await.expect("answered");
    }

    /// The wall clock of the tier.
    pub fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_millis(self.clock.now_ms())
    }

    pub async fn id(&self, path: &[u8]) -> FileId {
        self.vfs.resolve(path).await.expect("is there").id
    }

    pub async fn read(&self, id: FileId, offset: u64, count: u32) -> Result<ReadOut> {
        self.vfs.read(&Caller::root(), id, offset, count, lend_at(offset)).await
    }

    /// Open by path and read all of it.
    pub async fn read_path(&self, path: &[u8]) -> Result<Vec<u8>> {
        let node = self.vfs.resolve(path).await?;
        let mut all = Vec::new();
        loop {
            let read = self.read(node.id, all.len() as u64, 128 << 10).await?;
            all.extend(joined(&read));
            if read.eof {
                return Ok(all);
            }
        }
    }
}
