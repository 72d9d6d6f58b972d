//! What the bench itself can do on this machine, so that a reader can see whether a figure is the storage's or ours:
//! with storage that costs nothing, and with a server at the other end of the loopback.

use std::sync::Arc;
use std::time::Duration;

use bench_load::ceiling::ceiling;
use bench_load::{
    AccessOrder, Amount, ClientSet, Layout, LoadLimits, LoadPhase, LoadWork, LocalGate, SeededData, Sharing,
    Sizes, TouchUnit, engine, from_url, target,
};
use bench_report::{Finding, ResultFile, Severity};
use types::Result;

use crate::{MIB, Testbed, data_set, limit, unless_interrupted};

/// The time of each measurement, as a share of a row's: long enough for the rate to settle, short enough to be taken with each result.
const ROW_SHARE: f64 = 0.25;
const FILE_BYTES: u64 = 64 << 20;
/// More workers than this bring nothing: memory is slower than so many cores.
const WORKERS_MAX: u32 = 64;

/// A core each, and one more that waits.
fn workers() -> u32 {
    (limit::cores() as u32).saturating_add(1).min(WORKERS_MAX)
}

pub struct MachineCeiling {
    /// Bytes a second, contents verified, from memory.
    pub memory_rate: f64,
    /// Reads of 4 KiB a second, verified, from memory.
    pub memory_operations: f64,
    /// Bytes a second from an NFS server of this machine, contents verified.
    /// One client with as many workers; None if it could not be had.
    pub loopback_rate: Option<f64>,
}

/// Beside rows that last `row_time`.
pub async fn measure(row_time: Duration) -> Result<MachineCeiling> {
    let seconds = row_time.as_secs_f64() * ROW_SHARE;
    let all = async {
        Ok(MachineCeiling {
            memory_rate: memory_rate(seconds).await?,
            memory_operations: ceiling(workers(), 4 << 10, 100, seconds).await?.blocks_per_second,
            loopback_rate: loopback(seconds).await?,
        })
    };
    unless_interrupted(all).await
}

async fn memory_rate(seconds: f64) -> Result<f64> {
    Ok(ceiling(workers(), 1 << 20, 100, seconds).await?.bytes_per_second)
}

async fn loopback(seconds: f64) -> Result<Option<f64>> {
    let layout = Layout { files: 1, sizes: Sizes::Equal(FILE_BYTES), ..Layout::default() };
    let testbed = Testbed::limited(None, data_set(layout, SeededData::default().seed), None).await?;
    let server = from_url(&format!("{}&readahead=4", testbed.near_url()))?;
    let clients = target::clients(&server, 0, 1).await?;
    let work = LoadWork {
        unit: TouchUnit::Block,
        order: AccessOrder::Uniform,
        share: Sharing::Worker,
        amount: Amount::Draws(u64::MAX / 4),
        ..LoadWork::default()
    };
    let fleet = ClientSet { clients: 1, first_client: 0, workers: workers() };
    let limits = LoadLimits { seconds, asked: true, bytes: u64::MAX, ..LoadLimits::default() };
    let job = testbed.files.job(fleet, LoadPhase { work, ..LoadPhase::default() }, limits);
    let outcome = engine::run(&job, &clients, &LocalGate, &Arc::default()).await?;
    let phase = outcome.phases.first().filter(|phase| phase.faults().is_empty() && phase.bytes_read > 0);
    Ok(phase.and_then(|phase| Some(phase.bytes_read as f64 / phase.last_done_s().filter(|s| *s > 0.0)?)))
}

impl MachineCeiling {
    /// Measures the rate from memory once more, after the rows, and keeps the higher one. Rows are held against this rate, and
    /// what else the machine does can only lower it: one measurement before the rows may fall into a busy moment.
    pub async fn confirm(&mut self, row_time: Duration) -> Result<()> {
        let again = unless_interrupted(memory_rate(row_time.as_secs_f64() * ROW_SHARE)).await?;
        self.memory_rate = self.memory_rate.max(again);
        Ok(())
    }

    pub fn tell(&self, file: &mut ResultFile) {
        let told =
            |value: Option<f64>| value.map_or("not measured".to_owned(), |value| format!("{value:.0}"));
        let memory = told(Some(self.memory_rate / MIB));
        let operations = told(Some(self.memory_operations));
        let loopback = told(self.loopback_rate.map(|rate| rate / MIB));
        let unit = if self.loopback_rate.is_some() { " MiB/s" } else { "" };
        file.findings.push(Finding::new(
            Severity::Note,
            format!(
                "the bench's own ceiling here, contents verified: {memory} MiB/s and {operations} reads of 4 KiB/s from \
                 memory; one NFS client with {} workers over loopback: {loopback}{unit}",
                workers(),
            ),
        ));
        file.fingerprint.extend([
            ("ceiling_memory_mib_per_second".to_owned(), memory),
            ("ceiling_memory_operations_per_second".to_owned(), operations),
            ("ceiling_loopback_mib_per_second".to_owned(), loopback),
        ]);
    }
}
