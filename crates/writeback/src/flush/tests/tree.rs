//! A tree with all that is compared of it.

use std::collections::BTreeMap;

use origin::memory::MemoryOrigin;
use origin::{DirCursor, Object, Origin};
use types::{Attr, ByteRange, FileKind, Timestamp};

use super::world::now;

pub type Tree = BTreeMap<String, Shown>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub kind: FileKind,
    mode: u32,
    uid: u32,
    gid: u32,
    /// This and the next one of what is no directory: those of directories move with their names, at the origin when these
    /// arrive there.
    nlink: u32,
    mtime: Option<Timestamp>,
    pub bytes: Vec<u8>,
}

impl Shown {
    pub fn new(attr: &Attr, bytes: Vec<u8>) -> Shown {
        let Attr { kind, mode, uid, gid, .. } = *attr;
        let nlink = if attr.is_dir() { 0 } else { attr.nlink };
        let mtime = Some(attr.mtime).filter(|_| !attr.is_dir());
        Shown { kind, mode, uid, gid, nlink, mtime, bytes }
    }
}

impl Shown {
    pub fn forget_links(&mut self) {
        self.nlink = 0;
    }
}

/// What is at an origin.
pub fn tree(origin: &MemoryOrigin) -> Tree {
    let mut tree = Tree::default();
    let mut ways: Vec<(String, Object)> = vec![(String::new(), now(origin.root()).unwrap())];
    while let Some((path, object)) = ways.pop() {
        let mut bytes = Vec::new();
        match object.attr.kind {
            FileKind::Directory => {
                let page = now(origin.readdir(&object.reference, DirCursor::default())).unwrap();
                let entries = page.entries.into_iter();
                ways.extend(entries.map(|entry| (format!("{path}/{}", entry.name), entry.object.unwrap())));
            }
            FileKind::Symlink => bytes = now(origin.readlink(&object.reference)).unwrap().to_vec(),
            FileKind::Regular => {
                let range = ByteRange::new(0, object.attr.size);
                bytes = now(origin.read(&object.reference, object.version, range)).unwrap().to_vec();
            }
            _ => {}
        }
        tree.insert(path, Shown::new(&object.attr, bytes));
    }
    tree
}

/// `None`: they are the same.
pub fn difference(expected: &Tree, found: &Tree) -> Option<String> {
    for (path, one) in expected {
        let Some(other) = found.get(path) else { return Some(format!("{path} is missing")) };
        if one != other {
            let short = |shown: &Shown| {
                let (length, begin) = (shown.bytes.len(), &shown.bytes[..shown.bytes.len().min(20)]);
                let Shown { kind, mode, uid, gid, nlink, mtime, .. } = shown;
                format!("{kind:?} {mode:o} {uid} {gid} {nlink} {mtime:?} {length} bytes {begin:?}")
            };
            return Some(format!("{path} is {} and should be {}", short(other), short(one)));
        }
    }
    found.keys().find(|path| !expected.contains_key(*path)).map(|path| format!("{path} is too much"))
}
