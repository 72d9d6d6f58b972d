//! A tier mounted in this process. Its runtime has threads of its own: a test may wait in the kernel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::Cache;
use front_fuse::{Config, FuseMount, Metrics};
use namespace::{Freshness, Junction, Namespace};
use testkit::far_origin::Far;
use tokio::runtime::Runtime;
use types::Timeline;
use types::{ByteRange, Result};
use vfs::Vfs;

pub const MIB: u64 = 1 << 20;
/// Longer than anything here takes on a slow machine.
/// A mount waits so long for its origin: longer than anything takes on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where an outage is waited for.
pub const SHORT_PATIENCE: Duration = Duration::from_secs(2);
pub const DEADLINE: Duration = Duration::from_secs(30);

pub struct Tier {
    pub far: Arc<Far>,
    pub clock: Timeline,
    pub metrics: Metrics,
    pub vfs: Arc<Vfs>,
    pub mounted: Option<FuseMount>,
    config: Config,
    runtime: Runtime,
    pub dir: tempfile::TempDir,
}

pub struct Options {
    pub files: Freshness,
    pub directories: Freshness,
    pub config: Config,
    /// The far origin before anything is mounted.
    pub far: Arc<Far>,
    /// May clients change the tree?
    pub writable: bool,
    /// Changes go to a journal first, and to the origin when that is told to.
    pub back: bool,
    /// The tree is a directory of this machine, and not `far`.
    pub local: bool,
}

pub fn ttl(time: Duration) -> Freshness {
    Freshness::Ttl(time)
}

/// A mounted tier whose origin `fill` has made; `None`, and "not run" printed, where nothing can be mounted.
pub fn mount(name: &str, fill: impl FnOnce(&Far)) -> Option<Tier> {
    mount_with(name, |_| {}, fill)
}

pub fn mount_with(name: &str, edit: impl FnOnce(&mut Options), fill: impl FnOnce(&Far)) -> Option<Tier> {
    if !can_mount(name) {
        return None;
    }
    let far = Far::new("far:one");
    fill(&far);
    let ttl = ttl(Duration::from_secs(30));
    let config = Config { deadline: PATIENCE, ..Config::default() };
    let (writable, back, local) = (false, false, false);
    let mut options = Options { files: ttl, directories: ttl, config, far, writable, back, local };
    edit(&mut options);
    let mut tier = Tier::build(options);
    tier.mount();
    Some(tier)
}

/// A writable tier in front of a directory of this machine, which `at_origin` leads to.
pub fn mount_writable(name: &str) -> Option<Tier> {
    mount_with(name, |o| (o.writable, o.local) = (true, true), |_| {})
}

/// The same, written `back`.
pub fn mount_back(name: &str) -> Option<Tier> {
    mount_with(name, |o| (o.back, o.local) = (true, true), |_| {})
}

/// A writable tier in front of `far`.
pub fn mount_writable_far(name: &str, fill: impl FnOnce(&Far)) -> Option<Tier> {
    mount_with(name, |o| o.writable = true, fill)
}

pub fn can_mount(name: &str) -> bool {
    let reason = if !Path::new("/dev/fuse").exists() {
        "/dev/fuse is missing"
    } else if !rustix::process::geteuid().is_root() {
        "it needs root (the tests as another user start from root too)"
    } else {
        return true;
    };
    testkit::lab::not_run(name, reason);
    false
}

impl Tier {
    fn build(options: Options) -> Tier {
        let runtime = Runtime::new().expect("a runtime");
        let dir = tempfile::Builder::new().prefix("forebay-fuse-").tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("mnt")).expect("made");
        let home = dir.path().join("home");
        std::fs::create_dir(&home).expect("made");
        let origin: Arc<dyn origin::Origin> = match options.local {
            true => Arc::new(origin::posix::PosixOrigin::open(&home).expect("opens")),
            false => options.far.clone(),
        };
        let mut junction = Junction::new("/", origin);
        (junction.files, junction.directories) = (options.files, options.directories);
        let clock = Timeline::default();
        let guard = runtime.enter();
        let config = namespace::Config { dir: dir.path().join("meta"), ..Default::default() };
        let namespace = Namespace::open_with_clock(config, vec![junction], clock.clone()).expect("opens");
        let cache = Cache::open(cache::Config {
            dir: dir.path().join("cache"),
            size_max: 512 * MIB,
            free_floor: 0,
            ..cache::Config::default()
        })
        .expect("opens");
        drop(guard);
        let mut writing = vfs::Writing::default();
        if options.writable {
            writing.junctions.insert("/".into(), vfs::WritePolicy::Through);
        }
        let vfs = match options.back {
            true => runtime.block_on(async { back(namespace, cache, dir.path()) }),
            false => Vfs::new(namespace, cache, writing),
        };
        let config = Config { mount_point: dir.path().join("mnt"), ..options.config };
        let metrics = Metrics::default();
        let far = options.far;
        Tier { far, clock, metrics, vfs, mounted: None, config, runtime, dir }
    }

    pub fn mount(&mut self) {
        self.mounted = Some(self.try_mount().expect("mounted"));
    }

    pub fn try_mount(&self) -> Result<FuseMount> {
        self.run(FuseMount::start(self.config.clone(), self.vfs.clone(), self.metrics.clone()))
    }

    /// One more mount of the same tier.
    pub fn mount_too(&self, place: &Path) -> FuseMount {
        let config = Config { mount_point: place.to_owned(), ..self.config.clone() };
        self.run(FuseMount::start(config, self.vfs.clone(), Metrics::default())).expect("mounted")
    }

    pub fn unmount(&mut self) {
        let mounted = self.mounted.take().expect("it was mounted");
        self.run(mounted.unmount());
    }

    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A path below the mount point.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount_point().join(name)
    }

    /// Where a local origin has what is at `path(name)`.
    pub fn at_origin(&self, name: &str) -> PathBuf {
        self.dir.path().join("home").join(name)
    }

    pub fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn warm(&self, path: &str) {
        let progress = Arc::<vfs::WarmProgress>::default();
        self.run(self.vfs.warm(&[path.as_bytes().to_vec()], vfs::WarmMode::Data, &progress));
        assert_eq!(progress.last_error(), None);
    }

    /// The requests of this kind that were answered.
    pub fn requests(&self, operation: &str) -> u64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
        let name = format!("forebay_fuse_request_seconds_count{{operation=\"{operation}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |count| count.parse().expect("a number"))
    }

    pub fn opens(&self, how: &'static str) -> u64 {
        self.metrics.opens_of(how)
    }
}

fn back(namespace: Arc<Namespace>, cache: Arc<Cache>, dir: &Path) -> Arc<Vfs> {
    let junctions = HashMap::from([("/".to_owned(), vfs::WritePolicy::Back)]);
    let flush = vfs::FlushPolicy { delay: Duration::from_secs(3600), ..vfs::FlushPolicy::default() };
    let journaling = vfs::Journaling {
        dir: dir.join("journal"),
        size_max: 1 << 30,
        host: "here".into(),
        utc_offset: |_| 0,
        flush: HashMap::from([("/".to_owned(), flush)]),
        durability: HashMap::from([("/".to_owned(), types::Durability::Fsync)]),
        accept_damage: false,
        bond: Some(dir.join("JOURNAL")),
        hook: None,
    };
    let writing = vfs::Writing { junctions, ..vfs::Writing::default() };
    Vfs::with_journal(namespace, cache, writing, journaling).expect("opens")
}

impl Drop for Tier {
    fn drop(&mut self) {
        drop(self.mounted.take());
    }
}

pub fn bytes_of(seed: u64, size: u64) -> Vec<u8> {
    origin::memory::generated(seed, ByteRange::new(0, size)).to_vec()
}

pub fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    if got != wanted {
        let at = got.iter().zip(wanted).position(|(a, b)| a != b);
        panic!("{what}: {} bytes instead of {}, the first difference is at {at:?}", got.len(), wanted.len());
    }
}

pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "it never came true that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn is_mounted(dir: &Path) -> bool {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    text.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}
