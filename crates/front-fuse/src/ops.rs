//! Requests that read: look-ups, attributes, links, bytes and listings, each answered with one call of `vfs`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fuser::{FileAttr, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use tokio::time::Instant;
use tracing::{debug, warn};
use types::{ByteRange, Error, ErrorKind, FileId, FileKind, FsStat, Name, Result};
use vfs::{DirItem, Lend, Node, Piece};

use crate::asker::Thread;
use crate::attr::{file_attr, file_type};
use crate::errors;
use crate::inodes::{InodeTable, ReadSource};
use crate::metrics::ErrnoLabels;
use crate::open::Backing;
use crate::{FuseState, READ_MAX};

/// The names of one listing call. The kernel asks in pages of 4 KiB at first: about 25 names with attributes.
const LIST_PIECE: usize = 64;
/// The pause before a failed request is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const STATFS_MAX: Duration = Duration::from_secs(3);

/// Attributes for the kernel, and for how long it may cache them.
pub struct FuseEntry {
    pub attr: FileAttr,
    pub ttl: Duration,
}

impl FuseState {
    pub async fn lookup(&self, thread: Thread, dir: u64, name: Bytes) -> Result<FuseEntry> {
        match &name[..] {
            b"." => return self.by_number(thread, dir).await,
            b".." => return self.parent_by_number(thread, dir).await,
            _ => {}
        }
        let dir_id = self.file(dir)?;
        let bytes = name.clone();
        let name = Name::new(name)?;
        let forgotten = self.inodes().note_negative(dir, &bytes);
        for (dir, names) in forgotten {
            self.invalidations.names(dir, names);
        }
        match self.retry_read(|| self.vfs.lookup(&self.kernel, dir_id, &name)).await {
            Ok(node) => Ok(self.entry(thread, (dir, dir_id, &name), node)),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let ttl = self.vfs.name_fresh_for(dir_id, &name, true);
                if ttl.is_zero() || !self.inodes().is_negative(dir, &bytes) {
                    return Err(e);
                }
                // An entry without an inode is cached by the kernel as negative.
                Ok(FuseEntry { attr: absent(), ttl })
            }
            Err(e) => Err(e),
        }
    }

    /// The entry of `node` as `name` in `dir`. Name and attributes get one timeout, the shorter: when it is over,
    /// the next use of the name is a look-up, which brings both.
    pub fn entry(&self, thread: Thread, (dir, dir_id, name): (u64, FileId, &Name), node: Node) -> FuseEntry {
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        let mut entry = self.entry_of_known(thread, node, |inodes, node| inodes.remember(node, dir, &bytes));
        entry.ttl = entry.ttl.min(self.vfs.name_fresh_for(dir_id, name, false));
        entry
    }

    /// Looks up an inode by its number: the kernel has a handle (of `open_by_handle_at`, or of a client of an NFS
    /// server that exports this mount), and has forgotten the object. If another version of the file is open under
    /// the number, that is no answer to a handle.
    async fn by_number(&self, thread: Thread, number: u64) -> Result<FuseEntry> {
        let known = self.inodes().file(number);
        let id = match known {
            Some(id) => id,
            None => self.vfs.file_of_number(number)?.ok_or_else(|| unknown(number))?,
        };
        let node = self.retry_read(|| self.vfs.getattr(id)).await?;
        let entry = self.entry_of_known(thread, node, InodeTable::remember_number);
        let told = entry.attr.ino.0;
        if told != number {
            self.inodes().forget(told, 1);
            return Err(unknown(number));
        }
        Ok(entry)
    }

    /// The parent of a directory that was reached by a handle: its user must be able to leave it.
    async fn parent_by_number(&self, thread: Thread, number: u64) -> Result<FuseEntry> {
        let id = self.file(number)?;
        let parent = self.retry_read(|| self.vfs.parent(&self.kernel, id)).await?;
        Ok(self.entry_of_known(thread, parent, InodeTable::remember_number))
    }

    /// The entry of an object, after `remember` has noted that the kernel learns of it.
    fn entry_of_known(
        &self,
        thread: Thread,
        node: Node,
        remember: impl FnOnce(&mut InodeTable<Arc<Backing>>, &Node) -> u64,
    ) -> FuseEntry {
        let (number, stale) = {
            let mut inodes = self.inodes_for(&node);
            let number = remember(&mut inodes, &node);
            inodes.attributes_told(number, thread);
            (number, inodes.attributes_of(number, node.clone()).pages_stale)
        };
        if stale {
            self.invalidations.pages(number);
        }
        // Last: a directory that was changed before that was noted is not fresh any more.
        FuseEntry { attr: self.attr_of(number, &node), ttl: self.vfs.fresh_for(&node) }
    }

    /// The attributes to show. An orphan has one link less than the origin says, the hidden name.
    fn attr_of(&self, number: u64, node: &Node) -> FileAttr {
        let hidden = u32::from(self.orphans.contains(node.id));
        FileAttr { nlink: node.attr.nlink.saturating_sub(hidden), ..file_attr(number, &node.attr) }
    }

    pub async fn getattr(&self, thread: Thread, number: u64) -> Result<FuseEntry> {
        let id = self.file(number)?;
        let node = match self.retry_read(|| self.vfs.getattr(id)).await {
            Ok(node) => node,
            Err(e) => {
                // Removed or unreachable, but open: it keeps its last state.
                let held = self.inodes().held_node(number).cloned();
                held.ok_or(e)?
            }
        };
        Ok(self.attributes(thread, number, node))
    }

    /// The entry for an inode whose file is `node` now.
    pub fn attributes(&self, thread: Thread, number: u64, node: Node) -> FuseEntry {
        let told = {
            let mut inodes = self.inodes_for(&node);
            inodes.attributes_told(number, thread);
            inodes.attributes_of(number, node)
        };
        if told.pages_stale {
            self.invalidations.pages(number);
        }
        let ttl = if told.superseded { Duration::ZERO } else { self.vfs.fresh_for(&told.node) };
        FuseEntry { attr: self.attr_of(number, &told.node), ttl }
    }

    pub async fn readlink(&self, number: u64) -> Result<Bytes> {
        let id = self.file(number)?;
        let (target, _) = self.retry_read(|| self.vfs.readlink(&self.kernel, id)).await?;
        Ok(target)
    }

    /// Answers soon, or with an error: `mount::check_mount_point` takes an answer as the sign that somebody serves
    /// the mount.
    pub async fn statfs(&self, number: u64) -> Result<FsStat> {
        let id = self.file(number)?;
        let asked = tokio::time::timeout(STATFS_MAX, self.retry_read(|| self.vfs.statfs(id)));
        asked.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "answer in time", "")))
    }

    /// Reads bytes of one version. A returned node means that the kernel's pages may be of another version.
    pub async fn read(&self, number: u64, offset: u64, count: u32) -> Result<(Vec<Bytes>, Option<Node>)> {
        let count = count.min(READ_MAX);
        let serving = self.inodes().serving(number).ok_or_else(|| unknown(number))?;
        match serving {
            ReadSource::Pinned(node, whole) => {
                if let Some(whole) = whole {
                    let range = ByteRange::new(offset, u64::from(count)).clamp_to(node.attr.size);
                    match whole.file.read(range).await {
                        Ok(data) => return Ok((vec![data], None)),
                        Err(e) => warn!("reading another way: {e}"),
                    }
                }
                let data =
                    self.retry_read(|| self.vfs.read_version(&node, offset, count, Lend::Nothing)).await?;
                Ok((in_memory(&data)?, None))
            }
            ReadSource::Current(id) => {
                let read =
                    self.retry_read(|| self.vfs.read(&self.kernel, id, offset, count, Lend::Nothing)).await?;
                Ok((in_memory(&read.data)?, Some(read.node)))
            }
        }
    }

    /// Records that bytes of `node`'s version went to the kernel. Pages of another version are invalidated.
    pub fn pages_sent(&self, number: u64, node: &Node) {
        if self.inodes_for(node).pages_sent(number, node) {
            self.invalidations.pages(number);
        }
    }

    /// The memory permit for a READ answer.
    pub async fn reply_permit(&self, count: u32) -> tokio::sync::OwnedSemaphorePermit {
        let kib = count.min(READ_MAX).div_ceil(1024);
        let room = self.reply_budget.clone().acquire_many_owned(kib).await;
        room.expect("the budget is never closed")
    }

    pub async fn readdir(&self, number: u64, cookie: u64, reply: &mut ReplyDirectory) -> Result<()> {
        let mut at = cookie;
        loop {
            let listing = self.list(number, at).await?;
            for item in &listing.items {
                at = item.cookie;
                if self.is_hidden(item) {
                    continue;
                }
                let shown = match &item.node {
                    Some(node) => self.inodes().number_of(node.id),
                    None => item.fileid,
                };
                let kind = file_type(item.node.as_ref().map_or(FileKind::Directory, |node| node.attr.kind));
                if reply.add(INodeNo(shown), item.cookie, kind, OsStr::from_bytes(&item.name)) {
                    return Ok(());
                }
            }
            if listing.eof {
                return Ok(());
            }
        }
    }

    /// Whether this is the hidden name of an orphan.
    fn is_hidden(&self, item: &DirItem) -> bool {
        item.node.as_ref().is_some_and(|node| self.orphans.hides(node.id, &item.name))
    }

    pub async fn readdirplus(
        &self,
        thread: Thread,
        number: u64,
        cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<()> {
        let dir_id = self.file(number)?;
        let mut at = cookie;
        loop {
            let listing = self.list(number, at).await?;
            for item in listing.items {
                at = item.cookie;
                if self.is_hidden(&item) {
                    continue;
                }
                if self.add_plus(thread, (number, dir_id), &item, reply) {
                    return Ok(());
                }
            }
            if listing.eof {
                return Ok(());
            }
        }
    }

    /// Adds one name with attributes; true if it did not fit.
    fn add_plus(
        &self,
        thread: Thread,
        (dir, dir_id): (u64, FileId),
        item: &DirItem,
        reply: &mut ReplyDirectoryPlus,
    ) -> bool {
        let shown = OsStr::from_bytes(&item.name);
        let mut add = |entry: &FuseEntry| {
            reply.add(entry.attr.ino, item.cookie, shown, &entry.ttl, &entry.attr, fuser::Generation(0))
        };
        match (&item.node, Name::new(item.name.clone())) {
            (Some(node), Ok(name)) => {
                let entry = self.entry(thread, (dir, dir_id, &name), node.clone());
                let full = add(&entry);
                if full {
                    self.inodes().forget(entry.attr.ino.0, 1);
                }
                full
            }
            // `.` and `..` are listed without adding to the lookup count.
            (Some(node), Err(_)) => {
                let number = self.inodes().number_of(node.id);
                add(&FuseEntry { attr: file_attr(number, &node.attr), ttl: Duration::ZERO })
            }
            // Unreachable: it is listed, and looked up when it is used.
            (None, _) => add(&FuseEntry { attr: unreachable(item.fileid), ttl: Duration::ZERO }),
        }
    }

    async fn list(&self, number: u64, cookie: u64) -> Result<vfs::DirListing> {
        let id = self.file(number)?;
        self.retry_read(|| self.vfs.readdir(&self.kernel, id, cookie, LIST_PIECE)).await
    }

    pub fn file(&self, number: u64) -> Result<FileId> {
        self.inodes().file(number).ok_or_else(|| unknown(number))
    }

    /// Retries a read that may succeed later, until the deadline; waits inside a try count, too.
    pub async fn retry_read<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        let deadline = Instant::now() + self.config.deadline;
        loop {
            let error = match tokio::time::timeout_at(deadline, ask()).await {
                Ok(Err(e)) if e.is_retryable() => e,
                Ok(result) => return result,
                Err(_) => Error::new(ErrorKind::Unavailable, "answer in time", ""),
            };
            if Instant::now() + RETRY_PAUSE >= deadline {
                return Err(error);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// As `retry_read`, for changes. No try is cut short, since its outcome would be unknown. (Each ends by itself:
    /// `vfs` and the origin have deadlines.)
    pub async fn retry_change<T, F: Future<Output = Result<T>>>(&self, change: impl Fn() -> F) -> Result<T> {
        let deadline = Instant::now() + self.config.change_deadline;
        loop {
            match change().await {
                Err(e) if e.is_retryable() && Instant::now() + RETRY_PAUSE < deadline => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// The errno to answer; counts it.
    pub fn failed(&self, operation: &'static str, error: &Error) -> fuser::Errno {
        debug!("{operation}: {error}");
        let errno = errors::errno_of(error.kind());
        self.metrics.failures.get_or_create(&ErrnoLabels { errno: errno.code() }).inc();
        errno
    }
}

pub fn unknown(number: u64) -> Error {
    Error::new(ErrorKind::Stale, "find inode", number)
}

fn absent() -> FileAttr {
    unreachable(0)
}

/// The attributes of an object of which only the number is known.
fn unreachable(number: u64) -> FileAttr {
    let time = types::Timestamp::default();
    let attr = types::Attr {
        kind: FileKind::Directory,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid: number,
        atime: time,
        mtime: time,
        ctime: time,
    };
    file_attr(number, &attr)
}

/// FUSE replies take bytes from memory only.
fn in_memory(pieces: &[Piece]) -> Result<Vec<Bytes>> {
    let bytes = pieces.iter().map(|piece| piece.to_bytes());
    bytes.collect::<std::io::Result<_>>().map_err(|e| Error::io("read cached file", "lent", e))
}
