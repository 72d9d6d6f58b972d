//! A read-only NFSv3 server whose names, attributes and bytes are computed: a root with directories, each with as many files.
//! It keeps nothing, so that it has as many files as one likes.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use rpc_nfs3::mount::{self, MountOk};
use rpc_nfs3::nfs3::attr::{Fattr3, FileType, Nfstime3};
use rpc_nfs3::nfs3::file::{self, AccessArgs, AccessOk, LookupOk, ReadArgs, ReadOk};
use rpc_nfs3::nfs3::fs::{self, FsinfoOk, FsstatOk, PathconfOk};
use rpc_nfs3::nfs3::readdir::{self, DirEntry3, ReaddirArgs};
use rpc_nfs3::nfs3::{self, DirOp, FileHandle, NfsStatus, procedure};
use rpc_nfs3::record::{RecordReader, mark};
use rpc_nfs3::rpc::{CallHeader, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use rpc_nfs3::xdr::WireResult;

const FSID: u64 = 7;
const ROOT: u64 = 1;
/// As long as those of the Linux kernel's server.
const HANDLE_BYTES: usize = 28;
const RECORD_MAX: usize = 1 << 20;
const READ_MAX: u32 = 1 << 20;
/// What one entry of a listing takes at most beside its name.
const ENTRY_BYTES: usize = 200;

#[derive(Clone, Copy, Debug)]
pub struct FormulaTree {
    pub directories: u64,
    /// In each of them.
    pub files: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Object {
    Root,
    Directory(u64),
    File,
}

impl FormulaTree {
    fn object(&self, fileid: u64) -> Option<Object> {
        let first_file = 2 + self.directories;
        match fileid {
            ROOT => Some(Object::Root),
            id if id >= 2 && id < first_file => Some(Object::Directory(id - 2)),
            id if id >= first_file && id < first_file + self.directories * self.files => Some(Object::File),
            _ => None,
        }
    }

    fn opened(&self, handle: &FileHandle) -> Result<(u64, Object), NfsStatus> {
        let id = handle.0.first_chunk::<8>().map(|id| u64::from_be_bytes(*id));
        let object = id.and_then(|id| Some((id, self.object(id)?)));
        object.ok_or(NfsStatus::STALE)
    }

    fn attr(&self, fileid: u64) -> Fattr3 {
        let is_file = matches!(self.object(fileid), Some(Object::File));
        let time = Nfstime3 { seconds: 1_700_000_000, nanos: 0 };
        let size = if is_file { self.bytes } else { 4096 };
        Fattr3 {
            kind: if is_file { FileType::Regular } else { FileType::Directory },
            mode: if is_file { 0o644 } else { 0o755 },
            nlink: if is_file { 1 } else { 2 },
            uid: 1000,
            gid: 1000,
            size,
            used: size,
            rdev: (0, 0),
            fsid: FSID,
            fileid,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    /// The children of a directory: how many, and the id of the first one. The others follow it.
    fn children(&self, object: Object) -> Option<(u64, u64)> {
        match object {
            Object::Root => Some((self.directories, 2)),
            Object::Directory(at) => Some((self.files, 2 + self.directories + at * self.files)),
            Object::File => None,
        }
    }

    fn find(&self, dir: Object, name: &[u8]) -> Option<u64> {
        let (count, first) = self.children(dir)?;
        let digits = std::str::from_utf8(name.get(6..name.len().checked_sub(4)?)?).ok()?;
        let at: u64 = digits.parse().ok()?;
        (at < count && name_of(at) == name).then_some(first + at)
    }
}

fn name_of(at: u64) -> Bytes {
    format!("frame.{at:07}.exr").into()
}

fn handle_of(fileid: u64) -> FileHandle {
    let mut handle = BytesMut::zeroed(HANDLE_BYTES);
    handle[..8].copy_from_slice(&fileid.to_be_bytes());
    FileHandle(handle.freeze())
}

/// Serves until standard input ends; prints its port.
pub async fn run(tree: FormulaTree) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| format!("bind: {e}"))?;
    println!("{}", listener.local_addr().map_err(|e| e.to_string())?.port());
    tokio::spawn(async move {
        let tree = Arc::new(tree);
        while let Ok((stream, _)) = listener.accept().await {
            let tree = tree.clone();
            // Whoever is cut off connects again.
            tokio::spawn(async move { serve(stream, &tree).await.ok() });
        }
    });
    tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()).ok()).await.ok();
    Ok(())
}

async fn serve(stream: TcpStream, tree: &FormulaTree) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reading, mut writing) = stream.into_split();
    let mut records = RecordReader::new(reading, RECORD_MAX);
    while let Ok(record) = records.record().await {
        let mut d = XdrDecoder::new(record);
        let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        let call = CallHeader::decode(&mut d).map_err(invalid)?;
        let mut e = XdrEncoder::with_capacity(256);
        ReplyHeader { xid: call.xid, status: ReplyStatus::Success }.encode(&mut e);
        let head = e.len();
        if answer(tree, &call, &mut d, &mut e).is_err() {
            e.truncate(head);
            e = XdrEncoder::default();
            ReplyHeader { xid: call.xid, status: ReplyStatus::GarbageArguments }.encode(&mut e);
        }
        let reply = e.finish();
        let mut out = BytesMut::with_capacity(4 + reply.len());
        out.put_slice(&mark(reply.len()));
        out.put_slice(&reply);
        writing.write_all(&out).await?;
    }
    Ok(())
}

fn answer(tree: &FormulaTree, call: &CallHeader, d: &mut XdrDecoder, e: &mut XdrEncoder) -> WireResult<()> {
    match (call.program, call.procedure) {
        (mount::PROGRAM, mount::procedure::MNT) => {
            let root = MountOk { handle: handle_of(ROOT), flavors: vec![1] };
            mount::encode_mount_result(e, &Ok(root));
        }
        (mount::PROGRAM, mount::procedure::EXPORT) => mount::encode_exports(e, &[]),
        (nfs3::PROGRAM, procedure::GETATTR) => {
            let opened = tree.opened(&FileHandle::decode(d)?);
            file::encode_getattr(e, &opened.map(|(id, _)| tree.attr(id)).map_err(|status| (status, ())));
        }
        (nfs3::PROGRAM, procedure::LOOKUP) => {
            let DirOp { dir, name } = DirOp::decode(d)?;
            let found = tree.opened(&dir).and_then(|(dir, object)| {
                let id = tree.find(object, &name).ok_or(NfsStatus::NOENT)?;
                let (attr, dir_attr) = (Some(tree.attr(id)), Some(tree.attr(dir)));
                Ok(LookupOk { object: handle_of(id), attr, dir_attr })
            });
            file::encode_lookup(e, &found.map_err(|status| (status, None)));
        }
        (nfs3::PROGRAM, procedure::ACCESS) => {
            let AccessArgs { object, wanted } = AccessArgs::decode(d)?;
            let granted =
                tree.opened(&object).map(|(id, _)| AccessOk { attr: Some(tree.attr(id)), granted: wanted });
            file::encode_access(e, &granted.map_err(|status| (status, None)));
        }
        (nfs3::PROGRAM, procedure::READ) => {
            let ReadArgs { file, offset, count } = ReadArgs::decode(d)?;
            let read = tree.opened(&file).map(|(id, _)| {
                let end = offset.saturating_add(count.min(READ_MAX).into()).min(tree.bytes);
                let length = usize::try_from(end.saturating_sub(offset)).unwrap_or_default();
                let data = vec![id.to_le_bytes()[0] | 1; length].into();
                ReadOk { attr: Some(tree.attr(id)), eof: end == tree.bytes, data }
            });
            file::encode_read(e, &read.map_err(|status| (status, None)));
        }
        (nfs3::PROGRAM, procedure::READDIR) => list(tree, d, e, false)?,
        (nfs3::PROGRAM, procedure::READDIRPLUS) => list(tree, d, e, true)?,
        (nfs3::PROGRAM, procedure::FSINFO) => fs::encode_fsinfo(e, &Ok(fsinfo(tree))),
        (nfs3::PROGRAM, procedure::FSSTAT) => fs::encode_fsstat(e, &Ok(fsstat(tree))),
        (nfs3::PROGRAM, procedure::PATHCONF) => fs::encode_pathconf(e, &Ok(pathconf(tree))),
        // NULL, UMNT, and all that would change something: an empty result, which is an error where a status is due.
        _ => {}
    }
    Ok(())
}

fn list(tree: &FormulaTree, d: &mut XdrDecoder, e: &mut XdrEncoder, plus: bool) -> WireResult<()> {
    let args = ReaddirArgs::decode(d, plus)?;
    let opened = tree.opened(&args.dir);
    let listed = opened.and_then(|(id, object)| Ok((id, tree.children(object).ok_or(NfsStatus::NOTDIR)?)));
    let (dir, (count, first)) = match listed {
        Ok(listed) => listed,
        Err(status) => {
            readdir::encode_readdir(e, &Err((status, None)), plus);
            return Ok(());
        }
    };
    let most = e.len() + args.max_count as usize;
    readdir::encode_begin(e, &Some(tree.attr(dir)), &[0; 8]);
    // The cookie of an entry is its number from one on.
    let mut at = args.cookie;
    while at < count && e.len() + ENTRY_BYTES + readdir::END_BYTES <= most {
        let fileid = first + at;
        let (attr, handle) = (Some(tree.attr(fileid)), Some(handle_of(fileid)));
        DirEntry3 { fileid, name: name_of(at), cookie: at + 1, attr, handle }.encode(e, plus);
        at += 1;
    }
    readdir::encode_end(e, at >= count);
    Ok(())
}

fn fsinfo(tree: &FormulaTree) -> FsinfoOk {
    FsinfoOk {
        attr: Some(tree.attr(ROOT)),
        read_max: READ_MAX,
        read_preferred: READ_MAX,
        read_multiple: 4096,
        write_max: READ_MAX,
        write_preferred: READ_MAX,
        write_multiple: 4096,
        readdir_preferred: READ_MAX,
        file_size_max: 1 << 40,
        time_delta: Nfstime3 { seconds: 0, nanos: 1 },
        properties: fs::properties::HOMOGENEOUS,
    }
}

fn fsstat(tree: &FormulaTree) -> FsstatOk {
    let files = tree.directories * (tree.files + 1);
    FsstatOk {
        attr: Some(tree.attr(ROOT)),
        bytes_total: 1 << 50,
        bytes_free: 1 << 49,
        bytes_available: 1 << 49,
        files_total: files,
        files_free: 0,
        files_available: 0,
        invariant_seconds: 0,
    }
}

fn pathconf(tree: &FormulaTree) -> PathconfOk {
    PathconfOk {
        attr: Some(tree.attr(ROOT)),
        link_max: 1,
        name_max: 255,
        no_truncate: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    }
}
