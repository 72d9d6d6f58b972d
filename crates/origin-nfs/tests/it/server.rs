//! A small NFS and MOUNT server in the test process. It serves a fixed tree honestly, but a hook sees each
//! call first and may answer in its place, late, with nonsense, or by cutting the connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::mount::{self, ExportEntry, MountOk, MountStatus};
use rpc_nfs3::nfs3::attr::{Fattr3, FileType, Nfstime3};
use rpc_nfs3::nfs3::file::{self, LookupOk, ReadArgs, ReadOk, ReadlinkOk};
use rpc_nfs3::nfs3::fs::{self, FsinfoOk, FsstatOk};
use rpc_nfs3::nfs3::readdir::{self, DirEntry3, ReaddirArgs, ReaddirOk};
use rpc_nfs3::nfs3::{DirOp, FileHandle, NfsStatus, procedure};
use rpc_nfs3::record::{RecordReader, mark};
use rpc_nfs3::rpc::{CallHeader, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder, nfs3};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// One call as it came.
#[derive(Clone)]
pub struct Call {
    pub xid: u32,
    /// Where the client called from.
    pub peer: SocketAddr,
    pub program: u32,
    pub procedure: u32,
    /// Counted from 0 in the order in which they were accepted.
    pub connection: usize,
    /// How many calls of this program and procedure came before.
    pub before: usize,
    pub args: XdrDecoder,
}

impl Call {
    pub fn is(&self, procedure: u32) -> bool {
        self.program == nfs3::PROGRAM && self.procedure == procedure
    }

    pub fn read_args(&self) -> ReadArgs {
        ReadArgs::decode(&mut self.args.clone()).expect("READ arguments")
    }
}

pub enum Act {
    /// As the tree says.
    Honest,
    /// As the tree says, but later.
    After(Duration),
    /// These results.
    Results(Bytes),
    /// These results, but later.
    ResultsAfter(Duration, Bytes),
    /// No answer.
    Silence,
    /// These bytes instead of a record.
    Bytes(Vec<u8>),
    /// The first half of the honest record, then the connection is cut.
    HalfThenCut,
    Cut,
}

pub type Hook = dyn Fn(&Call) -> Act + Send + Sync;

#[derive(Clone)]
pub struct Node {
    pub attr: Fattr3,
    pub data: Bytes,
    pub children: Vec<(Bytes, Bytes)>,
}

/// What is served: nodes by handle, exports by path.
#[derive(Clone, Default)]
pub struct Tree {
    pub nodes: HashMap<Bytes, Node>,
    pub exports: Vec<(Bytes, Result<Bytes, MountStatus>)>,
}

fn attr(kind: FileType, fsid: u64, fileid: u64, size: u64) -> Fattr3 {
    let time = Nfstime3 { seconds: 1_700_000_000, nanos: 5 };
    Fattr3 {
        kind,
        mode: 0o755,
        nlink: 1,
        uid: 10,
        gid: 20,
        size,
        used: size,
        rdev: (0, 0),
        fsid,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

pub fn content() -> Vec<u8> {
    (0..300_000u32).map(|i| (i % 251) as u8).collect()
}

impl Tree {
    /// `/export` with `file` (300,000 bytes), `link` and the empty directory `dir`.
    pub fn sample() -> Tree {
        let mut tree = Tree::default();
        tree.directory("root", 1);
        tree.export("/export", Ok("root"));
        tree.file("root", "file", &content());
        tree.add_directory("root", "dir", "dir", 1);
        let link = attr(FileType::Link, 1, 77, 6);
        let node = Node { attr: link, data: "target".into(), children: Vec::new() };
        tree.nodes.insert("link".into(), node);
        tree.enter("root", "link", "link");
        tree
    }

    pub fn export(&mut self, path: &str, handle: Result<&str, MountStatus>) {
        let handle = handle.map(|h| Bytes::copy_from_slice(h.as_bytes()));
        self.exports.push((Bytes::copy_from_slice(path.as_bytes()), handle));
    }

    pub fn directory(&mut self, handle: &str, fsid: u64) {
        let fileid = 100 + self.nodes.len() as u64;
        let attr = attr(FileType::Directory, fsid, fileid, 4096);
        let node = Node { attr, data: Bytes::new(), children: Vec::new() };
        self.nodes.insert(Bytes::copy_from_slice(handle.as_bytes()), node);
    }

    pub fn add_directory(&mut self, parent: &str, name: &str, handle: &str, fsid: u64) {
        self.directory(handle, fsid);
        self.enter(parent, name, handle);
    }

    pub fn file(&mut self, parent: &str, name: &str, data: &[u8]) {
        let fileid = 100 + self.nodes.len() as u64;
        let attr = attr(FileType::Regular, 1, fileid, data.len() as u64);
        let node = Node { attr, data: Bytes::copy_from_slice(data), children: Vec::new() };
        self.nodes.insert(Bytes::copy_from_slice(name.as_bytes()), node);
        self.enter(parent, name, name);
    }

    fn enter(&mut self, parent: &str, name: &str, handle: &str) {
        let parent = self.nodes.get_mut(parent.as_bytes()).expect("parent");
        parent
            .children
            .push((Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(handle.as_bytes())));
    }
}

pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    tree: Mutex<Tree>,
    hook: Box<Hook>,
    counts: Mutex<HashMap<(u32, u32), usize>>,
    connections: AtomicUsize,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(tree: Tree, hook: impl Fn(&Call) -> Act + Send + Sync + 'static) -> Server {
        Server::start_at("127.0.0.1:0".parse().expect("an address"), tree, hook).await
    }

    pub async fn start_at(
        address: SocketAddr,
        tree: Tree,
        hook: impl Fn(&Call) -> Act + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(address).await.expect("bind");
        let address = listener.local_addr().expect("address");
        let shared = Arc::new(Shared {
            tree: Mutex::new(tree),
            hook: Box::new(hook),
            counts: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Server { address, shared, task }
    }

    /// Close the port and every connection.
    pub async fn stop(mut self) -> SocketAddr {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.address
    }

    pub fn change(&self, change: impl FnOnce(&mut Tree)) {
        change(&mut self.shared.tree.lock().expect("tree"));
    }

    /// Calls of an NFS procedure so far.
    pub fn calls(&self, procedure: u32) -> usize {
        self.calls_of(nfs3::PROGRAM, procedure)
    }

    pub fn calls_of(&self, program: u32, procedure: u32) -> usize {
        self.shared.counts.lock().expect("counts").get(&(program, procedure)).copied().unwrap_or(0)
    }

    /// Patient enough for a loaded machine, with outages that are noticed fast.
    pub fn config(&self) -> Config {
        let port = Some(self.address.port());
        Config {
            host: "127.0.0.1".to_owned(),
            port,
            mount_port: port,
            export: b"/export".to_vec(),
            nconnect: 2,
            outage_grace: Duration::from_millis(300),
            ..Config::default()
        }
    }

    pub async fn connect(&self) -> Arc<NfsOrigin> {
        NfsOrigin::connect(self.config()).await.expect("connect")
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, peer)) = listener.accept().await {
        connections.spawn(serve(stream, peer, Arc::clone(&shared)));
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
    let (read, mut write) = stream.into_split();
    let (send, mut replies) = mpsc::channel::<Option<Vec<u8>>>(256);
    let writer = async {
        // `None` cuts the connection.
        while let Some(Some(bytes)) = replies.recv().await {
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let reader = async {
        let mut records = RecordReader::new(read, 1 << 20);
        while let Ok(record) = records.record().await {
            answer(record, (connection, peer), &shared, &send).await;
        }
    };
    tokio::select! {
        () = writer => {}
        () = reader => {}
    }
}

fn framed(xid: u32, status: ReplyStatus, results: &[u8]) -> Vec<u8> {
    let mut e = XdrEncoder::default();
    ReplyHeader { xid, status }.encode(&mut e);
    e.fixed(results);
    let record = e.finish();
    [&mark(record.len())[..], &record].concat()
}

async fn answer(
    record: Bytes,
    (connection, peer): (usize, SocketAddr),
    shared: &Arc<Shared>,
    send: &mpsc::Sender<Option<Vec<u8>>>,
) {
    let mut args = XdrDecoder::new(record);
    let header = CallHeader::decode(&mut args).expect("our client sends well-formed calls");
    let CallHeader { xid, program, procedure, .. } = header;
    let before = {
        let mut counts = shared.counts.lock().expect("counts");
        let count = counts.entry((program, procedure)).or_default();
        *count += 1;
        *count - 1
    };
    let call = Call { xid, peer, program, procedure, connection, before, args };
    let honest = || match honest_results(&call, &shared.tree.lock().expect("tree")) {
        Some(results) => framed(xid, ReplyStatus::Success, &results),
        None => framed(xid, ReplyStatus::ProcedureUnavailable, &[]),
    };
    let out = match (shared.hook)(&call) {
        Act::Honest => Some(honest()),
        Act::After(delay) => return later(delay, honest(), send.clone()),
        Act::ResultsAfter(delay, results) => {
            return later(delay, framed(xid, ReplyStatus::Success, &results), send.clone());
        }
        Act::Results(results) => Some(framed(xid, ReplyStatus::Success, &results)),
        Act::Silence => return,
        Act::Bytes(bytes) => Some(bytes),
        Act::HalfThenCut => {
            let bytes = honest();
            let _ = send.send(Some(bytes[..bytes.len() / 2].to_vec())).await;
            None
        }
        Act::Cut => None,
    };
    let _ = send.send(out).await;
}

fn later(delay: Duration, bytes: Vec<u8>, send: mpsc::Sender<Option<Vec<u8>>>) {
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let _ = send.send(Some(bytes)).await;
    });
}

fn honest_results(call: &Call, tree: &Tree) -> Option<Bytes> {
    let mut e = XdrEncoder::default();
    let mut d = call.args.clone();
    if call.program == mount::PROGRAM {
        mount_results(call.procedure, &mut d, &mut e, tree)?;
    } else {
        nfs_results(call.procedure, &mut d, &mut e, tree)?;
    }
    Some(e.finish())
}

fn mount_results(number: u32, d: &mut XdrDecoder, e: &mut XdrEncoder, tree: &Tree) -> Option<()> {
    match number {
        mount::procedure::MNT => {
            let path = mount::decode_path(d).expect("path");
            let found = tree.exports.iter().find(|(p, _)| *p == path);
            let handle = found.map_or(Err(MountStatus::NO_ENTRY), |(_, handle)| handle.clone());
            let mounted = handle.map(|h| MountOk { handle: FileHandle(h), flavors: vec![1] });
            mount::encode_mount_result(e, &mounted);
        }
        mount::procedure::EXPORT => {
            let exports: Vec<ExportEntry> = tree
                .exports
                .iter()
                .map(|(path, _)| ExportEntry { path: path.clone(), groups: Vec::new() })
                .collect();
            mount::encode_exports(e, &exports);
        }
        _ => return None,
    }
    Some(())
}

fn node<'a>(tree: &'a Tree, handle: &FileHandle) -> Result<&'a Node, NfsStatus> {
    tree.nodes.get(&handle.0).ok_or(NfsStatus::STALE)
}

fn nfs_results(number: u32, d: &mut XdrDecoder, e: &mut XdrEncoder, tree: &Tree) -> Option<()> {
    let by_handle = |d: &mut XdrDecoder| node(tree, &FileHandle::decode(d).expect("handle"));
    match number {
        procedure::NULL => {}
        procedure::GETATTR => file::encode_getattr(e, &by_handle(d).map(|n| n.attr).map_err(|s| (s, ()))),
        procedure::LOOKUP => {
            let op = DirOp::decode(d).expect("arguments");
            let found = node(tree, &op.dir).and_then(|dir| {
                let child = dir.children.iter().find(|(name, _)| *name == op.name).ok_or(NfsStatus::NOENT)?;
                let object = FileHandle(child.1.clone());
                let attr = Some(node(tree, &object)?.attr);
                Ok(LookupOk { object, attr, dir_attr: Some(dir.attr) })
            });
            file::encode_lookup(e, &found.map_err(|s| (s, None)));
        }
        procedure::READLINK => {
            let link = by_handle(d).map(|n| ReadlinkOk { attr: Some(n.attr), target: n.data.clone() });
            file::encode_readlink(e, &link.map_err(|s| (s, None)));
        }
        procedure::READ => {
            let args = ReadArgs::decode(d).expect("arguments");
            let read = node(tree, &args.file).map(|n| read_of(n, args.offset, args.count as usize));
            file::encode_read(e, &read.map_err(|s| (s, None)));
        }
        procedure::READDIR | procedure::READDIRPLUS => {
            let plus = number == procedure::READDIRPLUS;
            let args = ReaddirArgs::decode(d, plus).expect("arguments");
            let listing = node(tree, &args.dir).map(|dir| listing_of(tree, dir, args.cookie, plus));
            readdir::encode_readdir(e, &listing.map_err(|s| (s, None)), plus);
        }
        procedure::FSINFO => fs::encode_fsinfo(e, &Ok(fsinfo())),
        procedure::FSSTAT => {
            let stat = FsstatOk {
                attr: None,
                bytes_total: 1000,
                bytes_free: 500,
                bytes_available: 400,
                files_total: 30,
                files_free: 20,
                files_available: 10,
                invariant_seconds: 0,
            };
            fs::encode_fsstat(e, &Ok(stat));
        }
        _ => return None,
    }
    Some(())
}

pub fn read_of(node: &Node, offset: u64, count: usize) -> ReadOk {
    let start = (offset as usize).min(node.data.len());
    let end = (start + count).min(node.data.len());
    ReadOk { attr: Some(node.attr), eof: end == node.data.len(), data: node.data.slice(start..end) }
}

/// Two entries a page; cookies count from 1; `.` and `..` come first.
fn listing_of(tree: &Tree, dir: &Node, cookie: u64, plus: bool) -> ReaddirOk {
    let mut all = vec![(Bytes::from_static(b"."), Bytes::new()), (Bytes::from_static(b".."), Bytes::new())];
    all.extend(dir.children.iter().cloned());
    let from = cookie as usize;
    let page = all.iter().enumerate().skip(from).take(2);
    let entries = page.map(|(i, (name, handle))| {
        let attr = tree.nodes.get(handle).map(|n| n.attr).filter(|_| plus);
        DirEntry3 {
            fileid: attr.map_or(1, |a| a.fileid),
            name: name.clone(),
            cookie: i as u64 + 1,
            attr,
            handle: attr.map(|_| FileHandle(handle.clone())),
        }
    });
    let entries = entries.collect();
    ReaddirOk {
        dir_attr: Some(dir.attr),
        verifier: [9; 8],
        entries,
        eof: from.saturating_add(2) >= all.len(),
    }
}

fn fsinfo() -> FsinfoOk {
    FsinfoOk {
        attr: None,
        read_max: 65_536,
        read_preferred: 65_536,
        read_multiple: 4096,
        write_max: 65_536,
        write_preferred: 65_536,
        write_multiple: 4096,
        readdir_preferred: 65_536,
        file_size_max: u64::MAX >> 1,
        time_delta: Nfstime3 { seconds: 0, nanos: 1 },
        properties: 0x1b,
    }
}

/// The results that `encode` makes.
pub fn results(encode: impl FnOnce(&mut XdrEncoder)) -> Bytes {
    let mut e = XdrEncoder::default();
    encode(&mut e);
    e.finish()
}
