//! What the bench itself can do on this machine, so that a reader can see whether a figure is the storage's or ours:
//! with storage that costs nothing, and with a server at the other end of the loopback.

use bench_load::ceiling::ceiling;
use bench_load::data::Content;
use bench_load::dataset::{self, Dataset, Laying};
use bench_load::engine::{self, Control, Job, Limits, LocalGate, Phase};
use bench_load::safety::RunDir;
use bench_load::shape::{Amount, Fleet, Layout, Order, Share, Sizes, Unit, Work};
use bench_load::target::{self, from_url};
use bench_report::model::{Finding, ResultFile, Severity};
use types::{Error, Result};

use crate::crew::unless_interrupted;
use crate::rig::Nas;

/// Of each measurement: long enough for the rate to settle, short enough to be taken with each result.
const SECONDS: f64 = 0.5;
const FILE_BYTES: u64 = 64 << 20;
/// A core each, and one more that waits.
const WORKERS: u32 = 3;

pub struct Ceiling {
    /// Bytes a second, contents verified, from memory.
    pub memory_rate: f64,
    /// Reads of 4 KiB a second, verified, from memory.
    pub memory_operations: f64,
    /// Bytes a second from an NFS server of this machine, contents verified.
    pub loopback_rate: f64,
}

pub async fn measure() -> Result<Ceiling> {
    let all = async {
        Ok(Ceiling {
            memory_rate: ceiling(WORKERS, 1 << 20, 100, SECONDS).await?.bytes_per_second,
            memory_operations: ceiling(WORKERS, 4 << 10, 100, SECONDS).await?.blocks_per_second,
            loopback_rate: loopback().await?,
        })
    };
    unless_interrupted(all).await
}

async fn loopback() -> Result<f64> {
    let dir = tempfile::tempdir().map_err(|e| Error::io("make", "a temporary directory", e))?;
    let layout = Layout { files: 1, sizes: Sizes::Equal(FILE_BYTES), ..Layout::default() };
    let content = Content::default();
    let disk = target::clients(&from_url(&format!("file://{}", dir.path().display()))?, 0, 1).await?;
    let Some(first) = disk.first() else { return Ok(0.0) };
    let run = RunDir::create(&**first, "ceiling").await?;
    let dataset = Dataset { layout: layout.clone(), content, version: 1, trees: 1 };
    dataset::prepare(&dataset, &run, &disk, &Laying::default(), &Control::new()).await?;
    let nas = Nas::start(dir.path())?;
    let server = from_url(&format!("nfs://{}/?mountport={}&readahead=4", nas.address, nas.address.port()))?;
    let clients = target::clients(&server, 0, 1).await?;
    let work = Work {
        unit: Unit::Block,
        order: Order::Uniform,
        share: Share::Worker,
        amount: Amount::Draws(u64::MAX / 4),
        ..Work::default()
    };
    let job = Job {
        root: run.path(),
        layout,
        content,
        fleet: Fleet { clients: 1, first_client: 0, workers: WORKERS },
        phases: vec![Phase { work, ..Phase::default() }],
        limits: Limits { seconds: SECONDS, bytes: u64::MAX, ..Limits::default() },
    };
    let outcome = engine::run(&job, &clients, &LocalGate, &Control::new()).await?;
    let phase = outcome.phases.first();
    Ok(phase.map_or(0.0, |phase| phase.bytes_read as f64 / phase.last_done_s().unwrap_or(SECONDS).max(0.001)))
}

impl Ceiling {
    /// Into a result, for its reader and for who looks at the file later.
    pub fn tell(&self, file: &mut ResultFile) {
        let mib = |rate: f64| rate / f64::from(1 << 20);
        file.findings.push(Finding::new(Severity::Note, format!(
            "the bench's own ceiling here, contents verified: {:.0} MiB/s and {:.0} reads of 4 KiB/s from memory, {:.0} MiB/s \
             by NFS over loopback",
            mib(self.memory_rate),
            self.memory_operations,
            mib(self.loopback_rate)
        )));
        for (name, value) in [
            ("ceiling_memory_mib_per_second", mib(self.memory_rate)),
            ("ceiling_memory_operations_per_second", self.memory_operations),
            ("ceiling_loopback_mib_per_second", mib(self.loopback_rate)),
        ] {
            file.fingerprint.insert(name.to_owned(), format!("{value:.0}"));
        }
    }
}
