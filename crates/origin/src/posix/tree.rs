//! The directory that is served, as the kernel has it: opening by reference, looking, listing, reading.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rustix::fs::{Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use tracing::warn;
use types::{ByteRange, Error, ErrorKind, Name, OutageReason, Result, Version};

use super::handle;
use super::inode::{InodeStamp, InodeStat, attr_of, decode_reference, device, stat};
use super::path::{in_proc, join, open_beneath};
use super::root::{Root, is_nothing};
use crate::{DirCursor, DirEntry, DirPage, Identity, Object, REFERENCE_MAX, Reference};

/// Syncs at the same time are never of one file, and seldom kept apart without need: twice the calls under way.
const SYNC_STRIPES: usize = 256;
/// Names in one piece of a listing.
const PAGE: usize = 2048;
/// Listings that are being read at the same time; the oldest makes room and answers `Busy` when it goes on.
const LISTINGS_MAX: usize = 64;

/// The directory that is served: its root, and what is open below it. The calls that wait for the kernel; each has a thread
/// of its own.
pub struct PosixTree {
    pub path: PathBuf,
    /// As it was found when the origin was last asked which storage it is.
    pub root: RwLock<Arc<Root>>,
    /// Open listings, oldest first.
    pub listings: Mutex<VecDeque<OpenDirectory>>,
    pub next_listing: AtomicU64,
    /// The write verifier; see `write.rs`.
    pub verifier: AtomicU64,
    pub stripes: Vec<Mutex<()>>,
    pub has_proc: bool,
    /// Of the file system with this device and id; it costs some calls to find out.
    pub file_size_max: Mutex<Option<((u64, u64), u64)>>,
}

pub struct OpenDirectory {
    number: u64,
    dir: InodeStamp,
    /// Not given yet; given from the end.
    names: Vec<Name>,
}

impl PosixTree {
    /// Fails with one line that says what to do if there is no such directory.
    pub fn at(path: &Path) -> Result<PosixTree> {
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
        let has_proc = Path::new(&in_proc(&root.fd)).exists();
        let (path, root) = (path.to_owned(), RwLock::new(Arc::new(root)));
        let tree = PosixTree {
            path,
            root,
            listings,
            next_listing,
            verifier,
            stripes,
            has_proc,
            file_size_max: Mutex::default(),
        };
        tree.open_path(b"", OFlags::PATH).map_err(|e| match e {
            Errno::NOSYS => refuse("this kernel has no openat2; Linux 5.6 or later is needed"),
            e => explain(e),
        })?;
        Ok(tree)
    }

    /// Open what the reference names; `Stale` if that is another inode by now.
    pub fn open(&self, reference: &Reference, flags: OFlags) -> Result<(OwnedFd, Vec<u8>)> {
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

    pub fn root(&self) -> Arc<Root> {
        self.root.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is at the path now, for all calls from now on. References to what was there before are stale, if it is another
    /// directory.
    pub fn open_anew(&self) -> Result<Arc<Root>> {
        let root = Root::open(&self.path).map_err(|e| {
            let failed = Error::io("open", self.path.display(), e.into());
            match is_nothing(e) {
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

    pub fn open_path(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_beneath(&self.root().fd, path, flags)
    }

    /// The lock of those who sync this inode.
    pub fn stripe(&self, inode: u64) -> &Mutex<()> {
        &self.stripes[(inode % SYNC_STRIPES as u64) as usize]
    }

    /// The lock of those who write to this inode: what they say was before is what the one before them left.
    pub fn stripe_of_writers(&self, inode: u64) -> &Mutex<()> {
        &self.stripes[SYNC_STRIPES + (inode % SYNC_STRIPES as u64) as usize]
    }

    pub fn look(&self, fd: &OwnedFd) -> rustix::io::Result<InodeStat> {
        let stat = stat(fd)?;
        let handle = self.is_at_home(&stat).then(|| handle::hash_of(fd)).flatten();
        Ok(InodeStat { stat, handle })
    }

    /// On the root's own file system.
    pub fn is_at_home(&self, found: &Statx) -> bool {
        let root = self.root();
        root.has_handles && device(found) == root.home.device
    }

    pub fn stamp_of(&self, found: &InodeStat) -> InodeStamp {
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

    pub fn shown(&self, reference: &Reference) -> String {
        let path = decode_reference(reference).map(|(_, path)| path.escape_ascii().to_string());
        format!("{}/{}", self.path.display(), path.unwrap_or_default())
    }

    pub fn object(&self, path: &[u8], found: &InodeStat) -> Result<Object> {
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
    pub fn child(&self, dir: &OwnedFd, dir_path: &[u8], name: &Name) -> Result<Object> {
        let path = join(dir_path, name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(dir, std::ffi::OsStr::from_bytes(name.as_bytes()), flags, Mode::empty());
        let found = opened.and_then(|fd| self.look(&fd));
        self.object(&path, &found.map_err(|e| Error::io("look up", path.escape_ascii(), e.into()))?)
    }

    pub fn names(&self, dir: &OwnedFd, dir_path: &[u8]) -> Result<Vec<Name>> {
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

    pub fn list(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
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
    pub fn not_a_directory(&self, reference: &Reference, error: Error) -> Error {
        if error.kind() == ErrorKind::Stale && self.open(reference, OFlags::PATH).is_ok() {
            return Error::new(ErrorKind::NotADirectory, "list", self.shown(reference));
        }
        error
    }

    /// `ELOOP` of a link itself means "not a file", of one in the way "stale".
    pub fn not_a_file(&self, reference: &Reference, error: Error) -> Error {
        if error.kind() == ErrorKind::Stale && self.open(reference, OFlags::PATH).is_ok() {
            return Error::new(ErrorKind::InvalidArgument, "read as a file", self.shown(reference));
        }
        error
    }

    pub fn keep_listing(&self, dir: InodeStamp, names: Vec<Name>) -> DirCursor {
        let number = self.next_listing.fetch_add(1, Ordering::Relaxed);
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if listings.len() >= LISTINGS_MAX {
            listings.pop_front();
        }
        listings.push_back(OpenDirectory { number, dir, names });
        DirCursor { cookie: number, verifier: [0; 8] }
    }

    pub fn take_listing(&self, number: u64, dir: InodeStamp) -> Result<Vec<Name>> {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let at = listings.iter().position(|l| l.number == number && l.dir == dir);
        let listing = at.and_then(|at| listings.remove(at));
        listing.map(|listing| listing.names).ok_or_else(|| {
            let context = "a directory: too many listings at once, begin again";
            Error::new(ErrorKind::Busy, "go on listing", context)
        })
    }

    pub fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
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
