//! The contract, over every origin of this crate.

use std::sync::Arc;
use std::time::Duration;

use origin::count::{Count, OriginMetrics};
use origin::delay::Delay;
use origin::limit::{Limit, LimitConfig};
use origin::memory::MemoryOrigin;
use origin::posix::PosixOrigin;
use origin::retry::{Retry, RetryConfig};
use origin::{Change, Origin};
use testkit::origin_contract::{InMemory, OverDirectory, run, run_changes, run_random_changes, seed};
use types::{Name, SetAttr};

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_contract() {
    let memory = MemoryOrigin::new();
    run(&InMemory { origin: memory.clone(), memory }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posix_keeps_the_contract() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let origin = Arc::new(PosixOrigin::open(dir.path()).expect("opened"));
    run(&OverDirectory { dir: dir.path().to_owned(), origin }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_keep_the_contract() {
    let memory = MemoryOrigin::new();
    let origin = behind_all_layers(memory.clone());
    run(&InMemory { origin, memory }).await;
}

fn behind_all_layers(origin: Arc<dyn Origin>) -> Arc<dyn Origin> {
    let far = Delay::new(origin, Duration::from_millis(1));
    let counted: Arc<dyn Origin> = Count::new(far, "/", OriginMetrics::default());
    Retry::new(Limit::new(counted, LimitConfig::default()), RetryConfig::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_changed_as_the_contract_says() {
    let origin: Arc<dyn Origin> = MemoryOrigin::new();
    run_changes(&origin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_changed_as_the_contract_says() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let origin: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir.path()).expect("opened"));
    run_changes(&origin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_behind_all_layers_is_changed_as_the_contract_says() {
    let dir = tempfile::tempdir().expect("temporary directory");
    run_changes(&behind_all_layers(Arc::new(PosixOrigin::open(dir.path()).expect("opened")))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_tells_what_its_directories_were_and_are() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let origin = PosixOrigin::open(dir.path()).expect("opened");
    let root = origin.root().await.expect("there").reference;
    let name = |text: &str| Name::new(text.as_bytes().to_vec()).expect("a name");
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    let sub =
        origin.change(&Change::Mkdir { dir: root.clone(), name: name("sub"), set }).await.expect("made");
    let (from, to) = (name("sub"), name("new"));
    let (from_dir, to_dir) = (root.clone(), root.clone());
    let rename = Change::Rename { from_dir, from, to_dir, to, identity: None };
    let renamed = origin.change(&rename).await.expect("renamed");
    for around in [&sub.dir, &renamed.dir, &renamed.to_dir] {
        assert!(around.before.is_some() && around.after.is_some(), "{around:?}");
    }
    let object = renamed.object.expect("told").reference;
    let set = origin.change(&Change::Set { object, set, guard: None }).await.expect("set");
    assert!(set.before.is_some(), "{set:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_end_at_a_directory_as_they_do_in_memory() {
    let seed = seed();
    println!("seed {seed}");
    let dir = tempfile::tempdir().expect("temporary directory");
    let origin: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir.path()).expect("opened"));
    run_random_changes(&origin, seed, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_end_behind_all_layers_as_they_do_in_memory() {
    let seed = seed();
    println!("seed {seed}");
    let dir = tempfile::tempdir().expect("temporary directory");
    let origin = behind_all_layers(Arc::new(PosixOrigin::open(dir.path()).expect("opened")));
    run_random_changes(&origin, seed, 200).await;
}
