//! The cluster of a run: its coordinator, store, links and nodes, which come and go.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::{NodeState, Stripe};
use coordinator::model::{ModelClient, ModelEtcd};
use members::{CertifiedNode, ClusterId, NewCluster, NodeChange, change_node};
use peer::{ClusterAuthority, PeerClient, PeerClientConfig, PeerIdentity, make_authority};
use relay::SplitMix;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use types::{ErrorKind, NodeId};

use crate::faults::gateway::{Gateway, PendingReads};
use crate::faults::link::LinkTable;
use crate::faults::model_store::{JUNCTION, ModelFile, ModelStore};
use crate::faults::running_node::{NodeParts, RunningNode, beat_of, told};
use crate::sabotage::Bug;

/// Nodes at the start of a run, and at most.
const NODES: usize = 3;
pub const NODES_MAX: usize = 5;
const COPIES: usize = 2;
/// The model's time goes on in such steps, as fast as ours.
const STEP: Duration = Duration::from_millis(50);
/// What has to come about by itself does so sooner.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct FaultStage {
    pub etcd: ModelEtcd,
    operator: ModelClient,
    cluster: ClusterId,
    authority: ClusterAuthority,
    /// Of a cluster that gave itself the same id.
    strangers: ClusterAuthority,
    pub store: Arc<ModelStore>,
    pub links: Arc<LinkTable>,
    pub places: Vec<NodePlace>,
    pub gateways: Arc<Mutex<Vec<Gateway>>>,
    pub pending: Arc<PendingReads>,
    bug: Option<Bug>,
    clock: JoinHandle<()>,
}

/// A machine, whose node may be down.
pub struct NodePlace {
    pub id: NodeId,
    pub dir: tempfile::TempDir,
    pub node: Option<RunningNode>,
}

impl FaultStage {
    pub async fn start(sizes: &[u64], bug: Option<Bug>) -> FaultStage {
        let etcd = ModelEtcd::new();
        let operator = etcd.client();
        let new = NewCluster::draw().expect("drawn");
        let cluster = members::init(&operator, peer::WIRE, &new).await.expect("a new cluster");
        let ticking = etcd.clone();
        let clock = tokio::spawn(async move {
            loop {
                sleep(STEP).await;
                ticking.advance(STEP);
            }
        });
        let mut stage = FaultStage {
            etcd,
            operator,
            cluster,
            authority: make_authority(&cluster.to_string()).expect("an authority"),
            strangers: make_authority(&cluster.to_string()).expect("an authority"),
            store: ModelStore::new(sizes).await,
            links: Arc::new(LinkTable::new()),
            places: Vec::new(),
            gateways: Arc::default(),
            pending: Arc::default(),
            bug,
            clock,
        };
        for _ in 0..NODES {
            stage.add().await;
        }
        stage
    }

    /// One more node. Returns its place.
    pub async fn add(&mut self) -> usize {
        let id = NodeId(self.places.len() as u64 + 1);
        let dir = tempfile::tempdir().expect("a directory");
        self.places.push(NodePlace { id, dir, node: None });
        let at = self.places.len() - 1;
        self.return_node(at).await;
        at
    }

    pub fn certified(&self, node: NodeId) -> CertifiedNode {
        CertifiedNode { cluster: self.cluster, node }
    }

    pub fn identity(&self, node: NodeId) -> PeerIdentity {
        let issued = self.authority.issue(&format!("n{}", node.0), node).expect("a certificate");
        PeerIdentity::new(&issued).expect("an identity")
    }

    /// With a certificate of another authority.
    pub fn strange_identity(&self, node: NodeId) -> PeerIdentity {
        let issued = self.strangers.issue(&format!("n{}", node.0), node).expect("a certificate");
        PeerIdentity::new(&issued).expect("an identity")
    }

    /// What calls the node at a place as `us`, over no link, in its `incarnation`.
    pub fn caller(&self, us: PeerIdentity, incarnation: u64, at: usize) -> PeerClient {
        let called = self.places[at].id;
        let beat = beat_of(us.node(), incarnation);
        let client = PeerClient::new(us, called, PeerClientConfig::default(), Arc::new(move || beat.clone()));
        client.set_addresses(&self.links.listening(called).into_iter().collect::<Vec<_>>(), &[]);
        client
    }

    /// Starts the node at a place that has none.
    pub async fn return_node(&mut self, at: usize) {
        let (id, dir) = (self.places[at].id, self.places[at].dir.path().to_owned());
        let parts = NodeParts {
            certified: self.certified(id),
            identity: self.identity(id),
            dir,
            client: self.etcd.client(),
            store: self.store.clone(),
            links: self.links.clone(),
            copies: COPIES,
            pending: self.pending.clone(),
            bug: self.bug,
        };
        let node = RunningNode::start(parts).await;
        self.gateways.lock().unwrap_or_else(PoisonError::into_inner).push(node.gateway.clone());
        self.places[at].node = Some(node);
    }

    pub async fn kill(&mut self, at: usize) {
        let place = &mut self.places[at];
        let Some(node) = place.node.take() else { return };
        self.gateways.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| it.id != place.id);
        self.links.set_listening(place.id, None);
        node.kill(place.dir.path()).await;
    }

    pub fn up(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|at| self.places[*at].node.is_some()).collect()
    }

    pub fn node(&self, at: usize) -> &RunningNode {
        self.places[at].node.as_ref().expect("it runs")
    }

    pub fn running(&self) -> impl Iterator<Item = &RunningNode> {
        self.places.iter().filter_map(|place| place.node.as_ref())
    }

    /// One of those that run, but for `but`.
    pub fn draw_node(&self, random: &mut SplitMix, but: Option<usize>) -> usize {
        let up: Vec<usize> = self.up().into_iter().filter(|at| Some(*at) != but).collect();
        up[(random.draw() % up.len() as u64) as usize]
    }

    /// As an operator changes it. A node that was marked out meanwhile cannot be drained, and is up by its return.
    pub async fn change(&self, at: usize, change: NodeChange) -> Result<(), String> {
        match change_node(&self.operator, &self.places[at].id.to_string(), change).await {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(()),
            Err(e) => Err(format!("{change:?}: {e}")),
        }
    }

    /// The places of the nodes that keep a file of one stripe, by the map of one that runs.
    pub fn keepers(&self, file: &ModelFile) -> Vec<usize> {
        let Some(node) = self.running().next() else { return Vec::new() };
        let keepers = node.view.keepers(JUNCTION, Stripe { file: file.key.file, index: 0 });
        let place = |id: NodeId| self.places.iter().position(|place| place.id == id);
        keepers.unwrap_or_default().into_iter().filter_map(place).collect()
    }

    /// All go by one map, in which all are up, and hear each other.
    pub fn is_settled(&self) -> bool {
        let maps: Vec<_> =
            self.running().map(|node| (node, node.view.map(), node.news.borrow().clone())).collect();
        let Some((_, first, _)) = maps.first() else { return false };
        maps.iter().all(|(node, map, news)| {
            let is_news = news.map.as_ref().is_some_and(|newest| newest.number() == map.number());
            let hears = |id: NodeId| !node.view.is_passed_over(id);
            is_news
                && map.number() == first.number()
                && map.nodes().len() == self.places.len()
                && map.nodes().iter().all(|node| node.state == NodeState::Up && hears(node.id))
        })
    }

    /// Waits until the cluster is as if nothing had happened.
    pub async fn settle(&self) -> Result<(), String> {
        self.until("all nodes go by the newest map and hear each other", || self.is_settled()).await
    }

    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !holds() {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what}: never; {}", self.told()));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub fn told(&self) -> String {
        let of = |node: &RunningNode| {
            let gone: Vec<u64> = self
                .places
                .iter()
                .map(|it| it.id)
                .filter(|id| node.view.is_passed_over(*id))
                .map(|id| id.0)
                .collect();
            format!(
                "n{} goes by {}, has {}, passes over {gone:?}",
                node.id.0,
                node.view.number(),
                told(&node.news.borrow())
            )
        };
        self.running().map(of).collect::<Vec<_>>().join("; ")
    }
}

impl Drop for FaultStage {
    fn drop(&mut self) {
        self.clock.abort();
    }
}
