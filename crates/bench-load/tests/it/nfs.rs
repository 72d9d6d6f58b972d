//! The NFS target against a server in this process: what it costs, how it fails, how many there can be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench_load::data::Fault;
use bench_load::engine::{LoadJob, LoadLimits, LocalGate, Progress, run};
use bench_load::outcome::Stop;
use bench_load::process;
use bench_load::shape::{Amount, ClientSet, Layout, LoadWork, Sizes};
use bench_load::target::clients;
use types::ErrorKind;

use crate::engine::phase;
use crate::served::{contents, files_of, serve, write_file};

/// Forty files of 100,000 bytes, four in a directory.
fn job(clients: u32, work: LoadWork) -> LoadJob {
    LoadJob {
        layout: Layout { files: 40, sizes: Sizes::Equal(100_000), files_per_directory: 4, private: false },
        fleet: ClientSet { clients, first_client: 0, workers: 2 },
        phases: vec![phase("read", LoadWork { block_bytes: 64 << 10, ..work })],
        ..LoadJob::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_and_reading_cost_the_calls_of_a_kernel_client() {
    let job = job(1, LoadWork::mfmr());
    let served = serve(files_of(&job, 1)).await;
    let target = served.target("&rsize=32k&readahead=2");
    let client = target.client(0).await.expect("connected");
    let mut before = client.calls();
    let mut cost = |calls: bench_load::target::Calls| {
        let changed: Vec<(&str, u64)> = calls
            .iter()
            .map(|(name, count)| (*name, count - before.get(name).copied().unwrap_or(0)))
            .filter(|(_, count)| *count > 0)
            .collect();
        before = calls;
        changed
    };
    let file = client.open("d00000/f00000001").await.expect("opened");
    assert_eq!(cost(client.calls()), [("getattr", 1), ("lookup", 2)], "two components, then the file itself");
    let mut at = 0;
    while at < file.size() {
        at += file.read(at, 10_000).await.expect("read").len() as u64;
    }
    assert_eq!(cost(client.calls()), [("read", 4)], "100,000 bytes in READs of 32 KiB, none twice");
    let data = file.read(50_000, 70_000).await.expect("read");
    assert_eq!(
        (data.len(), cost(client.calls())),
        (50_000, vec![("read", 2)]),
        "a jump reads just what it wants"
    );
    client.open("d00000/f00000001").await.expect("opened");
    assert_eq!(cost(client.calls()), [("getattr", 1)], "the names are known, the attributes are asked for");
    client.open("d00000/f00000002").await.expect("opened");
    assert_eq!(cost(client.calls()), [("getattr", 1), ("lookup", 1)], "the directory is known");
    assert_eq!(client.list("d00001").await.expect("listed").len(), 4);
    assert_eq!(cost(client.calls()), [("lookup", 1), ("readdir", 1)]);
    client.forget();
    client.open("d00000/f00000001").await.expect("opened");
    assert_eq!(cost(client.calls()), [("getattr", 1), ("lookup", 2)], "as after a fresh mount");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_over_nfs_is_verified_and_its_calls_are_counted() {
    let job = job(3, LoadWork::mfmr());
    let origin = files_of(&job, 1);
    let served = serve(origin.clone()).await;
    let target = served.target("");
    let three = clients(&target, 0, 3).await.expect("connected");
    let outcome = run(&job, &three, &LocalGate, &Arc::default()).await.expect("ran");
    let read = &outcome.phases[0];
    assert_eq!((read.faults(), read.bytes_read), (vec![], 3 * 4_000_000));
    assert_eq!((read.calls["getattr"], read.calls["read"]), (120, 120), "files fit one READ of 128 KiB");
    assert_eq!(read.calls["lookup"], 150, "ten directories and forty files, asked for by one worker of two");
    let walk = LoadJob { phases: vec![phase("walk", LoadWork::walk())], ..job.clone() };
    let walked = run(&walk, &three, &LocalGate, &Arc::default()).await.expect("ran");
    assert_eq!((walked.phases[0].faults(), walked.phases[0].calls["readdir"]), (vec![], 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_and_a_stale_file_behind_a_server_are_both_reported() {
    let job = job(1, LoadWork::mfmr());
    let job = LoadJob {
        phases: vec![bench_load::engine::LoadPhase { version: 2, ..job.phases[0].clone() }],
        ..job
    };
    let origin = files_of(&job, 2);
    let path = job.layout.path("", 0, 11);
    let mut bytes = contents(&job, 11, 2).to_vec();
    bytes[77_777] ^= 1;
    origin.write_file(path.as_bytes(), &bytes).expect("written");
    write_file(&origin, &job, 23, 1);
    let served = serve(origin).await;
    let one = clients(&served.target(""), 0, 1).await.expect("connected");
    let outcome = run(&job, &one, &LocalGate, &Arc::default()).await.expect("ran");
    let found = &outcome.phases[0].verification;
    assert_eq!((found.corrupt, found.stale, found.wrong()), (1, 2, 3), "{found:?}");
    let corrupt = found.told.iter().find(|at| at.fault == Fault::Corrupt).expect("told");
    assert_eq!((corrupt.path.as_str(), corrupt.offset), (path.as_str(), 77_777));
    let stale = found.told.iter().find(|at| at.fault == Fault::Stale { version: 1 }).expect("told");
    assert_eq!(stale.path, job.layout.path("", 0, 23));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_in_the_middle_is_an_error_not_a_hang() {
    let mut job = job(4, LoadWork { amount: Amount::Epochs(u64::MAX), ..LoadWork::mfmr() });
    job.limits = LoadLimits { seconds: 300.0, ..LoadLimits::default() };
    let mut served = serve(files_of(&job, 1)).await;
    let four = clients(&served.target(""), 0, 4).await.expect("connected");
    let progress = Arc::<Progress>::default();
    let kill = async {
        while progress.units.load(Ordering::Relaxed) < 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        served.kill();
    };
    let began = Instant::now();
    let (outcome, ()) = tokio::join!(run(&job, &four, &LocalGate, &progress), kill);
    let outcome = outcome.expect("a result");
    let read = &outcome.phases[0];
    assert_eq!(read.stopped, Some(Stop::Errors), "{:?}", read.errors);
    assert!(read.errors.by_kind.contains_key("Unavailable"), "{:?}", read.errors);
    assert!(read.bytes_read > 0 && !read.faults().is_empty());
    // The client bridges outages of two seconds and gives a call twenty.
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clients_run_in_one_process() {
    const CLIENTS: u32 = 500;
    let mut job = job(CLIENTS, LoadWork::mfmr());
    job.layout = Layout { files: 8, sizes: Sizes::Equal(50_000), files_per_directory: 0, private: false };
    job.fleet.workers = 1;
    let served = serve(files_of(&job, 1)).await;
    let before = process::rss_max_bytes();
    let all = clients(&served.target(""), 0, CLIENTS).await.expect("connected");
    let connected = process::rss_max_bytes();
    let outcome = run(&job, &all, &LocalGate, &Arc::default()).await.expect("ran");
    let read = &outcome.phases[0];
    assert_eq!(read.faults(), Vec::<String>::new());
    assert_eq!((read.units, read.bytes_read), (4000, 4000 * 50_000));
    assert_eq!(read.spans.len(), 500);
    assert!(read.spans.iter().all(|span| span.units == 8));
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "500 clients and their server: {} MiB to connect, {} MiB in all, {:.1} s of CPU",
        mib(connected - before),
        mib(outcome.rss_max_bytes),
        read.cpu_seconds
    );
    // Client and server side of 500 connections, and other tests of this process: a megabyte for each.
    assert!(outcome.rss_max_bytes - before < 500 << 20, "{} MiB", mib(outcome.rss_max_bytes - before));
}

#[tokio::test]
async fn more_clients_than_open_files_are_refused_before_the_first_connects() {
    let target =
        bench_load::target::from_url("nfs://192.0.2.1:2049/?mountport=2049&nconnect=16").expect("a URL");
    let error = clients(&target, 0, u32::MAX / 16).await.map(|_| ()).expect_err("too many");
    let text = error.to_string();
    assert!(
        error.kind() == ErrorKind::Config && text.contains("raise ulimit -n") && !text.contains('\n'),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_and_one_that_is_read_only_are_told_in_one_line() {
    let job = job(1, LoadWork::mfmr());
    let mut served = serve(files_of(&job, 1)).await;
    let target = served.target("");
    let client = target.client(0).await.expect("connected");
    let error = bench_load::safety::RunDir::create(&*client, "x").await.expect_err("read-only");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(text.contains("choose a shape that reads") && !text.contains('\n'), "{text}");
    served.kill();
    drop(client);
    let gone = bench_load::target::from_url("nfs://127.0.0.1:1/?mountport=1").expect("a URL").client(0).await;
    let error = gone.map(|_| ()).expect_err("nobody there");
    assert!(error.kind() == ErrorKind::Unavailable && !error.to_string().contains('\n'), "{error}");
}
