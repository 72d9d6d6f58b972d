//! A share of Azure Files as a target. The service has no emulator; the one it is asked of here stands in for it.

use std::sync::Arc;

use bench_load::engine::{LocalGate, run};
use bench_load::outcome::PhaseOutcome;
use bench_load::preflight::check_target;
use bench_load::safety::RunDir;
use bench_load::shape::{AccessOrder, Amount, Layout, LoadWork, Sizes};
use bench_load::target::{Client, EntryKind, Target};
use testkit::azfile::{StandIn, credentials};

use crate::objects::{job, phase, several};

async fn three(share: &StandIn, keys: &std::path::Path) -> (Arc<dyn Target>, Vec<Arc<dyn Client>>) {
    several(&share.url("show", &format!("&credentials={}&wsize=256k", credentials(keys).display())), 3).await
}

fn faults(phases: &[PhaseOutcome]) -> Vec<String> {
    phases.iter().flat_map(PhaseOutcome::faults).collect()
}

/// Each client makes a file longer only as it knows it: without the length that it gets, one cuts what another wrote.
#[tokio::test]
async fn one_file_of_a_share_that_many_write_has_all_their_bytes() {
    let (share, keys) = (StandIn::start(&["show"]).await, tempfile::tempdir().expect("a directory"));
    let (target, three) = three(&share, keys.path()).await;
    let dir = RunDir::create(&*three[0], "t").await.expect("made");
    let bytes = (5 << 20) + 12_345;
    let layout = Layout { sizes: Sizes::Equal(bytes), ..Layout::default() };
    for order in [AccessOrder::Sequential, AccessOrder::Random] {
        let write = LoadWork { order, amount: Amount::Epochs(2), block_bytes: 300_000, ..LoadWork::sfmw() };
        let read = LoadWork { block_bytes: 1 << 20, ..LoadWork::sfmr() };
        let job = job(dir.path(), layout.clone(), vec![phase("write", write, 5), phase("read", read, 5)]);
        check_target(&*target, &job, bytes).await.expect("it can be done");
        let outcome = run(&job, &three, &LocalGate, &Arc::default()).await.expect("ran");
        assert_eq!(faults(&outcome.phases), Vec::<String>::new(), "{order:?}");
        assert_eq!(outcome.phases[0].bytes_written, 2 * bytes);
        assert_eq!(outcome.phases[1].verification.checked_bytes, 6 * bytes, "every reader saw every byte");
        let path = job.layout.path(&job.root, 0, 0);
        assert_eq!(three[1].stat(&path).await.expect("there").size, bytes);
        three[1].remove(&path).await.expect("removed");
    }
    assert!(dir.cleanup(&three).await.expect("cleaned up").complete());
}

#[tokio::test]
async fn many_files_of_a_share_are_written_read_listed_and_removed() {
    let (share, keys) = (StandIn::start(&["show"]).await, tempfile::tempdir().expect("a directory"));
    let (target, three) = three(&share, keys.path()).await;
    assert!(target.about().await.expect("told").available.is_some_and(|available| available > 0));
    let dir = RunDir::create(&*three[0], "t").await.expect("made");
    let sizes = Sizes::Spread { min: 1, max: 300_000 };
    let layout = Layout { files: 20, sizes, files_per_directory: 7, private: false };
    let writing = LoadWork { block_bytes: 64 << 10, ..LoadWork::mfmw() };
    let reading = LoadWork { block_bytes: 100_000, ..LoadWork::mfmr() };
    let job = job(dir.path(), layout, vec![phase("write", writing, 5), phase("read", reading, 5)]);
    let outcome = run(&job, &three, &LocalGate, &Arc::default()).await.expect("ran");
    assert_eq!(faults(&outcome.phases), Vec::<String>::new());
    assert_eq!((outcome.phases[0].units, outcome.phases[1].units), (20, 60));
    let calls = &outcome.phases[1].calls;
    assert!(calls.get("read").is_some_and(|reads| *reads >= 60), "{calls:?}");
    let listed = three[2].list("").await.expect("listed");
    assert!(listed.iter().all(|entry| entry.kind == Some(EntryKind::Directory)), "{listed:?}");
    assert!(dir.cleanup(&three).await.expect("cleaned up").complete());
    assert_eq!(three[0].list("").await.expect("listed"), []);
}
