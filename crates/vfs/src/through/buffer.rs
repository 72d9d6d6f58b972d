//! Bytes that clients have written and that are not at the origin on stable storage yet, of all files: taken into memory
//! under one budget, sent by one sender for each file (`sender.rs`), kept until they are stored, and then given to the
//! cache. Of a file of which nothing is pending nothing is left here but, for a while, the time of its last write ([`ToldTimes`]).
//!
//! What is to be done next, and what readers see, is decided by the crate `write-buffer`.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cache::{Cache, CacheKey};
use namespace::Namespace;
use tokio::sync::Semaphore;
use types::{Attr, Error, FileId, JunctionId, Timestamp, Version, WriteVerifier};
use write_buffer::BudgetPermit;
use write_buffer::BufferedFile;
use write_buffer::ToldTimes;

use super::metrics::Metrics;

/// Parts on their way at the same time, over all files and origins. 256 of 1 MiB at 221 ms is 9.7 Gbit/s.
pub const PARTS_MAX: usize = 256;
/// Errors of files that nobody has asked about; of more, some are forgotten.
const UNREPORTED_MAX: usize = 1024;

pub struct WriteBuffer {
    pub(super) namespace: Arc<Namespace>,
    pub(super) cache: Arc<Cache>,
    files: Mutex<HashMap<FileId, Arc<BufferedFile>>>,
    /// In units of `BUDGET_UNIT`.
    budget: Arc<Semaphore>,
    pub(super) bytes_max: u64,
    /// Writers that wait for room.
    pub(super) pressed: AtomicUsize,
    pub(super) stopping: AtomicBool,
    /// Of which all is to be stored now.
    settling: Mutex<HashSet<JunctionId>>,
    pub(super) parts: Semaphore,
    /// Random at the start; another one each time acknowledged bytes were lost.
    verifier: AtomicU64,
    /// Counts the versions that were made up.
    provisional_versions: AtomicU64,
    origins: Mutex<HashMap<JunctionId, OriginBehaviour>>,
    unreported: Mutex<HashMap<FileId, Error>>,
    pub(super) told: ToldTimes,
    began: Instant,
    pub(super) metrics: Metrics,
}

/// What was learnt of an origin.
#[derive(Clone, Copy, Debug, Default)]
struct OriginBehaviour {
    /// It says what a file was before a write.
    tells_before: bool,
    /// Nanoseconds that its clock is ahead of ours, at the least.
    ahead: Option<i128>,
}

/// What room is counted in: about what a small write costs besides its bytes.
const BUDGET_UNIT: u64 = 1024;

impl WriteBuffer {
    pub fn new(namespace: Arc<Namespace>, cache: Arc<Cache>, bytes_max: u64) -> Arc<WriteBuffer> {
        let units =
            usize::try_from(bytes_max / BUDGET_UNIT).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(WriteBuffer {
            namespace,
            cache,
            files: Mutex::default(),
            budget: Arc::new(Semaphore::new(units)),
            bytes_max: units as u64 * BUDGET_UNIT,
            pressed: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            settling: Mutex::default(),
            parts: Semaphore::new(PARTS_MAX),
            verifier: AtomicU64::new(random()),
            provisional_versions: AtomicU64::new(random()),
            origins: Mutex::default(),
            unreported: Mutex::default(),
            told: ToldTimes::default(),
            began: Instant::now(),
            metrics: Metrics::default(),
        })
    }

    pub(super) fn files(&self) -> MutexGuard<'_, HashMap<FileId, Arc<BufferedFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviours(&self) -> MutexGuard<'_, HashMap<JunctionId, OriginBehaviour>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, id: FileId) -> Option<Arc<BufferedFile>> {
        self.files().get(&id).cloned()
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.verifier.load(Ordering::SeqCst).to_be_bytes()
    }

    /// Bytes that were acknowledged are lost: those who wrote them find out by the verifier.
    pub(super) fn new_verifier(&self) {
        // An odd step: it comes back to a former one only after all others.
        self.verifier.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
    }

    fn units(&self, length: usize) -> u32 {
        let units = (length as u64).div_ceil(BUDGET_UNIT).clamp(1, self.bytes_max / BUDGET_UNIT);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Room for a write of this length, if there is any now.
    pub fn try_permit(&self, length: usize) -> Option<BudgetPermit> {
        self.budget.clone().try_acquire_many_owned(self.units(length)).ok().map(Arc::new)
    }

    /// Room for a write of this length, waited for in turn. One that is larger than all of it takes all.
    pub async fn permit(&self, length: usize) -> BudgetPermit {
        if let Some(permit) = self.try_permit(length) {
            return permit;
        }
        let _pressed = BudgetQueue::begin(self);
        let permit = self.budget.clone().acquire_many_owned(self.units(length)).await;
        Arc::new(permit.expect("the semaphore is never closed"))
    }

    fn wake_all(&self) {
        self.files().values().for_each(|file| file.wake.notify_one());
    }

    /// The error of bytes that were lost since somebody asked last.
    pub fn take_unreported(&self, id: FileId) -> Option<Error> {
        self.unreported_errors().remove(&id)
    }

    fn unreported_errors(&self) -> MutexGuard<'_, HashMap<FileId, Error>> {
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep_unreported(&self, id: FileId, error: Error) {
        let mut unreported = self.unreported_errors();
        if unreported.len() >= UNREPORTED_MAX
            && let Some(other) = unreported.keys().next().copied()
        {
            unreported.remove(&other);
        }
        unreported.insert(id, error);
    }

    /// As those see it who read it now.
    pub fn view(&self, id: FileId, attr: &mut Attr, version: &mut Version) {
        if let Some(file) = self.get(id) {
            let state = file.lock();
            if !state.closed && state.is_changing() {
                *attr = state.view(attr);
                *version = state.view_version(attr);
                return;
            }
        }
        self.told.view(id, *version, attr, self.now_ms());
    }

    /// Sends and commits all that is pending, for as long as `patience` lasts. Returns the files that are not stored, and
    /// how many bytes of each.
    pub async fn flush(&self, patience: Duration) -> Vec<(FileId, u64)> {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
        self.not_stored(patience, |_| true).await
    }

    /// Sends and commits what is pending of one junction, for as long as `patience` lasts. Returns how many bytes are not
    /// stored then; `None`: nothing is pending any more.
    pub async fn settle_junction(&self, junction: JunctionId, patience: Duration) -> Option<u64> {
        self.settling().insert(junction);
        self.wake_all();
        let left = self.not_stored(patience, |file| file.junction == junction).await;
        self.settling().remove(&junction);
        (!left.is_empty()).then(|| left.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Waits until nothing of these files is pending, for as long as `patience` lasts.
    async fn not_stored(&self, patience: Duration, of: impl Fn(&BufferedFile) -> bool) -> Vec<(FileId, u64)> {
        let empty = async {
            loop {
                let next = self.files().values().find(|file| of(file)).cloned();
                let Some(file) = next else { return };
                let mut progress = file.progress.subscribe();
                if !file.lock().closed && progress.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(patience, empty).await;
        let files = self.files();
        let left = files.values().filter(|file| of(file));
        left.map(|file| (file.id, file.lock().extents.bytes())).collect()
    }

    pub(super) fn settling(&self) -> MutexGuard<'_, HashSet<JunctionId>> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that no step of the wall clock adds to.
    fn steady(&self) -> i128 {
        i128::try_from(self.began.elapsed().as_nanos()).unwrap_or(0)
    }

    /// By the clock of the origin, as far as it is known, and never ahead of it.
    pub(super) fn origin_clock(&self, junction: JunctionId) -> Option<Timestamp> {
        let ahead = self.behaviours().get(&junction)?.ahead?;
        let now = self.steady() + ahead;
        let seconds = i64::try_from(now.div_euclid(NANOS)).ok()?;
        Some(Timestamp { seconds, nanos: u32::try_from(now.rem_euclid(NANOS)).ok()? })
    }

    /// An answer of this origin says that it was this late there, on its way to us.
    pub(super) fn learn(&self, junction: JunctionId, before: Option<Version>, ctime: Option<Timestamp>) {
        let mut origins = self.behaviours();
        let behaviours = origins.entry(junction).or_default();
        behaviours.tells_before = before.is_some();
        if let Some(ctime) = ctime {
            let there = i128::from(ctime.seconds) * NANOS + i128::from(ctime.nanos);
            behaviours.ahead = Some(there - self.steady());
        }
    }

    pub(super) fn tells_before(&self, junction: JunctionId) -> bool {
        self.behaviours().get(&junction).is_some_and(|behaviours| behaviours.tells_before)
    }

    /// A key that no origin gives.
    pub(super) fn provisional(&self, old: &CacheKey, size: u64) -> CacheKey {
        let number = self.provisional_versions.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let start = self.verifier.load(Ordering::Relaxed).to_le_bytes();
        let mut version = [0; 16];
        version[..8].copy_from_slice(&number);
        version[8..].copy_from_slice(&start);
        CacheKey { version: Version(version), size, ..*old }
    }
}

/// In a second.
const NANOS: i128 = 1_000_000_000;

/// Another number in each process.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    match read {
        Ok(()) => u64::from_le_bytes(bytes),
        // Then the time of the start is what no other start has.
        Err(_) => types::timeline::wall_clock().as_nanos() as u64,
    }
}

/// A writer in the queue for room.
struct BudgetQueue<'a>(&'a WriteBuffer);

impl<'a> BudgetQueue<'a> {
    fn begin(buffer: &'a WriteBuffer) -> BudgetQueue<'a> {
        buffer.pressed.fetch_add(1, Ordering::SeqCst);
        buffer.wake_all();
        BudgetQueue(buffer)
    }
}

impl Drop for BudgetQueue<'_> {
    fn drop(&mut self) {
        self.0.pressed.fetch_sub(1, Ordering::SeqCst);
    }
}
