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
    pub node: Node,
}

/// A piece of a listing: `.` and `..` first (cookies 1 and 2), then names in the order of their cookies.
#[derive(Clone, Debug)]
pub struct Listing {
    pub items: Vec<DirItem>,
    pub eof: bool,
    pub dir: Node,
}

pub struct Vfs {}

#[allow(clippy::todo)]
impl Vfs {
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
