//! Bytes that are handed out where they lie, for a front that lets the kernel send them: no copy in user space.
//!
//! Only blocks that are here and were checked, of a file that nobody else has changed since, and only if the kernel has
//! them in memory now: who sends them must not wait for the disk, and what comes from the disk is checked first (by the
//! read that copies). They are not punched for as long as the extent is held. A socket holds its pages for longer, until the other end
//! has them: a hole takes them off the file and leaves their bytes, since no folio has bytes of two blocks
//! (`file/pages.rs`).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use types::ByteRange;

use crate::file::{CachedFile, Pin};

/// Blocks for which one stands: what a disk gives comes in runs, and leaves memory in runs. A look is a system call.
const LOOK_EVERY: usize = 4;

/// Some bytes of an answer.
#[derive(Debug)]
pub enum Piece {
    Bytes(Bytes),
    Extent(Extent),
}

/// May an answer have extents?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lend {
    Nothing,
    /// Of at least so many bytes: copying fewer is cheaper than a system call for them.
    From(u64),
}

/// A range of a cached file.
pub struct Extent {
    pin: Pin,
    range: ByteRange,
}

impl Extent {
    /// Of blocks that are here and checked, and in memory as far as a look at some of them tells.
    pub fn of(file: &Arc<CachedFile>, range: ByteRange) -> Option<Extent> {
        let blocks = range.blocks();
        let pin = file.pin_checked(blocks.clone())?;
        let looked_at = blocks.clone().skip(LOOK_EVERY - 1).step_by(LOOK_EVERY).chain(blocks.last());
        let resident = looked_at.into_iter().all(|block| file.is_resident(block, range));
        resident.then_some(Extent { pin, range })
    }

    pub fn offset(&self) -> u64 {
        self.range.offset
    }

    pub fn length(&self) -> u64 {
        self.range.length
    }
}

impl std::fmt::Debug for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Extent({:?})", self.range)
    }
}

impl AsFd for Extent {
    /// For reading, and only within the extent.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pin.file().data().as_fd()
    }
}

impl Piece {
    pub fn length(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Extent(extent) => extent.length(),
        }
    }

    /// In user memory; an extent is read, which may wait for the disk.
    pub fn to_bytes(&self) -> std::io::Result<Bytes> {
        match self {
            Piece::Bytes(bytes) => Ok(bytes.clone()),
            Piece::Extent(extent) => extent.pin.file().read_exact(extent.range),
        }
    }
}
