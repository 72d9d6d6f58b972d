//! A directory as an origin: `file:///dir`, anything the kernel can mount.
//!
//! A reference is the path below the root together with the inode it led to; every use opens the path beneath the
//! root without following links and checks that it is still that inode. Renamed objects therefore answer `Stale`
//! and are found again by name. Paths that are longer than one call takes: `posix/path.rs`. Changes go the same way: `posix/change.rs` (names), `set.rs` (attributes), `xattr.rs`
//! (extended ones), `write.rs`.

mod change;
mod handle;
mod kind;
mod limits;
mod path;
mod root;
mod set;
mod write;
mod xattr;

use std::collections::VecDeque;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;
use types::{
    Attr, ByteRange, Error, ErrorKind, FileKind, FsStat, Name, OutageReason, Result, Stability, Timestamp,
    Version, XattrName,
};

pub use self::kind::KIND;
pub use self::limits::demand_path;
use self::path::{join, open_beneath};
use self::root::Root;
use crate::change::end_of_write;
use crate::{
    Change, Changed, Committed, DirCursor, DirEntry, DirPage, Identity, Object, Origin, OriginIdentity,
    OriginLimits, OriginTraits, REFERENCE_MAX, Reference, Written,
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
/// Syncs at the same time are never of one file, and seldom kept apart without need: twice the calls under way.
const SYNC_STRIPES: usize = 256;
/// Names in one piece of a listing.
const PAGE: usize = 2048;
/// Listings that are being read at the same time; the oldest makes room and answers `Busy` when it goes on.
const LISTINGS_MAX: usize = 64;

pub struct PosixOrigin {
    inner: Arc<PosixInner>,
    metadata: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

struct PosixInner {
    path: PathBuf,
    /// As it was found when the origin was last asked which storage it is.
    root: RwLock<Arc<Root>>,
    /// Open listings, oldest first.
    listings: Mutex<VecDeque<OpenDirectory>>,
    next_listing: AtomicU64,
    /// The write verifier; see `write.rs`.
    verifier: AtomicU64,
    stripes: Vec<Mutex<()>>,
    has_proc: bool,
    /// Of the file system with this device and id; it costs some calls to find out.
    file_size_max: Mutex<Option<((u64, u64), u64)>>,
}

/// The file system of the root. Device numbers of network mounts change from mount to mount; what stays is that a
/// file is on the root's own file system, and the id that this file system gives itself (0 where it has none).
#[derive(Clone, Copy)]
struct RootFileSystem {
    device: u64,
    id: u64,
}

struct OpenDirectory {
    number: u64,
    dir: InodeStamp,
    /// Not given yet; given from the end.
    names: Vec<Name>,
}

/// What tells an inode from every other, also from a later one with its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InodeStamp {
    /// The file system: its own id if it is the root's, otherwise the device.
    dev: u64,
    ino: u64,
    /// Its birth, and its handle on the root's own file system, as far as there are such things.
    life: u64,
}

/// What the kernel tells of an inode.
struct InodeStat {
    stat: Statx,
    /// A hash of its handle.
    handle: Option<u64>,
}

impl Deref for InodeStat {
    type Target = Statx;

    fn deref(&self) -> &Statx {
        &self.stat
    }
}

const STAMP_BYTES: usize = 24;

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl PosixOrigin {
    /// Fails with one line that says what to do if there is no such directory.
    pub fn open(path: &Path) -> Result<PosixOrigin> {
        let refuse = |why: &str| {
            let message =
                format!("{}: {why}; name an existing directory as file:///absolute/path", path.display());
            Error::new(ErrorKind::Config, "origin", message)
        };
        let explain = |e: Errno| refuse(&std::io::Error::from(e).to_string());
        let root = Root::open(path).map_err(|e| match e {
            Errno::NOENT => refuse("no such directory"),
            Errno::NOTDIR => refuse("not a directory"),
            e => explain(e),
        })?;
        let (listings, next_listing) = (Mutex::default(), AtomicU64::new(1));
        // Another one for each process: who lost the tier cannot know whether the machine was lost with it.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let verifier = AtomicU64::new(u64::try_from(since.as_nanos()).unwrap_or(0));
        let stripes = (0..2 * SYNC_STRIPES).map(|_| Mutex::default()).collect();
        let has_proc = Path::new(&set::in_proc(&root.fd)).exists();
        let (path, root) = (path.to_owned(), RwLock::new(Arc::new(root)));
        let inner = PosixInner {
            path,
            root,
            listings,
            next_listing,
            verifier,
            stripes,
            has_proc,
            file_size_max: Mutex::default(),
        };
        inner.open_path(b"", OFlags::PATH).map_err(|e| match e {
            Errno::NOSYS => refuse("this kernel has no openat2; Linux 5.6 or later is needed"),
            e => explain(e),
        })?;
        let room = |calls| Arc::new(Semaphore::new(calls));
        let (metadata, reads, writes) = (room(METADATA_MAX), room(READS_MAX), room(WRITES_MAX));
        Ok(PosixOrigin { inner: Arc::new(inner), metadata, reads, writes })
    }

    async fn run<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        call: impl FnOnce(&PosixInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = async { self.in_a_thread(self.permit(room).await, call).await };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(self.no_answer(PATIENCE)))
    }

    /// As `run`. A change whose thread still hangs may be made when it comes back.
    async fn run_change<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        what: &'static str,
        call: impl FnOnce(&PosixInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.inner.has_proc {
            let reason = "anything here: /proc is not mounted, by which opened files are changed";
            return Err(Error::new(ErrorKind::NotSupported, "change", reason));
        }
        let permit = tokio::time::timeout(PATIENCE, self.permit(room)).await;
        let permit = permit.map_err(|_| self.no_answer(PATIENCE))?;
        let answer = tokio::time::timeout(PATIENCE_CHANGING, self.in_a_thread(permit, call)).await;
        answer.unwrap_or_else(|_| {
            let silence = self.no_answer(PATIENCE_CHANGING);
            Err(Error::doubtful(what, self.inner.path.display(), silence))
        })
    }

    async fn permit(&self, room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        room.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    async fn in_a_thread<T: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        call: impl FnOnce(&PosixInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        let thread = tokio::task::spawn_blocking(move || {
            let answer = call(&inner);
            drop(permit); // by the thread, not by a caller that may be gone while the thread still hangs
            answer
        });
        thread.await.map_err(|e| Error::new(ErrorKind::Io, "run a system call", "").with_source(e))?
    }

    fn no_answer(&self, patience: Duration) -> Error {
        let context = format!("{}: no answer in {patience:?}", self.inner.path.display());
        Error::new(ErrorKind::Unavailable, "wait for", context)
    }
}

impl PosixInner {
    /// Open what the reference names; `Stale` if that is another inode by now.
    fn open(&self, reference: &Reference, flags: OFlags) -> Result<(OwnedFd, Vec<u8>)> {
        let stale = |e: Errno| {
            let kind = match e {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => ErrorKind::Stale,
                e => return Error::io("open", self.shown(reference), e.into()),
            };
            Error::new(kind, "open", self.shown(reference))
        };
        let (stamp, path) = decode_reference(reference)?;
        let fd = self.open_path(path, flags).map_err(stale)?;
        let found = self.stamp_of(&self.look(&fd).map_err(stale)?);
        if found != stamp {
            return Err(Error::new(ErrorKind::Stale, "open", self.shown(reference)));
        }
        Ok((fd, path.to_vec()))
    }

    fn root(&self) -> Arc<Root> {
        self.root.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is at the path now, for all calls from now on. References to what was there before are stale, if it is another
    /// directory.
    fn open_anew(&self) -> Result<Arc<Root>> {
        let root = Root::open(&self.path).map_err(|e| {
            let failed = Error::io("open", self.path.display(), e.into());
            match root::is_nothing(e) {
                true => {
                    Error::outage(OutageReason::Replaced, "find", self.path.display()).with_source(failed)
                }
                false => failed,
            }
        })?;
        let root = Arc::new(root);
        *self.root.write().unwrap_or_else(PoisonError::into_inner) = root.clone();
        Ok(root)
    }

    fn open_path(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_beneath(&self.root().fd, path, flags)
    }

    /// The lock of those who sync this inode.
    fn stripe(&self, inode: u64) -> &Mutex<()> {
        &self.stripes[(inode % SYNC_STRIPES as u64) as usize]
    }

    /// The lock of those who write to this inode: what they say was before is what the one before them left.
    fn stripe_of_writers(&self, inode: u64) -> &Mutex<()> {
        &self.stripes[SYNC_STRIPES + (inode % SYNC_STRIPES as u64) as usize]
    }

    fn look(&self, fd: &OwnedFd) -> rustix::io::Result<InodeStat> {
        let stat = stat(fd)?;
        let handle = self.is_at_home(&stat).then(|| handle::hash_of(fd)).flatten();
        Ok(InodeStat { stat, handle })
    }

    /// On the root's own file system.
    fn is_at_home(&self, found: &Statx) -> bool {
        let root = self.root();
        root.has_handles && device(found) == root.home.device
    }

    fn stamp_of(&self, found: &InodeStat) -> InodeStamp {
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let birth = found.stx_btime;
        let born = if has_birth {
            birth.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(birth.tv_nsec))
        } else {
            0
        };
        let device = device(found);
        let home = self.root().home;
        let dev = if device == home.device { home.id } else { device };
        InodeStamp { dev, ino: found.stx_ino, life: born ^ found.handle.unwrap_or(0) }
    }

    fn shown(&self, reference: &Reference) -> String {
        let path = decode_reference(reference).map(|(_, path)| path.escape_ascii().to_string());
        format!("{}/{}", self.path.display(), path.unwrap_or_default())
    }

    fn object(&self, path: &[u8], found: &InodeStat) -> Result<Object> {
        let stamp = self.stamp_of(found).encode();
        let reference = [stamp.as_slice(), path].concat();
        if reference.len() > REFERENCE_MAX {
            return Err(Error::new(ErrorKind::NameTooLong, "address", path.escape_ascii()));
        }
        let attr = attr_of(found);
        Ok(Object {
            reference: Reference(reference.into()),
            identity: Identity(Bytes::copy_from_slice(&stamp)),
            attr,
            version: Version::from_attr(&attr),
        })
    }

    /// Opened first, so that all that is told is told of one object, though the name may be given to another meanwhile.
    fn child(&self, dir: &OwnedFd, dir_path: &[u8], name: &Name) -> Result<Object> {
        let path = join(dir_path, name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(dir, std::ffi::OsStr::from_bytes(name.as_bytes()), flags, Mode::empty());
        let found = opened.and_then(|fd| self.look(&fd));
        self.object(&path, &found.map_err(|e| Error::io("look up", path.escape_ascii(), e.into()))?)
    }

    fn names(&self, dir: &OwnedFd, dir_path: &[u8]) -> Result<Vec<Name>> {
        let failed = |e: Errno| Error::io("list", dir_path.escape_ascii(), e.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            match Name::new(Bytes::copy_from_slice(bytes)) {
                Ok(name) => names.push(name),
                Err(e) => warn!("left out of {}: {e}", dir_path.escape_ascii()),
            }
        }
        names.reverse();
        Ok(names)
    }

    fn list(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (fd, path) = self.open(dir, flags).map_err(|e| self.not_a_directory(dir, e))?;
        let (stamp, _) = decode_reference(dir)?;
        let mut names = match cursor.cookie {
            0 => self.names(&fd, &path)?,
            number => self.take_listing(number, stamp)?,
        };
        let mut entries = Vec::with_capacity(names.len().min(PAGE));
        while let Some(name) = names.pop() {
            match self.child(&fd, &path, &name) {
                Ok(object) => entries.push(DirEntry { name, object: Some(object) }),
                Err(e) if e.kind() == ErrorKind::NotFound => {} // removed since it was read
                Err(e) => {
                    warn!("listed without its attributes: {e}");
                    entries.push(DirEntry { name, object: None });
                }
            }
            if entries.len() == PAGE {
                break;
            }
        }
        let next = (!names.is_empty()).then(|| self.keep_listing(stamp, names));
        Ok(DirPage { entries, next })
    }

    /// `ENOTDIR` of the last component means "not a directory", of an earlier one "stale".
    fn not_a_directory(&self, reference: &Reference, error: Error) -> Error {
        if error.kind() == ErrorKind::Stale && self.open(reference, OFlags::PATH).is_ok() {
            return Error::new(ErrorKind::NotADirectory, "list", self.shown(reference));
        }
        error
    }

    /// `ELOOP` of a link itself means "not a file", of one in the way "stale".
    fn not_a_file(&self, reference: &Reference, error: Error) -> Error {
        if error.kind() == ErrorKind::Stale && self.open(reference, OFlags::PATH).is_ok() {
            return Error::new(ErrorKind::InvalidArgument, "read as a file", self.shown(reference));
        }
        error
    }

    fn keep_listing(&self, dir: InodeStamp, names: Vec<Name>) -> DirCursor {
        let number = self.next_listing.fetch_add(1, Ordering::Relaxed);
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if listings.len() >= LISTINGS_MAX {
            listings.pop_front();
        }
        listings.push_back(OpenDirectory { number, dir, names });
        DirCursor { cookie: number, verifier: [0; 8] }
    }

    fn take_listing(&self, number: u64, dir: InodeStamp) -> Result<Vec<Name>> {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let at = listings.iter().position(|l| l.number == number && l.dir == dir);
        let listing = at.and_then(|at| listings.remove(at));
        listing.map(|listing| listing.names).ok_or_else(|| {
            let context = "a directory: too many listings at once, begin again";
            Error::new(ErrorKind::Busy, "go on listing", context)
        })
    }

    fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
        let (fd, path) = self.open(object, flags).map_err(|e| self.not_a_file(object, e))?;
        let failed = |e: Errno| Error::io("read", path.escape_ascii(), e.into());
        let check = || -> Result<()> {
            let attr = attr_of(&stat(&fd).map_err(failed)?);
            match Version::from_attr(&attr) == version && range.end() <= attr.size {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::VersionChanged, "read", path.escape_ascii())),
            }
        };
        check()?;
        let length = usize::try_from(range.length)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "read", "more than fits memory"))?;
        let mut buffer = vec![0; length];
        let mut done = 0;
        while done < length {
            match rustix::io::pread(&fd, &mut buffer[done..], range.offset + done as u64).map_err(failed)? {
                0 => return Err(Error::new(ErrorKind::VersionChanged, "read", path.escape_ascii())),
                read => done += read,
            }
        }
        check()?;
        Ok(buffer.into())
    }
}

impl InodeStamp {
    fn encode(self) -> [u8; STAMP_BYTES] {
        let mut out = [0; STAMP_BYTES];
        for (place, word) in out.chunks_exact_mut(8).zip([self.dev, self.ino, self.life]) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        out
    }
}

fn decode_reference(reference: &Reference) -> Result<(InodeStamp, &[u8])> {
    let broken = || Error::new(ErrorKind::Stale, "read reference", "");
    let (stamp, path) = reference.0.split_first_chunk::<STAMP_BYTES>().ok_or_else(broken)?;
    let mut words = stamp.chunks_exact(8).map(|c| u64::from_be_bytes(c.try_into().unwrap_or([0; 8])));
    let mut next = || words.next().ok_or_else(broken);
    Ok((InodeStamp { dev: next()?, ino: next()?, life: next()? }, path))
}

fn stat(fd: &OwnedFd) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, WANTED)
}

fn device(found: &Statx) -> u64 {
    (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor)
}

fn attr_of(found: &Statx) -> Attr {
    let time = |t: rustix::fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanos: t.tv_nsec };
    Attr {
        kind: match rustix::fs::FileType::from_raw_mode(u32::from(found.stx_mode)) {
            rustix::fs::FileType::Directory => FileKind::Directory,
            rustix::fs::FileType::Symlink => FileKind::Symlink,
            rustix::fs::FileType::BlockDevice => FileKind::BlockDevice,
            rustix::fs::FileType::CharacterDevice => FileKind::CharDevice,
            rustix::fs::FileType::Socket => FileKind::Socket,
            rustix::fs::FileType::Fifo => FileKind::Fifo,
            _ => FileKind::Regular,
        },
        mode: u32::from(found.stx_mode) & 0o7777,
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        used: found.stx_blocks.saturating_mul(512),
        rdev: (found.stx_rdev_major, found.stx_rdev_minor),
        fsid: device(found),
        fileid: found.stx_ino,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
    }
}

#[async_trait]
impl Origin for PosixOrigin {
    fn url(&self) -> String {
        format!("file://{}", self.inner.path.display())
    }

    fn traits(&self) -> OriginTraits {
        OriginTraits { has_xattrs: self.inner.root().has_xattrs, ..kind::TRAITS }
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.run(&self.metadata, |inner| {
            let failed = |e: Errno| Error::io("identify", inner.path.display(), e.into());
            inner.open_anew()?.identity().map_err(failed)
        })
        .await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.run(&self.metadata, |inner| {
            let failed = |e: Errno| Error::io("list", inner.path.display(), e.into());
            inner.root().is_empty().map_err(failed)
        })
        .await
    }

    async fn root(&self) -> Result<Object> {
        self.run(&self.metadata, |inner| {
            let found = inner
                .look(&inner.root().fd)
                .map_err(|e| Error::io("open", inner.path.display(), e.into()))?;
            inner.object(b"", &found)
        })
        .await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.run(&self.metadata, PosixInner::limits).await
    }

    fn demand_path(&self, path: &[u8], _is_dir: bool) -> Result<()> {
        demand_path(path)
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let (dir, name) = (dir.clone(), name.clone());
        self.run(&self.metadata, move |inner| {
            let (fd, path) = inner.open(&dir, OFlags::PATH)?;
            inner.child(&fd, &path, &name)
        })
        .await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        let object = object.clone();
        self.run(&self.metadata, move |inner| {
            let (fd, path) = inner.open(&object, OFlags::PATH)?;
            let found = inner.look(&fd).map_err(|e| Error::io("stat", path.escape_ascii(), e.into()))?;
            inner.object(&path, &found)
        })
        .await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let link = link.clone();
        self.run(&self.metadata, move |inner| {
            let (fd, path) = inner.open(&link, OFlags::PATH)?;
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
        self.run(&self.metadata, move |inner| inner.list(&dir, cursor)).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let object = object.clone();
        self.run(&self.reads, move |inner| inner.read(&object, version, range)).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        let object = object.clone();
        self.run(&self.metadata, move |inner| {
            let (fd, path) = inner.open(&object, OFlags::PATH)?;
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
        self.run(&self.metadata, move |inner| inner.xattrs(&object)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        let what = change.kind();
        let change = change.clone();
        self.run_change(&self.metadata, what, move |inner| inner.change(&change)).await
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
        let call = move |inner: &PosixInner| inner.write(&object, offset, &data, stability);
        self.run_change(&self.writes, "write", call).await
    }

    async fn commit(&self, object: &Reference, _range: ByteRange) -> Result<Committed> {
        let object = object.clone();
        self.run_change(&self.writes, "commit", move |inner| inner.commit(&object)).await
    }
}
