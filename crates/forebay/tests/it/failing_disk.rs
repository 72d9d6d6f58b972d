//! A disk that fails on demand: a FUSE file system over a directory, served by this process, which hands everything on until it
//! is told to be full, read-only, or broken. So files that are open for writing fail as they do on a real one.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, Stat};

/// The kernel asks again after this.
const TTL: Duration = Duration::from_millis(100);
const THREADS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    Nothing,
    /// Nothing can be written, not even over what is there: it copies on write.
    Full,
    ReadOnly,
    /// What writes or syncs fails with EIO.
    BrokenForWriting,
    /// All fails with EIO that is not in the kernel's memory.
    Broken,
}

const FAULTS: [Fault; 5] =
    [Fault::Nothing, Fault::Full, Fault::ReadOnly, Fault::BrokenForWriting, Fault::Broken];

/// Mounted until it is dropped. Who uses it has ended before that.
pub struct FailingDisk {
    place: PathBuf,
    fault: Arc<AtomicU8>,
    session: Option<BackgroundSession>,
}

impl FailingDisk {
    /// Over `backing`, at `place`; the reason where this machine cannot do that.
    pub fn mount(backing: &Path, place: PathBuf) -> Result<FailingDisk, String> {
        if !Path::new("/dev/fuse").exists() {
            return Err("there is no /dev/fuse".to_owned());
        }
        for dir in [backing, &place] {
            std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(backing, flags, Mode::empty()).map_err(|e| e.to_string())?;
        let fault = Arc::new(AtomicU8::new(Fault::Nothing as u8));
        let served = Served {
            fault: fault.clone(),
            nodes: Mutex::new(HashMap::from([(INodeNo::ROOT.0, Node { fd: Arc::new(root), looked_up: 1 })])),
            files: Mutex::default(),
            next: AtomicU64::new(1),
        };
        let mut config = fuser::Config::default();
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(served, &place, &config).map_err(|e| format!("mount: {e}"))?;
        Ok(FailingDisk { place, fault, session: Some(session) })
    }

    pub fn path(&self) -> &Path {
        &self.place
    }

    pub fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        self.set(Fault::Nothing);
        let _ = rustix::mount::unmount(&self.place, rustix::mount::UnmountFlags::DETACH);
        drop(self.session.take());
    }
}

struct Node {
    fd: Arc<OwnedFd>,
    looked_up: u64,
}

struct Served {
    fault: Arc<AtomicU8>,
    /// By the inode numbers of the directory that is below.
    nodes: Mutex<HashMap<u64, Node>>,
    files: Mutex<HashMap<u64, Arc<File>>>,
    next: AtomicU64,
}

type Answer<T> = Result<T, Errno>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(e: rustix::io::Errno) -> Errno {
    Errno::from(io::Error::from(e))
}

/// The object that a descriptor means, to be opened again.
fn again(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn time(seconds: i64, nanos: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanos as u32)
}

fn attributes(ino: u64, stat: &Stat) -> FileAttr {
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Socket => FileType::Socket,
        _ => FileType::RegularFile,
    };
    FileAttr {
        ino: INodeNo(ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Served {
    fn fault(&self) -> Fault {
        FAULTS[usize::from(self.fault.load(Ordering::SeqCst))]
    }

    fn may_write(&self) -> Answer<()> {
        match self.fault() {
            Fault::Nothing => Ok(()),
            Fault::Full => Err(Errno::ENOSPC),
            Fault::ReadOnly => Err(Errno::EROFS),
            Fault::BrokenForWriting | Fault::Broken => Err(Errno::EIO),
        }
    }

    /// What frees room is done on a full disk too.
    fn may_remove(&self) -> Answer<()> {
        if self.fault() == Fault::Full { Ok(()) } else { self.may_write() }
    }

    fn may_read(&self) -> Answer<()> {
        if self.fault() == Fault::Broken { Err(Errno::EIO) } else { Ok(()) }
    }

    fn node(&self, ino: INodeNo) -> Answer<Arc<OwnedFd>> {
        lock(&self.nodes).get(&ino.0).map(|node| node.fd.clone()).ok_or(Errno::ESTALE)
    }

    fn file(&self, fh: FileHandle) -> Answer<Arc<File>> {
        lock(&self.files).get(&fh.0).cloned().ok_or(Errno::EBADF)
    }

    fn keep(&self, file: File) -> FileHandle {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.files).insert(fh, Arc::new(file));
        FileHandle(fh)
    }

    fn stat(&self, ino: INodeNo) -> Answer<FileAttr> {
        let stat = rustix::fs::fstat(&*self.node(ino)?).map_err(failed)?;
        Ok(attributes(ino.0, &stat))
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&*self.node(parent)?, name, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let mut nodes = lock(&self.nodes);
        nodes.entry(stat.st_ino).or_insert(Node { fd: Arc::new(fd), looked_up: 0 }).looked_up += 1;
        Ok(attributes(stat.st_ino, &stat))
    }

    fn open_again(&self, ino: INodeNo, flags: OpenFlags) -> Answer<FileHandle> {
        let wanted = OFlags::from_bits_retain(flags.0 as u32);
        if wanted.intersects(OFlags::WRONLY | OFlags::RDWR) {
            match self.fault() {
                Fault::ReadOnly => return Err(Errno::EROFS),
                Fault::Broken => return Err(Errno::EIO),
                _ => {}
            }
        } else {
            self.may_read()?;
        }
        let kept = wanted & (OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        if kept.contains(OFlags::TRUNC) {
            self.may_write()?;
        }
        let fd = self.node(ino)?;
        let opened = rustix::fs::open(again(&fd), kept | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        Ok(self.keep(File::from(opened)))
    }

    fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Answer<(FileAttr, FileHandle)> {
        self.may_write()?;
        let wanted = OFlags::from_bits_retain(flags as u32);
        let kept = wanted & (OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC | OFlags::EXCL);
        let flags = kept | OFlags::CREATE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let file = rustix::fs::openat(&*self.node(parent)?, name, flags, mode).map_err(failed)?;
        Ok((self.look_up(parent, name)?, self.keep(File::from(file))))
    }

    fn read_at(&self, fh: FileHandle, offset: u64, size: u32) -> Answer<Vec<u8>> {
        self.may_read()?;
        let (file, mut bytes, mut filled) = (self.file(fh)?, vec![0; size as usize], 0);
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], offset + filled as u64).map_err(Errno::from)? {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn set_attributes(
        &self,
        ino: INodeNo,
        mode: Option<u32>,
        size: Option<u64>,
        fh: Option<FileHandle>,
    ) -> Answer<FileAttr> {
        self.may_write()?;
        let fd = self.node(ino)?;
        if let Some(mode) = mode {
            rustix::fs::chmod(again(&fd), Mode::from_raw_mode(mode & 0o7777)).map_err(failed)?;
        }
        if let Some(size) = size {
            match fh {
                Some(fh) => self.file(fh)?.set_len(size).map_err(Errno::from)?,
                None => {
                    let file = File::options().write(true).open(again(&fd)).map_err(Errno::from)?;
                    file.set_len(size).map_err(Errno::from)?;
                }
            }
        }
        self.stat(ino)
    }

    fn sync(&self, fh: FileHandle, data: bool) -> Answer<()> {
        match self.fault() {
            Fault::BrokenForWriting | Fault::Broken => return Err(Errno::EIO),
            _ => {}
        }
        let file = self.file(fh)?;
        if data { file.sync_data() } else { file.sync_all() }.map_err(Errno::from)
    }

    fn list(&self, ino: INodeNo, offset: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        self.may_read()?;
        let fd = self.node(ino)?;
        let mut entries: Vec<_> = std::fs::read_dir(again(&fd))
            .and_then(|entries| entries.collect::<io::Result<Vec<_>>>())
            .map_err(Errno::from)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let kind = entry.file_type().ok().and_then(FileType::from_std).unwrap_or(FileType::RegularFile);
            let ino = std::os::unix::fs::DirEntryExt::ino(entry);
            if reply.add(INodeNo(ino), at as u64 + 1, kind, entry.file_name()) {
                break;
            }
        }
        Ok(())
    }
}

fn done(reply: ReplyEmpty, outcome: Answer<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn entry(reply: ReplyEntry, outcome: Answer<FileAttr>) {
    match outcome {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(e) => reply.error(e),
    }
}

fn attr(reply: ReplyAttr, outcome: Answer<FileAttr>) {
    match outcome {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.may_read().and_then(|()| self.look_up(parent, name)));
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get_mut(&ino.0).filter(|_| ino != INodeNo::ROOT) {
            node.looked_up = node.looked_up.saturating_sub(count);
            if node.looked_up == 0 {
                nodes.remove(&ino.0);
            }
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attr(reply, self.stat(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        attr(reply, self.set_attributes(ino, mode, size, fh));
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = || {
            self.may_write()?;
            let (kind, mode) =
                (rustix::fs::FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
            rustix::fs::mknodat(&*self.node(parent)?, name, kind, mode, 0).map_err(failed)?;
            self.look_up(parent, name)
        };
        entry(reply, made());
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let made = || {
            self.may_write()?;
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mkdirat(&*self.node(parent)?, name, mode).map_err(failed)?;
            self.look_up(parent, name)
        };
        entry(reply, made());
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = || {
            self.may_remove()?;
            rustix::fs::unlinkat(&*self.node(parent)?, name, AtFlags::empty()).map_err(failed)
        };
        done(reply, removed());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = || {
            self.may_remove()?;
            rustix::fs::unlinkat(&*self.node(parent)?, name, AtFlags::REMOVEDIR).map_err(failed)
        };
        done(reply, removed());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = || {
            self.may_remove()?;
            let (from, to) = (self.node(parent)?, self.node(new_parent)?);
            rustix::fs::renameat(&*from, name, &*to, new_name).map_err(failed)
        };
        done(reply, renamed());
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_again(ino, flags) {
            Ok(fh) => reply.opened(fh, FopenFlags::FOPEN_KEEP_CACHE),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(parent, name, mode, flags) {
            Ok((attr, fh)) => reply.created(&TTL, &attr, Generation(0), fh, FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_at(fh, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = || {
            self.may_write()?;
            self.file(fh)?.write_all_at(data, offset).map_err(Errno::from)
        };
        match written() {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.files).remove(&fh.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, data: bool, reply: ReplyEmpty) {
        done(reply, self.sync(fh, data));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = || {
            self.may_read()?;
            let fd = self.node(ino)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(again(&fd), flags, Mode::empty()).map_err(failed)?;
            Ok(self.keep(File::from(dir)))
        };
        match opened() {
            Ok(fh) => reply.opened(fh, FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(ino, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.files).remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, fh: FileHandle, data: bool, reply: ReplyEmpty) {
        done(reply, self.sync(fh, data));
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let asked = || {
            let fd = self.node(ino)?;
            rustix::fs::fstatvfs(fd.as_fd()).map_err(failed)
        };
        match asked() {
            Ok(found) => {
                let free = if self.fault() == Fault::Full { 0 } else { found.f_bavail };
                reply.statfs(
                    found.f_blocks,
                    free,
                    free,
                    found.f_files,
                    found.f_ffree,
                    found.f_bsize as u32,
                    255,
                    found.f_frsize as u32,
                );
            }
            Err(e) => reply.error(e),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocated = || {
            self.may_write()?;
            let mode = FallocateFlags::from_bits_retain(mode as u32);
            rustix::fs::fallocate(&*self.file(fh)?, mode, offset, length).map_err(failed)
        };
        done(reply, allocated());
    }
}

/// The disk that is told to fail does, for a file that is open, and goes on afterwards.
#[test]
fn a_disk_fails_on_demand_and_goes_on() {
    use std::io::Write;
    let dir = tempfile::tempdir().expect("temporary directory");
    let disk = match FailingDisk::mount(&dir.path().join("backing"), dir.path().join("disk")) {
        Ok(disk) => disk,
        Err(why) => return testkit::lab::not_run("a_disk_fails_on_demand_and_goes_on", &why),
    };
    let path = disk.path().join("file");
    let mut file = File::create(&path).expect("made");
    file.write_all(b"one").expect("written");
    for (fault, errno) in [(Fault::Full, 28), (Fault::ReadOnly, 30), (Fault::BrokenForWriting, 5)] {
        disk.set(fault);
        let refused = file.write_all(b"two").expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(errno), "{fault:?}");
        assert!(File::create(disk.path().join("new")).is_err());
        assert_eq!(std::fs::read(&path).expect("read"), b"one", "{fault:?}");
        disk.set(Fault::Nothing);
    }
    disk.set(Fault::Broken);
    std::thread::sleep(2 * TTL);
    assert!(std::fs::read(&path).is_err());
    disk.set(Fault::Nothing);
    file.write_all(b"two").expect("written");
    file.sync_all().expect("synced");
    assert_eq!(std::fs::read(&path).expect("read"), b"onetwo");
}
