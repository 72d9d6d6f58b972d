//! One node of a run: all that a tier runs of a cluster, in a runtime of its own, so that it can die at any moment as a process does.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cache::Cache;
use cluster::{ClusterMap, NodeLabel};
use coordinator::model::ModelClient;
use members::{CertifiedNode, JunctionProfile, Membership, MembershipConfig, MembershipNews, NodeProfile};
use peer::message::{Heartbeat, NodeFigures};
use peer::{HeartbeatSource, PeerClientConfig, PeerIdentity, PeerServer, PeerServerConfig};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use types::{FileId, JunctionId, NodeId};

use crate::copies::CopyBooks;
use crate::faults::gateway::{Gateway, PendingReads};
use crate::faults::link::LinkTable;
use crate::faults::model_store::{JUNCTION, ModelStore};
use crate::faults::spoiling::{SpoiledAnswers, SpoilingService};
use crate::sabotage::{Bug, Sabotage};
use crate::{
    ClusterReads, ClusterView, CopyConfig, CopyKeeper, JunctionPlacement, KnownPaths, Metrics, NodeService,
    PeerTable, Placed,
};

const PATH: &str = "/show";
pub const CACHE_SIZE: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// What a node is started from.
#[derive(Clone)]
pub struct NodeParts {
    pub certified: CertifiedNode,
    pub identity: PeerIdentity,
    pub dir: PathBuf,
    pub client: ModelClient,
    pub store: Arc<ModelStore>,
    pub links: Arc<LinkTable>,
    pub copies: usize,
    pub pending: Arc<PendingReads>,
    pub bug: Option<Bug>,
}

/// Dropped anywhere, all that runs in it ends where it is.
struct NodeRuntime(Option<Runtime>);

impl Drop for NodeRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

pub struct RunningNode {
    /// `None` while it starts.
    runtime: Option<NodeRuntime>,
    pub id: NodeId,
    pub cache: Arc<Cache>,
    pub view: Arc<ClusterView>,
    pub metrics: Metrics,
    pub books: Arc<CopyBooks>,
    pub gateway: Gateway,
    pub news: watch::Receiver<Arc<MembershipNews>>,
    pub answers: Arc<SpoiledAnswers>,
    /// While it is true new maps do not come into force here.
    pub holds_maps: watch::Sender<bool>,
    /// Those that were in force here, oldest first.
    pub maps: Arc<Mutex<Vec<Arc<ClusterMap>>>>,
    client: ModelClient,
    is_dead: Arc<AtomicBool>,
    _membership: Membership,
}

pub fn beat_of(node: NodeId, incarnation: u64) -> Heartbeat {
    Heartbeat { node, incarnation, map: 0, build: "test".to_owned(), figures: NodeFigures::default() }
}

/// These nodes know no names.
struct NoPaths;

impl KnownPaths for NoPaths {
    fn path(&self, _: JunctionId, _: FileId) -> Option<Vec<Bytes>> {
        None
    }
}

/// How a node joins.
pub fn membership_config(certified: CertifiedNode, dir: &Path, address: SocketAddr) -> MembershipConfig {
    let profile = NodeProfile {
        name: format!("n{}", certified.node.0),
        addresses: vec![address],
        admin: None,
        nfs: None,
        weight: 1 << 40,
        label: NodeLabel::root(),
        build: "test".to_owned(),
        wire: peer::WIRE,
    };
    let junction =
        JunctionProfile { path: PATH.to_owned(), url: "nfs://nas/show".to_owned(), digest: String::new() };
    MembershipConfig {
        certified: Some(certified),
        lease: Duration::from_secs(1),
        down_after: Duration::from_millis(1500),
        away_after: Duration::from_secs(2),
        tick: Duration::from_millis(100),
        ..MembershipConfig::new(dir.to_owned(), profile, vec![junction])
    }
}

impl RunningNode {
    /// Returns once it answers others, and has a map.
    pub async fn start(parts: NodeParts) -> RunningNode {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let runtime = NodeRuntime(Some(runtime));
        let started = handle.spawn(start_within(parts, handle.clone())).await;
        let mut node = started.unwrap_or_else(|e| panic!("a node does not start: {e}"));
        node.runtime = Some(runtime);
        node
    }

    /// As by SIGKILL. Returns when its directory is free.
    pub async fn kill(self, dir: &Path) {
        self.client.kill();
        drop(self);
        let is_locked = || {
            let lock = std::fs::File::open(dir.join("cache").join("lock"));
            lock.is_ok_and(|lock| lock.try_lock().is_err())
        };
        for _ in 0..1500 {
            if !is_locked() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("somebody still uses {}", dir.display());
    }

    /// The map in force is the one that its membership has told last.
    pub fn has_newest_map(&self) -> bool {
        self.news.borrow().map.as_ref().is_some_and(|map| map.number() == self.view.number())
    }

    /// Bytes that it sent to other nodes.
    pub fn served_bytes(&self) -> u64 {
        self.metrics.served_bytes.get()
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        // Before its runtime: its clients' reads end without an answer, and not with an error.
        self.is_dead.store(true, Ordering::SeqCst);
    }
}

async fn start_within(parts: NodeParts, handle: Handle) -> RunningNode {
    let NodeParts { certified, identity, dir, client, store, links, copies, pending, bug } = parts;
    let id = certified.node;
    let listeners = PeerServer::listen(&["127.0.0.1:0".parse().expect("an address")]).await.expect("a port");
    let address = listeners[0].local_addr().expect("bound");
    links.set_listening(id, Some(address));
    let cache = Cache::open(cache::Config {
        dir: dir.join("cache"),
        size_max: CACHE_SIZE,
        free_floor: 0,
        guests_max: Some(0),
        inflight_max: 16 * MIB,
        readahead_max: MIB / 2,
        ..Default::default()
    })
    .expect("a cache");
    let config = membership_config(certified, &dir, address);
    let membership = Membership::start(Arc::new(client.clone()), config).expect("it begins to join");
    let mut news = membership.news();
    let has_all = |now: &Arc<MembershipNews>| now.map.is_some() && now.junctions.contains_key(PATH);
    let wait = async { news.wait_for(has_all).await.map(|first| first.clone()) };
    let first = match tokio::time::timeout(Duration::from_secs(30), wait).await {
        Ok(Ok(first)) => first,
        _ => panic!("{id} does not join: {:?}", membership.now()),
    };
    assert_eq!(first.junctions[PATH], JUNCTION, "the first one");
    let map = links.rewritten(id, first.map.as_ref().expect("waited for")).await;
    let placement = JunctionPlacement { copies, topology: NodeLabel::root() };
    let mut view = ClusterView::new(id, map.clone(), HashMap::from([(JUNCTION, placement)]));
    view.sabotage = Sabotage(bug);
    let view = Arc::new(view);
    let (known, incarnation) = (view.clone(), membership.incarnation().0);
    let heartbeat: HeartbeatSource = Arc::new(move || Heartbeat {
        node: id,
        incarnation,
        map: known.number(),
        ..beat_of(id, incarnation)
    });
    let calling = PeerClientConfig {
        stall_timeout: Duration::from_secs(2),
        trusts_any_bytes: bug == Some(Bug::TrustAnyBytes),
        ..PeerClientConfig::default()
    };
    let peers = PeerTable::new(identity.clone(), calling, heartbeat.clone(), view.clone());
    let metrics = Metrics::default();
    let reads = Arc::new(ClusterReads::new(view.clone(), peers.clone(), metrics.clone()));
    let copying = CopyConfig { index: Some(dir.join("FILES")), ..CopyConfig::default() };
    let keeper = Arc::new(CopyKeeper::new(reads.clone(), cache.clone(), &copying).expect("the only one"));
    let books = keeper.books.clone();
    let served = HashMap::from([(JUNCTION, store.origin())]);
    let inner = NodeService::new(reads.clone(), cache.clone(), served, Arc::new(NoPaths), heartbeat);
    let answers = Arc::<SpoiledAnswers>::default();
    let service = Arc::new(SpoilingService { inner, answers: answers.clone() });
    let server = PeerServer::over(listeners, PeerServerConfig::default(), identity, service);
    // It ends with its runtime alone.
    let (never, stopped) = watch::channel(false);
    let holds_maps = watch::Sender::new(false);
    let maps = Arc::new(Mutex::new(vec![map]));
    tokio::spawn(server.serve(stopped.clone()));
    tokio::spawn(peers.beat(stopped.clone()));
    tokio::spawn(keeper.run(stopped));
    let following =
        follow(membership.news(), first.history, view.clone(), links, holds_maps.subscribe(), maps.clone());
    tokio::spawn(async move {
        following.await;
        drop(never);
    });
    let is_dead = Arc::<AtomicBool>::default();
    let placed = Placed::new(store.origin(), JUNCTION, reads);
    let gateway = Gateway { id, handle, cache: cache.clone(), placed, is_dead: is_dead.clone(), pending };
    RunningNode {
        runtime: None,
        id,
        cache,
        view,
        metrics,
        books,
        gateway,
        news: membership.news(),
        answers,
        holds_maps,
        maps,
        client,
        is_dead,
        _membership: membership,
    }
}

/// As `tier` does it: each new map comes into force, and one of a later history whatever its number.
async fn follow(
    mut news: watch::Receiver<Arc<MembershipNews>>,
    mut history: u64,
    view: Arc<ClusterView>,
    links: Arc<LinkTable>,
    mut holds: watch::Receiver<bool>,
    maps: Arc<Mutex<Vec<Arc<ClusterMap>>>>,
) {
    loop {
        if holds.wait_for(|holds| !*holds).await.is_err() {
            return;
        }
        let now = news.borrow_and_update().clone();
        if let Some(map) = &now.map {
            let map = links.rewritten(view.own(), map).await;
            if now.history > history {
                history = now.history;
                view.begin_anew(map.clone());
                maps.lock().unwrap_or_else(PoisonError::into_inner).clear();
            } else {
                view.advance(map.clone());
            }
            maps.lock().unwrap_or_else(PoisonError::into_inner).push(map);
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// The junctions of a map of news, for a test that fails.
pub fn told(news: &MembershipNews) -> String {
    let nodes = news.map.iter().flat_map(|map| map.nodes());
    let nodes: BTreeMap<&str, String> = nodes.map(|node| (&node.name[..], node.state.to_string())).collect();
    format!("map {:?} of history {}: {nodes:?}", news.map.as_ref().map(|map| map.number()), news.history)
}
