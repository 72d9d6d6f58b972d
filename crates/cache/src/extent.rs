//! Bytes that are handed out where they lie, for a front that lets the kernel send them: no copy in user space.
//!
//! Only blocks that are here and were checked, of a file that nobody else has changed since, and only if the kernel has
//! them in memory now: who sends them must not wait for the disk, and what comes from the disk is checked first (by the
//! read that copies). Who had to wait for the other end asks again ([`Extent::is_in_memory`]). They are not punched for as long as
//! the extent is held, nor for some time after that (`file/sent.rs`): a socket holds its pages until the other end has them, and a hole may
//! make them zeros (`file/pages.rs`).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use types::ByteRange;

use crate::file::{CachedFile, Pin, ReadBack};

/// The kernel does not drop at once what was just in use: a look is good for so long.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

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
    /// When all of it was last seen in memory.
    looked: Instant,
}

impl Extent {
    /// Of blocks that are here and checked, and in memory.
    pub fn of(file: &Arc<CachedFile>, range: ByteRange) -> Option<Extent> {
        let looked = Instant::now();
        if !file.are_checked(range.blocks()) || !file.look(range) {
            return None;
        }
        // Asked again after the look: what it found in memory may have come from the disk just now.
        Some(Extent { pin: file.pin_checked(range.blocks())?, range, looked })
    }

    /// Has the kernel in memory still what begins at `offset`? If not, `sendfile` would read it from the disk: unchecked, and while the
    /// caller's thread waits. After a `false` the rest is to be read by [`Extent::checked_read`].
    pub fn is_in_memory(&mut self, offset: u64) -> bool {
        let now = Instant::now();
        if now - self.looked < LOOK_AGAIN {
            return true;
        }
        let is_there = self.pin.file().look(ByteRange::new(offset, self.range.end() - offset));
        if is_there {
            self.looked = now;
        }
        is_there
    }

    /// Reads these bytes of the extent, checked; may wait for the disk, so for a thread that may. An error if a block is bad: it is not
    /// in the cache any more then.
    pub fn checked_read(&self, range: ByteRange) -> impl FnOnce() -> std::io::Result<Bytes> + Send + use<> {
        let file = self.pin.shared_file();
        move || {
            let in_memory = file.read(range, true)?;
            match if in_memory.is_none() { file.read(range, false)? } else { in_memory } {
                Some(ReadBack::Bytes(bytes)) => Ok(bytes),
                _ => Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "a cached block is not what it was when it was lent",
                )),
            }
        }
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

    /// In user memory; an extent is read and checked, which may wait for the disk.
    pub fn to_bytes(&self) -> std::io::Result<Bytes> {
        match self {
            Piece::Bytes(bytes) => Ok(bytes.clone()),
            Piece::Extent(extent) => extent.checked_read(extent.range)(),
        }
    }
}
