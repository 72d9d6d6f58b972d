//! Where a test takes place: one cluster, and what can happen to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coordinator::etcd::Etcd;
use coordinator::model::{LostAnswer, ModelEtcd, ModelSnapshot};
use coordinator::{
    Coordinator, EtcdConfig, KeyWatch, LeaseState, Revision, Swap, SwapLoss, SwapOutcome, WatchEvent,
};
use testkit::etcd::{EtcdServers, MuteLine, url_of};

pub const ATTEMPT: Duration = Duration::from_millis(700);
/// Long enough for everything that has to come about by itself.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The least that is the same on both.
pub const TTL: Duration = Duration::from_secs(2);

#[async_trait]
pub trait Stage: Send {
    /// One more node.
    async fn client(&self) -> Arc<dyn Coordinator>;
    /// A node whose next swap is done and has no answer.
    async fn lossy_client(&self) -> Arc<dyn Coordinator>;
    /// Swaps that were lost have their answers again.
    fn lose_no_more(&self);
    /// A node puts the key under a lease and is killed.
    async fn dead_holder(&self, key: &str);
    async fn pass(&self, time: Duration);
    fn compact(&mut self);
    fn set_away(&mut self, away: bool);
    fn back_up(&mut self);
    fn restore(&mut self);
    fn wipe(&mut self);
}

pub struct ModelStage {
    etcd: ModelEtcd,
    backup: Option<ModelSnapshot>,
}

impl ModelStage {
    pub fn new() -> ModelStage {
        ModelStage { etcd: ModelEtcd::new(), backup: None }
    }
}

#[async_trait]
impl Stage for ModelStage {
    async fn client(&self) -> Arc<dyn Coordinator> {
        Arc::new(self.etcd.client())
    }

    async fn lossy_client(&self) -> Arc<dyn Coordinator> {
        let client = self.etcd.client();
        client.lose_next_answer(LostAnswer::ReadBack);
        Arc::new(client)
    }

    fn lose_no_more(&self) {}

    async fn dead_holder(&self, key: &str) {
        let client = self.etcd.client();
        put_under_a_lease(&client, key).await;
        client.kill();
    }

    async fn pass(&self, time: Duration) {
        self.etcd.advance(time);
        // Tasks that were told take their turn.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn compact(&mut self) {
        self.etcd.compact();
    }

    fn set_away(&mut self, away: bool) {
        self.etcd.set_away(away);
    }

    fn back_up(&mut self) {
        self.backup = Some(self.etcd.snapshot());
    }

    fn restore(&mut self) {
        self.etcd.restore(self.backup.as_ref().expect("there is a backup"));
    }

    fn wipe(&mut self) {
        self.etcd.wipe();
    }
}

pub struct EtcdStage {
    etcd: EtcdServers,
    line: MuteLine,
    backup: Option<PathBuf>,
}

impl EtcdStage {
    pub fn new(etcd: EtcdServers) -> EtcdStage {
        let line = MuteLine::to(etcd.address(0));
        EtcdStage { etcd, line, backup: None }
    }
}

pub async fn etcd_client(url: &str) -> Arc<dyn Coordinator> {
    Arc::new(Etcd::new(config(url)).await.expect("clients"))
}

pub fn config(url: &str) -> EtcdConfig {
    let url = url.parse().expect("a good URL");
    EtcdConfig { attempt: ATTEMPT, pulse: Duration::from_millis(500), ..EtcdConfig::new(url) }
}

#[async_trait]
impl Stage for EtcdStage {
    async fn client(&self) -> Arc<dyn Coordinator> {
        etcd_client(&self.etcd.url()).await
    }

    async fn lossy_client(&self) -> Arc<dyn Coordinator> {
        let client = etcd_client(&url_of(&[self.line.address(), self.etcd.address(0)])).await;
        self.line.set_mute(true);
        client
    }

    fn lose_no_more(&self) {
        self.line.set_mute(false);
    }

    async fn dead_holder(&self, key: &str) {
        let (url, key) = (self.etcd.url(), key.to_owned());
        // A runtime that is shut down takes all of its tasks with it, as the end of a process does.
        let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let process = process.expect("a runtime");
        let lease = process.spawn(async move { put_under_a_lease(&*etcd_client(&url).await, &key).await });
        lease.await.expect("it is put");
        process.shutdown_background();
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn compact(&mut self) {
        self.etcd.compact();
    }

    fn set_away(&mut self, away: bool) {
        if away { self.etcd.kill_all() } else { self.etcd.start_all() }
    }

    fn back_up(&mut self) {
        self.backup = Some(self.etcd.snapshot("backup"));
    }

    fn restore(&mut self) {
        self.etcd.restore(self.backup.as_deref().expect("there is a backup"));
    }

    fn wipe(&mut self) {
        self.etcd.wipe();
    }
}

async fn put_under_a_lease(client: &dyn Coordinator, key: &str) {
    let lease = client.grant(TTL).await.expect("a lease");
    assert_eq!(lease.state(), LeaseState::Held);
    won(client.swap(&Swap::new().create(key, "held", Some(lease.id()))).await.expect("a swap"));
    // Its holder is killed: it drops nothing.
    std::mem::forget(lease);
}

pub fn won(outcome: SwapOutcome) -> Revision {
    match outcome {
        SwapOutcome::Won(revision) => revision,
        SwapOutcome::Lost(loss) => panic!("lost against {loss:?}"),
    }
}

pub fn lost(outcome: SwapOutcome) -> SwapLoss {
    match outcome {
        SwapOutcome::Lost(loss) => loss,
        SwapOutcome::Won(revision) => panic!("won at {revision}"),
    }
}

/// Makes or changes the key, whatever it is.
pub async fn put(client: &dyn Coordinator, key: &str, value: &str) -> Revision {
    let state = client.read(key).await.expect("read");
    let swap = match state.entries.iter().find(|entry| entry.key == key) {
        Some(entry) => Swap::new().replace(key, entry.revision, value.to_owned(), None),
        None => Swap::new().create(key, value.to_owned(), None),
    };
    won(client.swap(&swap).await.expect("a swap"))
}

pub async fn next(watch: &mut KeyWatch) -> WatchEvent {
    let event = tokio::time::timeout(PATIENCE, watch.next()).await;
    event.expect("the watch has something to tell").expect("it goes on")
}

/// Names and values.
pub async fn contents(client: &dyn Coordinator, prefix: &str) -> Vec<(String, String)> {
    let state = client.read(prefix).await.expect("read");
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    state.entries.iter().map(|entry| (entry.key.clone(), text(&entry.value))).collect()
}

/// Until it holds.
pub async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
