//! An honest origin in memory: for tests, and for measuring without a disk.
//!
//! Behaves as a POSIX server does: inode numbers, link counts, times that move with every change, and an identity
//! that no later object shares. Contents may be generated from a seed, so that large trees cost little memory. What was
//! written unstable is lost when the test says so, as by an NFS server that restarts.

mod change;
mod contents;
mod generated;
mod tree;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use types::{
    ByteRange, Error, ErrorKind, FileKind, FsStat, Name, Result, SetAttr, Stability, Version, WriteVerifier,
    XattrName,
};

use self::contents::NodeBody;
pub use self::generated::{generated, generated_byte};
use self::tree::{ROOT, State};
use crate::change::end_of_write;
use crate::{
    Change, Changed, Committed, DirCursor, DirEntry, DirPage, Object, Origin, OriginIdentity, OriginLimits,
    OriginTraits, Reference, Written,
};

/// Names in one piece of a listing.
const PAGE: usize = 1000;

pub struct MemoryOrigin {
    state: Mutex<State>,
    limits: Mutex<OriginLimits>,
}

impl MemoryOrigin {
    pub fn new() -> Arc<MemoryOrigin> {
        Arc::new(MemoryOrigin { state: Mutex::new(State::new()), limits: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it says of itself from now on, and does not hold to.
    pub fn set_limits(&self, limits: OriginLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Create a directory; its parents must exist. Paths are relative to the root, `/` between names.
    pub fn mkdir(&self, path: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let (dir, name) = state.parent_and_name(path)?;
        state.make(dir, &name, FileKind::Directory, NodeBody::Dir(BTreeMap::new())).map(|_| ())
    }

    /// Create a file, or replace the contents of the one that is there.
    pub fn write_file(&self, path: &[u8], bytes: &[u8]) -> Result<()> {
        self.put(path, NodeBody::Bytes(bytes.to_vec()), bytes.len() as u64)
    }

    /// A file of `size` bytes made from `seed`; see [`generated()`].
    pub fn generate_file(&self, path: &[u8], seed: u64, size: u64) -> Result<()> {
        self.put(path, NodeBody::Generated(seed), size)
    }

    fn put(&self, path: &[u8], body: NodeBody, size: u64) -> Result<()> {
        let mut state = self.lock();
        let (dir, name) = state.parent_and_name(path)?;
        let id = match state.find(dir, &name) {
            Ok(id) if state.inode(id)?.attr.is_file() => id,
            Ok(_) => return Err(Error::new(ErrorKind::IsADirectory, "write", path.escape_ascii())),
            Err(_) => state.make(dir, &name, FileKind::Regular, NodeBody::Bytes(Vec::new()))?,
        };
        let now = state.tick();
        state.inode(id)?.replace(body, size, now);
        Ok(())
    }

    pub fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let (dir, name) = state.parent_and_name(path)?;
        state.make(dir, &name, FileKind::Symlink, NodeBody::Link(Bytes::copy_from_slice(target))).map(|_| ())
    }

    /// A second name for a file.
    pub fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let id = state.walk(from)?;
        let (dir, name) = state.parent_and_name(to)?;
        state.link(id, dir, &name)
    }

    /// Remove a file, a link, or an empty directory.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let (dir, name) = state.parent_and_name(path)?;
        let id = state.find(dir, &name)?;
        if state.inode(id)?.attr.is_dir() { state.rmdir(dir, &name) } else { state.remove(dir, &name) }
    }

    /// Rename, as POSIX does: what had the new name is removed if it may be; two names of one file stay both.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let (from_dir, from) = state.parent_and_name(from)?;
        let (to_dir, to) = state.parent_and_name(to)?;
        state.rename(from_dir, &from, to_dir, &to).map(|_| ())
    }

    pub fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        self.set(path, SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    pub fn chown(&self, path: &[u8], uid: u32, gid: u32) -> Result<()> {
        self.set(path, SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() })
    }

    fn set(&self, path: &[u8], set: SetAttr) -> Result<()> {
        let mut state = self.lock();
        let id = state.walk(path)?;
        state.set(id, &set)
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

    /// What is changed from now on has the time of the change before, as if all was done within a moment.
    pub fn stop_clock(&self) {
        self.lock().clock_stands = true;
    }

    /// The server behind it restarts: what was written unstable and not committed is gone, and the verifier is
    /// another one.
    pub fn lose_unsynced(&self) {
        let mut state = self.lock();
        state.starts += 1;
        state.inodes().for_each(|inode| inode.lose_unsynced());
    }
}

impl State {
    fn walk(&mut self, path: &[u8]) -> Result<u64> {
        let mut at = ROOT;
        for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
            at = self.find(at, &Name::new(Bytes::copy_from_slice(part))?)?;
        }
        Ok(at)
    }

    fn parent_and_name(&mut self, path: &[u8]) -> Result<(u64, Name)> {
        let cut = path.iter().rposition(|b| *b == b'/');
        let (parent, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        Ok((self.walk(parent)?, Name::new(Bytes::copy_from_slice(name))?))
    }

    fn verifier(&self) -> WriteVerifier {
        self.starts.to_be_bytes()
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

    fn traits(&self) -> OriginTraits {
        OriginTraits { has_xattrs: true, ..OriginTraits::POSIX }
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        Ok(OriginIdentity {
            bytes: Bytes::from_static(b"memory"),
            shown: "a tree in memory".into(),
            is_lasting: true,
        })
    }

    async fn is_empty(&self) -> Result<bool> {
        crate::identity::lists_nothing(self).await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        Ok(*self.limits.lock().unwrap_or_else(PoisonError::into_inner))
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
            NodeBody::Link(target) => Ok(target.clone()),
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
            NodeBody::Bytes(bytes) => {
                let span = range.offset as usize..range.end() as usize;
                Ok(Bytes::copy_from_slice(bytes.get(span).unwrap_or_default()))
            }
            NodeBody::Generated(seed) => Ok(generated(*seed, range)),
            NodeBody::Dir(_) => Err(Error::new(ErrorKind::IsADirectory, "read", "")),
            NodeBody::Link(_) | NodeBody::Special => {
                Err(Error::new(ErrorKind::InvalidArgument, "read", "what is no file"))
            }
        }
    }

    async fn statfs(&self, _object: &Reference) -> Result<FsStat> {
        let files_total = 1 << 32;
        let files_free = files_total - self.lock().count();
        let bytes = 1 << 50;
        Ok(FsStat { bytes_total: bytes, bytes_free: bytes, bytes_available: bytes, files_total, files_free })
    }

    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        let mut state = self.lock();
        let xattrs = &state.inode(id_in(object)?)?.xattrs;
        Ok(xattrs.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.lock().apply(change)
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        end_of_write(offset, data.len())?;
        let id = id_in(object)?;
        let mut state = self.lock();
        let before = Some(state.object(id)?.version);
        let now = state.tick();
        state.inode(id)?.write(offset, &data, stability, now)?;
        let (after, verifier) = (Some(state.object(id)?), state.verifier());
        Ok(Written { stability, verifier, before, after, resent: false })
    }

    /// Of the whole file, whatever the range.
    async fn commit(&self, object: &Reference, _range: ByteRange) -> Result<Committed> {
        let id = id_in(object)?;
        let mut state = self.lock();
        state.inode(id)?.store()?;
        let (after, verifier) = (state.object(id)?, state.verifier());
        Ok(Committed { verifier, before: Some(after.version), after: Some(after), resent: false })
    }
}
