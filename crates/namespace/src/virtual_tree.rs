//! The directories that lead to the junctions. They belong to no origin, and change only with the junctions.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;

use bytes::Bytes;
use siphasher::sip::SipHasher13;
use types::{Attr, Error, ErrorKind, FileId, FileKind, JunctionId, Result, Timestamp};

/// One virtual directory.
#[derive(Debug)]
pub struct VirtualDir {
    /// The root is its own parent.
    pub parent: FileId,
    /// Virtual directories and roots of junctions, by name.
    pub children: BTreeMap<Bytes, FileId>,
}

impl VirtualDir {
    /// Below a second.
    fn digest(&self) -> u32 {
        let mut hasher = SipHasher13::new();
        for (name, id) in &self.children {
            hasher.write_u64(name.len() as u64);
            hasher.write(name);
            hasher.write(&id.0);
        }
        u32::try_from(hasher.finish() % 1_000_000_000).unwrap_or(0)
    }
}

#[derive(Debug)]
pub struct VirtualTree {
    root: FileId,
    dirs: HashMap<FileId, VirtualDir>,
}

impl VirtualTree {
    /// `junctions`: normalised absolute paths with the ids of their root directories.
    pub fn build(junctions: &[(&str, FileId)]) -> Result<VirtualTree> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Config, "place junctions:", message));
        for (i, (path, _)) in junctions.iter().enumerate() {
            for (other, _) in junctions.iter().skip(i + 1) {
                if path == other {
                    return refuse(format!("two origins for {path}; give each origin a path of its own"));
                }
                let (outer, inner) = if path.len() < other.len() { (path, other) } else { (other, path) };
                if *outer == "/" || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/')) {
                    return refuse(format!("{inner} lies inside {outer}; junctions stand beside each other"));
                }
            }
        }
        if let [("/", id)] = junctions {
            return Ok(VirtualTree { root: *id, dirs: HashMap::new() });
        }
        let root = virtual_id("/");
        let mut tree = VirtualTree { root, dirs: HashMap::new() };
        tree.dirs.insert(root, VirtualDir { parent: root, children: BTreeMap::new() });
        for (path, id) in junctions {
            tree.graft(path, *id);
        }
        Ok(tree)
    }

    fn graft(&mut self, path: &str, id: FileId) {
        let mut dir = self.root;
        let mut walked = String::new();
        let mut names = path.split('/').filter(|n| !n.is_empty()).peekable();
        while let Some(name) = names.next() {
            walked = format!("{walked}/{name}");
            let child = if names.peek().is_some() { virtual_id(&walked) } else { id };
            if let Some(here) = self.dirs.get_mut(&dir) {
                here.children.insert(Bytes::copy_from_slice(name.as_bytes()), child);
            }
            if names.peek().is_some() {
                self.dirs.entry(child).or_insert(VirtualDir { parent: dir, children: BTreeMap::new() });
            }
            dir = child;
        }
    }

    /// A virtual directory, or the root of the only junction if that is `/`.
    pub fn root(&self) -> FileId {
        self.root
    }

    pub fn get(&self, id: FileId) -> Option<&VirtualDir> {
        self.dirs.get(&id)
    }

    pub fn find_number(&self, number: u64) -> Option<FileId> {
        self.dirs.keys().copied().find(|id| id.fileid64() == number)
    }

    /// The virtual directory that a junction's root is in; itself for a junction at `/`.
    pub fn parent_of_junction(&self, id: FileId) -> FileId {
        let holder = self.dirs.iter().find(|(_, dir)| dir.children.values().any(|child| *child == id));
        holder.map_or(id, |(parent, _)| *parent)
    }

    pub fn children(&self, id: FileId) -> Option<Vec<(Bytes, FileId)>> {
        let children = &self.dirs.get(&id)?.children;
        Some(children.iter().map(|(name, id)| (name.clone(), *id)).collect())
    }

    /// The directories whose names are others here than there, of both.
    pub fn differing(&self, other: &VirtualTree) -> Vec<FileId> {
        let children = |tree: &VirtualTree, id: &FileId| tree.dirs.get(id).map(|dir| dir.children.clone());
        let all = self.dirs.keys().chain(other.dirs.keys().filter(|id| !self.dirs.contains_key(*id)));
        all.copied().filter(|id| children(self, id) != children(other, id)).collect()
    }

    /// Read and search for all. It has no times of its own; for clients that look at these alone to see whether names came
    /// or went, they are made of what is in it.
    pub fn attr(&self, id: FileId) -> Option<Attr> {
        let dir = self.dirs.get(&id)?;
        let never = Timestamp { seconds: 0, nanos: dir.digest() };
        Some(Attr {
            kind: FileKind::Directory,
            mode: 0o555,
            nlink: u32::try_from(dir.children.len()).unwrap_or(u32::MAX - 2) + 2,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 4096,
            rdev: (0, 0),
            fsid: 0,
            fileid: id.fileid64(),
            atime: never,
            mtime: never,
            ctime: never,
        })
    }
}

fn virtual_id(path: &str) -> FileId {
    FileId::derive(JunctionId::VIRTUAL, path.as_bytes())
}
