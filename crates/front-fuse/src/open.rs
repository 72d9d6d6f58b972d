//! Opening a file: served by us, or read by the kernel itself from the cached file (passthrough).
//!
//! The kernel refuses to have one inode open in both ways, and to have two files behind one inode. So the first open
//! decides, and later opens follow until the last close (`inodes.rs`).
//!
//! An open for writing is served by us and follows the file. If the file is passed through to readers, its name is
//! looked up again and leads to another inode, and the readers keep their version. (The kernel would allow a direct
//! open beside passthrough ones, but a shared mapping of it would write into the cached file.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fuser::{BackingId, FileHandle, FopenFlags, OpenAccMode, ReplyCreate, ReplyOpen};
use rustix::io::Errno;
use tracing::{debug, info};
use types::{Error, ErrorKind, FileId, Result};
use vfs::{Node, WholeFile};

use crate::FuseState;
use crate::asker::Asker;
use crate::errors;
use crate::inodes::{OpenMode, OpenReply};
use crate::ops::FuseEntry;

/// All bytes of a version, with the kernel's backing id if it reads them by itself. Fields are dropped in this
/// order: the kernel's reference first.
pub struct Backing {
    id: Option<BackingId>,
    pub file: WholeFile,
}

/// Bytes of a file that is read through us although the kernel could by itself: these are one READ, after which the kernel
/// keeps them, and to hand it the file at each open, and take it back, costs more than to read them.
const SMALL: u64 = 128 << 10;

fn is_small(node: &Node) -> bool {
    node.attr.size <= SMALL
}

/// How a file is opened that is created.
#[derive(Clone, Copy, Debug)]
pub struct CreateOpen {
    pub exclusive: bool,
    pub mode: OpenAccMode,
}

/// What is left to do after a close.
pub struct Released {
    held: Option<OpenMode<Arc<Backing>>>,
    /// Set if a mapping wrote after the last `close` flushed.
    dirty: Option<FileId>,
}

/// Whether files may be passed through; until it proves impossible.
pub struct Passthrough {
    possible: AtomicBool,
}

impl Passthrough {
    pub fn new(wanted: bool) -> Passthrough {
        Passthrough { possible: AtomicBool::new(wanted) }
    }

    pub fn is_possible(&self) -> bool {
        self.possible.load(Ordering::Relaxed)
    }

    /// Turns passthrough off, and logs that once; everything works without it.
    pub fn give_up(&self, why: &str) {
        if self.possible.swap(false, Ordering::Relaxed) {
            info!("complete files are read through this process, not by the kernel directly: {why}");
        }
    }
}

impl FuseState {
    /// Opens for reading, and answers. An open counts from the decision until the kernel has closed it, so the mode
    /// of an inode never changes while the kernel has it open, in whatever order the answers arrive.
    pub async fn open(&self, number: u64, reply: ReplyOpen) {
        let node = match self.node_to_open(number).await {
            Ok(node) => node,
            Err(e) => {
                let errno = self.failed("open", &e);
                return reply.error(errno);
            }
        };
        let file = self.whole_file(number, &node).await;
        let mut inodes = self.inodes();
        let opening = inodes.open(number, &node, || self.choose_mode(&node, file, &reply));
        let label = if inodes.held_node(number).is_some() { "snapshot" } else { "following" };
        drop(inodes);
        match opening {
            Some(OpenReply::Passthrough(ref backing)) if let Some(id) = &backing.id => {
                self.metrics.opened("passthrough");
                reply.opened_passthrough(FileHandle(0), FopenFlags::FOPEN_NOFLUSH, id);
            }
            Some(OpenReply::Served { keep }) => {
                self.metrics.opened(label);
                let keep = if keep { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                reply.opened(FileHandle(0), keep | FopenFlags::FOPEN_NOFLUSH);
            }
            Some(OpenReply::Passthrough(_) | OpenReply::Superseded) | None => reply.error(errors::stale()),
        }
    }

    pub async fn open_to_write(&self, asker: &Asker, number: u64, mode: OpenAccMode, reply: ReplyOpen) {
        match self.opened_to_write(asker, number, mode).await {
            Ok(flags) => {
                self.metrics.opened("writing");
                reply.opened(FileHandle(0), flags);
            }
            Err(e) => {
                let errno = self.failed("open", &e);
                reply.error(errno);
            }
        }
    }

    async fn opened_to_write(&self, asker: &Asker, number: u64, mode: OpenAccMode) -> Result<FopenFlags> {
        let node = self.node_to_open(number).await?;
        self.require_writable(&node)?;
        self.follow_changes(number)?;
        self.begin_to_follow(asker, (number, &node), mode)
    }

    /// Opens in following mode; a `close` then sends us a FLUSH, which stores what was written, unless there is nothing that
    /// it could do.
    fn begin_to_follow(
        &self,
        asker: &Asker,
        (number, node): (u64, &Node),
        mode: OpenAccMode,
    ) -> Result<FopenFlags> {
        // With that flag the kernel does not write out, either, what a mapping has changed. What is open to write alone
        // cannot be mapped, and a mapping by another open has that one's close.
        let flush = match mode == OpenAccMode::O_WRONLY && !self.vfs.close_stores(&asker.caller, node) {
            true => FopenFlags::FOPEN_NOFLUSH,
            false => FopenFlags::empty(),
        };
        match self.inodes().open(number, node, || OpenMode::Following) {
            Some(OpenReply::Served { keep: true }) => Ok(FopenFlags::FOPEN_KEEP_CACHE | flush),
            Some(OpenReply::Served { keep: false }) => Ok(flush),
            _ => Err(Error::new(ErrorKind::Stale, "open", number)),
        }
    }

    /// Creates a file, opens it, and answers.
    pub async fn create(
        &self,
        asker: &Asker,
        dir: u64,
        name: Bytes,
        mode: u32,
        how: CreateOpen,
        reply: ReplyCreate,
    ) {
        match self.created(asker, dir, name, mode, how).await {
            Ok((entry, flags)) => {
                self.metrics.opened("writing");
                reply.created(&entry.ttl, &entry.attr, fuser::Generation(0), FileHandle(0), flags);
            }
            Err(e) => {
                let errno = self.failed("create", &e);
                reply.error(errno);
            }
        }
    }

    async fn created(
        &self,
        asker: &Asker,
        dir: u64,
        name: Bytes,
        mode: u32,
        how: CreateOpen,
    ) -> Result<(FuseEntry, FopenFlags)> {
        let (entry, node) = match self.make_file(asker, dir, name, mode).await {
            // The file exists, other than the kernel believed: it looks again, and opens it.
            Err(e) if e.kind() == ErrorKind::Exists && !how.exclusive => {
                return Err(Error::new(ErrorKind::Stale, "create", dir).with_source(e));
            }
            made => made?,
        };
        let number = entry.attr.ino.0;
        match self.begin_to_follow(asker, (number, &node), how.mode) {
            Ok(flags) => Ok((entry, flags)),
            Err(e) => {
                self.inodes().forget(number, 1); // the kernel never hears of it
                Err(e)
            }
        }
    }

    async fn node_to_open(&self, number: u64) -> Result<Node> {
        let id = self.file(number)?;
        let node = self.retry_read(|| self.vfs.getattr(id)).await?;
        drop(self.inodes_for(&node));
        Ok(node)
    }

    /// The whole cached file, if it is complete and this inode is not open. Not of a small file whose pages the kernel has
    /// kept: to look for it costs more than all that is read of it.
    async fn whole_file(&self, number: u64, node: &Node) -> Option<WholeFile> {
        if self.is_being_written(node) {
            return None;
        }
        let wanted = {
            let inodes = self.inodes();
            inodes.held_node(number).is_none() && !(is_small(node) && inodes.has_pages_of(number, node))
        };
        if wanted { self.vfs.whole(node).await } else { None }
    }

    fn choose_mode(&self, node: &Node, file: Option<WholeFile>, reply: &ReplyOpen) -> OpenMode<Arc<Backing>> {
        if let Some(file) = file {
            if self.passthrough.is_possible() && !is_small(node) {
                file.note_kernel_reads();
                match reply.open_backing(&file) {
                    Ok(id) => return OpenMode::Passthrough(Arc::new(Backing { id: Some(id), file })),
                    Err(e) => self.note_refusal(&e),
                }
            }
            return OpenMode::Whole(Arc::new(Backing { id: None, file }));
        }
        let follows = self.is_being_written(node) && self.vfs.may_be_half_written(node.id);
        if follows { OpenMode::Following } else { OpenMode::Snapshot }
    }

    /// Some refusals concern this file or moment; the others will not change.
    fn note_refusal(&self, error: &std::io::Error) {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM) => self.passthrough.give_up("it needs the privilege CAP_SYS_ADMIN"),
            Some(Errno::LOOP) => {
                self.passthrough.give_up("the cache is on a stacked file system; put it on a local disk")
            }
            Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                self.passthrough.give_up("the kernel does not know it (Linux 6.9 does)")
            }
            _ => debug!("a file is not passed through: {error}"),
        }
    }

    /// Whether the file was written a moment ago, or in the future (clocks differ). Not by ctime: a rename or chmod
    /// of a finished file does not write it.
    fn is_being_written(&self, node: &Node) -> bool {
        let changed = node.attr.mtime;
        let Ok(seconds) = u64::try_from(changed.seconds) else { return false };
        let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, changed.nanos));
        let Some(changed) = changed else { return false };
        match SystemTime::now().duration_since(changed) {
            Ok(since) => since < self.config.writing_window,
            // No clock is a day ahead: such a time means nothing.
            Err(ahead) => ahead.duration() < Duration::from_secs(24 * 3600),
        }
    }

    /// Counts one open less: the kernel has closed it.
    pub fn released(&self, number: u64) -> Released {
        let mut inodes = self.inodes();
        let file = inodes.file(number);
        let dirty = inodes.is_open_once(number) && inodes.take_dirty(number);
        let held = inodes.release(number);
        let last = file.filter(|file| !inodes.is_open(*file));
        drop(inodes);
        if let Some(file) = last {
            self.remove_orphan(file);
        }
        Released { held, dirty: file.filter(|_| dirty) }
    }

    pub async fn finish_release(&self, released: Released) {
        if let Some(file) = released.dirty {
            self.flush_after_close(file).await;
        }
        // The last close of an evicted file frees its blocks, which takes long for a large one.
        if let Some(held @ (OpenMode::Whole(_) | OpenMode::Passthrough(_))) = released.held {
            let dropping = tokio::task::spawn_blocking(move || drop(held));
            let _ = dropping.await; // an error: the process ends
        }
    }
}
