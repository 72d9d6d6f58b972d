//! The engine over memory: what is measured, what is found wrong, and that every run ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bench_load::data::{Fault as Wrong, FileVersion, SeededData};
use bench_load::engine::{Files, LoadJob, LoadLimits, LoadPhase, LocalGate, PhaseGate, Progress, run};
use bench_load::outcome::{LoadOutcome, Stop};
use bench_load::pace::{Arrivals, LoadPace, Stagger};
use bench_load::safety::RunDir;
use bench_load::shape::{
    AccessOrder, Amount, ClientSet, Layout, LoadOperation, LoadWork, Mix, Sharing, Sizes, TouchUnit,
};
use bench_load::target::{Client, Target, clients};
use types::{Error, ErrorKind};

use crate::faulty::{Fault, Faulty};
use crate::memory::MemoryTarget;

const KIB: u64 = 1024;

pub fn phase(name: &str, work: LoadWork) -> LoadPhase {
    LoadPhase { name: name.to_owned(), work, ..LoadPhase::default() }
}

/// Sixteen files of 40,000 bytes, written by two clients with two workers each.
fn job(phases: Vec<LoadPhase>) -> LoadJob {
    LoadJob {
        root: "forebay-bench-t".to_owned(),
        layout: Layout { files: 16, sizes: Sizes::Equal(40_000), files_per_directory: 5, private: false },
        content: SeededData { seed: 9, compressible_percent: 0 },
        fleet: ClientSet { clients: 2, first_client: 0, workers: 2 },
        phases,
        ..LoadJob::default()
    }
}

fn small(work: LoadWork) -> LoadWork {
    LoadWork { block_bytes: 16 * KIB, ..work }
}

/// Two clients, and the run's directory.
async fn two(target: &Arc<dyn Target>) -> Vec<Arc<dyn Client>> {
    let two = clients(target, 0, 2).await.expect("clients");
    RunDir::create(&*two[0], "t").await.expect("made");
    two
}

fn memory() -> Arc<MemoryTarget> {
    MemoryTarget::new(64 << 20)
}

/// Two clients of empty memory.
async fn fresh() -> Vec<Arc<dyn Client>> {
    let target: Arc<dyn Target> = memory();
    two(&target).await
}

/// Memory, with two clients of it, in which a job of one phase has written what is to be read.
async fn written(job: &LoadJob) -> (Arc<MemoryTarget>, Vec<Arc<dyn Client>>) {
    let memory = memory();
    let target: Arc<dyn Target> = memory.clone();
    let clients = two(&target).await;
    let phases = vec![phase("write", small(LoadWork::mfmw()))];
    done(&LoadJob { phases, ..job.clone() }, &clients).await;
    (memory, clients)
}

/// One phase that reads.
fn reading(work: LoadWork) -> LoadJob {
    job(vec![phase("read", small(work))])
}

fn endless() -> LoadWork {
    LoadWork { amount: Amount::Epochs(u64::MAX), ..LoadWork::mfmr() }
}

async fn done(job: &LoadJob, clients: &[Arc<dyn Client>]) -> LoadOutcome {
    let outcome = run(job, clients, &LocalGate, &Arc::default()).await.expect("ran");
    for phase in &outcome.phases {
        assert_eq!(phase.faults(), Vec::<String>::new(), "{}", phase.name);
        assert_eq!(phase.stopped, None);
    }
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_is_read_back_and_every_byte_is_accounted_for() {
    let clients = fresh().await;
    let job = job(vec![phase("write", small(LoadWork::mfmw())), phase("read", small(LoadWork::mfmr()))]);
    let outcome = done(&job, &clients).await;
    let [write, read] = outcome.phases.as_slice() else { panic!("two phases") };
    assert_eq!((write.bytes_written, write.bytes_read, write.units), (640_000, 0, 16));
    assert_eq!((read.bytes_read, read.units), (2 * 640_000, 32), "each client reads every file");
    assert_eq!(read.verification.checked_bytes, 2 * 640_000);
    // Three reads of up to 16 KiB make 40,000 bytes.
    let calls = |phase: &bench_load::outcome::PhaseOutcome, name: &str| {
        phase.service.get(name).map_or(0, |h| h.len())
    };
    assert_eq!((calls(read, "open"), calls(read, "read"), calls(read, "sync")), (32, 96, 0));
    assert_eq!((calls(write, "create"), calls(write, "write"), calls(write, "sync")), (16, 48, 16));
    assert_eq!(
        (read.unit.len(), read.response.len()),
        (32, 0),
        "a closed loop has no response time of its own"
    );
    assert_eq!(read.spans.len(), 4);
    assert_eq!(read.spans.iter().map(|span| span.bytes).sum::<u64>(), 2 * 640_000);
    let series: u64 = read.series.intervals.iter().map(|interval| interval.bytes_read).sum();
    assert_eq!(series, 2 * 640_000);
    for span in &read.spans {
        assert!(!span.cut && span.start_s >= 0.0 && span.end_s >= span.start_s, "{span:?}");
        assert!(span.progress.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1), "{span:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_runs_clean_over_sizes_that_differ() {
    let clients = fresh().await;
    let mut job = job(vec![]);
    job.layout.sizes = Sizes::Spread { min: 0, max: 100_000 };
    let blocks = |work: LoadWork| LoadWork { unit: TouchUnit::Block, ..small(work) };
    let epochs =
        |order, share| blocks(LoadWork { order, share, amount: Amount::Epochs(2), ..LoadWork::default() });
    let draws = |operation, order| {
        blocks(LoadWork {
            operation,
            order,
            share: Sharing::Client,
            amount: Amount::Draws(100),
            ..LoadWork::default()
        })
    };
    let mix = LoadOperation::Mixed(Mix { read: 5, write: 3, stat: 1, list: 1, delete: 2, range: 2 });
    job.phases = vec![
        phase("write", small(LoadWork::mfmw())),
        phase("sections", epochs(AccessOrder::Sequential, Sharing::Split)),
        phase("interleaved", epochs(AccessOrder::Strided(3), Sharing::Interleaved)),
        phase("random", epochs(AccessOrder::Random, Sharing::Worker)),
        phase("zipf", draws(LoadOperation::Read, AccessOrder::Zipf { theta: 0.99 })),
        phase("mixed", draws(mix, AccessOrder::Hotspot { hot_percent: 10.0, access_percent: 90.0 })),
        phase("mixed files", LoadWork { unit: TouchUnit::File, ..draws(mix, AccessOrder::Uniform) }),
        phase(
            "random files",
            LoadWork { share: Sharing::Client, ..small(LoadWork::random_reads(TouchUnit::File, 20)) },
        ),
        phase("stat", LoadWork { operation: LoadOperation::Stat, ..LoadWork::default() }),
        phase("walk", LoadWork::walk()),
    ];
    let total = job.layout.total_bytes();
    let outcome = done(&job, &clients).await;
    let by_name = |name: &str| outcome.phases.iter().find(|phase| phase.name == name).expect("ran");
    assert_eq!(by_name("write").bytes_written, total);
    assert_eq!(by_name("sections").bytes_read, 2 * total);
    assert_eq!(by_name("interleaved").bytes_read, 2 * total);
    assert_eq!(by_name("random").bytes_read, 2 * total * 4);
    assert_eq!(by_name("zipf").units, 200);
    let mixed = by_name("mixed");
    assert!(
        ["read", "write", "stat", "list", "delete"].iter().all(|call| mixed.service.contains_key(*call)),
        "{mixed:?}"
    );
    let mixed = by_name("mixed files");
    // Ranges and whole files, of which some have more than one block.
    assert!(!mixed.first_block.is_empty() && mixed.first_block.len() < mixed.units, "{mixed:?}");
    assert_eq!(mixed.first_block.len(), mixed.all_blocks.len());
    assert_eq!(by_name("stat").service["stat"].len(), 16);
    // What deletions made is gone again: the walk saw the layout's own files only, and so does a listing.
    let listed = clients[0].list("forebay-bench-t/d00000").await.expect("listed");
    assert_eq!(listed.len(), 5, "{listed:?}");
    assert_eq!(by_name("walk").service["list"].len(), 2 * 4);
    assert_eq!(by_name("walk").service["stat"].len(), 2 * 16);
}

#[tokio::test(start_paused = true)]
async fn times_are_split_by_size_and_the_first_block_is_told_from_the_whole() {
    let mut job = reading(LoadWork { share: Sharing::Worker, ..LoadWork::default() });
    // Several classes: up to 4 KiB, 64 KiB and 1 MiB.
    job.layout.sizes = Sizes::Spread { min: 1000, max: 200_000 };
    let (memory, _) = written(&job).await;
    let slow = Faulty::target(memory, Fault::Slow(Duration::from_millis(10)));
    let outcome = done(&job, &two(&slow).await).await;
    let read = &outcome.phases[0];
    let classes: Vec<u64> = read.unit_by_size.keys().copied().collect();
    assert_eq!(classes, [4 * KIB, 64 * KIB, 1024 * KIB]);
    assert_eq!(read.unit_by_size.values().map(|h| h.len()).sum::<u64>(), read.units);
    let slowest = |class| read.unit_by_size[&class].max().expect("there are some") as f64 / 1000.0;
    // 10 ms a block of 16 KiB: one, at most four, at least five.
    assert!((10.0..20.0).contains(&slowest(4 * KIB)), "{}", slowest(4 * KIB));
    assert!((20.0..60.0).contains(&slowest(64 * KIB)), "{}", slowest(64 * KIB));
    assert!(slowest(1024 * KIB) >= 50.0, "{}", slowest(1024 * KIB));
    let several = (0..16).filter(|file| job.layout.size_of(*file) > 16 * KIB).count() as u64 * 4;
    assert_eq!((read.first_block.len(), read.all_blocks.len()), (several, several));
    assert!(read.first_block.max().expect("some") < 20_000, "{:?}", read.first_block.max());
    assert!(read.all_blocks.min().expect("some") >= 20_000, "{:?}", read.all_blocks.min());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_write_one_file_and_each_client_has_a_tree_of_its_own() {
    let clients = fresh().await;
    let one = Layout { files: 1, sizes: Sizes::Equal(1_000_000), ..Layout::default() };
    let interleaved = LoadWork { share: Sharing::Interleaved, ..small(LoadWork::sfmw()) };
    let phases = vec![
        phase("sections", small(LoadWork::sfmw())),
        phase("read", small(LoadWork::sfmr())),
        phase("turns", interleaved),
    ];
    let outcome = done(&LoadJob { layout: one, ..job(phases) }, &clients).await;
    let moved: Vec<u64> = outcome.phases.iter().map(|phase| phase.bytes()).collect();
    assert_eq!(moved, [1_000_000, 4_000_000, 1_000_000]);

    let own = Layout { files: 6, sizes: Sizes::Equal(10_000), files_per_directory: 2, private: true };
    let phases = vec![phase("write", small(LoadWork::mfmw())), phase("read", small(LoadWork::mfmr()))];
    let outcome = done(&LoadJob { layout: own, ..job(phases) }, &clients).await;
    assert_eq!(outcome.phases.iter().map(|phase| phase.bytes()).collect::<Vec<_>>(), [120_000, 120_000]);
    assert_eq!(clients[0].list("forebay-bench-t/c00001").await.expect("listed").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reads_what_all_share_and_writes_what_is_its_own() {
    let clients = fresh().await;
    let dir = RunDir::open(&*clients[0], "t").await.expect("there");
    let layout = Layout { files: 1, sizes: Sizes::Equal(70_000), files_per_directory: 0, private: true };
    let frames = Some(Files { directory: "d90000".to_owned(), layout });
    let frame =
        LoadPhase { files: frames.clone(), barrier: false, ..phase("frame", small(LoadWork::mfmw())) };
    let check = LoadPhase { files: frames, ..phase("check", small(LoadWork::mfmr())) };
    let job = LoadJob {
        root: dir.path(),
        ..job(vec![
            phase("lay out", small(LoadWork::mfmw())),
            phase("scene", small(LoadWork::mfmr())),
            frame,
            check,
        ])
    };
    let outcome = done(&job, &clients).await;
    let moved: Vec<(u64, u64)> =
        outcome.phases.iter().map(|phase| (phase.bytes_read, phase.bytes_written)).collect();
    assert_eq!(moved, [(0, 640_000), (1_280_000, 0), (0, 140_000), (140_000, 0)]);
    let cleaned = dir.cleanup(&clients).await.expect("cleaned up");
    assert!(cleaned.complete() && cleaned.files == 19, "{cleaned:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_and_a_stale_file_are_both_reported_with_their_place() {
    let clients = fresh().await;
    let write = job(vec![LoadPhase { version: 2, ..phase("write", small(LoadWork::mfmw())) }]);
    done(&write, &clients).await;
    let file = clients[0].create("forebay-bench-t/d00000/f00000003").await.expect("there");
    let byte = file.read(20_001, 1).await.expect("read")[0];
    file.write(20_001, vec![byte ^ 0x40].into()).await.expect("written");
    let old = write.content.generate(FileVersion { file: 7, version: 1 }, 0, 40_000);
    clients[0]
        .create("forebay-bench-t/d00001/f00000007")
        .await
        .expect("there")
        .write(0, old)
        .await
        .expect("written");

    let work = LoadWork { share: Sharing::Split, ..small(LoadWork::mfmr()) };
    let read = job(vec![LoadPhase { version: 2, ..phase("read", work) }]);
    let outcome = run(&read, &clients, &LocalGate, &Arc::default()).await.expect("ran");
    let phase = &outcome.phases[0];
    assert_eq!((phase.verification.corrupt, phase.verification.stale), (1, 3), "{:?}", phase.verification);
    assert_eq!(phase.errors.count, 0);
    let told = |fault| phase.verification.told.iter().find(|at| at.fault == fault).expect("told");
    let corrupt = told(Wrong::Corrupt);
    assert_eq!((corrupt.path.as_str(), corrupt.offset), ("forebay-bench-t/d00000/f00000003", 20_001));
    assert_eq!(told(Wrong::Stale { version: 1 }).path, "forebay-bench-t/d00001/f00000007");
    assert!(phase.faults()[0].contains("1 corrupt, 3 stale"), "{:?}", phase.faults());
}

/// One worker, 100 touches a second for ten seconds, a stall of one second in the middle.
async fn stalled(arrivals: Arrivals) -> LoadOutcome {
    let (memory, _) = written(&job(vec![])).await;
    let stall = Fault::StallOnce { after: Duration::from_secs(5), stall: Duration::from_secs(1) };
    let target = Faulty::target(memory, stall);
    let work = LoadWork { block_bytes: 4096, ..LoadWork::random_reads(TouchUnit::Block, 1000) };
    let pace = LoadPace::Open { per_second: 100.0, arrivals };
    let mut job = job(vec![LoadPhase { pace, ..phase("open", work) }]);
    job.fleet = ClientSet::default();
    done(&job, &[target.client(0).await.expect("client")]).await
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_sees_a_stall_as_everybody_sees_it_who_came_meanwhile() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let outcome = stalled(arrivals).await;
        let phase = &outcome.phases[0];
        assert_eq!((phase.units, phase.response.len()), (1000, 1000));
        let slow = phase.response.above(20_000);
        let wanted = if arrivals == Arrivals::Constant { 95..=101 } else { 65..=135 };
        assert!(wanted.contains(&slow), "{arrivals:?}: {slow} slow responses");
        assert_eq!(phase.service["read"].above(20_000), 1, "one call was slow");
        assert!(phase.response.max() > Some(900_000), "{:?}", phase.response.max());
        // The time series shows when: in the sixth second, which the stall ended.
        let many = |interval: &bench_load::outcome::Interval| interval.units > 50;
        let first = phase.series.intervals.iter().position(many).expect("what had waited comes at once");
        assert!((29..=30).contains(&first), "interval {first} of 0.2 s");
        // The clock is tokio's, which wakes within two milliseconds.
        assert!(phase.lateness.max() < Some(3_000), "{:?}", phase.lateness.max());
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_rests_and_staggers_as_it_is_told() {
    let (_, clients) = written(&job(vec![])).await;
    let stagger = Some(Stagger { group: 1, every_s: 7.0 });
    let pace = LoadPace::Closed { think_s: 0.5, stagger };
    let outcome =
        done(&job(vec![LoadPhase { pace, ..phase("read", small(LoadWork::mfmr())) }]), &clients).await;
    let spans = &outcome.phases[0].spans;
    let starts: Vec<f64> = spans.iter().map(|span| span.start_s.round()).collect();
    assert_eq!(starts, [0.0, 0.0, 7.0, 7.0]);
    for span in spans {
        // Half a second after each of its touches.
        let rest = span.units as f64 * 0.5;
        assert!((span.end_s - span.start_s - rest).abs() < 0.1, "{span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn budgets_of_time_and_bytes_end_a_run_that_would_go_on() {
    let mut job = reading(endless());
    let (memory, clients) = written(&job).await;
    job.limits.bytes = 1_000_000;
    let outcome = run(&job, &clients, &LocalGate, &Arc::default()).await.expect("ran");
    let phase = &outcome.phases[0];
    assert_eq!(phase.stopped, Some(Stop::Bytes));
    assert!(phase.faults()[0].contains("byte budget"), "{:?}", phase.faults());
    // Each of the four workers may have had one read under way.
    assert!((1_000_000..1_000_000 + 4 * 16 * KIB).contains(&phase.bytes_read), "{}", phase.bytes_read);
    assert_eq!(phase.bytes_read, phase.spans.iter().map(|span| span.bytes).sum::<u64>());

    let slow = Faulty::target(memory, Fault::Slow(Duration::from_millis(10)));
    job.limits = LoadLimits { seconds: 3.0, asked: true, ..LoadLimits::default() };
    let outcome = run(&job, &two(&slow).await, &LocalGate, &Arc::default()).await.expect("ran");
    let phase = &outcome.phases[0];
    assert_eq!((phase.stopped, phase.faults().len()), (Some(Stop::Asked), 0));
    assert!(
        phase.spans.iter().all(|span| !span.cut && (2.9..3.2).contains(&span.end_s)),
        "{:?}",
        phase.spans
    );

    job.limits.asked = false;
    let outcome = run(&job, &two(&slow).await, &LocalGate, &Arc::default()).await.expect("ran");
    let faults = outcome.phases[0].faults();
    assert!(matches!(&faults[..], [why] if why.contains("time budget was used up")), "{faults:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_that_never_return_are_given_up_and_the_rest_is_reported() {
    let (memory, _) = written(&job(vec![])).await;
    let target = Faulty::target(memory, Fault::HangFrom(20));
    let mut job = job(vec![phase("read", small(LoadWork::mfmr())), phase("never", small(LoadWork::mfmr()))]);
    job.limits = LoadLimits { seconds: 5.0, grace_s: 2.0, ..LoadLimits::default() };
    let began = tokio::time::Instant::now();
    let outcome = run(&job, &two(&target).await, &LocalGate, &Arc::default()).await.expect("ran");
    assert!((7.0..7.5).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    assert_eq!(outcome.phases.len(), 1, "the next phase is not begun");
    let phase = &outcome.phases[0];
    assert_eq!(phase.stopped, Some(Stop::Hung));
    assert!(phase.bytes_read > 0 && phase.spans.iter().all(|span| span.cut && span.end_s >= 7.0));
    assert!(phase.faults()[0].contains("without an answer"), "{:?}", phase.faults());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_given_up_leaves_nobody_at_work() {
    let (memory, _) = written(&job(vec![])).await;
    for fault in [Fault::HangFrom(2), Fault::Slow(Duration::from_millis(10))] {
        let target = Faulty::target(memory.clone(), fault);
        let (job, progress) = (reading(endless()), Arc::<Progress>::default());
        let clients = two(&target).await;
        let given_up =
            tokio::time::timeout(Duration::from_secs(3), run(&job, &clients, &LocalGate, &progress)).await;
        assert!(given_up.is_err());
        let moved = progress.bytes.load(Ordering::Relaxed);
        assert!(moved > 0);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(progress.bytes.load(Ordering::Relaxed), moved);
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_before_the_first_phase_ends_the_run_too() {
    let mut job = job(vec![phase("write", small(LoadWork::mfmw()))]);
    let (memory, _) = written(&job).await;
    let clients = clients(&Faulty::target(memory, Fault::HangFrom(0)), 0, 2).await.expect("clients");
    job.limits = LoadLimits { seconds: 5.0, grace_s: 2.0, ..LoadLimits::default() };
    let began = tokio::time::Instant::now();
    let error =
        run(&job, &clients, &LocalGate, &Arc::default()).await.expect_err("the marker cannot be read");
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("no answer in 7"),
        "{error}"
    );
    assert!((7.0..7.1).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_calls_end_the_phase_and_are_told_once_not_a_million_times() {
    let (memory, _) = written(&job(vec![])).await;
    let target = Faulty::target(memory, Fault::FailFrom(10));
    let (job, clients) = (reading(endless()), two(&target).await);
    let outcome = run(&job, &clients, &LocalGate, &Arc::default()).await.expect("ran");
    let phase = &outcome.phases[0];
    assert_eq!(phase.stopped, Some(Stop::Errors));
    // The ninth ends it; each of four workers may have had one more under way.
    assert!((9..=12).contains(&phase.errors.count), "{:?}", phase.errors);
    assert_eq!(phase.errors.by_kind["Io"], phase.errors.count);
    assert!(phase.errors.told.len() == 8 && phase.faults()[0].contains("planted"), "{:?}", phase.errors);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_set_of_another_size_is_an_error_not_a_short_number() {
    let mut job = reading(LoadWork::mfmr());
    let (_, clients) = written(&job).await;
    job.layout.sizes = Sizes::Equal(50_000);
    let outcome = run(&job, &clients, &LocalGate, &Arc::default()).await.expect("ran");
    assert!(
        outcome.phases[0].errors.told[0].contains("is it the right data set?"),
        "{:?}",
        outcome.phases[0].errors
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_barrier_each_worker_goes_on_from_one_phase_to_the_next() {
    let target = Faulty::target(memory(), Fault::Slow(Duration::from_millis(100)));
    let clients = two(&target).await;
    let pace = LoadPace::Closed { think_s: 0.0, stagger: Some(Stagger { group: 1, every_s: 2.0 }) };
    let own = Layout { files: 4, sizes: Sizes::Equal(10_000), files_per_directory: 0, private: true };
    let write = LoadPhase { pace, ..phase("write", small(LoadWork::mfmw())) };
    let read = LoadPhase { barrier: false, ..phase("read", small(LoadWork::mfmr())) };
    let mut job = LoadJob { layout: own, ..job(vec![write, read]) };
    job.fleet.workers = 1;
    let outcome = done(&job, &clients).await;
    let starts: Vec<f64> = outcome.phases[1].spans.iter().map(|span| span.start_s.round()).collect();
    assert_eq!(starts, [0.0, 2.0], "the first client reads while the second has not begun to write");
    assert_eq!(outcome.phases[1].bytes_read, 80_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_of_processes_travel_as_json_and_add_up() {
    let target: Arc<dyn Target> = memory();
    let four = [two(&target).await, two(&target).await].concat();
    let mut first =
        job(vec![phase("write", small(LoadWork::mfmw())), phase("read", small(LoadWork::mfmr()))]);
    first.fleet.clients = 4;
    let second = LoadJob { fleet: ClientSet { first_client: 2, ..first.fleet }, ..first.clone() };
    // One after the other would do for the sums, but the second may only read what both have written.
    let gate = Meeting(tokio::sync::Barrier::new(2));
    let (progress_a, progress_b) = Default::default();
    let (a, b) = tokio::join!(
        run(&first, &four[..2], &gate, &progress_a),
        run(&second, &four[2..], &gate, &progress_b)
    );
    let text = serde_json::to_string(&b.expect("ran")).expect("serialised");
    let mut all = a.expect("ran");
    all.merge(serde_json::from_str(&text).expect("parsed")).expect("the same phases");
    let clients: BTreeSet<u32> = all.phases[1].spans.iter().map(|span| span.client).collect();
    assert_eq!(clients, BTreeSet::from([0, 1, 2, 3]));
    let [write, read] = all.phases.as_slice() else { panic!("two phases") };
    assert_eq!((write.bytes_written, write.units), (640_000, 16));
    assert_eq!((read.bytes_read, read.unit.len(), read.service["open"].len()), (4 * 640_000, 64, 64));
    let who: Vec<(u32, u32)> = read.spans.iter().map(|span| (span.client, span.worker)).collect();
    assert_eq!(who, (0..4).flat_map(|c| [(c, 0), (c, 1)]).collect::<Vec<_>>());
    assert_eq!(read.faults(), Vec::<String>::new());

    let other = done(&job(vec![phase("else", LoadWork::walk())]), &four[..2]).await;
    assert_eq!(all.merge(other).expect_err("other phases").kind(), ErrorKind::Config);
}

/// Two runs in one process that wait for each other.
struct Meeting(tokio::sync::Barrier);

#[async_trait::async_trait]
impl PhaseGate for Meeting {
    async fn wait(&self, _phase: &str) -> types::Result<tokio::time::Instant> {
        self.0.wait().await;
        Ok(tokio::time::Instant::now())
    }
}

struct Broken;

#[async_trait::async_trait]
impl PhaseGate for Broken {
    async fn wait(&self, phase: &str) -> types::Result<tokio::time::Instant> {
        Err(Error::new(ErrorKind::Unavailable, "wait for the other processes before", phase))
    }
}

#[tokio::test]
async fn a_gate_that_does_not_open_ends_the_run() {
    let clients = fresh().await;
    let outcome = run(&job(vec![phase("write", LoadWork::mfmw())]), &clients, &Broken, &Arc::default()).await;
    assert_eq!(outcome.expect_err("no run").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_job_that_makes_no_sense_is_refused_in_one_line() {
    let clients = fresh().await;
    let good = || reading(LoadWork::mfmr());
    let odd = Some(Files { directory: "frames".to_owned(), layout: Layout::default() });
    let cases: Vec<(LoadJob, &str)> = vec![
        (LoadJob { phases: vec![], ..good() }, "no phases"),
        (
            LoadJob { phases: vec![LoadPhase { files: odd, ..LoadPhase::default() }], ..good() },
            "named as d00001",
        ),
        (LoadJob { root: "../elsewhere".into(), ..good() }, "below the target"),
        (LoadJob { fleet: ClientSet { clients: 1, ..good().fleet }, ..good() }, "not among the fleet's 1"),
        (LoadJob { fleet: ClientSet { workers: 0, ..good().fleet }, ..good() }, "1 client or more"),
        (LoadJob { limits: LoadLimits { seconds: -1.0, ..LoadLimits::default() }, ..good() }, "time limits"),
        (
            LoadJob { limits: LoadLimits { seconds: f64::NAN, ..LoadLimits::default() }, ..good() },
            "time limits",
        ),
        (LoadJob { limits: LoadLimits { bytes: 0, ..LoadLimits::default() }, ..good() }, "byte budget"),
        (LoadJob { content: SeededData { seed: 0, compressible_percent: 200 }, ..good() }, "compressibility"),
        (
            LoadJob { phases: vec![LoadPhase { verify_percent: 101, ..LoadPhase::default() }], ..good() },
            "verify",
        ),
    ];
    for (job, told) in cases {
        let error = run(&job, &clients, &LocalGate, &Arc::default()).await.expect_err(told);
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Config && text.contains(told) && !text.contains('\n'), "{text}");
    }
}
