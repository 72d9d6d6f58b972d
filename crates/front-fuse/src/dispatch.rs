//! From the kernel's request to a task. The threads that take requests hand them on and never wait; how many there
//! are at a time is bounded by the kernel: one for each waiting process, and `background_max` of its own.
//!
//! A request that is interrupted is not cut short: the work is wanted by whoever asks next. A process that is killed
//! while it waits ends with the answer, at the latest after `deadline`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, Request,
};
use tokio::runtime::Handle;

use crate::metrics::OperationLabels;
use crate::{READ_MAX, Shared};

/// Unit of the counts in STATFS.
const FRAGMENT: u64 = 4096;

pub struct Front {
    pub shared: Arc<Shared>,
    pub runtime: Handle,
}

impl Front {
    /// Answer in a task of its own.
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        operation: &'static str,
        answer: impl FnOnce(Arc<Shared>) -> F,
    ) {
        let shared = self.shared.clone();
        shared.metrics.requests.inc();
        let answering = answer(shared.clone());
        self.runtime.spawn(async move {
            let start = Instant::now();
            shared.metrics.inflight.inc();
            answering.await;
            shared.metrics.inflight.dec();
            let labels = OperationLabels { operation };
            shared.metrics.seconds.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
        });
    }
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> io::Result<()> {
        // An error names the most that is possible, and is no error: these are wishes.
        let _ = kernel.set_max_write(READ_MAX); // also the bound of reads
        let _ = kernel.set_max_background(self.shared.config.background_max);
        let wishes = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
        ];
        for wish in wishes {
            let _ = kernel.add_capabilities(wish);
        }
        if !self.shared.passthrough.is_possible() {
            return Ok(());
        }
        // Depth 1: the cache may not be on a stacked file system, and this mount may be below one (containers).
        let depth = kernel.set_max_stack_depth(1);
        if depth.is_err() || kernel.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_err() {
            self.shared.passthrough.give_up("the kernel does not know it (Linux 6.9 does)");
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.spawn("lookup", |shared| async move {
            match shared.lookup(parent.0, name).await {
                Ok(entry) => reply.entry(&entry.ttl, &entry.attr, Generation(0)),
                Err(e) => reply.error(shared.failed("lookup", &e)),
            }
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.shared.inodes().forget(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.spawn("getattr", |shared| async move {
            match shared.getattr(ino.0).await {
                Ok(entry) => reply.attr(&entry.ttl, &entry.attr),
                Err(e) => reply.error(shared.failed("getattr", &e)),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.spawn("readlink", |shared| async move {
            match shared.readlink(ino.0).await {
                Ok(target) => reply.data(&target),
                Err(e) => reply.error(shared.failed("readlink", &e)),
            }
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        self.spawn("open", |shared| async move { shared.open(ino.0, reply).await });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.spawn("read", |shared| async move {
            let _room = shared.reply_room(size).await;
            let (data, node) = match shared.read(ino.0, offset, size).await {
                Ok(read) => read,
                Err(e) => return reply.error(shared.failed("read", &e)),
            };
            shared.metrics.read_bytes.inc_by(data.iter().map(|piece| piece.len() as u64).sum());
            match data.as_slice() {
                [whole] => reply.data(whole),
                pieces => reply.data(&pieces.concat()),
            }
            // After the answer: pages that are dropped now are all those that came before.
            if let Some(node) = node {
                shared.has_read(ino.0, &node);
            }
        });
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let shared = self.shared.clone();
        // The last close of an evicted file frees its blocks, which takes long for a large one.
        self.runtime.spawn_blocking(move || {
            shared.release(ino.0);
            reply.ok();
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.spawn("readdir", |shared| async move {
            match shared.readdir(ino.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(shared.failed("readdir", &e)),
            }
        });
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.spawn("readdirplus", |shared| async move {
            match shared.readdirplus(ino.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(shared.failed("readdirplus", &e)),
            }
        });
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.spawn("statfs", |shared| async move {
            match shared.statfs(ino.0).await {
                Ok(room) => reply.statfs(
                    room.bytes_total / FRAGMENT,
                    room.bytes_free / FRAGMENT,
                    room.bytes_available / FRAGMENT,
                    room.files_total,
                    room.files_free,
                    FRAGMENT as u32,
                    types::name::NAME_MAX as u32,
                    FRAGMENT as u32,
                ),
                Err(e) => reply.error(shared.failed("statfs", &e)),
            }
        });
    }

    // The kernel refuses changes by itself, since the mount is read-only; these answer if somebody remounts it.

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &std::path::Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: fuser::ReplyCreate) {
        reply.error(Errno::EROFS);
    }
}
