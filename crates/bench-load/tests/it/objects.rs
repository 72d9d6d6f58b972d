//! A bucket as a target, on a real store.

use std::sync::Arc;

use bench_load::data::SeededData;
use bench_load::engine::LocalGate;
use bench_load::engine::{LoadJob, LoadPhase, run};
use bench_load::outcome::PhaseOutcome;
use bench_load::preflight::check_target;
use bench_load::safety::RunDir;
use bench_load::shape::{AccessOrder, Amount, ClientSet, Layout, LoadWork, Sharing, Sizes, TouchUnit};
use bench_load::target::{Client, EntryKind, Target, clients, from_url};
use bytes::Bytes;
use testkit::stores::{RealStore, on_each_store};
use types::ErrorKind;

fn bucket(store: &RealStore, more: &str) -> String {
    store.make_bucket("bucket");
    store.url("bucket", "deep/prefix", &format!("&credentials={}{more}", store.credentials().display()))
}

pub async fn several(url: &str, count: u32) -> (Arc<dyn Target>, Vec<Arc<dyn Client>>) {
    let target = from_url(url).expect(url);
    let clients = clients(&target, 0, count).await.expect("clients");
    (target, clients)
}

fn pattern(length: usize) -> Bytes {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect::<Vec<_>>().into()
}

async fn read_whole(client: &dyn Client, path: &str) -> Bytes {
    let file = client.open(path).await.expect(path);
    let length = file.size() as usize;
    let bytes = file.read(0, length + 9).await.expect("read");
    assert_eq!(bytes.len(), length, "as much as its size says");
    bytes
}

#[tokio::test]
async fn objects_are_written_read_listed_and_removed_as_files() {
    on_each_store("objects_are_written_read_listed_and_removed_as_files", |store| async move {
        let (_target, two) = several(&bucket(&store, "&part=5m"), 2).await;
        let (one, two) = (&*two[0], &*two[1]);
        // Smaller than a part, a part, and a little more than two.
        for (name, length) in
            [("d1/small", 5), ("d1/part", 5 << 20), ("d1/d2/large", (10 << 20) + 7), ("empty", 0)]
        {
            let whole = pattern(length);
            let file = one.create(name).await.expect("created");
            for at in (0..length).step_by(3 << 20).collect::<Vec<_>>().into_iter().rev() {
                let block = whole.slice(at..length.min(at + (3 << 20)));
                file.write(at as u64, block).await.expect("written");
            }
            file.close().await.expect("closed");
            file.close().await.expect("closed again: nothing more");
            assert!(read_whole(two, name).await == whole, "{name}");
            assert_eq!(two.stat(name).await.expect("there").size, length as u64);
        }
        let calls = one.calls();
        let of = |kind| calls.get(kind).copied().unwrap_or(0);
        assert_eq!((of("PUT"), of("BEGIN"), of("PART"), of("COMPLETE")), (3, 1, 3, 1), "{calls:?}");
        let mut names: Vec<_> =
            two.list("d1").await.expect("listed").into_iter().map(|e| (e.name, e.kind)).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let listed = [("d2", EntryKind::Directory), ("part", EntryKind::File), ("small", EntryKind::File)];
        assert_eq!(names, listed.map(|(name, kind)| (name.to_owned(), Some(kind))));
        assert_eq!(two.stat("d1").await.expect("there").kind, EntryKind::Directory);
        for missing in ["d1/none", "none/at/all"] {
            assert_eq!(two.open(missing).await.map(drop).expect_err(missing).kind(), ErrorKind::NotFound);
            assert_eq!(two.stat(missing).await.map(drop).expect_err(missing).kind(), ErrorKind::NotFound);
        }
        // What was listed before it came is found all the same.
        one.create("d1/late").await.expect("created").close().await.expect("closed");
        assert_eq!(read_whole(two, "d1/late").await.len(), 0);
        for path in ["../escape", "/etc/passwd"] {
            assert_eq!(one.remove(path).await.expect_err(path).kind(), ErrorKind::Config, "{path}");
        }
        for name in ["d1/small", "d1/part", "d1/late", "d1/d2/large", "empty"] {
            one.remove(name).await.expect("removed");
            one.rmdir(name.rsplit_once('/').map_or("none", |(dir, _)| dir))
                .await
                .expect("no directory is left");
        }
        assert_eq!(one.list("").await.expect("listed"), []);
    })
    .await;
}

#[tokio::test]
async fn opening_costs_one_listing_of_a_directory() {
    on_each_store("opening_costs_one_listing_of_a_directory", |store| async move {
        let (_target, one) = several(&bucket(&store, ""), 1).await;
        let one = &*one[0];
        for n in 0..20 {
            let file = one.create(&format!("d/f{n}")).await.expect("created");
            file.write(0, pattern(100)).await.expect("written");
            file.close().await.expect("closed");
        }
        let before = one.calls();
        for n in 0..20 {
            assert_eq!(read_whole(one, &format!("d/f{n}")).await, pattern(100));
        }
        let after = one.calls();
        let made = |kind| after.get(kind).copied().unwrap_or(0) - before.get(kind).copied().unwrap_or(0);
        assert_eq!((made("LIST"), made("HEAD"), made("GET")), (1, 0, 20), "{after:?}");
    })
    .await;
}

/// By three clients of two workers each.
pub fn job(root: String, layout: Layout, phases: Vec<LoadPhase>) -> LoadJob {
    let fleet = ClientSet { clients: 3, first_client: 0, workers: 2 };
    let content = SeededData { seed: 7, ..SeededData::default() };
    LoadJob { root, layout, content, fleet, phases, ..LoadJob::default() }
}

pub fn phase(name: &str, work: LoadWork, version: u32) -> LoadPhase {
    LoadPhase { name: name.to_owned(), work, version, ..LoadPhase::default() }
}

fn calls(phase: &PhaseOutcome, kind: &str) -> u64 {
    phase.calls.get(kind).copied().unwrap_or(0)
}

#[tokio::test]
async fn one_object_that_many_write_has_all_their_bytes_and_is_committed_once_in_each_epoch() {
    let name = "one_object_that_many_write_has_all_their_bytes_and_is_committed_once_in_each_epoch";
    on_each_store(name, |store| async move {
        let (target, three) = several(&bucket(&store, "&part=5m"), 3).await;
        let dir = RunDir::create(&*three[0], "t").await.expect("made");
        // Six sections, of which none ends where a part does.
        for bytes in [(32 << 20) + 12_345, 700_000] {
            let layout = Layout { sizes: Sizes::Equal(bytes), ..Layout::default() };
            for order in [AccessOrder::Sequential, AccessOrder::Random] {
                let amount = Amount::Epochs(3);
                let write = LoadWork { order, amount, block_bytes: 300_000, ..LoadWork::sfmw() };
                let read = LoadWork { block_bytes: 4 << 20, ..LoadWork::sfmr() };
                let phases = vec![phase("write", write, 5), phase("read", read, 5)];
                let job = job(dir.path(), layout.clone(), phases);
                check_target(&*target, &job, bytes).await.expect("it can be done");
                let outcome = run(&job, &three, &LocalGate, &Arc::default()).await.expect("ran");
                for phase in &outcome.phases {
                    assert_eq!(phase.faults(), Vec::<String>::new(), "{order:?} {}", phase.name);
                }
                let [write, read] = &outcome.phases[..] else { panic!("two phases") };
                assert_eq!(write.bytes_written, 3 * bytes);
                assert_eq!(read.verification.checked_bytes, 6 * bytes, "every reader saw every byte");
                let large = bytes > 5 << 20;
                let parts = if large { 3 * bytes.div_ceil(5 << 20) } else { 0 };
                let (completed, put) = if large { (3, 0) } else { (0, 3) };
                assert_eq!(
                    (calls(write, "PART"), calls(write, "COMPLETE"), calls(write, "PUT")),
                    (parts, completed, put)
                );
                let synced = write.service.get("sync").map_or(0, |calls| calls.len());
                assert!(synced >= 3, "the time of the commits is measured: {synced}");
            }
        }
        let layout = Layout::default();
        let alone = |work| job(dir.path(), layout.clone(), vec![phase("write", work, 1)]);
        let drawn = LoadWork { order: AccessOrder::Uniform, amount: Amount::Draws(5), ..LoadWork::sfmw() };
        let every = LoadWork { share: Sharing::Worker, ..LoadWork::sfmw() };
        for work in [drawn, every] {
            let refused = check_target(&*target, &alone(work), 0).await.expect_err("a block alone");
            assert!(
                refused.kind() == ErrorKind::Config && refused.to_string().contains("--unit file"),
                "{refused}"
            );
        }
        let cleaned = dir.cleanup(&three).await.expect("cleaned up");
        assert!(cleaned.complete(), "{cleaned:?}");
        assert_eq!(three[0].list("").await.expect("listed"), []);
    })
    .await;
}

#[tokio::test]
async fn a_write_that_is_stopped_leaves_no_object_and_no_upload() {
    on_each_store("a_write_that_is_stopped_leaves_no_object_and_no_upload", |store| async move {
        let (_target, three) = several(&bucket(&store, "&part=5m"), 3).await;
        let dir = RunDir::create(&*three[0], "t").await.expect("made");
        let layout = Layout { sizes: Sizes::Equal(60 << 20), ..Layout::default() };
        let mut job = job(dir.path(), layout, vec![phase("write", LoadWork::sfmw(), 1)]);
        // Some parts are stored by then, and some are not.
        job.limits.bytes = 40 << 20;
        let outcome = run(&job, &three, &LocalGate, &Arc::default()).await.expect("ran");
        let write = &outcome.phases[0];
        assert!(calls(write, "PART") > 0 && calls(write, "COMPLETE") == 0, "{:?}", write.calls);
        assert!(write.stopped.is_some());
        let path = job.layout.path(&job.root, 0, 0);
        assert_eq!(three[0].stat(&path).await.expect_err("not complete").kind(), ErrorKind::NotFound);
        // It is given up by a task of its own. Azure has blocks that nobody commits, and drops them by itself.
        let begun = std::time::Instant::now();
        let left = || match &store {
            RealStore::S3(minio) => minio.uploads(),
            RealStore::Azure(_) => 0,
            RealStore::Gcs(gcs) => {
                gcs.keys("bucket").iter().filter(|key| key.contains(".forebay-uploads/")).count()
            }
        };
        while left() > 0 {
            assert!(begun.elapsed().as_secs() < 20, "{} uploads are left", left());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(dir.cleanup(&three).await.expect("cleaned up").complete());
    })
    .await;
}

#[tokio::test]
async fn many_files_by_many_writers_read_back_and_a_changed_byte_is_found() {
    on_each_store("many_files_by_many_writers_read_back_and_a_changed_byte_is_found", |store| async move {
        let (_target, three) = several(&bucket(&store, ""), 3).await;
        let dir = RunDir::create(&*three[0], "t").await.expect("made");
        let layout = Layout {
            files: 30,
            sizes: Sizes::Spread { min: 1, max: 300_000 },
            files_per_directory: 7,
            private: false,
        };
        let reading = LoadWork { block_bytes: 100_000, ..LoadWork::mfmr() };
        let writing = LoadWork { block_bytes: 64 << 10, ..LoadWork::mfmw() };
        let phases = vec![phase("write", writing, 2), phase("read", reading.clone(), 2)];
        let both = job(dir.path(), layout.clone(), phases);
        let outcome = run(&both, &three, &LocalGate, &Arc::default()).await.expect("ran");
        assert_eq!(outcome.phases.iter().flat_map(PhaseOutcome::faults).next(), None);
        assert_eq!((outcome.phases[0].units, outcome.phases[1].units), (30, 90));

        let path = both.layout.path(&both.root, 0, 11);
        let mut bytes = read_whole(&*three[0], &path).await.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let file = three[1].create(&path).await.expect("created");
        file.write(0, bytes.into()).await.expect("written");
        file.close().await.expect("closed");
        let again =
            job(dir.path(), layout, vec![phase("read", LoadWork { unit: TouchUnit::File, ..reading }, 2)]);
        let outcome = run(&again, &three, &LocalGate, &Arc::default()).await.expect("ran");
        assert_eq!(outcome.phases[0].verification.corrupt, 3, "by each of the clients");
        assert!(dir.cleanup(&three).await.expect("cleaned up").complete());
    })
    .await;
}
