//! What the bench itself can do on this machine, so that a reader can see whether a figure is the storage's or ours:
//! with storage that costs nothing, and with a server at the other end of the loopback.

use bench_load::engine::{self, Control, Job, LocalGate, Phase};
use bench_load::outcome::PhaseOutcome;
use bench_load::shape::{Amount, Fleet, Layout, Order, Share, Sizes, Unit, Work};
use bench_load::target::{self, from_url};
use types::Result;

use crate::results::Draft;
use crate::rig::Nas;

/// Long enough for the rate to settle, short enough to be measured with each result.
const SECONDS: f64 = 1.0;
const FILE_BYTES: u64 = 64 << 20;
/// A core each, and one more that waits.
const WORKERS: u32 = 3;

pub struct Ceiling {
    /// Bytes a second, contents verified, from memory.
    pub memory_rate: f64,
    /// Reads of 4 KiB a second, from memory.
    pub memory_operations: f64,
    /// Bytes a second from an NFS server of this machine, contents verified.
    pub loopback_rate: f64,
}

pub async fn measure() -> Result<Ceiling> {
    let memory = from_url("memory:256m")?;
    let write = Phase { name: "write".into(), work: Work::mfmw(), ..Phase::default() };
    let whole = read("whole", 1 << 20, 100);
    let phases = vec![write, whole.clone(), read("small", 4 << 10, 0)];
    let measured = run(&memory, phases).await?;
    let dir = tempfile::tempdir().map_err(|e| types::Error::io("make", "a temporary directory", e))?;
    let disk = from_url(&format!("file://{}", dir.path().display()))?;
    let write = Phase { name: "write".into(), work: Work::mfmw(), ..Phase::default() };
    run(&disk, vec![write]).await?;
    let nas = Nas::start(dir.path())?;
    let loopback = from_url(&format!("nfs://{}/?mountport={}&readahead=4", nas.address, nas.address.port()))?;
    let over_loopback = run(&loopback, vec![whole]).await?;
    let rate = |phase: Option<&PhaseOutcome>| phase.map_or(0.0, |p| p.bytes_read as f64 / seconds(p));
    Ok(Ceiling {
        memory_rate: rate(measured.get(1)),
        memory_operations: measured.get(2).map_or(0.0, |p| p.units as f64 / seconds(p)),
        loopback_rate: rate(over_loopback.first()),
    })
}

fn read(name: &str, block_bytes: u64, verify_percent: u8) -> Phase {
    let (unit, order) = (Unit::Block, Order::Uniform);
    let amount = Amount::Draws(u64::MAX / 4);
    let work = Work { unit, order, amount, share: Share::Worker, block_bytes, ..Work::default() };
    Phase { name: name.to_owned(), work, verify_percent, ..Phase::default() }
}

fn seconds(phase: &PhaseOutcome) -> f64 {
    phase.last_done_s().unwrap_or(SECONDS).max(0.001)
}

async fn run(target: &std::sync::Arc<dyn target::Target>, phases: Vec<Phase>) -> Result<Vec<PhaseOutcome>> {
    let clients = target::clients(target, 0, 1).await?;
    let job = Job {
        layout: Layout { files: 1, sizes: Sizes::Equal(FILE_BYTES), ..Layout::default() },
        fleet: Fleet { clients: 1, first_client: 0, workers: WORKERS },
        phases,
        limits: engine::Limits { seconds: SECONDS, bytes: u64::MAX, ..Default::default() },
        ..Job::default()
    };
    Ok(engine::run(&job, &clients, &LocalGate, &Control::new()).await?.phases)
}

impl Ceiling {
    /// Into a result, for its reader and for who looks at the file later.
    pub fn tell(&self, draft: &mut Draft) {
        let mib = |rate: f64| rate / f64::from(1 << 20);
        draft.note(format!(
            "the bench's own ceiling here, contents verified: {:.0} MiB/s from memory, {:.0} MiB/s by NFS over loopback; {:.0} \
             reads of 4 KiB/s from memory, not verified",
            mib(self.memory_rate),
            mib(self.loopback_rate),
            self.memory_operations,
        ));
        for (name, value) in [
            ("ceiling_memory_mib_per_second", mib(self.memory_rate)),
            ("ceiling_memory_operations_per_second", self.memory_operations),
            ("ceiling_loopback_mib_per_second", mib(self.loopback_rate)),
        ] {
            draft.file.fingerprint.insert(name.to_owned(), format!("{value:.0}"));
        }
    }
}
