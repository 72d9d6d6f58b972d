//! A directory as an origin: `file:///dir`, anything the kernel can mount.
//!
//! The cast: `PosixOrigin` gives each call a thread and a deadline; `PosixTree` (`posix/tree.rs`) is the served directory
//! and does the call; `inode.rs` has what the kernel tells of an inode and how a reference names it; `path.rs` opens paths
//! of any length beneath the root; `root.rs` is the directory as it is found now. Changes: `change.rs` (names), `set.rs`
//! (attributes), `xattr.rs` (extended ones), `write.rs` (bytes). What can never be taken: `limits.rs`.
//!
//! A call goes from `PosixOrigin` into a thread, where `PosixTree` opens the path of the reference.
//!
//! The invariant: a reference is the path below the root together with the inode it led to; every use opens the path
//! beneath the root without following links and checks that it is still that inode. Renamed objects therefore answer
//! `Stale` and are found again by name. Begin with `tree.rs`.

mod change;
mod handle;
mod inode;
pub mod kind;
mod limits;
mod path;
mod root;
mod set;
mod tree;
mod write;
mod xattr;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{ByteRange, Error, ErrorKind, FileKind, FsStat, Name, Result, Stability, Version, XattrName};

use self::inode::{attr_of, stat};
use self::limits::TRAITS;
pub use self::limits::demand_path;
use self::tree::PosixTree;
use crate::change::end_of_write;
use crate::{
    Change, Changed, Committed, DirCursor, DirPage, Object, Origin, OriginIdentity, OriginLimits,
    OriginTraits, Reference, Written,
};

/// Metadata calls at the same time, reads, and writes: a thread each, because a far mount is waited for in them. Apart,
/// so that a look-up does not queue behind reads, and no read behind a sync.
const METADATA_MAX: usize = 64;
const READS_MAX: usize = 64;
const WRITES_MAX: usize = 64;
/// A mount that does not answer holds a thread for as long as the kernel likes; the caller is told after this long.
/// 4 MiB in 10 s is 3.4 Mbit/s, slower than any line worth a cache.
const PATIENCE: Duration = Duration::from_secs(10);
/// As long for what changes something: a disk that has gigabytes to write back takes tens of seconds to sync.
const PATIENCE_CHANGING: Duration = Duration::from_secs(60);
pub struct PosixOrigin {
    tree: Arc<PosixTree>,
    metadata: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl PosixOrigin {
    /// Fails with one line that says what to do if there is no such directory.
    pub fn open(path: &Path) -> Result<PosixOrigin> {
        let tree = Arc::new(PosixTree::at(path)?);
        let room = |calls| Arc::new(Semaphore::new(calls));
        let (metadata, reads, writes) = (room(METADATA_MAX), room(READS_MAX), room(WRITES_MAX));
        Ok(PosixOrigin { tree, metadata, reads, writes })
    }

    async fn run<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        call: impl FnOnce(&PosixTree) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = async { self.in_a_thread(self.permit(room).await, call).await };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(self.no_answer(PATIENCE)))
    }

    /// As `run`. A change whose thread still hangs may be made when it comes back.
    async fn run_change<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        what: &'static str,
        call: impl FnOnce(&PosixTree) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.tree.has_proc {
            let reason = "anything here: /proc is not mounted, by which opened files are changed";
            return Err(Error::new(ErrorKind::NotSupported, "change", reason));
        }
        let permit = tokio::time::timeout(PATIENCE, self.permit(room)).await;
        let permit = permit.map_err(|_| self.no_answer(PATIENCE))?;
        let answer = tokio::time::timeout(PATIENCE_CHANGING, self.in_a_thread(permit, call)).await;
        answer.unwrap_or_else(|_| {
            let silence = self.no_answer(PATIENCE_CHANGING);
            Err(Error::doubtful(what, self.tree.path.display(), silence))
        })
    }

    async fn permit(&self, room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        room.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    async fn in_a_thread<T: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        call: impl FnOnce(&PosixTree) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tree = self.tree.clone();
        let thread = tokio::task::spawn_blocking(move || {
            let answer = call(&tree);
            drop(permit); // by the thread, not by a caller that may be gone while the thread still hangs
            answer
        });
        thread.await.map_err(|e| Error::new(ErrorKind::Io, "run a system call", "").with_source(e))?
    }

    fn no_answer(&self, patience: Duration) -> Error {
        let context = format!("{}: no answer in {patience:?}", self.tree.path.display());
        Error::new(ErrorKind::Unavailable, "wait for", context)
    }
}

#[async_trait]
impl Origin for PosixOrigin {
    fn url(&self) -> String {
        format!("file://{}", self.tree.path.display())
    }

    fn traits(&self) -> OriginTraits {
        OriginTraits { has_xattrs: self.tree.root().has_xattrs, ..TRAITS }
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.run(&self.metadata, |tree| {
            let failed = |e: Errno| Error::io("identify", tree.path.display(), e.into());
            tree.open_anew()?.identity().map_err(failed)
        })
        .await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.run(&self.metadata, |tree| {
            let failed = |e: Errno| Error::io("list", tree.path.display(), e.into());
            tree.root().is_empty().map_err(failed)
        })
        .await
    }

    async fn root(&self) -> Result<Object> {
        self.run(&self.metadata, |tree| {
            let found =
                tree.look(&tree.root().fd).map_err(|e| Error::io("open", tree.path.display(), e.into()))?;
            tree.object(b"", &found)
        })
        .await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.run(&self.metadata, PosixTree::limits).await
    }

    fn demand_path(&self, path: &[u8], _is_dir: bool) -> Result<()> {
        demand_path(path)
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let (dir, name) = (dir.clone(), name.clone());
        self.run(&self.metadata, move |tree| {
            let (fd, path) = tree.open(&dir, OFlags::PATH)?;
            tree.child(&fd, &path, &name)
        })
        .await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        let object = object.clone();
        self.run(&self.metadata, move |tree| {
            let (fd, path) = tree.open(&object, OFlags::PATH)?;
            let found = tree.look(&fd).map_err(|e| Error::io("stat", path.escape_ascii(), e.into()))?;
            tree.object(&path, &found)
        })
        .await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let link = link.clone();
        self.run(&self.metadata, move |tree| {
            let (fd, path) = tree.open(&link, OFlags::PATH)?;
            let failed = |e: Errno| Error::io("read link", path.escape_ascii(), e.into());
            if attr_of(&stat(&fd).map_err(failed)?).kind != FileKind::Symlink {
                return Err(Error::new(ErrorKind::InvalidArgument, "read as a link", path.escape_ascii()));
            }
            let target = rustix::fs::readlinkat(&fd, c"", Vec::new()).map_err(failed)?;
            Ok(target.into_bytes().into())
        })
        .await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let dir = dir.clone();
        self.run(&self.metadata, move |tree| tree.list(&dir, cursor)).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let object = object.clone();
        self.run(&self.reads, move |tree| tree.read(&object, version, range)).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        let object = object.clone();
        self.run(&self.metadata, move |tree| {
            let (fd, path) = tree.open(&object, OFlags::PATH)?;
            let stat =
                rustix::fs::fstatvfs(&fd).map_err(|e| Error::io("statfs", path.escape_ascii(), e.into()))?;
            Ok(FsStat {
                bytes_total: stat.f_blocks.saturating_mul(stat.f_frsize),
                bytes_free: stat.f_bfree.saturating_mul(stat.f_frsize),
                bytes_available: stat.f_bavail.saturating_mul(stat.f_frsize),
                files_total: stat.f_files,
                files_free: stat.f_ffree,
            })
        })
        .await
    }

    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        let object = object.clone();
        self.run(&self.metadata, move |tree| tree.xattrs(&object)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        let what = change.kind();
        let change = change.clone();
        self.run_change(&self.metadata, what, move |tree| tree.change(&change)).await
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        end_of_write(offset, data.len())?;
        let object = object.clone();
        let call = move |tree: &PosixTree| tree.write(&object, offset, &data, stability);
        self.run_change(&self.writes, "write", call).await
    }

    async fn commit(&self, object: &Reference, _range: ByteRange) -> Result<Committed> {
        let object = object.clone();
        self.run_change(&self.writes, "commit", move |tree| tree.commit(&object)).await
    }
}
