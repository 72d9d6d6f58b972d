//! A server over an origin in memory, and a client that can send anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use front_nfs::{Config, ExportRules, NfsServer, Rule, Squash};
use namespace::{Junction, Namespace};
use origin::Origin;
use origin::memory::MemoryOrigin;
use prometheus_client::registry::Registry;
use rpc_nfs3::nfs3::FileHandle;
use rpc_nfs3::record::{self, RecordReader};
use rpc_nfs3::rpc::{AuthSys, CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{Decoder, Encoder, mount, nfs3};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use vfs::Vfs;

pub struct Served {
    pub address: SocketAddr,
    pub vfs: Arc<Vfs>,
    registry: Registry,
    _stop: watch::Sender<bool>,
    dir: tempfile::TempDir,
}

/// Serve a fresh origin, which `fill` fills, squashing nobody.
pub async fn serve(fill: impl FnOnce(&MemoryOrigin)) -> Served {
    let any = Rule { squash: Squash::None, ..Rule::default() };
    serve_with(fill, ExportRules::new(vec![any]), |origin| origin).await
}

pub async fn serve_with(
    fill: impl FnOnce(&MemoryOrigin),
    exports: ExportRules,
    wrap: impl FnOnce(Arc<dyn Origin>) -> Arc<dyn Origin>,
) -> Served {
    let memory = MemoryOrigin::new();
    fill(&memory);
    let dir = tempfile::tempdir().expect("temporary directory");
    let junction = Junction::new("/", wrap(memory));
    let names = namespace::Config { dir: dir.path().join("metadata"), ..Default::default() };
    let namespace = Namespace::open(names, vec![junction]).expect("opened");
    let blocks = cache::Config { dir: dir.path().join("blocks"), free_floor: 0, ..Default::default() };
    let vfs = Vfs::new(namespace, cache::Cache::open(blocks).expect("opened"), vfs::Writing::default());
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config { listen, exports, stall_timeout: Duration::from_secs(2), ..Config::default() };
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

pub struct Client {
    pub write: OwnedWriteHalf,
    replies: RecordReader<OwnedReadHalf>,
    xid: u32,
    pub credentials: Credentials,
}

/// A whole call message.
pub fn call_message(
    xid: u32,
    program: (u32, u32),
    procedure: u32,
    credentials: Credentials,
    arguments: impl FnOnce(&mut Encoder),
) -> Bytes {
    let (program, version) = program;
    let mut e = Encoder::default();
    CallHeader { xid, rpc_version: RPC_VERSION, program, version, procedure, credentials }.encode(&mut e);
    arguments(&mut e);
    e.finish()
}

pub const NFS: (u32, u32) = (nfs3::PROGRAM, nfs3::VERSION);
pub const MOUNT: (u32, u32) = (mount::PROGRAM, mount::VERSION);

impl Client {
    pub async fn connect(served: &Served) -> Client {
        let stream = TcpStream::connect(served.address).await.expect("connected");
        stream.set_nodelay(true).expect("set");
        let (read, write) = stream.into_split();
        Client { write, replies: RecordReader::new(read, 4 << 20), xid: 0, credentials: sys(0) }
    }

    pub async fn send(&mut self, message: &[u8]) {
        let framed = [&record::mark(message.len()), message].concat();
        // A server that has closed the connection is seen when the answer is read.
        let _ = self.write.write_all(&framed).await;
    }

    /// The next answer, or `None` if the server closed the connection.
    pub async fn answer(&mut self) -> Option<(ReplyHeader, Decoder)> {
        let record = tokio::time::timeout(Duration::from_secs(20), self.replies.record()).await;
        let mut d = Decoder::new(record.expect("an answer or the end of the connection").ok()?);
        let header = ReplyHeader::decode(&mut d).expect("the server sends well-formed replies");
        Some((header, d))
    }

    pub async fn call(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        arguments: impl FnOnce(&mut Encoder),
    ) -> (ReplyStatus, Decoder) {
        self.xid += 1;
        let message = call_message(self.xid, program, procedure, self.credentials.clone(), arguments);
        self.send(&message).await;
        let (header, results) = self.answer().await.expect("the connection stays open");
        assert_eq!(header.xid, self.xid);
        (header.status, results)
    }

    /// A call that succeeds at the RPC level.
    pub async fn nfs(&mut self, procedure: u32, arguments: impl FnOnce(&mut Encoder)) -> Decoder {
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
