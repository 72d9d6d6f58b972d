//! The requests that ask for something, each answered with one call of `vfs`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use bytes::Bytes;
use fuser::{FileAttr, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use tokio::time::Instant;
use tracing::{debug, warn};
use types::{ByteRange, Error, ErrorKind, FileId, FileKind, FsStat, Name, Result};
use vfs::{DirItem, Lend, Node, Piece};

use crate::attr::{file_attr, file_type};
use crate::errors;
use crate::inodes::Serving;
use crate::metrics::ErrnoLabels;
use crate::{READ_MAX, Shared};

/// Names taken from `vfs` at a time. The kernel asks in pages of 4 KiB at first: about 25 names with attributes.
const LIST_PIECE: usize = 64;
/// Pause before what the origin did not answer is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const STATFS_MAX: Duration = Duration::from_secs(3);

/// An object and for how long it may be told.
pub struct Entry {
    pub attr: FileAttr,
    pub ttl: Duration,
}

impl Shared {
    pub async fn lookup(&self, dir: u64, name: Bytes) -> Result<Entry> {
        match &name[..] {
            b"." => return self.by_number(dir).await,
            b".." => return self.parent_by_number(dir).await,
            _ => {}
        }
        let dir_id = self.file(dir)?;
        let bytes = name.clone();
        let name = Name::new(name)?;
        let forgotten = self.inodes().perhaps_absent(dir, &bytes);
        for (dir, names) in forgotten {
            self.notices.names(dir, names);
        }
        match self.patiently(|| self.vfs.lookup(&self.kernel, dir_id, &name)).await {
            Ok(node) => Ok(self.entry(dir, dir_id, &name, node)),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let ttl = self.vfs.name_fresh_for(dir_id, &name, true);
                if ttl.is_zero() || !self.inodes().is_perhaps_absent(dir, &bytes) {
                    return Err(e);
                }
                // An entry without an inode is remembered as absent.
                Ok(Entry { attr: absent(), ttl })
            }
            Err(e) => Err(e),
        }
    }

    /// The kernel is told of `node`, which is `name` in `dir`. Name and attributes get one time, the shorter: when
    /// it is over, the next use of the name is a look-up, which brings both.
    pub fn entry(&self, dir: u64, dir_id: FileId, name: &Name, node: Node) -> Entry {
        let ttl = self.vfs.fresh_for(&node).min(self.vfs.name_fresh_for(dir_id, name, false));
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        let (number, moved) = {
            let mut inodes = self.inodes();
            let number = inodes.remember(&node, dir, &bytes);
            (number, inodes.told(number, node.clone()).moved)
        };
        if moved {
            self.notices.pages(number);
        }
        Entry { attr: self.shown(number, &node), ttl }
    }

    /// The kernel has a handle (of `open_by_handle_at`, or of a client of an NFS server that exports this mount), and has
    /// forgotten what it knew of the object. Another version of the file may be open under this number: that is no
    /// answer to a handle.
    async fn by_number(&self, number: u64) -> Result<Entry> {
        let known = self.inodes().file(number);
        let id = match known {
            Some(id) => id,
            None => self.vfs.file_of_number(number)?.ok_or_else(|| unknown(number))?,
        };
        let node = self.patiently(|| self.vfs.getattr(id)).await?;
        let entry = self.entry_without_place(node);
        let told = entry.attr.ino.0;
        if told != number {
            self.inodes().forget(told, 1);
            return Err(unknown(number));
        }
        Ok(entry)
    }

    /// From a directory that came by a handle up to the root: who uses it must be able to leave it.
    async fn parent_by_number(&self, number: u64) -> Result<Entry> {
        let id = self.file(number)?;
        let parent = self.patiently(|| self.vfs.parent(&self.kernel, id)).await?;
        Ok(self.entry_without_place(parent))
    }

    fn entry_without_place(&self, node: Node) -> Entry {
        let ttl = self.vfs.fresh_for(&node);
        let (number, moved) = {
            let mut inodes = self.inodes();
            let number = inodes.remember_number(&node);
            (number, inodes.told(number, node.clone()).moved)
        };
        if moved {
            self.notices.pages(number);
        }
        Entry { attr: self.shown(number, &node), ttl }
    }

    /// A file that was removed while it is open has one name less than its origin says: the hidden one.
    fn shown(&self, number: u64, node: &Node) -> FileAttr {
        let hidden = u32::from(self.orphans.contains(node.id));
        FileAttr { nlink: node.attr.nlink.saturating_sub(hidden), ..file_attr(number, &node.attr) }
    }

    pub async fn getattr(&self, number: u64) -> Result<Entry> {
        let id = self.file(number)?;
        let node = match self.patiently(|| self.vfs.getattr(id)).await {
            Ok(node) => node,
            Err(e) => {
                // Removed or out of reach, and open: it is what it was.
                let held = self.inodes().held(number).cloned();
                held.ok_or(e)?
            }
        };
        Ok(self.attributes(number, node))
    }

    /// What to tell of an inode whose file is `node` now.
    pub fn attributes(&self, number: u64, node: Node) -> Entry {
        let told = self.inodes().told(number, node);
        if told.moved {
            self.notices.pages(number);
        }
        let ttl = if told.superseded { Duration::ZERO } else { self.vfs.fresh_for(&told.node) };
        Entry { attr: self.shown(number, &told.node), ttl }
    }

    pub async fn readlink(&self, number: u64) -> Result<Bytes> {
        let id = self.file(number)?;
        let (target, _) = self.patiently(|| self.vfs.readlink(&self.kernel, id)).await?;
        Ok(target)
    }

    /// Answered soon, or with an error: by this it is known that somebody serves (`mount::check_mount_point`).
    pub async fn statfs(&self, number: u64) -> Result<FsStat> {
        let id = self.file(number)?;
        let asked = tokio::time::timeout(STATFS_MAX, self.patiently(|| self.vfs.statfs(id)));
        asked.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "answer in time", "")))
    }

    /// Bytes of one version; with it, whether the kernel's pages may be of another one.
    pub async fn read(&self, number: u64, offset: u64, count: u32) -> Result<(Vec<Bytes>, Option<Node>)> {
        let count = count.min(READ_MAX);
        let serving = self.inodes().serving(number).ok_or_else(|| unknown(number))?;
        match serving {
            Serving::Pinned(node, whole) => {
                if let Some(whole) = whole {
                    let range = ByteRange::new(offset, u64::from(count)).clamp_to(node.attr.size);
                    match whole.file.read(range).await {
                        Ok(data) => return Ok((vec![data], None)),
                        Err(e) => warn!("reading another way: {e}"),
                    }
                }
                let data =
                    self.patiently(|| self.vfs.read_version(&node, offset, count, Lend::Nothing)).await?;
                Ok((in_memory(&data)?, None))
            }
            Serving::Current(id) => {
                let read =
                    self.patiently(|| self.vfs.read(&self.kernel, id, offset, count, Lend::Nothing)).await?;
                Ok((in_memory(&read.data)?, Some(read.node)))
            }
        }
    }

    /// Bytes of `node`'s version have gone to the kernel. If those before were of another one, they are to go.
    pub fn has_read(&self, number: u64, node: &Node) {
        if self.inodes().paged(number, node) {
            self.notices.pages(number);
        }
    }

    /// Room for a READ answer.
    pub async fn reply_room(&self, count: u32) -> tokio::sync::OwnedSemaphorePermit {
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

    /// An open file that was removed.
    fn is_hidden(&self, item: &DirItem) -> bool {
        item.node.as_ref().is_some_and(|node| self.orphans.hides(node.id, &item.name))
    }

    pub async fn readdirplus(&self, number: u64, cookie: u64, reply: &mut ReplyDirectoryPlus) -> Result<()> {
        let dir_id = self.file(number)?;
        let mut at = cookie;
        loop {
            let listing = self.list(number, at).await?;
            for item in listing.items {
                at = item.cookie;
                if self.is_hidden(&item) {
                    continue;
                }
                if self.add_plus(number, dir_id, &item, reply) {
                    return Ok(());
                }
            }
            if listing.eof {
                return Ok(());
            }
        }
    }

    /// One name with attributes; true if there was no room for it.
    fn add_plus(&self, dir: u64, dir_id: FileId, item: &DirItem, reply: &mut ReplyDirectoryPlus) -> bool {
        let shown = OsStr::from_bytes(&item.name);
        let mut add = |entry: &Entry| {
            reply.add(entry.attr.ino, item.cookie, shown, &entry.ttl, &entry.attr, fuser::Generation(0))
        };
        match (&item.node, Name::new(item.name.clone())) {
            (Some(node), Ok(name)) => {
                let entry = self.entry(dir, dir_id, &name, node.clone());
                let full = add(&entry);
                if full {
                    self.inodes().forget(entry.attr.ino.0, 1);
                }
                full
            }
            // `.` and `..`: shown, not told of.
            (Some(node), Err(_)) => {
                let number = self.inodes().number_of(node.id);
                add(&Entry { attr: file_attr(number, &node.attr), ttl: Duration::ZERO })
            }
            // Out of reach: it is there, and to be looked up when it is used.
            (None, _) => add(&Entry { attr: unreachable(item.fileid), ttl: Duration::ZERO }),
        }
    }

    async fn list(&self, number: u64, cookie: u64) -> Result<vfs::Listing> {
        let id = self.file(number)?;
        self.patiently(|| self.vfs.readdir(&self.kernel, id, cookie, LIST_PIECE)).await
    }

    pub fn file(&self, number: u64) -> Result<FileId> {
        self.inodes().file(number).ok_or_else(|| unknown(number))
    }

    /// Try again what may succeed later, until the deadline; a wait inside a try counts too.
    pub async fn patiently<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
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

    /// As `patiently`, for what changes something. No try is cut short: what it did would be half known. (Each ends by
    /// itself: `vfs` and the origin have deadlines.)
    pub async fn persistently<T, F: Future<Output = Result<T>>>(&self, change: impl Fn() -> F) -> Result<T> {
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

    /// The errno to answer, counted.
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

/// A directory of which only the number is known.
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

/// The kernel's FUSE takes bytes from memory only.
fn in_memory(pieces: &[Piece]) -> Result<Vec<Bytes>> {
    let bytes = pieces.iter().map(|piece| piece.to_bytes());
    bytes.collect::<std::io::Result<_>>().map_err(|e| Error::io("read cached file", "lent", e))
}
