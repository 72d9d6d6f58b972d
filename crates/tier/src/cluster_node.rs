//! A tier as a node of a cluster: it joins, asks the other nodes for bytes that they keep, and answers theirs.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cache::Cache;
use coordinator::{Coordinator, etcd::Etcd};
use fair::Offenders;
use members::{CertifiedNode, JunctionProfile, Membership, MembershipConfig, MembershipNews, NodeProfile};
use namespace::Namespace;
use node::{
    ClusterReads, ClusterView, CopyConfig, CopyKeeper, HeatConfig, JunctionPlacement, NodeService,
    NoticeSender, NoticeTaker, PathFinder, PeerTable, Placed, ServedJunctions,
};
use origin::count::OriginMetrics;
use peer::message::{Heartbeat, NodeFigures};
use peer::{
    ClusterSecret, HeartbeatSource, NodeToken, PeerClientConfig, PeerIdentity, PeerServer, PeerServerConfig,
};
use prometheus_client::registry::Registry;
use siphasher::sip::SipHasher13;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};
use types::{Error, ErrorKind, FileId, JunctionId, Result};

use crate::client_map::ClientMapTeller;
use crate::copy_rules::CopyRuleBook;
use crate::handle_key::HandleKey;
use crate::handles_elsewhere::{OwnPaths, PathsElsewhere};
use crate::settings::{ClusterSettings, JunctionSettings, Settings};

/// In the cache directory: which junction a file that is kept here is of.
const COPIES_INDEX: &str = "FILES";

/// Calls of other nodes are given this long at the end: less than the tier has for all of its own.
const DRAIN: Duration = Duration::from_secs(6);

/// The other nodes are told of the last changes for so long.
const LAST_NOTICES: Duration = Duration::from_secs(1);

/// This node, in the cluster and not answering the others yet.
pub struct ClusterNode {
    membership: Membership,
    coordinator: Arc<dyn Coordinator>,
    identity: PeerIdentity,
    secret: ClusterSecret,
    /// Bound before the node is in the map: the others call it as soon as it is.
    listeners: Vec<TcpListener>,
    ids: BTreeMap<String, JunctionId>,
    /// This node's own ways to the stores.
    served: ServedJunctions,
    reads: Arc<ClusterReads>,
    heartbeat: HeartbeatSource,
    copies: Arc<CopyKeeper>,
    rules: Arc<CopyRuleBook>,
    /// Of the maps, when the view was made.
    history: u64,
}

/// Where this node's figures come from. Heartbeats hold it, and what is counted holds the heartbeats.
struct OwnFigures {
    cache: Weak<Cache>,
    copies: Weak<CopyKeeper>,
    origins: OriginMetrics,
    /// Of its junctions.
    paths: Vec<String>,
    /// What was counted last, and when: each heartbeat to each node, and each answer, tells it.
    counted: Mutex<Option<(Instant, NodeFigures)>>,
}

/// Figures are counted no more often: the stripes that lack copies may be many.
const COUNT_EVERY: Duration = Duration::from_millis(200);

impl OwnFigures {
    fn now(&self) -> NodeFigures {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, figures)) = counted.filter(|(at, _)| at.elapsed() < COUNT_EVERY) {
            return figures;
        }
        let figures = self.count();
        *counted = Some((Instant::now(), figures));
        figures
    }

    fn count(&self) -> NodeFigures {
        let (Some(cache), Some(copies)) = (self.cache.upgrade(), self.copies.upgrade()) else {
            return NodeFigures::default();
        };
        let (stats, missing, progress) = (cache.stats(), copies.under_replicated(), copies.progress());
        NodeFigures {
            cached: stats.bytes_used,
            cache_max: stats.bytes_max,
            far_bytes: self.paths.iter().map(|path| self.origins.bytes_of(path)).sum(),
            missing_stripes: missing.values().map(|it| it.stripes).sum(),
            missing_bytes: missing.values().map(|it| it.bytes).sum(),
            missing_seconds: missing.values().map(|it| it.lasting.as_secs()).max().unwrap_or(0),
            counted_map: progress.counted_map,
            to_copy_bytes: progress.to_copy_bytes,
        }
    }
}

/// What the operator's interface tells of the cluster, and does to it.
#[derive(Clone)]
pub struct ClusterDesk {
    /// What this node tells the others of itself.
    pub own: HeartbeatSource,
    pub news: watch::Receiver<Arc<MembershipNews>>,
    pub reads: Arc<ClusterReads>,
    pub coordinator: Arc<dyn Coordinator>,
    pub copies: Arc<CopyKeeper>,
    pub is_secure: bool,
}

impl ClusterNode {
    /// Joins the cluster, which takes as long as etcd is away; a node that was in it before starts with the map that it knew last.
    ///
    /// `nfs`: where it is going to serve.
    ///
    /// Errors: those of [`NodeToken::read`], [`PeerIdentity::new`], [`Membership::start`] and [`Membership::first_map`].
    pub async fn join(
        settings: &Settings,
        cluster: &ClusterSettings,
        nfs: Option<SocketAddr>,
        cache: &Arc<Cache>,
        origins: &OriginMetrics,
    ) -> Result<ClusterNode> {
        let token = cluster.token.as_deref().map(NodeToken::read).transpose()?;
        let known = token.as_ref().map(|token| PeerIdentity::new(&token.certificate)).transpose()?;
        let certified = known.as_ref().map(certified).transpose()?;
        let name = cluster.name.clone().or(token.as_ref().map(|token| token.name.clone()));
        let coordinator: Arc<dyn Coordinator> = Arc::new(Etcd::new(cluster.etcd()).await?);
        let profile = NodeProfile {
            name: name.unwrap_or_default(),
            addresses: cluster.addresses.clone(),
            admin: Some(settings.admin.listen),
            nfs,
            weight: cluster.weight,
            label: cluster.label.clone(),
            build: build(settings),
            wire: peer::WIRE,
        };
        let junctions = settings.junctions.iter().map(junction_profile).collect();
        let config =
            MembershipConfig { certified, ..MembershipConfig::new(settings.dir.clone(), profile, junctions) };
        let listeners = PeerServer::listen(&cluster.addresses).await?;
        info!(cluster = %cluster.url, "joining the cluster");
        let membership = Membership::start(coordinator.clone(), config)?;
        membership.first_map().await?;
        let news = await_junctions(&membership, &settings.junctions).await?;
        let (Some(map), Some(id)) = (news.map.clone(), news.cluster) else {
            return Err(Error::new(ErrorKind::Unavailable, "join the cluster:", "it has no map"));
        };
        let node = membership.node();
        let (identity, secret) = match (known, token) {
            (Some(identity), Some(token)) => (identity, token.secret),
            _ => {
                let id = id.to_string();
                (PeerIdentity::insecure(&id, node)?, ClusterSecret::insecure(&id))
            }
        };
        let placements = settings.junctions.iter().filter_map(|junction| {
            let copies = junction.copies.unwrap_or(1);
            let placement =
                JunctionPlacement { copies, topology: junction.topology.clone().unwrap_or_default() };
            Some((*news.junctions.get(&junction.path)?, placement))
        });
        let view = Arc::new(ClusterView::new(node, map, placements.collect()));
        for id in news.conflicted.iter().filter_map(|path| news.junctions.get(path)) {
            view.withdraw(*id);
        }
        view.set_heat(HeatConfig { rate: cluster.hot_rate, ..HeatConfig::default() });
        let rules = Arc::new(CopyRuleBook::default());
        view.file_copies().set_finder(rules.clone());
        rules.take(&news.copy_rules, &view);
        let (known, incarnation, build) = (view.clone(), membership.incarnation().0, build(settings));
        let figures: Arc<OnceLock<OwnFigures>> = Arc::default();
        let told = figures.clone();
        let heartbeat: HeartbeatSource = Arc::new(move || Heartbeat {
            node,
            incarnation,
            map: known.number(),
            build: build.clone(),
            figures: told.get().map_or_else(NodeFigures::default, OwnFigures::now),
        });
        let peers =
            PeerTable::new(identity.clone(), PeerClientConfig::default(), heartbeat.clone(), view.clone());
        let reads = Arc::new(ClusterReads::new(view, peers, node::Metrics::default()));
        let copying = CopyConfig {
            repair_rate: cluster.repair_rate,
            index: Some(settings.dir.join(COPIES_INDEX)),
            ..CopyConfig::default()
        };
        let copies = Arc::new(CopyKeeper::new(reads.clone(), cache.clone(), &copying)?);
        let paths = settings.junctions.iter().map(|junction| junction.path.clone()).collect();
        let (cache, origins) = (Arc::downgrade(cache), origins.clone());
        let _ = figures.set(OwnFigures {
            cache,
            copies: Arc::downgrade(&copies),
            origins,
            paths,
            counted: Mutex::default(),
        }); // it is set once
        info!(%node, cluster = %id, map = reads.view.number(), "this node is in the cluster");
        Ok(ClusterNode {
            membership,
            coordinator,
            identity,
            secret,
            listeners,
            ids: news.junctions.clone(),
            served: HashMap::new(),
            reads,
            heartbeat,
            copies,
            rules,
            history: news.history,
        })
    }

    /// The junction under its id in the cluster, with an origin whose bytes come from the nodes that keep them.
    pub fn place(&mut self, junction: namespace::Junction) -> Result<namespace::Junction> {
        let missing = || Error::new(ErrorKind::Config, "place the junction", &junction.path);
        let id = *self.ids.get(&junction.path).ok_or_else(missing)?;
        self.served.insert(id, junction.origin.clone());
        let origin = Placed::new(junction.origin.clone(), id, self.reads.clone());
        Ok(namespace::Junction { id: Some(id), origin, ..junction })
    }

    /// The key of NFS handles: the same at all nodes. And the one for junctions whose ids mean something here alone.
    pub fn handle_keys(&self) -> (HandleKey, HandleKey) {
        let own = format!("NFS handles of node {}", self.identity.node());
        (self.secret.key_for("NFS handles"), self.secret.key_for(&own))
    }

    /// The paths of files are found here: rules on copies go by them.
    pub fn set_names(&self, namespace: &Arc<Namespace>) {
        self.rules.set_names(namespace);
    }

    pub fn register(&self, registry: &mut Registry) {
        self.reads.metrics.register(registry);
    }

    /// The map for clients of this node that read from the others, too.
    pub fn map_teller(&self) -> Arc<ClientMapTeller> {
        Arc::new(ClientMapTeller::new(self.membership.news(), self.reads.view.clone()))
    }

    pub fn desk(&self) -> ClusterDesk {
        ClusterDesk {
            own: self.heartbeat.clone(),
            news: self.membership.news(),
            reads: self.reads.clone(),
            coordinator: self.coordinator.clone(),
            copies: self.copies.clone(),
            is_secure: self.identity.is_secure(),
        }
    }

    /// Gives the other nodes' calls what answers them, and has them told of the changes that are made by way of `namespace`.
    pub fn listen(
        self,
        cache: Arc<Cache>,
        namespace: Arc<Namespace>,
        offenders: Arc<Offenders>,
    ) -> ListeningNode {
        namespace.ask_elsewhere(Arc::new(PathsElsewhere(PathFinder::new(self.reads.clone()))));
        let notices = NoticeSender::new(self.reads.clone());
        let sender = notices.clone();
        namespace.announce_to(move |files| sender.announce(files));
        let paths = Arc::new(OwnPaths(namespace.clone()));
        let service = NodeService::new(self.reads.clone(), cache, self.served, paths, self.heartbeat);
        let service = Arc::new(service.with_notices(Arc::new(NamesHere(namespace))));
        let config = PeerServerConfig { offenders, drain_timeout: DRAIN, ..PeerServerConfig::default() };
        let server = PeerServer::over(self.listeners, config, self.identity, service.clone());
        let (membership, reads, copies, rules) = (self.membership, self.reads, self.copies, self.rules);
        ListeningNode { membership, server, service, reads, notices, copies, rules, history: self.history }
    }
}

/// Takes in notices of other nodes: what they name is asked for at its origin.
struct NamesHere(Arc<Namespace>);

#[async_trait]
impl NoticeTaker for NamesHere {
    async fn take_in(&self, files: &[FileId]) -> Result<()> {
        self.0.take_in_notice(files).await
    }
}

/// A node whose port for the others is bound.
pub struct ListeningNode {
    membership: Membership,
    server: PeerServer,
    service: Arc<NodeService>,
    reads: Arc<ClusterReads>,
    notices: Arc<NoticeSender>,
    copies: Arc<CopyKeeper>,
    rules: Arc<CopyRuleBook>,
    history: u64,
}

impl ListeningNode {
    /// Answers the other nodes, sends them heartbeats and follows the news, until `stop` is true.
    pub fn start(self, stop: watch::Receiver<bool>) -> RunningNode {
        let mut tasks = JoinSet::new();
        let server = tokio::spawn(self.server.serve(stop.clone()));
        tasks.spawn(self.reads.peers.clone().beat(stop.clone()));
        let mut telling = JoinSet::new();
        telling.spawn(self.notices.clone().run());
        let notices = LastNotices { sender: self.notices, _telling: telling };
        tasks.spawn(self.copies.run(stop));
        let (news, view) = (self.membership.news(), self.reads.view.clone());
        tasks.spawn(follow(news, view, self.service, self.rules, self.history));
        RunningNode { membership: self.membership, server, notices, tasks }
    }
}

/// A node that answers the others.
pub struct RunningNode {
    membership: Membership,
    server: JoinHandle<()>,
    notices: LastNotices,
    tasks: JoinSet<()>,
}

impl RunningNode {
    /// Waits until the calls of other nodes that had arrived are answered.
    pub async fn drained(&mut self) {
        let _ = (&mut self.server).await; // it ended, or failed and said why
    }

    /// Ends the node's sign of life. What is stored at an origin after that is told to the others still.
    pub async fn stop(mut self) -> LastNotices {
        self.server.abort();
        self.tasks.abort_all();
        self.membership.stop().await;
        self.notices
    }
}

/// Tells the other nodes what this one changes, until it is dropped.
pub struct LastNotices {
    sender: Arc<NoticeSender>,
    _telling: JoinSet<()>,
}

impl LastNotices {
    /// Waits a little until the others have been told of all changes.
    pub async fn told(self) {
        self.sender.settle(LAST_NOTICES).await;
    }
}

/// Hands each new map, and new rules on copies, to the view. A junction that the cluster has under another id than this process is
/// asked of no other node and answered to none from then on: the same id is another junction there.
async fn follow(
    mut news: watch::Receiver<Arc<MembershipNews>>,
    view: Arc<ClusterView>,
    service: Arc<NodeService>,
    rules: Arc<CopyRuleBook>,
    mut history: u64,
) {
    loop {
        let now = news.borrow_and_update().clone();
        if let Some(map) = now.map.clone() {
            if now.history > history {
                history = now.history;
                view.begin_anew(map);
            } else {
                view.advance(map);
            }
        }
        rules.take(&now.copy_rules, &view);
        for id in now.conflicted.iter().filter_map(|path| now.junctions.get(path)) {
            // Both: the view may be without it since the start.
            if view.withdraw(*id) | service.withdraw(*id) {
                warn!(junction = %id, "the cluster has another id for this junction: this node reads its bytes by itself until it is started with an empty cache directory");
            }
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// The news in which each junction has its id.
async fn await_junctions(
    membership: &Membership,
    junctions: &[JunctionSettings],
) -> Result<Arc<MembershipNews>> {
    let mut news = membership.news();
    let missing = |now: &MembershipNews| -> Vec<String> {
        let paths = junctions.iter().map(|junction| &junction.path);
        paths.filter(|path| !now.junctions.contains_key(*path)).cloned().collect()
    };
    let has_all = |now: &Arc<MembershipNews>| missing(now).is_empty() && now.map.is_some();
    let over = |_| Error::new(ErrorKind::Unavailable, "join the cluster:", "the node ends");
    if !has_all(&membership.now()) {
        let (paths, status) = (missing(&membership.now()).join(", "), membership.now().status.clone());
        warn!("waiting for etcd to have an id of {paths} ({status:?})");
    }
    news.wait_for(has_all).await.map(|now| now.clone()).map_err(over)
}

/// Who a node is by its certificate.
fn certified(identity: &PeerIdentity) -> Result<CertifiedNode> {
    Ok(CertifiedNode { cluster: identity.cluster().parse()?, node: identity.node() })
}

fn build(settings: &Settings) -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), settings.commit)
}

fn junction_profile(junction: &JunctionSettings) -> JunctionProfile {
    let mut hasher = SipHasher13::new();
    for (key, value) in junction.rules_by_name() {
        hasher.write(key.as_bytes());
        hasher.write(value.as_bytes());
        hasher.write_u8(0);
    }
    let placement =
        format!("{:?} {:?}", junction.copies.unwrap_or(1), junction.topology.clone().unwrap_or_default());
    hasher.write(junction.write.to_string().as_bytes());
    hasher.write(placement.as_bytes());
    JunctionProfile {
        path: junction.path.clone(),
        url: junction.origin.url(),
        digest: format!("{:016x}", hasher.finish()),
    }
}
