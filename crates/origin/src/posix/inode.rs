//! What the kernel tells of an inode, and how a reference names it.

use std::ops::Deref;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use types::{Attr, Error, ErrorKind, FileKind, Result, Timestamp};

use crate::Reference;

/// The file system of the root. Device numbers of network mounts change from mount to mount; what stays is that a
/// file is on the root's own file system, and the id that this file system gives itself (0 where it has none).
#[derive(Clone, Copy)]
pub struct RootFileSystem {
    pub device: u64,
    pub id: u64,
}

/// What tells an inode from every other, also from a later one with its number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InodeStamp {
    /// The file system: its own id if it is the root's, otherwise the device.
    pub dev: u64,
    pub ino: u64,
    /// Its birth, and its handle on the root's own file system, as far as there are such things.
    pub life: u64,
}

/// What the kernel tells of an inode.
pub struct InodeStat {
    pub stat: Statx,
    /// A hash of its handle.
    pub handle: Option<u64>,
}

impl Deref for InodeStat {
    type Target = Statx;

    fn deref(&self) -> &Statx {
        &self.stat
    }
}

pub const STAMP_BYTES: usize = 24;

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl InodeStamp {
    pub fn encode(self) -> [u8; STAMP_BYTES] {
        let mut out = [0; STAMP_BYTES];
        for (place, word) in out.chunks_exact_mut(8).zip([self.dev, self.ino, self.life]) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        out
    }
}

pub fn decode_reference(reference: &Reference) -> Result<(InodeStamp, &[u8])> {
    let broken = || Error::new(ErrorKind::Stale, "read reference", "");
    let (stamp, path) = reference.0.split_first_chunk::<STAMP_BYTES>().ok_or_else(broken)?;
    let mut words = stamp.chunks_exact(8).map(|c| u64::from_be_bytes(c.try_into().unwrap_or([0; 8])));
    let mut next = || words.next().ok_or_else(broken);
    Ok((InodeStamp { dev: next()?, ino: next()?, life: next()? }, path))
}

pub fn stat(fd: &OwnedFd) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, WANTED)
}

pub fn device(found: &Statx) -> u64 {
    (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor)
}

pub fn attr_of(found: &Statx) -> Attr {
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
