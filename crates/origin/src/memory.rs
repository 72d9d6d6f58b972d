//! An honest origin in memory: for tests, and for measuring without a disk.
//!
//! Behaves as a POSIX server does: inode numbers, link counts, times that move with every change, and an identity
//! that no later object shares. Contents may be generated from a seed, so that large trees cost little memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use types::{Attr, ByteRange, Error, ErrorKind, FileKind, FsStat, Name, Result, Timestamp, Version};

use crate::{DirCursor, DirEntry, DirPage, Identity, Object, Origin, Reference};

/// Names in one piece of a listing.
const PAGE: usize = 1000;
const ROOT: u64 = 1;

pub struct MemoryOrigin {
    state: Mutex<State>,
}

struct State {
    nodes: HashMap<u64, Inode>,
    next: u64,
    /// Nanoseconds since 1970; moves by a millisecond with each change.
    now: i128,
}

struct Inode {
    attr: Attr,
    body: Body,
}

enum Body {
    Dir(BTreeMap<Name, u64>),
    Bytes(Vec<u8>),
    Generated(u64),
    Link(Bytes),
}

/// Byte `offset` of the contents that `seed` stands for.
pub fn generated_byte(seed: u64, offset: u64) -> u8 {
    generated_word(seed, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

fn generated_word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `range` of the contents that `seed` stands for.
pub fn generated(seed: u64, range: ByteRange) -> Bytes {
    let mut out = BytesMut::with_capacity(usize::try_from(range.length).unwrap_or(0) + 16);
    for index in range.offset / 8..range.end().div_ceil(8) {
        out.extend_from_slice(&generated_word(seed, index).to_le_bytes());
    }
    let skip = (range.offset % 8) as usize;
    out.freeze().slice(skip..skip + range.length as usize)
}

impl MemoryOrigin {
    pub fn new() -> Arc<MemoryOrigin> {
        let mut state = State { nodes: HashMap::new(), next: ROOT, now: 1_700_000_000_000_000_000 };
        state.add(FileKind::Directory, 0o755, Body::Dir(BTreeMap::new()));
        Arc::new(MemoryOrigin { state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Create a directory; its parents must exist. Paths are relative to the root, `/` between names.
    pub fn mkdir(&self, path: &[u8]) -> Result<()> {
        self.lock().create(path, FileKind::Directory, 0o755, Body::Dir(BTreeMap::new()))
    }

    /// Create a file, or replace the contents of the one that is there.
    pub fn write_file(&self, path: &[u8], bytes: &[u8]) -> Result<()> {
        self.put(path, Body::Bytes(bytes.to_vec()), bytes.len() as u64)
    }

    /// A file of `size` bytes made from `seed`; see [`generated`].
    pub fn generate_file(&self, path: &[u8], seed: u64, size: u64) -> Result<()> {
        self.put(path, Body::Generated(seed), size)
    }

    fn put(&self, path: &[u8], body: Body, size: u64) -> Result<()> {
        let mut state = self.lock();
        let id = match state.walk(path) {
            Ok(id) => {
                let inode = state.inode(id)?;
                if inode.attr.kind != FileKind::Regular {
                    return Err(Error::new(ErrorKind::IsADirectory, "write", path.escape_ascii()));
                }
                inode.body = body;
                id
            }
            Err(_) => {
                state.create(path, FileKind::Regular, 0o644, body)?;
                state.walk(path)?
            }
        };
        state.changed(id, |attr| {
            attr.size = size;
            attr.used = size;
        })
    }

    pub fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let body = Body::Link(Bytes::copy_from_slice(target));
        let mut state = self.lock();
        state.create(path, FileKind::Symlink, 0o777, body)?;
        let id = state.walk(path)?;
        state.inode(id)?.attr.size = target.len() as u64;
        Ok(())
    }

    /// A second name for a file.
    pub fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let id = state.walk(from)?;
        if state.inode(id)?.attr.is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, "link", from.escape_ascii()));
        }
        if state.walk(to).is_ok() {
            return Err(Error::new(ErrorKind::InvalidArgument, "link to", "a name that exists"));
        }
        state.enter(to, id)?;
        state.touched(id, |attr| attr.nlink += 1)
    }

    /// Remove a file, a link, or an empty directory.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        self.lock().remove(path)
    }

    /// Rename, as POSIX does: what had the new name is removed if it may be; two names of one file stay both.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let id = state.walk(from)?;
        match state.walk(to) {
            Ok(same) if same == id => return Ok(()),
            Ok(other) if state.inode(other)?.attr.is_dir() != state.inode(id)?.attr.is_dir() => {
                return Err(Error::new(ErrorKind::InvalidArgument, "rename", "a file to a directory's name"));
            }
            Ok(_) => state.remove(to)?,
            Err(_) => {}
        }
        state.leave(from)?;
        state.enter(to, id)?;
        state.touched(id, |_| {})
    }

    pub fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        let mut state = self.lock();
        let id = state.walk(path)?;
        state.touched(id, |attr| attr.mode = mode)
    }

    pub fn chown(&self, path: &[u8], uid: u32, gid: u32) -> Result<()> {
        let mut state = self.lock();
        let id = state.walk(path)?;
        state.touched(id, |attr| (attr.uid, attr.gid) = (uid, gid))
    }

    /// Let the origin's clock move without a change.
    pub fn pass_time(&self, by: std::time::Duration) {
        self.lock().now += i128::try_from(by.as_nanos()).unwrap_or(0);
    }

    /// Set the origin's clock; the next change is stamped just after it.
    pub fn set_clock(&self, at: std::time::SystemTime) {
        let since = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.lock().now = i128::try_from(since.as_nanos()).unwrap_or(0);
    }
}

impl State {
    fn tick(&mut self) -> Timestamp {
        self.now += 1_000_000;
        let nanos = u32::try_from(self.now.rem_euclid(1_000_000_000)).unwrap_or(0);
        Timestamp { seconds: i64::try_from(self.now.div_euclid(1_000_000_000)).unwrap_or(0), nanos }
    }

    fn add(&mut self, kind: FileKind, mode: u32, body: Body) -> u64 {
        let now = self.tick();
        let id = self.next;
        self.next += 1;
        let nlink = if kind == FileKind::Directory { 2 } else { 1 };
        let size = if kind == FileKind::Directory { 4096 } else { 0 };
        let (uid, gid, used, rdev, fsid) = (0, 0, size, (0, 0), 77);
        let (atime, mtime, ctime) = (now, now, now);
        let fileid = id;
        let attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
        self.nodes.insert(id, Inode { attr, body });
        id
    }

    fn inode(&mut self, id: u64) -> Result<&mut Inode> {
        self.nodes.get_mut(&id).ok_or_else(|| Error::new(ErrorKind::Stale, "find inode", id))
    }

    /// Contents or entries changed.
    fn changed(&mut self, id: u64, edit: impl FnOnce(&mut Attr)) -> Result<()> {
        let now = self.tick();
        let attr = &mut self.inode(id)?.attr;
        (attr.mtime, attr.ctime) = (now, now);
        edit(attr);
        Ok(())
    }

    /// Only attributes changed.
    fn touched(&mut self, id: u64, edit: impl FnOnce(&mut Attr)) -> Result<()> {
        let now = self.tick();
        let attr = &mut self.inode(id)?.attr;
        attr.ctime = now;
        edit(attr);
        Ok(())
    }

    fn walk(&mut self, path: &[u8]) -> Result<u64> {
        let mut at = ROOT;
        for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
            at = self.find(at, &Name::new(Bytes::copy_from_slice(part))?)?;
        }
        Ok(at)
    }

    fn find(&mut self, dir: u64, name: &Name) -> Result<u64> {
        match &self.inode(dir)?.body {
            Body::Dir(entries) => {
                entries.get(name).copied().ok_or_else(|| Error::new(ErrorKind::NotFound, "find", name))
            }
            _ => Err(Error::new(ErrorKind::NotADirectory, "find", name)),
        }
    }

    fn parent_and_name(&mut self, path: &[u8]) -> Result<(u64, Name)> {
        let cut = path.iter().rposition(|b| *b == b'/');
        let (parent, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        Ok((self.walk(parent)?, Name::new(Bytes::copy_from_slice(name))?))
    }

    fn entries(&mut self, dir: u64) -> Result<&mut BTreeMap<Name, u64>> {
        match &mut self.inode(dir)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(Error::new(ErrorKind::NotADirectory, "change", dir)),
        }
    }

    fn create(&mut self, path: &[u8], kind: FileKind, mode: u32, body: Body) -> Result<()> {
        let (parent, name) = self.parent_and_name(path)?;
        if self.entries(parent)?.contains_key(&name) {
            return Err(Error::new(ErrorKind::InvalidArgument, "create", "a name that exists"));
        }
        let id = self.add(kind, mode, body);
        self.enter(path, id)
    }

    fn enter(&mut self, path: &[u8], id: u64) -> Result<()> {
        let (parent, name) = self.parent_and_name(path)?;
        self.entries(parent)?.insert(name, id);
        let is_dir = self.inode(id)?.attr.is_dir();
        self.changed(parent, |attr| attr.nlink += u32::from(is_dir))
    }

    fn leave(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.parent_and_name(path)?;
        let id = self.find(parent, &name)?;
        self.entries(parent)?.remove(&name);
        let is_dir = self.inode(id)?.attr.is_dir();
        self.changed(parent, |attr| attr.nlink -= u32::from(is_dir))
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        let id = self.walk(path)?;
        if matches!(&self.inode(id)?.body, Body::Dir(entries) if !entries.is_empty()) {
            return Err(Error::new(ErrorKind::InvalidArgument, "remove", "a directory that is not empty"));
        }
        self.leave(path)?;
        let names = |attr: &Attr| if attr.is_dir() { 2 } else { 1 };
        self.touched(id, |attr| attr.nlink = attr.nlink.saturating_sub(names(attr)))?;
        if self.inode(id)?.attr.nlink == 0 {
            self.nodes.remove(&id);
        }
        Ok(())
    }

    fn object(&mut self, id: u64) -> Result<Object> {
        let attr = self.inode(id)?.attr;
        let bytes = Bytes::copy_from_slice(&id.to_be_bytes());
        Ok(Object {
            reference: Reference(bytes.clone()),
            identity: Identity(bytes),
            attr,
            version: Version::from_attr(&attr),
        })
    }
}

fn id_in(reference: &Reference) -> Result<u64> {
    let bytes = reference.0.as_ref().try_into();
    bytes.map(u64::from_be_bytes).map_err(|_| Error::new(ErrorKind::Stale, "read reference", ""))
}

#[async_trait]
impl Origin for MemoryOrigin {
    fn url(&self) -> String {
        "memory:".into()
    }

    fn read_max(&self) -> u32 {
        1 << 20
    }

    async fn root(&self) -> Result<Object> {
        self.lock().object(ROOT)
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let mut state = self.lock();
        let id = state.find(id_in(dir)?, name)?;
        state.object(id)
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.lock().object(id_in(object)?)
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        match &self.lock().inode(id_in(link)?)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "read link", "")),
        }
    }

    /// The cookie counts the names given; a change of the directory meanwhile is answered with `Busy`, so that
    /// nothing is skipped or named twice.
    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let mut state = self.lock();
        let id = id_in(dir)?;
        let mtime = state.inode(id)?.attr.mtime;
        let verifier = (mtime.seconds.wrapping_mul(1_000_000_000) + i64::from(mtime.nanos)).to_be_bytes();
        if cursor.cookie != 0 && cursor.verifier != verifier {
            return Err(Error::new(ErrorKind::Busy, "list", "a directory that changed meanwhile"));
        }
        let skip = usize::try_from(cursor.cookie).unwrap_or(usize::MAX);
        let all = state.entries(id)?;
        let total = all.len();
        let page: Vec<_> = all.iter().skip(skip).take(PAGE).map(|(n, id)| (n.clone(), *id)).collect();
        let done = skip.saturating_add(page.len());
        let mut entries = Vec::with_capacity(page.len());
        for (name, id) in page {
            entries.push(DirEntry { name, object: Some(state.object(id)?) });
        }
        let next = (done < total).then_some(DirCursor { cookie: done as u64, verifier });
        Ok(DirPage { entries, next })
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let mut state = self.lock();
        let inode = state.inode(id_in(object)?)?;
        if Version::from_attr(&inode.attr) != version || range.end() > inode.attr.size {
            return Err(Error::new(ErrorKind::VersionChanged, "read", "a file that changed"));
        }
        match &inode.body {
            Body::Bytes(bytes) => {
                let span = range.offset as usize..range.end() as usize;
                Ok(Bytes::copy_from_slice(bytes.get(span).unwrap_or_default()))
            }
            Body::Generated(seed) => Ok(generated(*seed, range)),
            Body::Dir(_) => Err(Error::new(ErrorKind::IsADirectory, "read", "")),
            Body::Link(_) => Err(Error::new(ErrorKind::InvalidArgument, "read", "a link")),
        }
    }

    async fn statfs(&self, _object: &Reference) -> Result<FsStat> {
        let files_total = 1 << 32;
        let files_free = files_total - self.lock().nodes.len() as u64;
        let bytes = 1 << 50;
        Ok(FsStat { bytes_total: bytes, bytes_free: bytes, bytes_available: bytes, files_total, files_free })
    }
}
