//! A whole tier over one far origin, in each way to run the cache.

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use namespace::{Clock, Freshness, Junction, Namespace};
use types::{Caller, Error, ErrorKind, FileId, Result};
use vfs::{ReadOut, Vfs};

use crate::far::Far;

/// Past the default ttl of 30 s.
pub const AFTER_TTL: Duration = Duration::from_secs(31);

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

pub struct Tier {
    pub vfs: Arc<Vfs>,
    pub far: Arc<Far>,
    clock: Clock,
    _dir: tempfile::TempDir,
}

pub fn tier(mode: Mode) -> Tier {
    tier_with(mode, |_| {})
}

pub fn tier_with(mode: Mode, edit: impl FnOnce(&mut Junction)) -> Tier {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (far, clock) = (Far::new("far:one"), Clock::default());
    let mut junction = Junction::new("/", far.clone());
    edit(&mut junction);
    let config = namespace::Config { dir: dir.path().join("meta"), ..namespace::Config::default() };
    let namespace = Namespace::open_with_clock(config, vec![junction], clock.clone()).expect("opens");
    let mut config = cache::Config {
        dir: dir.path().join("cache"),
        size_max: 256 << 20,
        free_floor: 0,
        ..cache::Config::default()
    };
    match mode {
        Mode::Cached => {}
        Mode::NoReadahead => config.readahead_max = 0,
        Mode::Bypass => config.bypass = true,
    }
    let cache = Cache::open(config).expect("opens");
    Tier { vfs: Vfs::new(namespace, cache), far, clock, _dir: dir }
}

pub fn rule(rule: Freshness) -> impl FnOnce(&mut Junction) {
    move |junction| (junction.files, junction.directories) = (rule, rule)
}

pub fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().as_ref().map(Error::kind)
}

pub fn joined(read: &ReadOut) -> Vec<u8> {
    read.data.concat()
}

impl Tier {
    pub fn pass(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// The wall clock of the tier.
    pub fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_millis(self.clock.now_ms())
    }

    pub async fn id(&self, path: &[u8]) -> FileId {
        self.vfs.resolve(path).await.expect("is there").id
    }

    pub async fn read(&self, id: FileId, offset: u64, count: u32) -> Result<ReadOut> {
        self.vfs.read(&Caller::root(), id, offset, count).await
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
