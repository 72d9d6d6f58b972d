//! What the file system of the root can never take. The largest file is found out by making one that has no name, and
//! no bytes, longer and shorter: nobody sees it, and it takes no room.

use std::os::fd::OwnedFd;
use std::sync::{MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::process::Resource;
use types::{Error, ErrorKind, Result};

use super::inode::STAMP_BYTES;
use super::tree::PosixTree;
use crate::{OriginLimits, OriginTraits, REFERENCE_MAX};

/// What holds for every directory. Whether it has extended attributes is found out when it is opened.
pub const TRAITS: OriginTraits =
    OriginTraits { read_max: 4 << 20, write_max: 4 << 20, ..OriginTraits::POSIX };

const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;

impl PosixTree {
    pub fn limits(&self) -> Result<OriginLimits> {
        let root = self.root();
        let failed = |e: rustix::io::Errno| Error::io("ask limits of", self.path.display(), e.into());
        let found = rustix::fs::fstatvfs(&root.fd).map_err(failed)?;
        let kind = rustix::fs::fstatfs(&root.fd).map_err(failed)?.f_type.cast_unsigned();
        let read_only = found.f_flag.contains(StatVfsMountFlags::RDONLY);
        let links_max = match kind {
            EXT4 => Some(65_000),
            XFS => Some(i32::MAX.cast_unsigned()),
            BTRFS => Some(65_535),
            _ => None,
        };
        let (here, known) = ((root.home.device, root.home.id), *self.file_size_max());
        let file_size_max = match known {
            Some((place, known)) if place == here => Some(known),
            _ => largest_file(&root.fd),
        };
        *self.file_size_max() = file_size_max.map(|max| (here, max));
        let name_max = u32::try_from(found.f_namemax).ok().filter(|max| *max > 0);
        Ok(OriginLimits { file_size_max, name_max, links_max, no_special_files: false, read_only })
    }

    fn file_size_max(&self) -> MutexGuard<'_, Option<((u64, u64), u64)>> {
        self.file_size_max.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None`: this file system has no files without a name, or we may make none in this directory.
fn largest_file(dir: &OwnedFd) -> Option<u64> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    // Beyond the limit of this process the kernel ends it.
    let own = rustix::process::getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let most = own.min(i64::MAX.cast_unsigned());
    largest(most, |size| rustix::fs::ftruncate(&file, size)).ok()
}

/// The largest size up to `most` that is taken. Fails if something else than the size is wrong.
fn largest(most: u64, mut take: impl FnMut(u64) -> rustix::io::Result<()>) -> rustix::io::Result<u64> {
    use rustix::io::Errno;
    let mut is_taken = |size| match take(size) {
        Ok(()) => Ok(true),
        Err(Errno::FBIG | Errno::INVAL) => Ok(false),
        Err(e) => Err(e),
    };
    if is_taken(most)? {
        return Ok(most);
    }
    let (mut fits, mut too_large) = (0, most);
    while too_large - fits > 1 {
        let middle = fits + (too_large - fits) / 2;
        match is_taken(middle)? {
            true => fits = middle,
            false => too_large = middle,
        }
    }
    Ok(fits)
}

/// Below the root, with the name at its end.
pub fn demand_path(path: &[u8]) -> Result<()> {
    let reach = REFERENCE_MAX - STAMP_BYTES;
    if path.len() <= reach {
        return Ok(());
    }
    let context = format!("an object {} bytes below the root: {reach} can be reached", path.len());
    Err(Error::new(ErrorKind::NameTooLong, "name", context))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_largest_size_that_is_taken_is_found() {
        for limit in [0, 1, 4095, 17_592_186_040_320, i64::MAX.cast_unsigned()] {
            let take = |size| if size <= limit { Ok(()) } else { Err(Errno::FBIG) };
            assert_eq!(largest(i64::MAX.cast_unsigned(), take), Ok(limit));
        }
        assert_eq!(largest(1 << 40, |_| Err(Errno::NOSPC)), Err(Errno::NOSPC), "that is no limit of files");
        assert_eq!(largest(1000, |_| Ok(())), Ok(1000), "of this process");
    }
}
