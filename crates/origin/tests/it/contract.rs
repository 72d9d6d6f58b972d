//! The contract, over every origin of this crate.

use std::sync::Arc;
use std::time::Duration;

use origin::Origin;
use origin::count::{Count, OriginMetrics};
use origin::delay::Delay;
use origin::limit::{Limit, LimitConfig};
use origin::memory::MemoryOrigin;
use origin::posix::PosixOrigin;
use origin::retry::{Retry, RetryConfig};
use testkit::origin_contract::{InMemory, OverDirectory, run};

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
async fn wrappers_keep_the_contract() {
    let memory = MemoryOrigin::new();
    let far = Delay::new(memory.clone(), Duration::from_millis(1));
    let counted: Arc<dyn Origin> = Count::new(far, "/", OriginMetrics::default());
    let origin = Retry::new(Limit::new(counted, LimitConfig::default()), RetryConfig::default());
    run(&InMemory { origin, memory }).await;
}
