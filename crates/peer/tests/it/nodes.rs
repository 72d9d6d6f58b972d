//! Nodes for tests: a server with a service whose files have known bytes, and clients of it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peer::message::{
    ChangeNotice, CorruptReport, FeedNotice, HaveAnswer, HaveRequest, Heartbeat, KnownPath, PathRequest,
    ReadRequest, ReadRole, ReadUrgency, ServedFrom,
};
use peer::{
    ClusterAuthority, PeerCaller, PeerClient, PeerClientConfig, PeerIdentity, PeerServer, PeerServerConfig,
    PeerService, ReadAnswer, make_authority,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use types::{ByteRange, Distance, FileId, JunctionId, NodeId, Result, Version};

pub const CLUSTER: &str = "test";
pub const MAP: u64 = 12;
pub const FILE: FileId = FileId([0xab; 16]);
pub const VERSION: Version = Version([1; 16]);
/// Two READs of the largest size, and a block that is not whole.
pub const SIZE: u64 = (8 << 20) + 1000;
pub const PART: u64 = 4 << 20;
pub const SOON: Duration = Duration::from_secs(5);

pub type Answering = Pin<Box<dyn Future<Output = Result<ReadAnswer>> + Send>>;
type Reader = dyn Fn(PeerCaller, ReadRequest) -> Answering + Send + Sync;

/// What answers in a test, and what it was told.
#[derive(Default)]
pub struct TestService {
    node: OnceLock<NodeId>,
    pub reads: AtomicU64,
    reader: Mutex<Option<Arc<Reader>>>,
    pub callers: Mutex<Vec<NodeId>>,
    pub notices: Mutex<Vec<ChangeNotice>>,
    pub feeds: Mutex<Vec<FeedNotice>>,
    pub corrupt: Mutex<Vec<CorruptReport>>,
}

impl TestService {
    /// From now on READs are answered by this.
    pub fn read_by<F>(&self, reader: impl Fn(PeerCaller, ReadRequest) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<ReadAnswer>> + Send + 'static,
    {
        let reader = move |from, read| -> Answering { Box::pin(reader(from, read)) };
        *self.reader.lock().expect("not poisoned") = Some(Arc::new(reader));
    }

    fn called_by(&self, from: PeerCaller) {
        self.callers.lock().expect("not poisoned").push(from.node);
    }
}

#[async_trait]
impl PeerService for TestService {
    async fn read(&self, from: PeerCaller, request: &ReadRequest) -> Result<ReadAnswer> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader.lock().expect("not poisoned").clone();
        match reader {
            Some(reader) => reader(from, request.clone()).await,
            None => Ok(good_answer(request)),
        }
    }

    async fn have(&self, from: PeerCaller, request: &HaveRequest) -> Result<HaveAnswer> {
        self.called_by(from);
        let percent = (request.first..request.first + request.stripes).map(|it| (it % 101) as u8);
        Ok(HaveAnswer { map: MAP, percent: percent.collect(), ..HaveAnswer::default() })
    }

    async fn ping(&self, from: PeerCaller, _beat: &Heartbeat) -> Result<Heartbeat> {
        self.called_by(from);
        Ok(heartbeat_of(*self.node.get().expect("it was started")))
    }

    async fn notice(&self, from: PeerCaller, notice: &ChangeNotice) -> Result<()> {
        self.called_by(from);
        self.notices.lock().expect("not poisoned").push(notice.clone());
        Ok(())
    }

    async fn feed(&self, from: PeerCaller, feed: &FeedNotice) -> Result<()> {
        self.called_by(from);
        self.feeds.lock().expect("not poisoned").push(feed.clone());
        Ok(())
    }

    async fn path(&self, from: PeerCaller, _: &PathRequest) -> Result<KnownPath> {
        self.called_by(from);
        Ok(KnownPath { names: vec![Bytes::from_static(b"shots"), Bytes::from_static(b"\xff.exr")] })
    }

    async fn corrupt(&self, from: PeerCaller, report: &CorruptReport) -> Result<()> {
        self.called_by(from);
        self.corrupt.lock().expect("not poisoned").push(report.clone());
        Ok(())
    }
}

pub fn heartbeat_of(node: NodeId) -> Heartbeat {
    Heartbeat {
        node,
        incarnation: node.0 + 1000,
        map: MAP,
        build: "test".to_owned(),
        figures: Default::default(),
    }
}

/// The bytes of every file of the tests.
pub fn bytes_at(range: ByteRange) -> Bytes {
    (range.offset..range.end()).map(|at| (at % 251) as u8 ^ (at >> 16) as u8).collect()
}

pub fn good_answer(request: &ReadRequest) -> ReadAnswer {
    let bytes = bytes_at(request.range);
    let (first, rest) = (bytes.slice(..bytes.len() / 3), bytes.slice(bytes.len() / 3..));
    let far = Distance { latency: Duration::from_millis(221), rate: 125_000_000 };
    ReadAnswer::new(request, vec![first, rest], ServedFrom::Origin, Some(far), MAP)
}

pub fn read_of(range: ByteRange, role: ReadRole) -> ReadRequest {
    ReadRequest {
        file: FILE,
        version: VERSION,
        size: SIZE,
        range,
        junction: JunctionId(3),
        reference: Bytes::from_static(b"\x00handle\xff"),
        role,
        hops: 1,
        urgency: ReadUrgency::Demand,
        map: MAP,
        copies: None,
    }
}

pub fn part(role: ReadRole) -> ReadRequest {
    read_of(ByteRange::new(0, PART), role)
}

pub fn small_part() -> ReadRequest {
    read_of(ByteRange::new(0, 64 << 10), ReadRole::Rank)
}

/// A running server.
pub struct TestNode {
    pub us: PeerIdentity,
    pub addresses: Vec<SocketAddr>,
    pub service: Arc<TestService>,
    pub stop: watch::Sender<bool>,
    pub in_flight: Box<dyn Fn(ReadRole) -> usize + Send + Sync>,
    pub serving: JoinHandle<()>,
}

pub fn authority() -> ClusterAuthority {
    make_authority(CLUSTER).expect("an authority")
}

pub fn identity(authority: &ClusterAuthority, node: u64) -> PeerIdentity {
    PeerIdentity::new(&authority.issue("node", NodeId(node)).expect("issued")).expect("an identity")
}

pub fn insecure(node: u64) -> PeerIdentity {
    PeerIdentity::insecure(CLUSTER, NodeId(node)).expect("an identity")
}

pub fn on(addresses: &[&str]) -> PeerServerConfig {
    let listen = addresses.iter().map(|address| address.parse().expect("an address")).collect();
    PeerServerConfig { listen, ..PeerServerConfig::default() }
}

pub fn one() -> PeerServerConfig {
    on(&["127.0.0.1:0"])
}

impl TestNode {
    pub async fn start(us: PeerIdentity, config: PeerServerConfig) -> TestNode {
        let service = Arc::new(TestService::default());
        service.node.set(us.node()).expect("once");
        let server = PeerServer::bind(config, us.clone(), service.clone()).await.expect("bound");
        let addresses = server.local_addrs().expect("bound");
        let in_flight = Box::new(server.bytes_in_flight());
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(server.serve(stopped));
        TestNode { us, addresses, service, stop, in_flight, serving }
    }

    pub fn id(&self) -> NodeId {
        self.us.node()
    }

    pub fn client(&self, us: &PeerIdentity) -> PeerClient {
        self.client_with(us, PeerClientConfig::default())
    }

    pub fn client_with(&self, us: &PeerIdentity, config: PeerClientConfig) -> PeerClient {
        client_to(self.id(), &self.addresses, us, config)
    }
}

pub fn client_to(
    node: NodeId,
    addresses: &[SocketAddr],
    us: &PeerIdentity,
    config: PeerClientConfig,
) -> PeerClient {
    let own = us.node();
    let client = PeerClient::new(us.clone(), node, config, Arc::new(move || heartbeat_of(own)));
    client.set_addresses(addresses, &[]);
    client
}

/// Waits until it is true, for some seconds.
pub async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within ten seconds: {what}");
}
