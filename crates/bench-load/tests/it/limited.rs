//! A service's limits: what they do to shapes, on a clock of the test's own.

use std::sync::Arc;

use bench_load::engine::{LoadJob, LocalGate, run};
use bench_load::outcome::PhaseOutcome;
use bench_load::safety::RunDir;
use bench_load::shape::{ClientSet, Layout, LoadWork, Sharing, Sizes};
use bench_load::target::limited::{BUSY_CALL, LimitedTarget};
use bench_load::target::{Target, clients};

use crate::engine::phase;
use crate::memory::MemoryTarget;

const MIB: u64 = 1 << 20;
const FILE: u64 = 8 * MIB;

/// So many readers, each with a client of its own, of eight files of 8 MiB.
async fn read(limits: &str, work: LoadWork, readers: u32) -> PhaseOutcome {
    let memory: Arc<dyn Target> = MemoryTarget::new(128 * MIB);
    let layout = |files| Layout { files, sizes: Sizes::Equal(FILE), ..Layout::default() };
    let job = |files, work| LoadJob {
        root: "forebay-bench-t".to_owned(),
        layout: layout(files),
        fleet: ClientSet { clients: readers, first_client: 0, workers: 1 },
        phases: vec![phase("run", work)],
        ..LoadJob::default()
    };
    let plain = clients(&memory, 0, readers).await.expect("clients");
    RunDir::create(&*plain[0], "t").await.expect("made");
    let go = async |job: LoadJob, clients: &[_]| {
        run(&job, clients, &LocalGate, &Arc::default()).await.expect("ran").phases.remove(0)
    };
    go(job(readers.into(), LoadWork::mfmw()), &plain).await;
    let limited: Arc<dyn Target> = LimitedTarget::new(memory, limits.parse().expect("limits"));
    let files = if work.share == Sharing::Worker { 1 } else { readers.into() };
    go(job(files, work), &clients(&limited, 0, readers).await.expect("clients")).await
}

fn rate(phase: &PhaseOutcome) -> f64 {
    assert_eq!(phase.faults(), Vec::<String>::new());
    phase.bytes_read as f64 / MIB as f64 / phase.last_done_s().expect("they worked")
}

/// The plateau of the published study: one file gives what one file may, however many read it.
#[tokio::test(start_paused = true)]
async fn readers_of_one_file_share_its_limit_and_readers_of_many_do_not() {
    let many = LoadWork { share: Sharing::Split, ..LoadWork::default() };
    for readers in [1, 2, 4, 8] {
        let one = rate(&read("file=60MiB/s", LoadWork::sfmr(), readers).await);
        assert!((one / 60.0 - 1.0).abs() < 0.1, "{readers} readers of one file: {one} MiB/s");
        let all = rate(&read("file=60MiB/s", many.clone(), readers).await);
        let wanted = 60.0 * f64::from(readers);
        assert!((all / wanted - 1.0).abs() < 0.1, "{readers} readers of as many files: {all} MiB/s");
        let share = rate(&read("all=60MiB/s", many.clone(), readers).await);
        assert!((share / 60.0 - 1.0).abs() < 0.1, "{readers} readers of one share: {share} MiB/s");
    }
}

#[tokio::test(start_paused = true)]
async fn busy_answers_are_tried_again_and_counted() {
    let phase = read("busy=20%,retry-after=100ms", LoadWork::sfmr(), 4).await;
    assert_eq!((phase.faults(), phase.bytes_read), (vec![], 4 * FILE));
    let busy = phase.calls.get(BUSY_CALL).copied().expect("counted");
    // 4 x 9 requests succeeded, and one in five did not.
    assert!((2..30).contains(&busy), "{busy}");
    let waited: f64 = phase.spans.iter().map(|span| span.end_s).sum();
    assert!((waited - busy as f64 * 0.1).abs() < 0.2, "{waited} s for {busy} busy answers");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_always_busy_is_a_failed_call_not_a_hang() {
    let phase = read("busy=100%,retry-after=1ms", LoadWork::sfmr(), 1).await;
    assert!(phase.errors.told[0].contains("busy, 10 times in a row"), "{:?}", phase.errors);
    assert_eq!(phase.bytes_read, 0);
}
