//! What the engine can do over memory, and how late an open loop over a directory starts:
//! `cargo run --release -p bench-load --example ceilings`

use std::sync::Arc;

use bench_load::ceiling::ceiling;
use bench_load::engine::{LoadJob, LoadPhase, LocalGate, run};
use bench_load::pace::{Arrivals, LoadPace};
use bench_load::safety::RunDir;
use bench_load::shape::{Layout, LoadOperation, LoadWork, Sharing, Sizes, TouchUnit};
use bench_load::target::{clients, from_url};

#[tokio::main]
async fn main() -> types::Result<()> {
    for (block, verify) in [(4096, 100), (4096, 0), (65_536, 100), (1 << 20, 100), (1 << 20, 0)] {
        let told = ceiling(8, block, verify, 1.0).await?;
        println!(
            "blocks of {block}, {verify} % verified: {:.2} GB/s, {:.0} blocks/s",
            told.bytes_per_second / 1e9,
            told.blocks_per_second
        );
    }
    let place = tempfile::tempdir().map_err(|e| types::Error::io("make", "a temporary directory", e))?;
    let target = from_url(&place.path().to_string_lossy())?;
    let one = clients(&target, 0, 1).await?;
    let dir = RunDir::create(&*one[0], "ceilings").await?;
    for per_second in [100.0, 1000.0, 5000.0] {
        let draws = (per_second * 2.0) as u64;
        let work = LoadWork {
            block_bytes: 4096,
            share: Sharing::Client,
            ..LoadWork::random_reads(TouchUnit::Block, draws)
        };
        let pace = LoadPace::Open { per_second, arrivals: Arrivals::Poisson };
        let write =
            LoadWork { operation: LoadOperation::Write, share: Sharing::Client, ..LoadWork::default() };
        let mut job = LoadJob {
            root: dir.path(),
            layout: Layout { files: 1, sizes: Sizes::Equal(1 << 20), ..Layout::default() },
            phases: vec![LoadPhase { name: "write".to_owned(), work: write, ..LoadPhase::default() }],
            ..LoadJob::default()
        };
        job.phases.push(LoadPhase { name: "open".to_owned(), work, pace, ..LoadPhase::default() });
        job.fleet.workers = 8;
        let outcome = run(&job, &one, &LocalGate, &Arc::default()).await?;
        let open = outcome.phases.last().map(|phase| (&phase.lateness, &phase.response));
        if let Some((late, response)) = open {
            println!(
                "open loop at {per_second}/s: late by {:?} us (p50), {:?} us (p99); response {:?} us (p50)",
                late.percentile(50.0),
                late.percentile(99.0),
                response.percentile(50.0)
            );
        }
    }
    Ok(())
}
