//! A cache in a runtime of its own that can be killed, and an origin whose bytes are a function of (file,
//! version, offset), so that a byte of the wrong file, version or place never passes for a right one.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cache::{Cache, CacheKey, Config, Lend, Piece, STRIPE_BYTES, Source};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use types::{BLOCK_SIZE, ByteRange, Error, ErrorKind, FileId, Result, Supplier, Turn, Version};

pub const MIB: u64 = 1 << 20;

/// Longer than anything here takes on a slow machine; a wait that reaches it is a hang.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// File number `file` in its state number `version`. Ids are spread like real ones.
pub fn key(file: u64, version: u64, size: u64) -> CacheKey {
    let id = |kind: u64, n: u64| {
        let high = mix(kind ^ n.wrapping_mul(0x9e37_79b9)).to_le_bytes();
        let low = n.to_le_bytes();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&high);
        id[8..].copy_from_slice(&low);
        id
    };
    CacheKey { file: FileId(id(0xf11e, file)), version: Version(id(0x5e51, version)), size }
}

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A reproducible sequence of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// What the origin's bytes are.
pub fn content(key: &CacheKey, range: ByteRange) -> Vec<u8> {
    let part = |bytes: &[u8; 16], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let seed = mix(part(&key.file.0, 0) ^ mix(part(&key.file.0, 8)))
        ^ mix(part(&key.version.0, 0) ^ mix(part(&key.version.0, 8)).rotate_left(7));
    let first = range.offset / 8;
    let last = range.end().div_ceil(8);
    let mut bytes = Vec::with_capacity(((last - first) * 8) as usize);
    for word in first..last {
        bytes.extend_from_slice(&mix(seed ^ word).to_le_bytes());
    }
    let skip = (range.offset - first * 8) as usize;
    bytes.drain(..skip);
    bytes.truncate(range.length as usize);
    bytes
}

/// An honest origin that counts, and that can be told to be slow, to fail, or to have a newer version.
pub struct TestSource {
    pub calls: AtomicU64,
    pub bytes: AtomicU64,
    /// Times each block was read.
    pub blocks: Mutex<HashMap<(FileId, Version, u64), u32>>,
    pub failing: AtomicBool,
    pub delay_ms: AtomicU64,
    /// Files whose version at the origin is only this one.
    pub now: Mutex<HashMap<FileId, Version>>,
    pub read_max: AtomicU32,
    pub supplier: Mutex<Supplier>,
    /// Stripes that another node is to keep.
    pub guests: Mutex<HashSet<(FileId, u64)>>,
    pub in_flight: AtomicU64,
    pub in_flight_peak: AtomicU64,
    /// Reads that nobody waits for at a time.
    pub turns: Arc<Semaphore>,
}

impl TestSource {
    pub fn new() -> Arc<TestSource> {
        Arc::new(TestSource {
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            blocks: Mutex::default(),
            failing: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            now: Mutex::default(),
            read_max: AtomicU32::new(1 << 20),
            supplier: Mutex::default(),
            guests: Mutex::default(),
            in_flight: AtomicU64::new(0),
            in_flight_peak: AtomicU64::new(0),
            turns: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        })
    }

    pub fn slow(delay_ms: u64) -> Arc<TestSource> {
        let source = TestSource::new();
        source.delay_ms.store(delay_ms, Relaxed);
        source
    }

    pub fn bytes_read(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// From now on the origin has only this version of the file.
    pub fn changes_to(&self, key: &CacheKey) {
        self.now.lock().unwrap().insert(key.file, key.version);
    }

    /// From now on another node is to keep this stripe.
    pub fn guest_stripe(&self, key: &CacheKey, number: u64) {
        self.guests.lock().unwrap().insert((key.file, number));
    }

    /// As `guest_stripe`, for the whole file.
    pub fn guest(&self, key: &CacheKey) {
        (0..=key.size / STRIPE_BYTES).for_each(|number| self.guest_stripe(key, number));
    }

    /// This node is to keep the file.
    pub fn kept_again(&self, key: &CacheKey) {
        self.guests.lock().unwrap().retain(|(file, _)| *file != key.file);
    }

    /// The most often that any block was read.
    pub fn most_often(&self) -> u32 {
        self.blocks.lock().unwrap().values().copied().max().unwrap_or(0)
    }

    fn has(&self, key: &CacheKey) -> bool {
        self.now.lock().unwrap().get(&key.file).is_none_or(|version| *version == key.version)
    }
}

#[async_trait]
impl Source for TestSource {
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes> {
        assert!(range.length <= u64::from(self.read_max()), "asked for more than read_max: {range:?}");
        assert!(range.length > 0 && range.end() <= key.size, "asked outside of the file: {range:?}");
        self.calls.fetch_add(1, Relaxed);
        let now = self.in_flight.fetch_add(range.length, Relaxed) + range.length;
        self.in_flight_peak.fetch_max(now, Relaxed);
        let delay = self.delay_ms.load(Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        self.in_flight.fetch_sub(range.length, Relaxed);
        if self.failing.load(Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "read the test origin", "it was told to fail"));
        }
        if !self.has(key) {
            return Err(Error::new(ErrorKind::VersionChanged, "read the test origin", key.file));
        }
        self.bytes.fetch_add(range.length, Relaxed);
        let mut blocks = self.blocks.lock().unwrap();
        for block in range.blocks() {
            *blocks.entry((key.file, key.version, block)).or_default() += 1;
        }
        drop(blocks);
        Ok(Bytes::from(content(key, range)))
    }

    fn supplier(&self, _key: &CacheKey, _range: ByteRange) -> Supplier {
        *self.supplier.lock().unwrap()
    }

    fn keeps(&self, key: &CacheKey, range: ByteRange) -> bool {
        let stripes = range.offset / STRIPE_BYTES..=range.end().saturating_sub(1) / STRIPE_BYTES;
        let guests = self.guests.lock().unwrap();
        guests.is_empty() || !stripes.into_iter().any(|number| guests.contains(&(key.file, number)))
    }

    fn read_max(&self) -> u32 {
        self.read_max.load(Relaxed)
    }

    async fn turn(&self, _key: &CacheKey) -> Turn {
        Turn::in_place(self.turns.clone().acquire_owned().await.expect("never closed"))
    }
}

/// A running cache. Dropping it is a kill: nothing is shut down in order.
pub struct Tier {
    pub cache: Option<Arc<Cache>>,
    runtime: Option<Runtime>,
}

impl Tier {
    pub fn open(dir: &Path) -> Tier {
        Tier::open_with(dir, |_| {})
    }

    /// A test that starts a process lends it, for a moment between fork and exec, the locks of all the others.
    pub fn open_with(dir: &Path, mut change: impl FnMut(&mut Config)) -> Tier {
        let start = Instant::now();
        loop {
            match Tier::try_open(dir, &mut change) {
                Ok(tier) => return tier,
                Err(e) if e.to_string().contains("in use") && start.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => panic!("the cache opens: {e}"),
            }
        }
    }

    pub fn try_open(dir: &Path, change: impl FnOnce(&mut Config)) -> Result<Tier> {
        let mut config =
            Config { dir: dir.to_path_buf(), size_max: 512 * MIB, free_floor: 0, ..Config::default() };
        change(&mut config);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let entered = runtime.enter();
        let cache = Cache::open(config)?;
        drop(entered);
        Ok(Tier { cache: Some(cache), runtime: Some(runtime) })
    }

    pub fn cache(&self) -> &Arc<Cache> {
        self.cache.as_ref().expect("the tier runs")
    }

    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = self.runtime.as_ref().expect("the tier runs");
        runtime.block_on(async { tokio::time::timeout(DEADLINE, work).await.expect("no hang") })
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.as_ref().expect("the tier runs").spawn(work)
    }

    pub fn try_read(&self, source: &Arc<TestSource>, key: &CacheKey, range: ByteRange) -> Result<Vec<u8>> {
        self.run(read(self.cache().clone(), source.clone(), *key, range))
    }

    /// Read and compare with what the origin has.
    pub fn check(&self, source: &Arc<TestSource>, key: &CacheKey, range: ByteRange) {
        let got = self.try_read(source, key, range).expect("the read succeeds");
        assert_same(&got, key, range);
    }

    pub fn check_all(&self, source: &Arc<TestSource>, key: &CacheKey) {
        let mut at = 0;
        while at < key.size {
            let range = ByteRange::new(at, MIB).clamp_to(key.size);
            self.check(source, key, range);
            at = range.end();
        }
    }

    pub fn cached_bytes(&self, key: &CacheKey) -> u64 {
        self.run(self.cache().cached_bytes(key))
    }

    pub fn warm(&self, source: &Arc<TestSource>, key: &CacheKey) {
        let (cache, source): (_, Arc<dyn Source>) = (self.cache().clone(), source.clone());
        self.run(async move { cache.warm(key, &source, |_| {}).await }).expect("warm succeeds");
    }

    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        drop(self.cache.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

/// One read, as bytes in one piece.
pub async fn read(
    cache: Arc<Cache>,
    source: Arc<TestSource>,
    key: CacheKey,
    range: ByteRange,
) -> Result<Vec<u8>> {
    let source: Arc<dyn Source> = source;
    // Every other read takes the bytes where they lie, so that all tests try both ways.
    let lend = if range.offset.is_multiple_of(2) { Lend::From(1) } else { Lend::Nothing };
    let pieces = cache.read(&key, range, &source, lend).await?;
    Ok(joined(&pieces))
}

pub fn joined(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().map(|piece| piece.to_bytes().expect("readable")).collect::<Vec<_>>().concat()
}

pub fn assert_same(got: &[u8], key: &CacheKey, range: ByteRange) {
    assert_eq!(got.len() as u64, range.length, "length of {range:?} of {:?}", key.file);
    let want = content(key, range);
    if got != want {
        let at = got.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(0) as u64 + range.offset;
        panic!("wrong byte at {at} (block {}) of {:?} in {range:?}", at / BLOCK_SIZE, key.file);
    }
}

/// Wait until `done`, or fail with `what`.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files below `dir` whose names end in `ending`, in a stable order.
pub fn files_ending(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The data and map file of a key.
pub fn files_of(dir: &Path, key: &CacheKey) -> (PathBuf, PathBuf) {
    let of = |ending: &str| {
        let name = format!("{}-{}.{ending}", key.file, key.version);
        files_ending(dir, &name).pop().unwrap_or_else(|| panic!("{name} is in the cache directory"))
    };
    (of("data"), of("map"))
}

pub fn whole(key: &CacheKey) -> ByteRange {
    ByteRange::new(0, key.size)
}
