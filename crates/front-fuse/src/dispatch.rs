//! From the kernel's request to its answer. The threads that take requests do not wait, but for one of them at a
//! time and for the journal's disk: what cannot be answered at once from memory goes to a task. The kernel bounds
//! the number of requests: one for each waiting process, and `background_max` of its own.
//!
//! An interrupted request is not cut short: its work serves the next one. A process that is killed while it waits
//! ends with the answer, at the latest after `deadline`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use rustix::fs::OFlags;
use types::{Result, SetAttr, SetXattr};

use crate::asker::{Asker, Thread};
use crate::attr::{device_of, time_change};
use crate::change::node_kind;
use crate::metrics::OperationLabels;
use crate::open::CreateOpen;
use crate::ops::FuseEntry;
use crate::write::how_written;
use crate::{FuseState, READ_MAX, xattr};

/// The unit of the counts in STATFS.
const FRAGMENT: u64 = 4096;

pub struct FuseFront {
    pub shared: Arc<FuseState>,
}

impl FuseFront {
    /// Runs the request here as far as that goes without waiting, and beyond it in a task: a task for what is in
    /// memory would cost more than the answer.
    fn answer<F: Future<Output = ()> + Send + 'static>(
        &self,
        operation: &'static str,
        answer: impl FnOnce(Arc<FuseState>) -> F,
    ) {
        let shared = self.shared.clone();
        shared.metrics.requests.inc();
        let work = answer(shared.clone());
        let mut answering = Box::pin(async move {
            let start = Instant::now();
            shared.metrics.inflight.inc();
            work.await;
            shared.metrics.inflight.dec();
            let labels = OperationLabels { operation };
            shared.metrics.seconds.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
        });
        let _inside = self.shared.runtime.enter();
        // No waker: the task polls next, at once.
        let mut poll = || answering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        // As in a task, a panic ends this request (its reply, dropped, is EIO) and not the thread.
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(&mut poll)) {
            self.shared.runtime.spawn(answering);
        }
    }
}

impl Filesystem for FuseFront {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> io::Result<()> {
        // An error names the most that is possible, and is no failure: these are wishes.
        let _ = kernel.set_max_write(READ_MAX); // also the bound of reads
        let _ = kernel.set_max_background(self.shared.config.background_max);
        let wishes = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_EXPORT_SUPPORT, // handles outlive what the kernel remembers: `FuseState::by_number`
            InitFlags::FUSE_HANDLE_KILLPRIV_V2, // `privilege.rs`
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

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (thread, name) = (Thread::of(request), owned(name));
        self.answer("lookup", move |shared| async move {
            let found = shared.lookup(thread, parent.0, name).await;
            shared.answer_entry("lookup", found, reply);
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.shared.inodes().forget(ino.0, nlookup);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let thread = Thread::of(request);
        self.answer("getattr", move |shared| async move {
            match shared.getattr(thread, ino.0).await {
                Ok(entry) => reply.attr(&entry.ttl, &entry.attr),
                Err(e) => reply.error(shared.failed("getattr", &e)),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.answer("readlink", |shared| async move {
            match shared.readlink(ino.0).await {
                Ok(target) => reply.data(&target),
                Err(e) => reply.error(shared.failed("readlink", &e)),
            }
        });
    }

    /// O_TRUNC never arrives here: the kernel opens, then truncates by SETATTR.
    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (asker, mode) = (Asker::of(request), flags.acc_mode());
        self.answer("open", move |shared| async move {
            match mode {
                OpenAccMode::O_RDONLY => shared.open(ino.0, reply).await,
                mode => shared.open_to_write(&asker, ino.0, mode, reply).await,
            }
        });
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
        self.answer("read", |shared| async move {
            let _room = shared.reply_permit(size).await;
            let (data, node) = match shared.read(ino.0, offset, size).await {
                Ok(read) => read,
                Err(e) => return reply.error(shared.failed("read", &e)),
            };
            shared.metrics.read_bytes.inc_by(data.iter().map(|piece| piece.len() as u64).sum());
            match data.as_slice() {
                [whole] => reply.data(whole),
                pieces => reply.data(&pieces.concat()),
            }
            // After the answer: what is invalidated now are the pages that came before it.
            if let Some(node) = node {
                shared.pages_sent(ino.0, &node);
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
        // Counted here and not in a task: a process that closes a file and then removes it must find it closed.
        let released = self.shared.released(ino.0);
        self.answer("release", |shared| async move {
            shared.finish_release(released).await;
            reply.ok();
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.answer("readdir", |shared| async move {
            match shared.readdir(ino.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(shared.failed("readdir", &e)),
            }
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let thread = Thread::of(request);
        self.answer("readdirplus", move |shared| async move {
            match shared.readdirplus(thread, ino.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(shared.failed("readdirplus", &e)),
            }
        });
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.answer("statfs", |shared| async move {
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

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<fuser::TimeOrNow>,
        mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>, // the origin's
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let asker = Asker::of(request);
        let mode = mode.map(|mode| mode & MODE_BITS);
        let (atime, mtime) = (time_change(atime), time_change(mtime));
        let set = SetAttr { mode, uid, gid, size, atime, mtime };
        self.answer("setattr", |shared| async move {
            match shared.setattr(&asker, ino.0, set).await {
                Ok(entry) => reply.attr(&entry.ttl, &entry.attr),
                Err(e) => reply.error(shared.failed("setattr", &e)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32, // taken off by the kernel, here and below
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = node_kind(mode, device_of(rdev)) else { return reply.error(Errno::EINVAL) };
        let (asker, name) = (Asker::of(request), owned(name));
        self.answer("mknod", |shared| async move {
            let made = shared.mknod(&asker, parent.0, name, kind, mode & MODE_BITS).await;
            shared.answer_entry("mknod", made, reply);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (asker, name) = (Asker::of(request), owned(name));
        self.answer("mkdir", |shared| async move {
            let made = shared.mkdir(&asker, parent.0, name, mode & MODE_BITS).await;
            shared.answer_entry("mkdir", made, reply);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &std::path::Path,
        reply: ReplyEntry,
    ) {
        let (asker, name, target) = (Asker::of(request), owned(name), owned(target.as_os_str()));
        self.answer("symlink", |shared| async move {
            let made = shared.symlink(&asker, parent.0, name, target).await;
            shared.answer_entry("symlink", made, reply);
        });
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (asker, name) = (Asker::of(request), owned(newname));
        self.answer("link", |shared| async move {
            let made = shared.link(&asker, ino.0, newparent.0, name).await;
            shared.answer_entry("link", made, reply);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (asker, name) = (Asker::of(request), owned(name));
        self.answer("unlink", |shared| async move {
            let done = shared.unlink(&asker, parent.0, name).await;
            shared.answer_empty("unlink", done, reply);
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (asker, name) = (Asker::of(request), owned(name));
        self.answer("rmdir", |shared| async move {
            let done = shared.rmdir(&asker, parent.0, name).await;
            shared.answer_empty("rmdir", done, reply);
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let caller = Asker::of(request).caller;
        let (from, to) = ((parent.0, owned(name)), (newparent.0, owned(newname)));
        self.answer("rename", |shared| async move {
            let done = shared.rename(&caller, from, to, flags).await;
            shared.answer_empty("rename", done, reply);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: fuser::ReplyCreate,
    ) {
        let (asker, name) = (Asker::of(request), owned(name));
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let how = CreateOpen { exclusive, mode: OpenFlags(flags).acc_mode() };
        self.answer("create", |shared| async move {
            shared.create(&asker, parent.0, name, mode & MODE_BITS, how, reply).await;
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let room = self.shared.write_permit(data.len());
        let (caller, data) = (Asker::of(request).caller, Bytes::copy_from_slice(data));
        let how = how_written(flags.0, write_flags);
        self.answer("write", |shared| async move {
            let length = data.len();
            let written = shared.write(&caller, ino.0, offset, data, how).await;
            drop(room);
            match written {
                Ok(()) => {
                    shared.metrics.write_bytes.inc_by(length as u64);
                    reply.written(length as u32); // READ_MAX at most
                }
                Err(e) => reply.error(shared.failed("write", &e)),
            }
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.shared.vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS); // the kernel does not ask again
        }
        let (caller, name) = (Asker::of(request).caller, owned(name));
        self.answer("getxattr", move |shared| async move {
            let value = shared.xattr(&caller, ino.0, name).await;
            shared.answer_xattr("getxattr", value, size, reply);
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.shared.vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        let caller = Asker::of(request).caller;
        self.answer("listxattr", move |shared| async move {
            let names = shared.xattr_names(&caller, ino.0).await;
            shared.answer_xattr("listxattr", names, size, reply);
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if !self.shared.vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        let set = xattr::set_of(value, flags);
        let (caller, name) = (Asker::of(request).caller, owned(name));
        self.answer("setxattr", move |shared| async move {
            let done = shared.set_xattr(&caller, ino.0, name, set).await;
            shared.answer_set_xattr("setxattr", done, reply);
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if !self.shared.vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        let (caller, name) = (Asker::of(request).caller, owned(name));
        self.answer("removexattr", move |shared| async move {
            let done = shared.set_xattr(&caller, ino.0, name, SetXattr::Remove).await;
            shared.answer_set_xattr("removexattr", done, reply);
        });
    }

    /// Sent by each `close` of a file that was opened to write, if that has something to do.
    fn flush(&self, request: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let caller = Asker::of(request).caller;
        self.answer("flush", |shared| async move {
            let done = shared.flush(&caller, ino.0).await;
            shared.answer_empty("flush", done, reply);
        });
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let caller = Asker::of(request).caller;
        self.answer("fsync", |shared| async move {
            let done = shared.fsync(&caller, ino.0).await;
            shared.answer_empty("fsync", done, reply);
        });
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer("fsyncdir", |shared| async move {
            let done = shared.fsyncdir(ino.0).await;
            shared.answer_empty("fsyncdir", done, reply);
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let asker = Asker::of(request);
        self.answer("fallocate", |shared| async move {
            let done = shared.fallocate(&asker, ino.0, offset, length, mode).await;
            shared.answer_empty("fallocate", done, reply);
        });
    }
}

/// The permission, setuid, setgid and sticky bits of a mode.
const MODE_BITS: u32 = 0o7777;

fn owned(name: &OsStr) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

impl FuseState {
    fn answer_entry(&self, operation: &'static str, made: Result<FuseEntry>, reply: ReplyEntry) {
        match made {
            Ok(entry) => reply.entry(&entry.ttl, &entry.attr, Generation(0)),
            Err(e) => reply.error(self.failed(operation, &e)),
        }
    }

    fn answer_empty(&self, operation: &'static str, done: Result<()>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(self.failed(operation, &e)),
        }
    }
}
