//! Opening a file: through us, or read by the kernel itself from the file in the cache (passthrough).
//!
//! The kernel refuses to have one inode open in both ways, and to have two files behind one inode. So the first
//! open decides, and later opens follow until the last one is closed (`inodes.rs`).
//!
//! Who opens to write is served through us and sees what comes. If the file is passed through to readers, its name is
//! looked up again and leads to another inode, and the readers keep what they opened. (The kernel would let a direct
//! open be beside passed ones, but a shared mapping of it would write into the cache file.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fuser::{BackingId, FileHandle, FopenFlags, ReplyCreate, ReplyOpen};
use rustix::io::Errno;
use tracing::{debug, info};
use types::{Caller, Error, ErrorKind, FileId, Result};
use vfs::{Node, WholeFile};

use crate::Shared;
use crate::errors;
use crate::inodes::{How, Opening};
use crate::ops::Entry;

/// All bytes of a version, and by what number the kernel reads them if it does so by itself. Fields are dropped in
/// this order: the kernel lets go first.
pub struct Backing {
    id: Option<BackingId>,
    pub file: WholeFile,
}

/// What is left to do after a close.
pub struct Released {
    held: Option<How<Arc<Backing>>>,
    /// Written, by a mapping, after the last `close` stored what there was.
    unstored: Option<FileId>,
}

/// May files be passed through? Until it is seen to be impossible.
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

    /// Said once; everything works without it.
    pub fn give_up(&self, why: &str) {
        if self.possible.swap(false, Ordering::Relaxed) {
            info!("complete files are read through this process, not by the kernel directly: {why}");
        }
    }
}

impl Shared {
    /// Open, and answer. Each open is counted when it is decided and until the kernel has closed it, so the way of an
    /// inode never changes while the kernel has it open, in whatever order the answers arrive.
    pub async fn open(&self, number: u64, reply: ReplyOpen) {
        let node = match self.node_to_open(number).await {
            Ok(node) => node,
            Err(e) => {
                let errno = self.failed("open", &e);
                return reply.error(errno);
            }
        };
        let file = self.offer(number, &node);
        let mut inodes = self.inodes();
        let opening = inodes.open(number, &node, || self.choose(&node, file, &reply));
        let label = if inodes.held(number).is_some() { "snapshot" } else { "following" };
        drop(inodes);
        match opening {
            Some(Opening::Passed(ref backing)) if let Some(id) = &backing.id => {
                self.metrics.opened("passthrough");
                reply.opened_passthrough(FileHandle(0), FopenFlags::FOPEN_NOFLUSH, id);
            }
            Some(Opening::Served { keep }) => {
                self.metrics.opened(label);
                let keep = if keep { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                reply.opened(FileHandle(0), keep | FopenFlags::FOPEN_NOFLUSH);
            }
            Some(Opening::Passed(_) | Opening::Superseded) | None => reply.error(errors::stale()),
        }
    }

    pub async fn open_to_write(&self, number: u64, reply: ReplyOpen) {
        match self.opened_to_write(number).await {
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

    async fn opened_to_write(&self, number: u64) -> Result<FopenFlags> {
        let node = self.node_to_open(number).await?;
        self.demand_writable(&node)?;
        self.follow_changes(number)?;
        self.begin_to_follow(number, &node)
    }

    /// Closing it is told to us: a FLUSH stores what was written.
    fn begin_to_follow(&self, number: u64, node: &Node) -> Result<FopenFlags> {
        match self.inodes().open(number, node, || How::Following) {
            Some(Opening::Served { keep: true }) => Ok(FopenFlags::FOPEN_KEEP_CACHE),
            Some(Opening::Served { keep: false }) => Ok(FopenFlags::empty()),
            _ => Err(Error::new(ErrorKind::Stale, "open", number)),
        }
    }

    /// Makes a file and opens it, and answers.
    pub async fn create(
        &self,
        caller: &Caller,
        dir: u64,
        name: Bytes,
        mode: u32,
        exclusive: bool,
        reply: ReplyCreate,
    ) {
        match self.created(caller, dir, name, mode, exclusive).await {
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
        caller: &Caller,
        dir: u64,
        name: Bytes,
        mode: u32,
        exclusive: bool,
    ) -> Result<(Entry, FopenFlags)> {
        let (entry, node) = match self.make_file(caller, dir, name, mode).await {
            // Not absent, as the kernel believed: it looks again, and opens what is there.
            Err(e) if e.kind() == ErrorKind::Exists && !exclusive => {
                return Err(Error::new(ErrorKind::Stale, "create", dir).with_source(e));
            }
            made => made?,
        };
        let number = entry.attr.ino.0;
        match self.begin_to_follow(number, &node) {
            Ok(flags) => Ok((entry, flags)),
            Err(e) => {
                self.inodes().forget(number, 1); // the kernel never hears of it
                Err(e)
            }
        }
    }

    async fn node_to_open(&self, number: u64) -> Result<Node> {
        let id = self.file(number)?;
        self.patiently(|| self.vfs.getattr(id)).await
    }

    /// The whole file, if it is there and nobody has this inode open.
    fn offer(&self, number: u64, node: &Node) -> Option<WholeFile> {
        let first = !self.is_being_written(node) && self.inodes().held(number).is_none();
        if first { self.vfs.whole(node) } else { None }
    }

    fn choose(&self, node: &Node, file: Option<WholeFile>, reply: &ReplyOpen) -> How<Arc<Backing>> {
        if let Some(file) = file {
            if self.passthrough.is_possible() {
                match reply.open_backing(&file) {
                    Ok(id) => return How::Passed(Arc::new(Backing { id: Some(id), file })),
                    Err(e) => self.note_refusal(&e),
                }
            }
            return How::Whole(Arc::new(Backing { id: None, file }));
        }
        let follows = self.is_being_written(node) && self.vfs.may_be_half_written(node.id);
        if follows { How::Following } else { How::Snapshot }
    }

    /// Some refusals are of this file or moment, the others will not change.
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

    /// Written a moment ago, or in the future (clocks differ). Not the ctime: what renames a finished file or gives it
    /// another mode does not write it.
    fn is_being_written(&self, node: &Node) -> bool {
        let changed = node.attr.mtime;
        let Ok(seconds) = u64::try_from(changed.seconds) else { return false };
        let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, changed.nanos));
        let Some(changed) = changed else { return false };
        match SystemTime::now().duration_since(changed) {
            Ok(since) => since < self.config.writing_window,
            // Nobody writes a day ahead: such a time tells nothing.
            Err(ahead) => ahead.duration() < Duration::from_secs(24 * 3600),
        }
    }

    /// The kernel has closed it: one open less.
    pub fn released(&self, number: u64) -> Released {
        let mut inodes = self.inodes();
        let file = inodes.file(number);
        let unstored = inodes.is_open_once(number) && inodes.storing(number);
        let held = inodes.release(number);
        let last = file.filter(|file| !inodes.is_open(*file));
        drop(inodes);
        if let Some(file) = last {
            self.remove_orphan(file);
        }
        Released { held, unstored: file.filter(|_| unstored) }
    }

    pub async fn let_go(&self, released: Released) {
        if let Some(file) = released.unstored {
            self.store_unseen(file).await;
        }
        // The last close of an evicted file frees its blocks, which takes long for a large one.
        if let Some(held @ (How::Whole(_) | How::Passed(_))) = released.held {
            let dropping = tokio::task::spawn_blocking(move || drop(held));
            let _ = dropping.await; // an error: the process ends
        }
    }
}
