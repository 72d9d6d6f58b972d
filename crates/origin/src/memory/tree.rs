//! Inodes, names and the clock of the origin in memory: what each operation does to them, by POSIX's rules.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use types::{
    Attr, Error, ErrorKind, FileKind, Name, Result, SetAttr, SetXattr, TimeChange, Timestamp, Version,
    XattrName,
};

use super::contents::{Inode, NodeBody};
use crate::{Identity, Object, Reference};

pub const ROOT: u64 = 1;

pub struct State {
    nodes: HashMap<u64, Inode>,
    next: u64,
    /// Nanoseconds since 1970; moves by a millisecond with each change, unless it stands.
    pub now: i128,
    pub clock_stands: bool,
    /// How often what was not synced was lost.
    pub starts: u64,
}

impl State {
    pub fn new() -> State {
        let mut state = State {
            nodes: HashMap::new(),
            next: ROOT,
            now: 1_700_000_000_000_000_000,
            clock_stands: false,
            starts: 0,
        };
        state.add(FileKind::Directory, NodeBody::Dir(BTreeMap::new()));
        state
    }

    pub fn tick(&mut self) -> Timestamp {
        if !self.clock_stands {
            self.now += 1_000_000;
        }
        let nanos = u32::try_from(self.now.rem_euclid(1_000_000_000)).unwrap_or(0);
        Timestamp { seconds: i64::try_from(self.now.div_euclid(1_000_000_000)).unwrap_or(0), nanos }
    }

    /// An inode without a name.
    fn add(&mut self, kind: FileKind, body: NodeBody) -> u64 {
        let now = self.tick();
        let id = self.next;
        self.next += 1;
        let (mode, nlink, size) = match (kind, &body) {
            (FileKind::Directory, _) => (0o755, 2, 4096),
            (_, NodeBody::Link(target)) => (0o777, 1, target.len() as u64),
            _ => (0o644, 1, 0),
        };
        let (uid, gid, used, rdev, fsid) = (0, 0, size, (0, 0), 77);
        let (atime, mtime, ctime) = (now, now, now);
        let fileid = id;
        let attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
        self.nodes.insert(id, Inode { attr, body, xattrs: BTreeMap::new(), stable: None });
        id
    }

    pub fn inode(&mut self, id: u64) -> Result<&mut Inode> {
        self.nodes.get_mut(&id).ok_or_else(|| Error::new(ErrorKind::Stale, "find inode", id))
    }

    pub fn inodes(&mut self) -> impl Iterator<Item = &mut Inode> {
        self.nodes.values_mut()
    }

    pub fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub fn object(&mut self, id: u64) -> Result<Object> {
        let attr = self.inode(id)?.attr;
        let bytes = Bytes::copy_from_slice(&id.to_be_bytes());
        Ok(Object {
            reference: Reference(bytes.clone()),
            identity: Identity(bytes),
            attr,
            version: Version::from_attr(&attr),
        })
    }

    pub fn entries(&mut self, dir: u64) -> Result<&mut BTreeMap<Name, u64>> {
        match &mut self.inode(dir)?.body {
            NodeBody::Dir(entries) => Ok(entries),
            _ => Err(Error::new(ErrorKind::NotADirectory, "change", dir)),
        }
    }

    pub fn find(&mut self, dir: u64, name: &Name) -> Result<u64> {
        let found = self.entries(dir)?.get(name).copied();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, "find", name))
    }

    pub fn make(&mut self, dir: u64, name: &Name, kind: FileKind, body: NodeBody) -> Result<u64> {
        if self.entries(dir)?.contains_key(name) {
            return Err(Error::new(ErrorKind::Exists, "make", name));
        }
        let id = self.add(kind, body);
        self.enter(dir, name, id)?;
        Ok(id)
    }

    fn enter(&mut self, dir: u64, name: &Name, id: u64) -> Result<()> {
        self.entries(dir)?.insert(name.clone(), id);
        let is_dir = self.inode(id)?.attr.is_dir();
        self.listing_changed(dir, |nlink| nlink + u32::from(is_dir))
    }

    fn leave(&mut self, dir: u64, name: &Name) -> Result<u64> {
        let id = self.find(dir, name)?;
        self.entries(dir)?.remove(name);
        let is_dir = self.inode(id)?.attr.is_dir();
        self.listing_changed(dir, |nlink| nlink - u32::from(is_dir))?;
        Ok(id)
    }

    fn listing_changed(&mut self, dir: u64, nlink: impl FnOnce(u32) -> u32) -> Result<()> {
        let now = self.tick();
        let attr = &mut self.inode(dir)?.attr;
        (attr.mtime, attr.ctime) = (now, now);
        attr.nlink = nlink(attr.nlink);
        Ok(())
    }

    /// One more name for a file.
    pub fn link(&mut self, id: u64, dir: u64, name: &Name) -> Result<()> {
        if self.inode(id)?.attr.is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, "link", name));
        }
        if self.entries(dir)?.contains_key(name) {
            return Err(Error::new(ErrorKind::Exists, "link to", name));
        }
        self.enter(dir, name, id)?;
        let now = self.tick();
        let inode = self.inode(id)?;
        inode.attr.nlink += 1;
        inode.altered(now);
        Ok(())
    }

    pub fn remove(&mut self, dir: u64, name: &Name) -> Result<()> {
        let id = self.find(dir, name)?;
        if self.inode(id)?.attr.is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, "remove", name));
        }
        self.take_away(dir, name)
    }

    pub fn rmdir(&mut self, dir: u64, name: &Name) -> Result<()> {
        let id = self.find(dir, name)?;
        if !self.entries(id)?.is_empty() {
            return Err(Error::new(ErrorKind::NotEmpty, "remove directory", name));
        }
        self.take_away(dir, name)
    }

    pub fn take_away(&mut self, dir: u64, name: &Name) -> Result<()> {
        let id = self.leave(dir, name)?;
        let now = self.tick();
        let inode = self.inode(id)?;
        // A directory's second link is its own.
        inode.attr.nlink = if inode.attr.is_dir() { 0 } else { inode.attr.nlink - 1 };
        inode.altered(now);
        if inode.attr.nlink == 0 {
            self.nodes.remove(&id);
        }
        Ok(())
    }

    /// Two names of one file stay both; what had the new name is taken away if it may be.
    pub fn rename(&mut self, from_dir: u64, from: &Name, to_dir: u64, to: &Name) -> Result<u64> {
        let id = self.find(from_dir, from)?;
        self.entries(to_dir)?;
        if self.is_inside(id, to_dir)? {
            return Err(Error::new(ErrorKind::InvalidArgument, "rename into itself", from));
        }
        if let Some(other) = self.entries(to_dir)?.get(to).copied() {
            if other == id {
                return Ok(id);
            }
            match (self.inode(id)?.attr.is_dir(), self.inode(other)?.attr.is_dir()) {
                (true, true) => self.rmdir(to_dir, to)?,
                (false, false) => self.remove(to_dir, to)?,
                (true, false) => return Err(Error::new(ErrorKind::NotADirectory, "rename to", to)),
                (false, true) => return Err(Error::new(ErrorKind::IsADirectory, "rename to", to)),
            }
        }
        self.leave(from_dir, from)?;
        self.enter(to_dir, to, id)?;
        let now = self.tick();
        self.inode(id)?.altered(now);
        Ok(id)
    }

    /// Whether `dir` is `above` or below it.
    fn is_inside(&mut self, above: u64, dir: u64) -> Result<bool> {
        let mut ways = vec![above];
        while let Some(at) = ways.pop() {
            if at == dir {
                return Ok(true);
            }
            if let NodeBody::Dir(entries) = &self.inode(at)?.body {
                ways.extend(entries.values());
            }
        }
        Ok(false)
    }

    pub fn set_xattr(&mut self, id: u64, name: &XattrName, set: &SetXattr) -> Result<()> {
        let failed = |kind| Err(Error::new(kind, "set an extended attribute of", id));
        let now = self.tick();
        let inode = self.inode(id)?;
        if !inode.attr.is_file() && !inode.attr.is_dir() {
            return failed(ErrorKind::NotPermitted);
        }
        match (set, inode.xattrs.contains_key(name)) {
            (SetXattr::New(_), true) => return failed(ErrorKind::Exists),
            (SetXattr::Replace(_) | SetXattr::Remove, false) => return failed(ErrorKind::NotFound),
            (SetXattr::Remove, true) => drop(inode.xattrs.remove(name)),
            (SetXattr::To(value) | SetXattr::New(value) | SetXattr::Replace(value), _) => {
                inode.xattrs.insert(name.clone(), value.clone());
            }
        }
        inode.altered(now);
        Ok(())
    }

    pub fn set(&mut self, id: u64, set: &SetAttr) -> Result<()> {
        for change in [set.atime, set.mtime] {
            if matches!(change, TimeChange::To(time) if time.nanos >= 1_000_000_000) {
                return Err(Error::new(ErrorKind::InvalidArgument, "set a time of", id));
            }
        }
        let now = self.tick();
        let inode = self.inode(id)?;
        if let Some(size) = set.size {
            inode.resize(size, now)?;
        }
        let attr = &mut inode.attr;
        if (set.uid.is_some() || set.gid.is_some()) && !attr.is_dir() {
            // As Linux does: a program must not run as somebody whom its new owner chooses.
            attr.mode &= if attr.mode & 0o010 == 0 { !0o4000 } else { !0o6000 };
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        if let Some(mode) = set.mode.filter(|_| attr.kind != FileKind::Symlink) {
            attr.mode = mode & 0o7777;
        }
        let become_ = |change, before| match change {
            TimeChange::Keep => before,
            TimeChange::Now => now,
            TimeChange::To(time) => time,
        };
        attr.atime = become_(set.atime, attr.atime);
        attr.mtime = become_(set.mtime, attr.mtime);
        inode.altered(now);
        Ok(())
    }
}
