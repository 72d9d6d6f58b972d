//! The directory that is served, as it is found at its path: looked for anew each time the origin is asked which storage
//! it is, so that what is mounted over it or taken away below it shows.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::handle;
use super::inode::{RootFileSystem, device, stat};
use super::path::in_proc;
use crate::OriginIdentity;

/// Type of NFS as `statfs` tells it: handles are the server's there, and change when it is set up anew.
const NFS: u64 = 0x6969;

pub struct Root {
    pub fd: OwnedFd,
    pub home: RootFileSystem,
    pub has_xattrs: bool,
    pub has_handles: bool,
}

impl Root {
    pub fn open(path: &Path) -> rustix::io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let home = RootFileSystem { device: device(&stat(&fd)?), id: rustix::fs::fstatvfs(&fd)?.f_fsid };
        let (has_xattrs, has_handles) = (knows_xattrs(&fd), handle::last(&fd));
        Ok(Root { fd, home, has_xattrs, has_handles })
    }

    pub fn identity(&self) -> rustix::io::Result<OriginIdentity> {
        let found = stat(&self.fd)?;
        let kind = rustix::fs::fstatfs(&self.fd)?.f_type.cast_unsigned();
        let id = if is_number_of(&found, self.home.id) { 0 } else { self.home.id };
        let handle = match self.has_handles && kind != NFS {
            true => handle::hash_of(&self.fd).unwrap_or(0),
            false => 0,
        };
        let birth = match found.stx_mask & StatxFlags::BTIME.bits() != 0 {
            true => (found.stx_btime.tv_sec.cast_unsigned(), u64::from(found.stx_btime.tv_nsec)),
            false => (0, 0),
        };
        let words = [kind, id, found.stx_ino, birth.0, birth.1, handle];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_be_bytes).collect();
        let mounted =
            if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) { " (a mount point)" } else { "" };
        let shown = format!(
            "directory{mounted} with inode {} made at {}.{:09}, on {} {id:x}",
            found.stx_ino,
            birth.0.cast_signed(),
            birth.1,
            name_of(kind)
        );
        Ok(OriginIdentity { bytes: bytes.into(), shown, is_lasting: true })
    }

    pub fn is_empty(&self) -> rustix::io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&self.fd, c".", flags, Mode::empty())?;
        for entry in rustix::fs::Dir::new(listed)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether the file system of this directory knows users' attributes at all.
fn knows_xattrs(dir: impl AsFd) -> bool {
    match rustix::fs::getxattr(in_proc(dir), c"user.forebay", &mut [0; 1]) {
        Ok(_) | Err(Errno::NODATA | Errno::RANGE) => true,
        Err(_) => false,
    }
}

/// Some file systems (XFS, FAT) give the number of their device for an id of their own, and that may be another one
/// after the machine was restarted.
fn is_number_of(found: &Statx, id: u64) -> bool {
    let (major, minor) = (u64::from(found.stx_dev_major), u64::from(found.stx_dev_minor));
    id == (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}

fn name_of(kind: u64) -> String {
    let name = match kind {
        0xef53 => "ext4 file system",
        0x5846_5342 => "XFS file system",
        0x9123_683e => "Btrfs file system",
        0x0102_1994 => "tmpfs",
        0xf2f5_2010 => "F2FS file system",
        0x2fc1_2fc1 => "ZFS file system",
        NFS => "NFS mount",
        0x794c_7630 => "overlay file system",
        0x6573_5546 => "FUSE mount",
        0xff53_4d42 => "SMB mount",
        _ => return format!("file system of type {kind:x}"),
    };
    name.to_owned()
}

/// What is at the path of a directory that was served and is not to be opened.
pub fn is_nothing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}
