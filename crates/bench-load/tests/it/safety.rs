//! A bench writes and removes only what is its own.

use std::path::Path;
use std::sync::Arc;

use bench_load::engine::{LoadJob, LocalGate, run};
use bench_load::preflight::check_target;
use bench_load::safety::RunDir;
use bench_load::shape::{ClientSet, Layout, LoadWork, Sizes};
use bench_load::target::posix::{DirectoryOptions, PosixTarget};
use bench_load::target::{Client, Target, clients};
use types::{Error, ErrorKind};

use crate::engine::phase;
use crate::faulty::{Fault, Faulty};
use crate::memory::MemoryTarget;

fn directory(path: &Path) -> Arc<dyn Target> {
    PosixTarget::open(path, DirectoryOptions::default()).expect("opened")
}

fn job(dir: &RunDir) -> LoadJob {
    LoadJob {
        root: dir.path(),
        layout: Layout { files: 12, sizes: Sizes::Equal(5000), files_per_directory: 5, private: true },
        fleet: ClientSet { clients: 2, first_client: 0, workers: 2 },
        phases: vec![phase("write", LoadWork::mfmw())],
        ..LoadJob::default()
    }
}

fn refused(error: Error, told: &str) {
    let text = error.to_string();
    assert!(error.kind() == ErrorKind::Config && text.contains(told) && !text.contains('\n'), "{text}");
}

async fn written(path: &Path) -> (Vec<Arc<dyn Client>>, RunDir) {
    let two = clients(&directory(path), 0, 2).await.expect("clients");
    let dir = RunDir::create(&*two[0], "t").await.expect("made");
    let outcome = run(&job(&dir), &two, &LocalGate, &Arc::default()).await.expect("ran");
    assert_eq!((outcome.phases[0].faults(), outcome.phases[0].units), (vec![], 24));
    (two, dir)
}

#[tokio::test]
async fn cleanup_removes_all_that_a_run_wrote_and_nothing_beside_it() {
    let place = tempfile::tempdir().expect("directory");
    std::fs::write(place.path().join("theirs"), b"theirs").expect("written");
    std::fs::create_dir(place.path().join("f00000000")).expect("made");
    let (two, dir) = written(place.path()).await;
    let done = dir.cleanup(&two).await.expect("cleaned up");
    // The marker; two homes, three directories in each, and the run's own.
    assert_eq!((done.files, done.directories, done.complete()), (25, 9, true), "{done:?}");
    let mut left: Vec<_> =
        std::fs::read_dir(place.path()).expect("listed").filter_map(|e| Some(e.ok()?.file_name())).collect();
    left.sort();
    assert_eq!(left, ["f00000000", "theirs"]);
}

#[tokio::test]
async fn what_others_put_into_the_directory_stays_and_is_told() {
    let place = tempfile::tempdir().expect("directory");
    let (two, dir) = written(place.path()).await;
    let inside = place.path().join(dir.path()).join("c00001/d00001");
    std::fs::write(inside.join("thesis.tex"), b"theirs").expect("written");
    std::fs::create_dir(inside.join("f00009999")).expect("made");
    std::os::unix::fs::symlink("/etc", place.path().join(dir.path()).join("d99999")).expect("linked");
    let done = dir.cleanup(&two).await.expect("cleaned up");
    assert_eq!((done.left, done.complete(), done.errors.count), (3, false, 0), "{done:?}");
    assert!(done.left_told.iter().any(|path| path.ends_with("thesis.tex")), "{done:?}");
    assert!(inside.join("thesis.tex").exists() && inside.join("f00009999").exists());
    assert!(Path::new("/etc/passwd").exists());
    // With these out of the way it is taken up where it ended.
    std::fs::remove_file(inside.join("thesis.tex")).expect("removed");
    std::fs::remove_dir(inside.join("f00009999")).expect("removed");
    std::fs::remove_file(place.path().join(dir.path()).join("d99999")).expect("removed");
    assert!(dir.cleanup(&two).await.expect("cleaned up").complete());
    assert_eq!(std::fs::read_dir(place.path()).expect("listed").count(), 0);
}

#[tokio::test]
async fn without_the_marker_nothing_is_written_or_removed() {
    let place = tempfile::tempdir().expect("directory");
    let (two, dir) = written(place.path()).await;
    let path = place.path().join(dir.path());
    let marker = std::fs::read(path.join(".forebay.bench")).expect("the marker");
    std::fs::remove_file(path.join(".forebay.bench")).expect("removed");
    refused(dir.cleanup(&two).await.expect_err("no marker"), "no marker");
    refused(RunDir::create(&*two[0], "t").await.expect_err("no marker"), "no marker");
    refused(RunDir::open(&*two[0], "t").await.expect_err("no marker"), "no marker");
    for bad in [&b"not json"[..], b"{\"forebay_bench\":1,\"id\":\"other\"}", &vec![b'x'; 200_000]] {
        std::fs::write(path.join(".forebay.bench"), bad).expect("written");
        assert_eq!(dir.cleanup(&two).await.expect_err("not ours").kind(), ErrorKind::Config);
    }
    assert!(path.join("c00000/d00000/f00000000").exists());
    std::fs::write(path.join(".forebay.bench"), marker).expect("written");
    assert_eq!(RunDir::create(&*two[0], "t").await.expect("ours again"), dir);
    for id in ["", "..", "a/b", "a b", "\n", &"x".repeat(101)] {
        if id != ".." {
            refused(RunDir::create(&*two[0], id).await.expect_err(id), "a run's id has");
        }
    }
}

#[tokio::test]
async fn a_target_that_cannot_take_the_job_is_refused_before_it_begins() {
    let memory: Arc<dyn Target> = MemoryTarget::new(100_000);
    let one = memory.client(0).await.expect("a client");
    let dir = RunDir::create(&*one, "t").await.expect("made");
    let mut job = job(&dir);
    refused(check_target(&*memory, &job, 120_000).await.expect_err("too small"), "make it smaller");
    job.layout.files = 5;
    check_target(&*memory, &job, 50_000).await.expect("fits");
    let faulty = |fault| Faulty::target(MemoryTarget::new(1 << 20), fault);
    let told = "read-only; choose a shape that reads";
    refused(check_target(&*faulty(Fault::ReadOnly), &job, 50_000).await.expect_err("read-only"), told);
    let reading = LoadJob { phases: vec![phase("read", LoadWork::mfmr())], ..job.clone() };
    check_target(&*faulty(Fault::ReadOnly), &reading, 0).await.expect("reading is fine");
}

#[tokio::test]
async fn the_engine_itself_writes_nowhere_but_behind_a_marker() {
    let place = tempfile::tempdir().expect("directory");
    let two = clients(&directory(place.path()), 0, 2).await.expect("clients");
    std::fs::create_dir(place.path().join("forebay-bench-mine")).expect("made");
    for (root, told) in [
        ("", "a root made by RunDir::create"),
        ("data", "a root made by RunDir::create"),
        ("forebay-bench-mine", "no marker"),
        ("forebay-bench-mine/d00001", "no marker"),
        ("forebay-bench-gone", "no marker"),
    ] {
        let job =
            LoadJob { root: root.to_owned(), ..job(&RunDir::create(&*two[0], "t").await.expect("made")) };
        refused(run(&job, &two, &LocalGate, &Arc::default()).await.expect_err(root), told);
    }
    assert_eq!(std::fs::read_dir(place.path()).expect("listed").count(), 2);
    assert_eq!(std::fs::read_dir(place.path().join("forebay-bench-mine")).expect("listed").count(), 0);
}
