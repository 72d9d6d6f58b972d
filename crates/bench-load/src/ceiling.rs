//! What the bench itself can do when storage costs nothing: the same engine, workers and checks over memory.
//! A result near its ceiling says more about this machine than about the storage.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use types::{Error, ErrorKind, Result};

use crate::data::{FileVersion, SeededData};
use crate::engine::{LoadJob, LoadLimits, LoadPhase, LocalGate, run};
use crate::shape::{AccessOrder, Amount, ClientSet, Layout, LoadWork, Sharing, Sizes, TouchUnit};
use crate::target::{Client, EntryKind, EntryStatus, TargetEntry, TargetFile};

/// Bytes that are read again and again: more than processor caches hold, little enough to be made fast.
const DATA_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Of all workers together, reading blocks from memory and comparing them as the run does.
    pub bytes_per_second: f64,
    pub blocks_per_second: f64,
}

/// Measured for that many workers and that block size within `seconds` (0.3 is enough on an idle machine).
pub async fn ceiling(workers: u32, block_bytes: u64, verify_percent: u8, seconds: f64) -> Result<Ceiling> {
    let size = DATA_BYTES.max(block_bytes).next_multiple_of(block_bytes.max(1));
    let layout = Layout { files: 1, sizes: Sizes::Equal(size), ..Layout::default() };
    let work = LoadWork {
        unit: TouchUnit::Block,
        order: AccessOrder::Random,
        share: Sharing::Client,
        amount: Amount::Epochs(u64::MAX),
        block_bytes,
        ..LoadWork::default()
    };
    let phase = LoadPhase { work, verify_percent, ..LoadPhase::default() };
    let content = SeededData::default();
    let place = FileVersion { file: layout.content_id(0, 0), version: phase.version };
    let client: Arc<dyn Client> = Arc::new(MemoryFile::new(content, place, size, block_bytes));
    let job = LoadJob {
        root: String::new(),
        layout,
        content,
        fleet: ClientSet { clients: 1, first_client: 0, workers },
        phases: vec![phase],
        limits: LoadLimits { seconds, asked: true, bytes: u64::MAX, ..LoadLimits::default() },
    };
    let read = run(&job, &[client], &LocalGate, &Arc::default()).await?.into_first()?;
    if let Some(fault) = read.faults().first() {
        return Err(Error::new(ErrorKind::Io, "measure the ceiling", fault));
    }
    // All workers read all the time: from the start to the last one's end.
    let took = read.last_done_s().unwrap_or(seconds).max(1e-6);
    Ok(Ceiling {
        bytes_per_second: read.bytes_read as f64 / took,
        blocks_per_second: read.units as f64 / took,
    })
}

/// A file in memory, in the blocks that it is read in, so that nothing is copied; and a client that has this file alone.
#[derive(Clone)]
struct MemoryFile {
    blocks: Arc<[Bytes]>,
    block_bytes: u64,
}

impl MemoryFile {
    fn new(content: SeededData, place: FileVersion, size: u64, block_bytes: u64) -> MemoryFile {
        let starts = (0..size).step_by(block_bytes.max(1) as usize);
        let blocks = starts.map(|at| content.generate(place, at, block_bytes as usize)).collect();
        MemoryFile { blocks, block_bytes }
    }
}

fn read_alone<T>(path: &str) -> Result<T> {
    Err(Error::new(ErrorKind::NotSupported, "do anything but read", path))
}

#[async_trait]
impl Client for MemoryFile {
    async fn open(&self, _path: &str) -> Result<Arc<dyn TargetFile>> {
        Ok(Arc::new(self.clone()))
    }

    async fn stat(&self, _path: &str) -> Result<EntryStatus> {
        Ok(EntryStatus { kind: EntryKind::File, size: self.size() })
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        read_alone(path)
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        read_alone(path)
    }

    async fn mkdir(&self, path: &str) -> Result<()> {
        read_alone(path)
    }

    async fn remove(&self, path: &str) -> Result<()> {
        read_alone(path)
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        read_alone(path)
    }
}

#[async_trait]
impl TargetFile for MemoryFile {
    fn size(&self) -> u64 {
        self.blocks.len() as u64 * self.block_bytes
    }

    /// A block, from its beginning.
    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let block = self.blocks.get((offset / self.block_bytes) as usize);
        Ok(block.map_or_else(Bytes::new, |block| block.slice(..length.min(block.len()))))
    }

    async fn write(&self, _offset: u64, _data: Bytes) -> Result<()> {
        read_alone("the ceiling's file")
    }
}
