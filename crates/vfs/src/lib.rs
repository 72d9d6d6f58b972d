//! The one semantic file system: names, attributes, permission and bytes, free of any protocol.
//!
//! Only this crate joins `namespace` (which version is this file now?) and `cache` (its bytes). Front ends
//! decode, call one function here, and encode. Permission is decided here and nowhere else.

use bytes::Bytes;
use types::{Attr, Caller, FileId, FsStat, JunctionId, Name, Result};

/// An object as clients see it: `attr.fileid` and `attr.fsid` are ours.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: FileId,
    pub junction: JunctionId,
    pub attr: Attr,
}

/// What a caller wants to do, or may do. Bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    pub const READ: Access = Access(1);
    /// Look a name up in a directory.
    pub const LOOKUP: Access = Access(2);
    pub const MODIFY: Access = Access(4);
    pub const EXTEND: Access = Access(8);
    pub const DELETE: Access = Access(16);
    pub const EXECUTE: Access = Access(32);
}

/// Bytes of one read.
#[derive(Clone, Debug)]
pub struct ReadOut {
    /// In order; together they are the answer.
    pub data: Vec<Bytes>,
    /// The answer ends at or past the end of the file.
    pub eof: bool,
    pub node: Node,
}

/// One name of a listing. The cookie stays valid over refresh and restart; listing goes on *after* it.
#[derive(Clone, Debug)]
pub struct DirItem {
    pub name: Bytes,
    pub cookie: u64,
    /// The inode number shown to clients.
    pub fileid: u64,
    /// Absent while the object cannot be reached (a submount whose server is away): the name is listed,
    /// a lookup of it answers with the error.
    pub node: Option<Node>,
}

/// A piece of a listing: `.` and `..` first (cookies 1 and 2), then names in the order of their cookies.
#[derive(Clone, Debug)]
pub struct Listing {
    pub items: Vec<DirItem>,
    pub eof: bool,
    pub dir: Node,
}

/// What `stat` tells the operator of one path.
#[derive(Clone, Debug)]
pub struct StatOut {
    pub node: Node,
    /// Path of the junction, and the URL of its origin; absent for virtual directories.
    pub junction: Option<(String, String)>,
    pub version: types::Version,
    /// Bytes of this version on the cache disk.
    pub cached_bytes: u64,
    /// Milliseconds since the origin was last asked about this object.
    pub age_ms: u64,
    /// The rule in force: `always`, `ttl 30s`, `immutable`.
    pub freshness: String,
}

/// Counters of a running or finished `warm`; shared, so that a front can show progress.
#[derive(Debug, Default)]
pub struct WarmProgress {
    pub files: std::sync::atomic::AtomicU64,
    pub directories: std::sync::atomic::AtomicU64,
    /// Bytes of the files done so far, fetched or already there.
    pub bytes: std::sync::atomic::AtomicU64,
    pub errors: std::sync::atomic::AtomicU64,
    /// The last error, for a person to read.
    pub last_error: std::sync::Mutex<Option<String>>,
}

/// What an `evict` gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    pub files: u64,
    pub bytes: u64,
}

pub struct Vfs {}

#[allow(clippy::todo)]
impl Vfs {
    pub fn new(_namespace: std::sync::Arc<namespace::Namespace>, _cache: std::sync::Arc<cache::Cache>) -> std::sync::Arc<Vfs> {
        todo!()
    }

    /// Everything about one path, for the operator.
    pub async fn stat(&self, _path: &[u8]) -> Result<StatOut> {
        todo!()
    }

    /// Bring a file, or all files below a directory, into the cache.
    pub async fn warm(&self, _path: &[u8], _progress: &WarmProgress) -> Result<()> {
        todo!()
    }

    /// Drop cached bytes of a file or tree and forget how fresh its metadata is.
    pub async fn evict(&self, _path: &[u8]) -> Result<Evicted> {
        todo!()
    }

    /// The root of the served tree.
    pub fn root(&self) -> FileId {
        todo!()
    }

    pub async fn getattr(&self, _id: FileId) -> Result<Node> {
        todo!()
    }

    /// Needs search permission on `dir`.
    pub async fn lookup(&self, _caller: &Caller, _dir: FileId, _name: &Name) -> Result<Node> {
        todo!()
    }

    /// `..` of a directory; the root is its own parent.
    pub async fn parent(&self, _caller: &Caller, _dir: FileId) -> Result<Node> {
        todo!()
    }

    /// Which of `wanted` the caller may do. Answered from cached mode and ids, never by asking the origin.
    pub async fn access(&self, _caller: &Caller, _id: FileId, _wanted: Access) -> Result<(Access, Node)> {
        todo!()
    }

    pub async fn readlink(&self, _caller: &Caller, _id: FileId) -> Result<(Bytes, Node)> {
        todo!()
    }

    pub async fn read(&self, _caller: &Caller, _id: FileId, _offset: u64, _count: u32) -> Result<ReadOut> {
        todo!()
    }

    /// At most `items_max` items after `cookie` (0 = from the start).
    pub async fn readdir(
        &self,
        _caller: &Caller,
        _dir: FileId,
        _cookie: u64,
        _items_max: usize,
    ) -> Result<Listing> {
        todo!()
    }

    pub async fn statfs(&self, _id: FileId) -> Result<FsStat> {
        todo!()
    }

    /// Walk an absolute path (links are not followed), as the operator.
    pub async fn resolve(&self, _path: &[u8]) -> Result<Node> {
        todo!()
    }
}
