//! A cluster for tests: nodes with caches of their own, one store, and a count of what is read there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cache::{Cache, CacheKey, Lend, Source};
use cluster::{ClusterMap, MapNode, NodeLabel, NodeState, Stripe};
use node::{
    ClusterReads, ClusterView, CopyConfig, CopyKeeper, CopyRuleFinder, JunctionPlacement, KnownPaths,
    Metrics, NodeService, NoticeSender, NoticeTaker, PeerTable, Placed, ReadRoute,
};
use origin::count::{Count, OriginMetrics};
use origin::delay::Delay;
use origin::memory::MemoryOrigin;
use origin::{FileToRead, Object, Origin};
use peer::message::{Heartbeat, NodeFigures, ToldCopies};
use peer::{
    ClusterAuthority, HeartbeatSource, PeerClient, PeerClientConfig, PeerIdentity, PeerServer,
    PeerServerConfig, make_authority,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use types::{ByteRange, FileId, JunctionId, Name, NodeId, Result, Supplier};

use crate::held::{HeldCalls, HoldingService};

pub const JUNCTION: JunctionId = JunctionId(1);
pub const MIB: u64 = 1 << 20;
/// Files that wait for one node to be told of them.
pub const NOTICES_MAX: usize = 100;
const FAR: Duration = Duration::from_millis(10);

fn beat_of(node: NodeId, incarnation: u64) -> Heartbeat {
    let figures = NodeFigures { cached: node.0, ..NodeFigures::default() };
    Heartbeat { node, incarnation, map: 0, build: "test".to_owned(), figures }
}

pub struct TestCluster {
    pub memory: Arc<MemoryOrigin>,
    metrics: OriginMetrics,
    authority: ClusterAuthority,
    pub copies: usize,
    copying: Option<CopyConfig>,
    cache: cache::Config,
    served_max: u64,
    pub nodes: Vec<TestNode>,
    number: u64,
}

pub struct TestNode {
    pub id: NodeId,
    pub cache: Arc<Cache>,
    pub view: Arc<ClusterView>,
    pub metrics: Metrics,
    /// Of a cluster that makes copies.
    pub keeper: Option<Arc<CopyKeeper>>,
    pub names: Arc<TestNames>,
    pub notices: Arc<NoticeSender>,
    pub heard: Arc<HeardNotices>,
    placed: Arc<Placed>,
    address: SocketAddr,
    dir: Arc<tempfile::TempDir>,
    /// Calls of others that it does not answer.
    pub held: Arc<HeldCalls>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// The names that this node knows, each below the root of the junction, and the rules on copies that it goes by.
#[derive(Default)]
pub struct TestNames {
    names: Mutex<HashMap<FileId, Bytes>>,
    rules: Mutex<(u64, HashMap<Bytes, u8>)>,
}

impl TestNames {
    pub fn meet(&self, file: &KnownFile, name: &'static str) {
        self.names.lock().expect("not poisoned").insert(file.key.file, Bytes::from_static(name.as_bytes()));
    }

    pub fn set_rules(&self, revision: u64, rules: &[(&'static str, u8)]) {
        let rules = rules.iter().map(|(name, copies)| (Bytes::from_static(name.as_bytes()), *copies));
        *self.rules.lock().expect("not poisoned") = (revision, rules.collect());
    }
}

impl KnownPaths for TestNames {
    fn path(&self, _: JunctionId, file: FileId) -> Option<Vec<Bytes>> {
        Some(vec![self.names.lock().expect("not poisoned").get(&file)?.clone()])
    }
}

impl CopyRuleFinder for TestNames {
    fn find(&self, junction: JunctionId, file: FileId) -> Option<ToldCopies> {
        self.about(junction, &self.path(junction, file)?)
    }

    fn about(&self, _: JunctionId, names: &[Bytes]) -> Option<ToldCopies> {
        let rules = self.rules.lock().expect("not poisoned");
        Some(ToldCopies { revision: rules.0, copies: rules.1.get(names.first()?).copied() })
    }
}

/// What a node was told of, and who holds that up.
#[derive(Default)]
pub struct HeardNotices {
    pub calls: Mutex<Vec<Vec<FileId>>>,
    /// Notices wait while a test holds it.
    pub gate: tokio::sync::Mutex<()>,
}

#[async_trait]
impl NoticeTaker for HeardNotices {
    async fn take_in(&self, files: &[FileId]) -> Result<()> {
        self.calls.lock().expect("no panic holds it").push(files.to_vec());
        drop(self.gate.lock().await);
        Ok(())
    }
}

/// A file of the store, as a gateway knows it.
#[derive(Clone)]
pub struct KnownFile {
    pub key: CacheKey,
    pub object: Object,
}

pub struct Setup {
    pub nodes: usize,
    pub copies: usize,
    pub inflight_max: u64,
    /// `None`: copies are made when somebody asks for them, and not before.
    pub copying: Option<CopyConfig>,
    pub cache_size: u64,
    pub readahead_max: u64,
    pub guests_max: Option<u64>,
    /// Bytes in flight to serve others, in each role.
    pub served_max: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        let defaults = cache::Config::default();
        Setup {
            nodes: 3,
            copies: 1,
            inflight_max: 64 * MIB,
            readahead_max: defaults.readahead_max,
            guests_max: defaults.guests_max,
            copying: None,
            cache_size: 1 << 30,
            served_max: 64 * MIB,
        }
    }
}

impl TestCluster {
    pub async fn start(setup: Setup) -> TestCluster {
        let mut cluster = TestCluster {
            memory: MemoryOrigin::new(),
            metrics: OriginMetrics::default(),
            authority: make_authority("test").expect("an authority"),
            copies: setup.copies,
            copying: setup.copying,
            served_max: setup.served_max,
            cache: cache::Config {
                size_max: setup.cache_size,
                free_floor: 0,
                inflight_max: setup.inflight_max,
                readahead_max: setup.readahead_max,
                guests_max: setup.guests_max,
                ..Default::default()
            },
            nodes: Vec::new(),
            number: 1,
        };
        for _ in 0..setup.nodes {
            cluster.add().await;
        }
        cluster.publish();
        cluster
    }

    /// One more node. The others hear of it by `publish`.
    pub async fn add(&mut self) -> NodeId {
        let id = NodeId(self.nodes.len() as u64 + 1);
        let node = self.run(id, Arc::new(tempfile::tempdir().expect("a directory"))).await;
        // As it finds the map before it joins.
        node.view.advance(self.map(self.number, |_| 1 << 40));
        self.nodes.push(node);
        id
    }

    async fn run(&self, id: NodeId, dir: Arc<tempfile::TempDir>) -> TestNode {
        let counted = Count::new(Delay::new(self.memory.clone(), FAR), "/", self.metrics.clone());
        let config = cache::Config { dir: dir.path().to_owned(), ..self.cache.clone() };
        let cache = Cache::open(config).expect("a cache");
        let map = Arc::new(ClusterMap::new(0, Vec::new()).expect("a map"));
        let placement = JunctionPlacement { copies: self.copies, topology: NodeLabel::root() };
        let view = Arc::new(ClusterView::new(id, map, HashMap::from([(JUNCTION, placement)])));
        let names = Arc::new(TestNames::default());
        assert!(view.file_copies().set_finder(names.clone()));
        let issued = self.authority.issue(&format!("n{}", id.0), id).expect("a certificate");
        let identity = PeerIdentity::new(&issued).expect("an identity");
        let (known, incarnation) = (view.clone(), rand_of_the_clock());
        let heartbeat: HeartbeatSource =
            Arc::new(move || Heartbeat { map: known.number(), ..beat_of(id, incarnation) });
        let peers =
            PeerTable::new(identity.clone(), PeerClientConfig::default(), heartbeat.clone(), view.clone());
        let metrics = Metrics::default();
        let reads = Arc::new(ClusterReads::new(view.clone(), peers.clone(), metrics.clone()));
        let service = NodeService::new(
            reads.clone(),
            cache.clone(),
            HashMap::from([(JUNCTION, counted.clone() as Arc<dyn Origin>)]),
            names.clone(),
            heartbeat,
        );
        let (notices, heard) =
            (NoticeSender::with_room(reads.clone(), NOTICES_MAX), Arc::new(HeardNotices::default()));
        let service = service.with_notices(heard.clone());
        let held = Arc::<HeldCalls>::default();
        let service = HoldingService { inner: service, held: held.clone() };
        let listen = PeerServerConfig {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            rank_bytes: self.served_max,
            primary_bytes: self.served_max,
            holder_bytes: self.served_max,
            ..Default::default()
        };
        let server = PeerServer::bind(listen, identity, Arc::new(service)).await.expect("a port");
        let address = server.local_addrs().expect("known")[0];
        let (stop, stopped) = watch::channel(false);
        let keeper = self.copying.clone().map(|copying| {
            let copying = CopyConfig { index: Some(dir.path().join("FILES")), ..copying };
            Arc::new(CopyKeeper::new(reads.clone(), cache.clone(), &copying).expect("the index is read"))
        });
        let mut tasks =
            vec![tokio::spawn(server.serve(stopped.clone())), tokio::spawn(peers.beat(stopped.clone()))];
        tasks.push(tokio::spawn(notices.clone().run()));
        tasks.extend(keeper.clone().map(|keeper| tokio::spawn(keeper.run(stopped))));
        TestNode {
            id,
            cache,
            view,
            metrics,
            keeper,
            names,
            notices,
            heard,
            placed: Placed::new(counted, JUNCTION, reads),
            address,
            dir,
            held,
            stop,
            tasks,
        }
    }

    /// All nodes hear of all nodes.
    pub fn publish(&mut self) {
        self.number += 1;
        let map = self.map(self.number, |_| 1 << 40);
        self.nodes.iter().for_each(|node| assert!(node.view.advance(map.clone())));
    }

    pub fn map(&self, number: u64, weight: impl Fn(NodeId) -> u64) -> Arc<ClusterMap> {
        let nodes = self.nodes.iter().map(|node| MapNode {
            id: node.id,
            name: format!("n{}", node.id.0),
            weight: weight(node.id),
            label: NodeLabel::root(),
            state: NodeState::Up,
            addresses: vec![node.address],
        });
        Arc::new(ClusterMap::new(number, nodes.collect()).expect("a map"))
    }

    pub async fn file(&self, name: &str, size: u64) -> KnownFile {
        let path = format!("/{name}");
        self.memory.generate_file(path.as_bytes(), size ^ name.len() as u64, size).expect("made");
        self.known(name).await
    }

    /// The file as it is now.
    pub async fn known(&self, name: &str) -> KnownFile {
        let root = self.memory.root().await.expect("a root");
        let name = Name::new(name.as_bytes().to_vec()).expect("a name");
        let object = self.memory.lookup(&root.reference, &name).await.expect("there");
        let id = FileId::derive(JUNCTION, &object.identity.0);
        let key = CacheKey { file: id, version: object.version, size: object.attr.size };
        KnownFile { key, object }
    }

    pub async fn files(&self, count: usize, size: u64) -> Vec<KnownFile> {
        let mut files = Vec::new();
        for at in 0..count {
            files.push(self.file(&format!("file{at}"), size).await);
        }
        files
    }

    /// What calls a node of the cluster under the id `caller`, with a certificate of the cluster.
    pub fn client(&self, caller: NodeId, called: usize) -> PeerClient {
        let issued = self.authority.issue("caller", caller).expect("a certificate");
        let identity = PeerIdentity::new(&issued).expect("an identity");
        let beat = beat_of(caller, 1);
        let called = &self.nodes[called];
        let client =
            PeerClient::new(identity, called.id, PeerClientConfig::default(), Arc::new(move || beat.clone()));
        client.set_addresses(&[called.address], &[]);
        client
    }

    /// Bytes that the store was asked for, by all nodes.
    pub fn far_bytes(&self) -> u64 {
        self.metrics.bytes_of("/")
    }

    pub fn far_reads(&self) -> u64 {
        self.metrics.calls_of("/", "read")
    }

    /// Where the reads of all nodes were answered, for a test that fails.
    pub fn told(&self) -> String {
        use node::ReadFrom::{Around, Holder, Origin, Primary, Rank};
        let of = |node: &TestNode| {
            let reads = |from| (from, node.metrics.reads.get_or_create(&node::FromLabels { from }).get());
            let all = [Rank, Primary, Holder, Origin, Around].map(reads);
            format!("{}: {all:?}, {} asked in vain", node.id, node.metrics.failed_asks.get())
        };
        self.nodes.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// All nodes hear that `gone` keeps nothing any more.
    pub fn publish_without(&mut self, gone: usize) {
        self.number += 1;
        let id = self.nodes[gone].id;
        let map = self.map(self.number, |node| if node == id { 0 } else { 1 << 40 });
        let others = self.nodes.iter().filter(|node| node.id != id);
        others.for_each(|node| assert!(node.view.advance(map.clone())));
    }

    /// As by SIGKILL; its directory stays.
    pub fn kill(&mut self, at: usize) {
        self.nodes[at].tasks.iter().for_each(JoinHandle::abort);
    }

    /// A node that was killed, with what it had on disk.
    pub async fn restart(&mut self, at: usize) {
        let (id, dir) = (self.nodes[at].id, self.nodes[at].dir.clone());
        self.nodes[at].cache.shutdown().await;
        let gone = self.nodes.remove(at);
        drop(gone);
        let begun = Instant::now();
        // The directory is free when the last task that uses the cache has ended.
        while std::fs::File::open(dir.path().join("lock")).is_ok_and(|lock| lock.try_lock().is_err()) {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "somebody still uses {}",
                dir.path().display()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let node = self.run(id, dir).await;
        self.nodes.insert(at, node);
        self.publish();
    }

    /// The bytes as the store has them.
    pub async fn truth(&self, file: &KnownFile) -> Bytes {
        let range = ByteRange::new(0, file.key.size);
        self.memory.read(&file.object.reference, file.object.version, range).await.expect("there")
    }

    pub async fn truths(&self, files: &[KnownFile]) -> Vec<Bytes> {
        let mut truths = Vec::new();
        for file in files {
            truths.push(self.truth(file).await);
        }
        truths
    }

    /// The nodes in the order of their ranks for a file of one stripe.
    pub fn ranks(&self, file: &KnownFile) -> Vec<usize> {
        let map = self.map(u64::MAX, |_| 1 << 40);
        let ranks = cluster::Placement::new(map, &NodeLabel::root()).ranks(Stripe::at(file.key.file, 0));
        ranks.all().map(|id| self.nodes.iter().position(|node| node.id == id).expect("a node")).collect()
    }
}

fn rand_of_the_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64)
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl TestNode {
    pub fn reader(&self, file: &KnownFile) -> GatewayReader {
        let source = GatewaySource { placed: self.placed.clone(), file: file.clone() };
        GatewayReader { cache: self.cache.clone(), source: Arc::new(source), key: file.key }
    }

    /// How long the list of known files on its disk is.
    pub fn index_bytes(&self) -> u64 {
        std::fs::metadata(self.dir.path().join("FILES")).map_or(0, |index| index.len())
    }

    /// Loses the list of known files on its disk; for a node that does not run.
    pub fn lose_index(&self) {
        std::fs::remove_file(self.dir.path().join("FILES")).expect("it was there");
    }

    /// Bytes on its disk of stripes that others keep.
    pub fn guest_bytes(&self) -> u64 {
        u64::try_from(self.cache.metrics().guest_bytes.get()).expect("never negative")
    }

    /// Fetches for its clients.
    pub fn fetches(&self) -> u64 {
        use node::ReadFrom::{Around, Holder, Origin, Primary, Rank};
        let reads = |from| self.metrics.reads.get_or_create(&node::FromLabels { from }).get();
        [Rank, Primary, Holder, Origin, Around].into_iter().map(reads).sum()
    }

    pub fn route(&self, file: &KnownFile) -> ReadRoute {
        self.view.route(JUNCTION, Stripe::at(file.key.file, 0), false).expect("the junction is placed")
    }
}

/// Reads as a client of a gateway does.
#[derive(Clone)]
pub struct GatewayReader {
    cache: Arc<Cache>,
    source: Arc<dyn Source>,
    key: CacheKey,
}

impl GatewayReader {
    pub async fn read(&self, range: ByteRange) -> Result<Vec<u8>> {
        let pieces = self.cache.read(&self.key, range, &self.source, Lend::Nothing).await?;
        Ok(pieces.iter().flat_map(|piece| piece.to_bytes().expect("readable")).collect())
    }

    /// From the first byte to the last, a MiB at a time.
    pub async fn read_all(&self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        while (all.len() as u64) < self.key.size {
            let at = all.len() as u64;
            all.extend(self.read(ByteRange::new(at, MIB.min(self.key.size - at))).await?);
        }
        Ok(all)
    }
}

/// What vfs does for a cache: it knows the reference, and asks the junction's origin.
struct GatewaySource {
    placed: Arc<Placed>,
    file: KnownFile,
}

#[async_trait]
impl Source for GatewaySource {
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes> {
        let reference = &self.file.object.reference;
        let file = FileToRead { id: key.file, reference, version: key.version, size: key.size };
        self.placed.read_file(&file, range).await
    }

    fn read_max(&self) -> u32 {
        1 << 20
    }

    fn supplier(&self, key: &CacheKey, range: ByteRange) -> Supplier {
        self.placed.supplier(key.file, range)
    }

    fn keeps(&self, key: &CacheKey, range: ByteRange) -> bool {
        self.placed.keeps(key.file, range)
    }
}
