//! Where a test takes place: one etcd, what can happen to it, and the nodes of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cluster::{ClusterMap, MapNode, NodeLabel, NodeState};
use coordinator::etcd::Etcd;
use coordinator::model::{ModelEtcd, ModelSnapshot};
use coordinator::{Coordinator, EtcdConfig, LeaseId};
use members::{
    ClusterAlarm, ClusterId, ClusterRoll, JunctionProfile, Membership, MembershipConfig, MembershipNews,
    MembershipStatus, NodeFile, NodeProfile,
};
use testkit::etcd::EtcdServers;
use types::Result;

/// Long enough for everything that has to come about by itself.
const PATIENCE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(50);
pub const LEASE: Duration = Duration::from_secs(1);
pub const DOWN_AFTER: Duration = Duration::from_millis(1500);
pub const WIRE: u32 = 1;

#[async_trait]
pub trait Stage: Send + Sync {
    /// One more process.
    async fn client(&self) -> Arc<dyn Coordinator>;
    async fn pass(&self, time: Duration);
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

    /// In steps: what is kept alive each third of a lease is kept alive.
    async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            tokio::time::sleep(step).await;
            self.etcd.advance(step);
            left -= step;
        }
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
    backup: Option<PathBuf>,
}

impl EtcdStage {
    pub fn new(etcd: EtcdServers) -> EtcdStage {
        EtcdStage { etcd, backup: None }
    }

    /// As etcd does it by itself when it had no keepalive, or thinks so.
    pub fn end_lease(&self, lease: LeaseId) {
        self.etcd.etcdctl(&["lease", "revoke", &format!("{:x}", lease.0)]);
    }
}

#[async_trait]
impl Stage for EtcdStage {
    async fn client(&self) -> Arc<dyn Coordinator> {
        let url = self.etcd.url().parse().expect("a good URL");
        let (attempt, pulse) = (Duration::from_millis(700), Duration::from_millis(500));
        Arc::new(Etcd::new(EtcdConfig { attempt, pulse, ..EtcdConfig::new(url) }).await.expect("clients"))
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
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

/// Until it holds.
pub async fn soon(stage: &impl Stage, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        stage.pass(STEP).await;
    }
}

pub async fn make_cluster(stage: &impl Stage) -> ClusterId {
    members::init(&*stage.client().await, WIRE, &members::NewCluster::draw().expect("drawn"))
        .await
        .expect("a new cluster")
}

pub async fn roll(stage: &impl Stage) -> ClusterRoll {
    ClusterRoll::of(&stage.client().await.read("").await.expect("etcd answers"))
}

pub fn profile(name: &str) -> NodeProfile {
    let port =
        1 + name.bytes().fold(0u16, |port, byte| port.wrapping_mul(31).wrapping_add(byte.into())) % 60_000;
    NodeProfile {
        name: name.to_owned(),
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], port))],
        admin: None,
        nfs: None,
        weight: 1 << 40,
        label: NodeLabel::root(),
        build: "0.0.0".to_owned(),
        wire: WIRE,
    }
}

pub fn junction(path: &str, digest: &str) -> JunctionProfile {
    JunctionProfile { path: path.to_owned(), url: format!("nfs://nas{path}"), digest: digest.to_owned() }
}

/// The directory of a node, and its process while there is one.
pub struct TestNode {
    pub name: String,
    pub dir: tempfile::TempDir,
    pub junctions: Vec<JunctionProfile>,
    pub process: Option<Membership>,
}

impl TestNode {
    pub fn new(name: &str) -> TestNode {
        let dir = tempfile::tempdir().expect("a directory");
        TestNode { name: name.to_owned(), dir, junctions: Vec::new(), process: None }
    }

    pub async fn joined(stage: &impl Stage, name: &str) -> TestNode {
        let mut node = TestNode::new(name);
        node.join(stage).await;
        node
    }

    pub fn config(&self) -> MembershipConfig {
        MembershipConfig {
            lease: LEASE,
            down_after: DOWN_AFTER,
            away_after: Duration::from_secs(2),
            tick: Duration::from_millis(100),
            ..MembershipConfig::new(self.dir.path().to_owned(), profile(&self.name), self.junctions.clone())
        }
    }

    pub async fn start(&mut self, stage: &impl Stage) {
        self.try_start(stage).await.expect("it starts");
    }

    pub async fn try_start(&mut self, stage: &impl Stage) -> Result<()> {
        self.process = Some(Membership::start(stage.client().await, self.config())?);
        Ok(())
    }

    pub async fn join(&mut self, stage: &impl Stage) {
        self.start(stage).await;
        soon(stage, &format!("{} joins", self.name), async || self.is_joined()).await;
    }

    /// As a process does that is told to end.
    pub async fn stop(&mut self) {
        self.process.take().expect("it runs").stop().await;
    }

    /// As SIGKILL does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn id(&self) -> types::NodeId {
        self.process.as_ref().expect("it runs").node()
    }

    pub fn news(&self) -> Arc<MembershipNews> {
        self.process.as_ref().expect("it runs").now()
    }

    pub fn file(&self) -> NodeFile {
        NodeFile::load(self.dir.path()).expect("it is good").expect("it is there")
    }

    pub fn map(&self) -> Arc<ClusterMap> {
        self.news().map.clone().expect("it has a map")
    }

    pub fn is_joined(&self) -> bool {
        matches!(self.news().status, MembershipStatus::Joined)
    }

    /// The sentence with which it was refused.
    pub fn refusal(&self) -> Option<String> {
        match &self.news().status {
            MembershipStatus::Refused(error) => Some(error.to_string()),
            _ => None,
        }
    }

    pub fn alarms(&self) -> Vec<ClusterAlarm> {
        self.news().alarms.iter().map(|raised| raised.alarm.clone()).collect()
    }

    pub fn has_alarm(&self, of: impl Fn(&ClusterAlarm) -> bool) -> bool {
        self.alarms().iter().any(of)
    }

    /// As its own map has that node.
    pub fn sees(&self, name: &str) -> Option<NodeState> {
        self.news().map.as_ref()?.node_named(name).map(|node: &MapNode| node.state)
    }
}

/// Until all of them have one map, in which these nodes are up.
pub async fn agree(stage: &impl Stage, nodes: &[&TestNode], up: usize) {
    soon(stage, &format!("all have one map with {up} nodes that are up"), async || {
        let all: Vec<_> = nodes.iter().map(|node| node.news()).collect();
        let is_up = |node: &&MapNode| node.state == NodeState::Up;
        all.iter().all(|news| {
            let map = news.map.as_ref();
            map == all[0].map.as_ref()
                && map.is_some_and(|map| map.nodes().iter().filter(is_up).count() == up)
        })
    })
    .await;
}
