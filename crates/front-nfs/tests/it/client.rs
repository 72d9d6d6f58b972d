//! A server over an origin in memory, and a client that can send anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use front_nfs::{Config, ExportRule, ExportRules, NfsServer, Squash};
use namespace::{Junction, Namespace};
use origin::Origin;
use origin::memory::MemoryOrigin;
use prometheus_client::registry::Registry;
use rpc_nfs3::nfs3::FileHandle;
use rpc_nfs3::record::{self, RecordReader};
use rpc_nfs3::rpc::{AuthSys, CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder, mount, nfs3};
use testkit::far_origin::Far;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use vfs::{Vfs, WritePolicy, Writing};

pub struct Served {
    pub address: SocketAddr,
    pub vfs: Arc<Vfs>,
    registry: Registry,
    _stop: watch::Sender<bool>,
    dir: tempfile::TempDir,
}

/// Serve a fresh origin, which `fill` fills, squashing nobody.
pub async fn serve(fill: impl FnOnce(&MemoryOrigin)) -> Served {
    let any = ExportRule { squash: Squash::None, ..ExportRule::default() };
    serve_with(fill, ExportRules::new(vec![any]), |origin| origin).await
}

pub async fn serve_with(
    fill: impl FnOnce(&MemoryOrigin),
    exports: ExportRules,
    wrap: impl FnOnce(Arc<dyn Origin>) -> Arc<dyn Origin>,
) -> Served {
    let memory = MemoryOrigin::new();
    fill(&memory);
    serve_junctions(vec![("/", wrap(memory), WritePolicy::ReadOnly)], |config| config.exports = exports).await
}

/// Serve a fresh origin that clients may change, squashing nobody.
pub async fn serve_writable(
    fill: impl FnOnce(&MemoryOrigin),
    edit: impl FnOnce(&mut Config),
) -> (Served, Arc<Far>) {
    let far = Far::new("far:one");
    fill(&far.memory);
    (serve_junctions(vec![("/", far.clone(), WritePolicy::Through)], edit).await, far)
}

/// Serve origins at their paths, squashing nobody unless `edit` says otherwise.
pub async fn serve_junctions(
    junctions: Vec<(&str, Arc<dyn Origin>, WritePolicy)>,
    edit: impl FnOnce(&mut Config),
) -> Served {
    let dir = tempfile::tempdir().expect("temporary directory");
    let policies = junctions.iter().map(|(path, _, policy)| ((*path).to_owned(), *policy)).collect();
    let junctions = junctions.into_iter().map(|(path, origin, _)| Junction::new(path, origin)).collect();
    let names = namespace::Config { dir: dir.path().join("metadata"), ..Default::default() };
    let namespace = Namespace::open(names, junctions).expect("opened");
    let blocks = cache::Config { dir: dir.path().join("blocks"), free_floor: 0, ..Default::default() };
    let writing = Writing { junctions: policies, ..Writing::default() };
    let vfs = Vfs::new(namespace, cache::Cache::open(blocks).expect("opened"), writing);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let any = ExportRule { squash: Squash::None, ..ExportRule::default() };
    let exports = ExportRules::new(vec![any]);
    let mut config = Config { listen, exports, stall_timeout: Duration::from_secs(2), ..Config::default() };
    edit(&mut config);
    let server = NfsServer::bind(config, vfs.clone()).await.expect("bound");
    let mut registry = Registry::default();
    server.register(&mut registry);
    let address = server.local_addr().expect("bound");
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(stopped));
    Served { address, vfs, registry, _stop: stop, dir }
}

impl Served {
    /// The data files of the cache.
    pub fn cached_files(&self) -> Vec<std::fs::File> {
        let dirs = std::fs::read_dir(self.dir.path().join("blocks")).expect("a cache").flatten();
        let files = dirs.filter_map(|dir| std::fs::read_dir(dir.path()).ok()).flatten().flatten();
        let data = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "data"));
        data.map(|file| std::fs::File::options().write(true).open(file.path()).expect("opened")).collect()
    }

    /// A counter of the server, by its name on the page of metrics.
    pub fn counted(&self, name: &str) -> u64 {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).expect("encoded");
        let line = page.lines().find_map(|line| line.strip_prefix(name)).expect("it is counted");
        line.trim().parse().expect("a number")
    }
}

pub fn sys(uid: u32) -> Credentials {
    Credentials::Sys(AuthSys { uid, gid: uid, ..AuthSys::default() })
}

/// No two calls of a test run have the same, but where a test says so: clients on one machine share an address.
static XID: AtomicU32 = AtomicU32::new(1 << 20);

pub struct Client {
    pub write: OwnedWriteHalf,
    replies: RecordReader<OwnedReadHalf>,
    pub credentials: Credentials,
}

/// A whole call message.
pub fn call_message(
    xid: u32,
    program: (u32, u32),
    procedure: u32,
    credentials: Credentials,
    arguments: impl FnOnce(&mut XdrEncoder),
) -> Bytes {
    let (program, version) = program;
    let mut e = XdrEncoder::default();
    CallHeader { xid, rpc_version: RPC_VERSION, program, version, procedure, credentials }.encode(&mut e);
    arguments(&mut e);
    e.finish()
}

pub const NFS: (u32, u32) = (nfs3::PROGRAM, nfs3::VERSION);
pub const MOUNT: (u32, u32) = (mount::PROGRAM, mount::VERSION);

impl Client {
    pub async fn connect(served: &Served) -> Client {
        Client::connect_from(served, [127, 0, 0, 1]).await
    }

    /// As another host.
    pub async fn connect_from(served: &Served, host: [u8; 4]) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((host, 0).into()).expect("all of 127.0.0.0/8 is here");
        let stream = socket.connect(served.address).await.expect("connected");
        stream.set_nodelay(true).expect("set");
        let (read, write) = stream.into_split();
        Client { write, replies: RecordReader::new(read, 4 << 20), credentials: sys(0) }
    }

    pub async fn send(&mut self, message: &[u8]) {
        let framed = [&record::mark(message.len()), message].concat();
        // A server that has closed the connection is seen when the answer is read.
        let _ = self.write.write_all(&framed).await;
    }

    /// The next answer, or `None` if the server closed the connection.
    pub async fn answer(&mut self) -> Option<(ReplyHeader, XdrDecoder)> {
        let record = tokio::time::timeout(Duration::from_secs(20), self.replies.record()).await;
        let mut d = XdrDecoder::new(record.expect("an answer or the end of the connection").ok()?);
        let header = ReplyHeader::decode(&mut d).expect("the server sends well-formed replies");
        Some((header, d))
    }

    pub async fn call(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        arguments: impl FnOnce(&mut XdrEncoder),
    ) -> (ReplyStatus, XdrDecoder) {
        let xid = XID.fetch_add(1, Ordering::Relaxed);
        let message = call_message(xid, program, procedure, self.credentials.clone(), arguments);
        self.send(&message).await;
        let (header, results) = self.answer().await.expect("the connection stays open");
        assert_eq!(header.xid, xid);
        (header.status, results)
    }

    /// A call that succeeds at the RPC level.
    pub async fn nfs(&mut self, procedure: u32, arguments: impl FnOnce(&mut XdrEncoder)) -> XdrDecoder {
        let (status, results) = self.call(NFS, procedure, arguments).await;
        assert_eq!(status, ReplyStatus::Success);
        results
    }

    pub async fn mount(&mut self, path: &[u8]) -> mount::MountResult {
        let (status, mut d) = self.call(MOUNT, mount::procedure::MNT, |e| e.opaque(path)).await;
        assert_eq!(status, ReplyStatus::Success);
        mount::decode_mount_result(&mut d).expect("well-formed")
    }

    pub async fn root(&mut self) -> FileHandle {
        self.mount(b"/").await.expect("the root can be mounted").handle
    }
}
