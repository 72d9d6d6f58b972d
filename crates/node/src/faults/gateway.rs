//! Reads of a run as clients make them, each compared with the model.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cache::{Cache, CacheKey, Lend, Source};
use origin::{FileToRead, Origin};
use tokio::runtime::Handle;
use types::{ByteRange, Error, ErrorKind, NodeId, Result, Supplier};

use crate::Placed;
use crate::faults::model_store::{ModelFile, ModelStore};

/// A read that takes longer waits for something that does not come: the next node is asked after 2.6 s, and there are four.
const READ_MAX_TIME: Duration = Duration::from_secs(40);
/// A version that is said to be over is.
const CHANGED_PATIENCE: Duration = Duration::from_secs(5);

/// The reads of a run that have not ended.
#[derive(Default)]
pub struct PendingReads(Mutex<PendingNumbers>);

#[derive(Default)]
struct PendingNumbers {
    next: u64,
    pending: BTreeSet<u64>,
}

impl PendingReads {
    fn numbers(&self) -> MutexGuard<'_, PendingNumbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads that begin from now on have this number or a larger one.
    pub fn next(&self) -> u64 {
        self.numbers().next
    }

    pub fn have_ended(&self, before: u64) -> bool {
        self.numbers().pending.first().is_none_or(|first| *first >= before)
    }

    fn begin(&self) -> PendingRead<'_> {
        let mut numbers = self.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.pending.insert(number);
        PendingRead { all: self, number }
    }
}

struct PendingRead<'a> {
    all: &'a PendingReads,
    number: u64,
}

impl Drop for PendingRead<'_> {
    fn drop(&mut self) {
        self.all.numbers().pending.remove(&self.number);
    }
}

/// A node as its clients see it.
#[derive(Clone)]
pub struct Gateway {
    pub id: NodeId,
    /// The node's runtime.
    pub handle: Handle,
    pub cache: Arc<Cache>,
    pub placed: Arc<Placed>,
    pub is_dead: Arc<AtomicBool>,
    pub pending: Arc<PendingReads>,
}

/// What a vfs does for a cache.
struct GatewaySource {
    placed: Arc<Placed>,
    file: ModelFile,
}

#[async_trait]
impl Source for GatewaySource {
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes> {
        let reference = &self.file.object.reference;
        let file = FileToRead { id: key.file, reference, version: key.version, size: key.size };
        self.placed.read_file(&file, range).await
    }

    fn read_max(&self) -> u32 {
        1 << 20
    }

    fn supplier(&self, key: &CacheKey, range: ByteRange) -> Supplier {
        self.placed.supplier(key.file, range)
    }

    fn keeps(&self, key: &CacheKey, range: ByteRange) -> bool {
        self.placed.keeps(key.file, range)
    }
}

impl Gateway {
    /// `None`: the node has died.
    async fn read(&self, file: &ModelFile, range: ByteRange) -> Option<Result<Vec<u8>>> {
        let (cache, key) = (self.cache.clone(), file.key);
        let source: Arc<dyn Source> =
            Arc::new(GatewaySource { placed: self.placed.clone(), file: file.clone() });
        // In the node: it ends with it.
        let read = self.handle.spawn(async move {
            let pieces = cache.read(&key, range, &source, Lend::Nothing).await?;
            Ok(pieces.iter().flat_map(|piece| piece.to_bytes().expect("readable")).collect())
        });
        let read = match read.await {
            Err(e) if e.is_panic() => Err(Error::new(ErrorKind::Io, "read", e)),
            read => read.ok()?,
        };
        Some(read).filter(|read| read.is_ok() || !self.is_dead.load(Ordering::SeqCst))
    }

    /// Reads of a file what `range_of` says, of the version that it has by then. `Err`: what is wrong.
    pub async fn check(
        &self,
        store: &ModelStore,
        index: usize,
        range_of: impl Fn(&ModelFile) -> ByteRange,
    ) -> std::result::Result<(), String> {
        // More often than a file changes within the time of a read.
        for _ in 0..50 {
            let file = store.now(index);
            let range = range_of(&file);
            let what =
                || format!("file {index}, {} bytes at {} through {}", range.length, range.offset, self.id);
            let _pending = self.pending.begin();
            let Ok(read) = tokio::time::timeout(READ_MAX_TIME, self.read(&file, range)).await else {
                return Err(format!("{}: no answer in {READ_MAX_TIME:?}", what()));
            };
            match read {
                None => return Ok(()),
                Some(Ok(bytes)) if bytes == file.truth(range) => return Ok(()),
                Some(Ok(bytes)) => return Err(format!("{}: wrong bytes, {} of them", what(), bytes.len())),
                Some(Err(e)) if e.kind() == ErrorKind::VersionChanged => {
                    let begun = tokio::time::Instant::now();
                    while store.now(index).key.version == file.key.version {
                        if begun.elapsed() > CHANGED_PATIENCE {
                            return Err(format!("{}: the version is over, and is not: {e}", what()));
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                Some(Err(e)) => return Err(format!("{}: {e}", what())),
            }
        }
        Err(format!("file {index} changes for ever"))
    }
}
