//! Attributes that are set, on an opened object: whatever its path leads to by now, no other object is touched.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;
use types::{Error, ErrorKind, FileKind, Result, SetAttr, TimeChange, Timestamp};

use super::inode::{attr_of, stat};
use super::path::in_proc;
use super::tree::PosixTree;
use crate::{Before, Changed, Reference};

impl PosixTree {
    /// The guard is looked at before the change: POSIX has nothing that does both in one.
    pub fn set(&self, object: &Reference, set: &SetAttr, guard: Option<Timestamp>) -> Result<Changed> {
        const WHAT: &str = "set attributes of";
        let (fd, path) = self.open(object, OFlags::PATH)?;
        let failed = |e: Errno| Error::io(WHAT, path.escape_ascii(), e.into());
        let attr = attr_of(&stat(&fd).map_err(failed)?);
        if guard.is_some_and(|guard| guard != attr.ctime) {
            return Err(Error::new(ErrorKind::VersionChanged, WHAT, path.escape_ascii()));
        }
        if set.size.is_some() && attr.kind != FileKind::Regular {
            let kind = if attr.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidArgument };
            return Err(Error::new(kind, "set the size of", path.escape_ascii()));
        }
        apply(&fd, attr.kind, set).map_err(failed)?;
        self.store(&fd, &path)?;
        let look = || self.object(&path, &self.look(&fd).map_err(failed)?);
        let object = look().map_err(|error| Error::doubtful(WHAT, path.escape_ascii(), error))?;
        let before = Some(Before::from_weak(attr.weak()));
        Ok(Changed { object: Some(object), before, ..Changed::default() })
    }
}

/// `fd` may be opened for nothing but its place. The order is that of what each undoes: a new size sets times, a new
/// owner takes setuid away.
pub fn apply(fd: &OwnedFd, kind: FileKind, set: &SetAttr) -> rustix::io::Result<()> {
    let times = [time_of(set.atime)?, time_of(set.mtime)?];
    if let Some(size) = set.size {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::ftruncate(rustix::fs::openat(CWD, in_proc(fd), flags, Mode::empty())?, size)?;
    }
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(number).transpose()?, set.gid.map(number).transpose()?);
        rustix::fs::chownat(fd, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = set.mode.filter(|_| kind != FileKind::Symlink) {
        rustix::fs::chmodat(CWD, in_proc(fd), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
    }
    if (set.atime, set.mtime) != (TimeChange::Keep, TimeChange::Keep) {
        let [last_access, last_modification] = times;
        let times = Timestamps { last_access, last_modification };
        rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// The highest number says "none" to the kernel.
fn number(id: u32) -> rustix::io::Result<u32> {
    if id == u32::MAX { Err(Errno::INVAL) } else { Ok(id) }
}

fn time_of(change: TimeChange) -> rustix::io::Result<Timespec> {
    Ok(match change {
        TimeChange::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        TimeChange::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        // Larger numbers have a meaning of their own.
        TimeChange::To(time) if time.nanos >= 1_000_000_000 => return Err(Errno::INVAL),
        TimeChange::To(time) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() },
    })
}
