//! Paths below the root, of any length that a reference may have. The kernel takes at most PATH_MAX in one call; trees
//! can be deeper, because who goes down by directories names one step at a time.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use types::{Error, ErrorKind, Name, Result};

use super::inode::STAMP_BYTES;
use crate::REFERENCE_MAX;

/// What one call takes, without the zero at its end.
const ONE_CALL: usize = 4095;

/// The path from the root to `name` in `dir`.
pub fn join(dir: &[u8], name: &Name) -> Vec<u8> {
    if dir.is_empty() { name.as_bytes().to_vec() } else { [dir, b"/", name.as_bytes()].concat() }
}

/// Fails for a name that could not be addressed if it were made in this directory; so before it is made.
pub fn demand_fits(dir: &[u8], name: &Name) -> Result<()> {
    if STAMP_BYTES + dir.len() + 1 + name.as_bytes().len() <= REFERENCE_MAX {
        return Ok(());
    }
    let reach = REFERENCE_MAX - STAMP_BYTES;
    let context = format!("{name}: its path would be longer than {reach} bytes");
    Err(Error::new(ErrorKind::NameTooLong, "name", context))
}

/// Opens what lies at `path` below `root`, never through a link and never above the root. A path of ordinary length is
/// one call; a longer one is walked in pieces, each below the directory that the one before it led to.
pub fn open_beneath(root: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > ONE_CALL {
        let slash = rest[..=ONE_CALL].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let on_the_way = OFlags::PATH | OFlags::DIRECTORY;
        at = Some(open_step(at.as_ref().unwrap_or(root), &rest[..slash], on_the_way)?);
        rest = &rest[slash + 1..];
    }
    open_step(at.as_ref().unwrap_or(root), rest, flags)
}

fn open_step(dir: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
}

/// The opened object by a path that the kernel follows to nothing else.
pub fn in_proc(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
