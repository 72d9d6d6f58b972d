//! What the bench itself can do when storage costs nothing: the same engine, workers and checks over memory.
//! A result near its ceiling says more about this machine than about the storage.

use std::sync::Arc;

use types::{Error, ErrorKind, Result};

use crate::data::SeededData;
use crate::dataset::{DataSetDir, Dataset, prepare_at};
use crate::engine::{LoadJob, LoadLimits, LoadPhase, LocalGate, run};
use crate::safety::RunDir;
use crate::shape::{AccessOrder, Amount, ClientSet, Layout, LoadWork, Sharing, Sizes, TouchUnit};
use crate::target::memory::MemoryTarget;
use crate::target::{Target, clients};

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
    let target: Arc<dyn Target> = MemoryTarget::new(2 * DATA_BYTES.max(block_bytes));
    let one = clients(&target, 0, 1).await?;
    let client = one.first().ok_or_else(|| Error::new(ErrorKind::Io, "measure the ceiling", "no client"))?;
    let dir = RunDir::create(&**client, "ceiling").await?;
    // One file, written in the blocks that are read: nothing is copied then.
    let size = DATA_BYTES.max(block_bytes).next_multiple_of(block_bytes.max(1));
    let layout = Layout { files: 1, sizes: Sizes::Equal(size), ..Layout::default() };
    let dataset = Dataset { layout: layout.clone(), content: SeededData::default(), version: 1, trees: 1 };
    prepare_at(&dataset, DataSetDir { dir: &dir, directory: "" }, &one, block_bytes).await?;
    let work = LoadWork {
        unit: TouchUnit::Block,
        order: AccessOrder::Random,
        share: Sharing::Client,
        amount: Amount::Epochs(u64::MAX),
        block_bytes,
        ..LoadWork::default()
    };
    let job = LoadJob {
        root: dir.path(),
        layout,
        content: dataset.content,
        fleet: ClientSet { clients: 1, first_client: 0, workers },
        phases: vec![LoadPhase { work, verify_percent, ..LoadPhase::default() }],
        limits: LoadLimits { seconds, asked: true, bytes: u64::MAX, ..LoadLimits::default() },
    };
    let read = run(&job, &one, &LocalGate, &Arc::default()).await?.into_first()?;
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
