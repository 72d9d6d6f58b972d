//! A directory as an origin: `file:///dir`, anything the kernel can mount.
//!
//! A reference is the path below the root together with the inode it led to; every use opens the path beneath the
//! root without following links and checks that it is still that inode. Renamed objects therefore answer `Stale`
//! and are found again by name.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use tokio::sync::Semaphore;
use tracing::warn;
use types::{Attr, ByteRange, Error, ErrorKind, FileKind, FsStat, Name, Result, Timestamp, Version};

use crate::{DirCursor, DirEntry, DirPage, Identity, Object, Origin, REFERENCE_MAX, Reference};

/// System calls at the same time. A far mount is waited for in them; a thread each.
const CALLS_MAX: usize = 64;
/// Names in one piece of a listing.
const PAGE: usize = 2048;
/// Listings that are being read at the same time; the oldest makes room and answers `Busy` when it goes on.
const LISTINGS_MAX: usize = 64;

pub struct PosixOrigin {
    inner: Arc<Inner>,
    calls: Arc<Semaphore>,
}

struct Inner {
    path: PathBuf,
    root: OwnedFd,
    /// Open listings, oldest first: their number, and the names not given yet.
    listings: std::sync::Mutex<std::collections::VecDeque<(u64, Vec<Name>)>>,
    next_listing: std::sync::atomic::AtomicU64,
}

/// What tells an inode from every other, also from a later one with its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    dev: u64,
    ino: u64,
    /// Nanoseconds of birth; 0 where the file system has none.
    born: u64,
}

const STAMP_BYTES: usize = 24;

impl PosixOrigin {
    /// Fails with one line that says what to do if there is no such directory.
    pub fn open(path: &Path) -> Result<PosixOrigin> {
        let refuse = |why: &str| {
            let message =
                format!("{}: {why}; name an existing directory as file:///absolute/path", path.display());
            Error::new(ErrorKind::Config, "origin", message)
        };
        let root =
            rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(|e| match e {
            Errno::NOENT => refuse("no such directory"),
            Errno::NOTDIR => refuse("not a directory"),
            e => refuse(&std::io::Error::from(e).to_string()),
        })?;
        let inner = Inner {
            path: path.to_owned(),
            root,
            listings: std::sync::Mutex::default(),
            next_listing: std::sync::atomic::AtomicU64::new(1),
        };
        Ok(PosixOrigin { inner: Arc::new(inner), calls: Arc::new(Semaphore::new(CALLS_MAX)) })
    }

    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.calls.clone().acquire_owned().await.expect("the semaphore is never closed");
        let inner = self.inner.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let answer = call(&inner);
            drop(permit); // by the thread, not by a caller that may be gone while the thread still hangs
            answer
        });
        answer.await.map_err(|e| Error::new(ErrorKind::Io, "run a system call", "").with_source(e))?
    }
}

impl Inner {
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
        let found = stamp_of(&stat(&fd).map_err(stale)?);
        if found != stamp {
            return Err(Error::new(ErrorKind::Stale, "open", self.shown(reference)));
        }
        Ok((fd, path.to_vec()))
    }

    fn open_path(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path =
            if path.is_empty() { Path::new(".") } else { Path::new(std::ffi::OsStr::from_bytes(path)) };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn shown(&self, reference: &Reference) -> String {
        let path = decode_reference(reference).map(|(_, path)| path.escape_ascii().to_string());
        format!("{}/{}", self.path.display(), path.unwrap_or_default())
    }

    fn object(&self, path: &[u8], found: &Statx) -> Result<Object> {
        let stamp = stamp_of(found).encode();
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

    fn child(&self, dir: &OwnedFd, dir_path: &[u8], name: &Name) -> Result<Object> {
        let path = join(dir_path, name);
        let os_name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let found = rustix::fs::statx(dir, os_name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME);
        let found = found.map_err(|e| Error::io("look up", path.escape_ascii(), e.into()))?;
        self.object(&path, &found)
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
        names.reverse(); // given from the end
        Ok(names)
    }

    fn list(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (fd, path) = self.open(dir, flags).map_err(|e| self.not_a_directory(dir, e))?;
        let mut names = match cursor.cookie {
            0 => self.names(&fd, &path)?,
            number => self.take_listing(number)?,
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
        let next = (!names.is_empty()).then(|| self.keep_listing(names));
        Ok(DirPage { entries, next })
    }

    /// `ENOTDIR` of the last component means "not a directory", of an earlier one "stale".
    fn not_a_directory(&self, reference: &Reference, error: Error) -> Error {
        if error.kind() == ErrorKind::Stale && self.open(reference, OFlags::PATH).is_ok() {
            return Error::new(ErrorKind::NotADirectory, "list", self.shown(reference));
        }
        error
    }

    fn keep_listing(&self, names: Vec<Name>) -> DirCursor {
        let number = self.next_listing.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut listings = self.listings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if listings.len() >= LISTINGS_MAX {
            listings.pop_front();
        }
        listings.push_back((number, names));
        DirCursor { cookie: number, verifier: [0; 8] }
    }

    fn take_listing(&self, number: u64) -> Result<Vec<Name>> {
        let mut listings = self.listings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = listings.iter().position(|(n, _)| *n == number);
        let listing = at.and_then(|at| listings.remove(at));
        listing.map(|(_, names)| names).ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                "go on listing",
                "a directory: too many listings at once, begin again",
            )
        })
    }

    fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let (fd, path) = self.open(object, OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK)?;
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

impl Stamp {
    fn encode(self) -> [u8; STAMP_BYTES] {
        let mut out = [0; STAMP_BYTES];
        for (place, word) in out.chunks_exact_mut(8).zip([self.dev, self.ino, self.born]) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        out
    }
}

fn decode_reference(reference: &Reference) -> Result<(Stamp, &[u8])> {
    let broken = || Error::new(ErrorKind::Stale, "read reference", "");
    let (stamp, path) = reference.0.split_first_chunk::<STAMP_BYTES>().ok_or_else(broken)?;
    let mut words = stamp.chunks_exact(8).map(|c| u64::from_be_bytes(c.try_into().unwrap_or([0; 8])));
    let mut next = || words.next().ok_or_else(broken);
    Ok((Stamp { dev: next()?, ino: next()?, born: next()? }, path))
}

fn join(dir: &[u8], name: &Name) -> Vec<u8> {
    if dir.is_empty() { name.as_bytes().to_vec() } else { [dir, b"/", name.as_bytes()].concat() }
}

fn stat(fd: &OwnedFd) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

fn stamp_of(found: &Statx) -> Stamp {
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let birth = found.stx_btime;
    let born = if has_birth {
        birth.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(birth.tv_nsec))
    } else {
        0
    };
    Stamp { dev: device(found), ino: found.stx_ino, born }
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

    fn read_max(&self) -> u32 {
        4 << 20
    }

    async fn root(&self) -> Result<Object> {
        self.run(|inner| {
            let found = stat(&inner.root).map_err(|e| Error::io("open", inner.path.display(), e.into()))?;
            inner.object(b"", &found)
        })
        .await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let (dir, name) = (dir.clone(), name.clone());
        self.run(move |inner| {
            let (fd, path) = inner.open(&dir, OFlags::PATH)?;
            inner.child(&fd, &path, &name)
        })
        .await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        let object = object.clone();
        self.run(move |inner| {
            let (fd, path) = inner.open(&object, OFlags::PATH)?;
            let found = stat(&fd).map_err(|e| Error::io("stat", path.escape_ascii(), e.into()))?;
            inner.object(&path, &found)
        })
        .await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let link = link.clone();
        self.run(move |inner| {
            let (fd, path) = inner.open(&link, OFlags::PATH)?;
            let target = rustix::fs::readlinkat(&fd, c"", Vec::new())
                .map_err(|e| Error::io("read link", path.escape_ascii(), e.into()))?;
            let mut bytes = BytesMut::new();
            bytes.put_slice(target.as_bytes());
            Ok(bytes.freeze())
        })
        .await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let dir = dir.clone();
        self.run(move |inner| inner.list(&dir, cursor)).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let object = object.clone();
        self.run(move |inner| inner.read(&object, version, range)).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        let object = object.clone();
        self.run(move |inner| {
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
}
