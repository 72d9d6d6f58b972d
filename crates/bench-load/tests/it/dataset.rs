//! A data set is laid out once, and used again only if it is the one that is wanted.

use std::sync::Arc;

use bench_load::data::SeededData;
use bench_load::dataset::{DataSetDir as Where, Dataset, is_there, prepare};
use bench_load::engine::{LoadJob, LoadPhase, LocalGate, run};
use bench_load::outcome::LoadOutcome;
use bench_load::safety::RunDir;
use bench_load::shape::{ClientSet, Layout, LoadWork, Sizes};
use bench_load::target::posix::{DirectoryOptions, PosixTarget};
use bench_load::target::{Client, Target, clients};
use types::ErrorKind;

use crate::engine::phase;

fn dataset() -> Dataset {
    let layout = Layout {
        files: 30,
        sizes: Sizes::Spread { min: 1000, max: 90_000 },
        files_per_directory: 8,
        private: false,
    };
    Dataset { layout, content: SeededData { seed: 4, compressible_percent: 0 }, version: 1, trees: 1 }
}

struct DataSetDir {
    clients: Vec<Arc<dyn Client>>,
    dir: RunDir,
    path: std::path::PathBuf,
    _temporary: tempfile::TempDir,
}

async fn place() -> DataSetDir {
    let temporary = tempfile::tempdir().expect("directory");
    let target: Arc<dyn Target> =
        PosixTarget::open(temporary.path(), DirectoryOptions::default()).expect("opened");
    let clients = clients(&target, 0, 2).await.expect("clients");
    let dir = RunDir::create(&*clients[0], "set").await.expect("made");
    DataSetDir { path: temporary.path().join(dir.path()), clients, dir, _temporary: temporary }
}

impl DataSetDir {
    async fn prepare(&self, dataset: &Dataset) -> types::Result<Option<LoadOutcome>> {
        prepare(dataset, Where { dir: &self.dir, directory: "" }, &self.clients).await
    }

    async fn read(&self, dataset: &Dataset) -> LoadOutcome {
        let job = LoadJob {
            root: self.dir.path(),
            layout: dataset.layout.clone(),
            content: dataset.content,
            fleet: ClientSet { clients: 2, ..ClientSet::default() },
            phases: vec![LoadPhase { version: dataset.version, ..phase("read", LoadWork::mfmr()) }],
            ..LoadJob::default()
        };
        run(&job, &self.clients, &LocalGate, &Arc::default()).await.expect("ran")
    }
}

#[tokio::test]
async fn it_is_written_once_and_then_found() {
    let place = place().await;
    let outcome = place.prepare(&dataset()).await.expect("laid out").expect("new");
    assert_eq!(outcome.phases[0].bytes_written, dataset().layout.total_bytes());
    assert_eq!(place.read(&dataset()).await.phases[0].faults(), Vec::<String>::new());
    assert!(place.prepare(&dataset()).await.expect("there").is_none());
    let done = place.dir.cleanup(&place.clients).await.expect("cleaned up");
    assert!(done.complete() && !place.path.exists(), "{done:?}");
}

#[tokio::test]
async fn another_one_is_refused_and_left_as_it_is() {
    let place = place().await;
    place.prepare(&dataset()).await.expect("laid out");
    let other_seed = Dataset { content: SeededData { seed: 5, ..dataset().content }, ..dataset() };
    let other_files = Dataset { layout: Layout { files: 31, ..dataset().layout }, ..dataset() };
    for (other, told) in [(other_seed, "seed 4, not 5"), (other_files, "30 files")] {
        let error = place.prepare(&other).await.expect_err("another one");
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Config && text.contains(told) && !text.contains('\n'), "{text}");
    }
    assert_eq!(place.read(&dataset()).await.phases[0].faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_new_version_overwrites_the_old_one_and_a_stale_copy_is_found_out() {
    let place = place().await;
    place.prepare(&dataset()).await.expect("laid out");
    let old = std::fs::read(place.path.join("d00001/f00000009")).expect("read");
    let next = Dataset { version: 2, ..dataset() };
    assert!(place.prepare(&next).await.expect("overwritten").is_some());
    assert_eq!(place.read(&next).await.phases[0].faults(), Vec::<String>::new());
    std::fs::write(place.path.join("d00001/f00000009"), old).expect("written");
    let found = &place.read(&next).await.phases[0].verification;
    assert_eq!((found.stale, found.wrong()), (2, 2), "once for each client: {found:?}");
    let before = &place.read(&dataset()).await.phases[0].verification;
    // All others are newer than version 1; each file has one block of a MiB.
    assert_eq!((before.newer, before.stale), (2 * 29, 0), "{before:?}");
}

#[tokio::test]
async fn one_that_was_not_finished_or_was_damaged_is_not_used() {
    let place = place().await;
    place.prepare(&dataset()).await.expect("laid out");
    let description = place.path.join(".forebay-dataset");
    let text = std::fs::read_to_string(&description).expect("read");
    std::fs::write(&description, text.replace("\"complete\":true", "\"complete\":false")).expect("written");
    std::fs::remove_file(place.path.join("d00000/f00000003")).expect("removed");
    assert!(place.prepare(&dataset()).await.expect("again").is_some());
    assert_eq!(place.read(&dataset()).await.phases[0].faults(), Vec::<String>::new());
    std::fs::remove_file(place.path.join("d00003/f00000029")).expect("removed");
    let error = place.prepare(&dataset()).await.expect_err("damaged");
    assert!(error.to_string().contains("damaged file"), "{error}");
    std::fs::write(&description, b"{").expect("written");
    assert!(place.prepare(&dataset()).await.expect_err("garbage").to_string().contains("cannot be read"));
}

#[tokio::test]
async fn private_trees_are_laid_out_for_clients_that_come_later() {
    let place = place().await;
    let layout = Layout { files: 3, private: true, ..dataset().layout };
    let dataset = Dataset { layout: layout.clone(), trees: 5, ..dataset() };
    place.prepare(&dataset).await.expect("laid out");
    assert!(place.prepare(&dataset).await.expect("there").is_none());
    let five: Vec<_> = place.clients.iter().cycle().take(5).map(Arc::clone).collect();
    let job = LoadJob {
        root: place.dir.path(),
        layout,
        content: dataset.content,
        fleet: ClientSet { clients: 5, first_client: 0, workers: 1 },
        phases: vec![phase("read", LoadWork::mfmr())],
        ..LoadJob::default()
    };
    let outcome = run(&job, &five, &LocalGate, &Arc::default()).await.expect("ran");
    assert_eq!((outcome.phases[0].faults(), outcome.phases[0].units), (vec![], 15));
}

#[tokio::test]
async fn several_sets_lie_side_by_side_and_each_is_found_and_removed_by_itself() {
    let place = place().await;
    let other = Dataset { layout: Layout { files: 3, ..dataset().layout }, version: 2, ..dataset() };
    for (directory, set) in [("d00000001", dataset()), ("d00000002", other.clone())] {
        let here = Where { dir: &place.dir, directory };
        let client = &*place.clients[0];
        assert!(!is_there(&set, here, client).await.expect("nothing is there"));
        let made = prepare(&set, here, &place.clients).await.expect("laid out");
        assert!(made.is_some());
        assert!(is_there(&set, here, client).await.expect("there"));
        assert!(place.path.join(directory).join("d00000/f00000002").exists());
    }
    let here = Where { dir: &place.dir, directory: "d00000001" };
    let error = is_there(&other, here, &*place.clients[0]).await.expect_err("the other one is there");
    assert!(error.to_string().contains("d00000001 holds 30 files"), "{error}");
    // A description in another place is nobody's.
    std::fs::write(place.path.join("d00000001/d00000/.forebay-dataset"), b"").expect("written");
    let done = place.dir.cleanup(&place.clients).await.expect("cleaned up");
    assert_eq!((done.left, done.errors.count), (1, 0), "{done:?}");
    assert!(!place.path.join("d00000001/.forebay-dataset").exists(), "it is no data set any more");
    std::fs::remove_file(place.path.join("d00000001/d00000/.forebay-dataset")).expect("removed");
    assert!(place.dir.cleanup(&place.clients).await.expect("cleaned up").complete());
    assert!(!place.path.exists());
}

#[tokio::test]
async fn one_large_file_is_written_by_several_workers() {
    let place = place().await;
    let layout = Layout { files: 1, sizes: Sizes::Equal(5_000_001), ..Layout::default() };
    let dataset = Dataset { layout, ..dataset() };
    let outcome = place.prepare(&dataset).await.expect("laid out").expect("new");
    assert!(outcome.phases[0].spans.iter().filter(|span| span.bytes > 0).count() > 1);
    assert_eq!(place.read(&dataset).await.phases[0].faults(), Vec::<String>::new());
}
