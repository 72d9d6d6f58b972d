//! Writing over NFS, to a real server, which `testkit::ganesha` starts; where it cannot, the test says "not run".

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_load::data::SeededData;
use bench_load::dataset::{DataSetDir, Dataset, prepare};
use bench_load::engine::{LoadJob, LocalGate, run};
use bench_load::safety::RunDir;
use bench_load::shape::{ClientSet, Layout, LoadOperation, LoadWork, Mix, Sharing, Sizes, TouchUnit};
use bench_load::target::{Client, Target, clients, from_url};
use testkit::ganesha::{Ganesha, url, with_ganesha};

use crate::engine::phase;
use crate::targets::behaves;

const TEST: &str = "with_ganesha::writing_over_nfs_reaches_a_real_server";

#[test]
fn writing_over_nfs_reaches_a_real_server() {
    with_ganesha(TEST, inside);
}

fn inside() {
    let dir = tempfile::tempdir().expect("directory");
    let export = dir.path().join("export");
    fs::create_dir(&export).expect("mkdir");
    let log = dir.path().join("ganesha.log");
    let _server = Ganesha::start(dir.path(), &[(&export, "RW")]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let target = from_url(&format!("{}&wsize=64k&writebehind=3", url(&export))).expect("URL");
        wait_for(&target, &log).await;
        behaves(&target).await;
        assert_eq!(fs::read_dir(&export).expect("listed").count(), 0, "all is gone again");
        let two = clients(&target, 0, 2).await.expect("connected");
        writing_costs_the_calls_of_a_kernel_client(&*two[0]).await;
        shapes_write_what_they_say(&two, &export).await;
    });
}

async fn wait_for(target: &Arc<dyn Target>, log: &Path) {
    let began = Instant::now();
    while let Err(error) = target.client(0).await.map(|_| ()) {
        let told = || fs::read_to_string(log).unwrap_or_default();
        assert!(began.elapsed() < Duration::from_secs(30), "{error}\n{}", told());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn writing_costs_the_calls_of_a_kernel_client(client: &dyn Client) {
    client.mkdir("cost").await.expect("made");
    let before = client.calls();
    let file = client.create("cost/file").await.expect("created");
    file.write(0, vec![1; 200_000].into()).await.expect("written");
    file.close().await.expect("closed");
    let after = client.calls();
    let cost = |name: &str| after.get(name).copied().unwrap_or(0) - before.get(name).copied().unwrap_or(0);
    // Four pieces of up to 64 KiB.
    assert_eq!(["lookup", "create", "write", "commit", "getattr"].map(cost), [1, 1, 4, 1, 0], "{after:?}");
    file.close().await.expect("nothing more to do");
    assert_eq!(client.calls()["commit"], after["commit"]);
    client.remove("cost/file").await.expect("removed");
    client.rmdir("cost").await.expect("removed");
}

async fn shapes_write_what_they_say(two: &[Arc<dyn Client>], export: &Path) {
    let dir = RunDir::create(&*two[0], "nfs").await.expect("made");
    let layout = Layout { files: 1, sizes: Sizes::Equal(3_000_000), ..Layout::default() };
    let small = |work| LoadWork { block_bytes: 100_000, ..work };
    let mixed = LoadWork {
        operation: LoadOperation::Mixed(Mix { read: 60, write: 30, stat: 10, ..Mix::default() }),
        ..LoadWork::random_reads(TouchUnit::Block, 300)
    };
    let job = LoadJob {
        root: dir.path(),
        layout,
        content: SeededData { seed: 2, compressible_percent: 0 },
        fleet: ClientSet { clients: 2, first_client: 0, workers: 3 },
        phases: vec![
            phase("SFMW", small(LoadWork::sfmw())),
            phase("SFMR", small(LoadWork::sfmr())),
            phase("SFMW in turns", small(LoadWork { share: Sharing::Interleaved, ..LoadWork::sfmw() })),
            phase("SFMR in sections", small(LoadWork::sfmr_sections())),
            phase("mixed", small(mixed)),
        ],
        ..LoadJob::default()
    };
    let outcome = run(&job, two, &LocalGate, &Arc::default()).await.expect("ran");
    for phase in &outcome.phases {
        assert_eq!(phase.faults(), Vec::<String>::new(), "{}", phase.name);
    }
    let moved: Vec<u64> = outcome.phases.iter().map(|phase| phase.bytes()).collect();
    assert_eq!(moved[..4], [3_000_000, 18_000_000, 3_000_000, 3_000_000]);
    assert_eq!(outcome.phases[4].units, 600, "reads of what others write at that moment");
    let place = bench_load::data::FileVersion { file: 0, version: 1 };
    let there = fs::read(export.join(dir.path()).join("f00000000")).expect("at the server");
    assert_eq!(job.content.verify(place, 0, &there), Ok(()));
    assert!(dir.cleanup(two).await.expect("cleaned up").complete());

    let dir = RunDir::create(&*two[0], "set").await.expect("made");
    let layout = Layout { files: 50, sizes: Sizes::Equal(20_000), files_per_directory: 10, private: false };
    let dataset = Dataset { layout, content: job.content, version: 1, trees: 1 };
    for reused in [false, true] {
        let prepared =
            prepare(&dataset, DataSetDir { dir: &dir, directory: "" }, two).await.expect("laid out");
        assert_eq!(prepared.is_none(), reused);
    }
    let done = dir.cleanup(two).await.expect("cleaned up");
    // Fifty files, marker and description; five directories and the run's own.
    assert_eq!((done.files, done.directories, done.complete()), (52, 6, true), "{done:?}");
    assert_eq!(fs::read_dir(export).expect("listed").count(), 0);
}
