//! Writes: passed to `vfs` at once, stored at fsync and, as the junction's policy has it, at close.
//!
//! The kernel's writeback cache is not used. With it `write` would return before we see the bytes: an error would
//! reach nobody, sizes and times would be the kernel's own guess, and other clients' data would be overwritten by
//! whole pages. Without it the kernel sends each `write` when it is made and keeps the pages for its readers, and
//! `vfs` gathers small writes. (What a process writes through `mmap` comes when the kernel likes, at the latest with
//! `msync`, or when the file is closed.)

use bytes::Bytes;
use fuser::WriteFlags;
use types::{ByteRange, Caller, Error, ErrorKind, FileId, FileKind, Result, SetAttr, Stability};
use vfs::CommitOut;

use crate::FuseState;
use crate::asker::Asker;
use crate::change::trusted_root;

/// Flags of `fallocate`: keep the size; punch a hole; write zeros.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 0x10;
/// Flags of `open`, on the machines that we run on. (The libc crate gives both names the value of the second.)
const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_010_000;
/// The zeros of one write.
const ZEROS: usize = 1 << 20;
/// The attempts to extend a file that others keep changing.
const GROW_TRIES: usize = 16;

impl FuseState {
    pub async fn write(
        &self,
        caller: &Caller,
        number: u64,
        offset: u64,
        data: Bytes,
        how: HowWritten,
    ) -> Result<()> {
        let id = self.file(number)?;
        if how.ends_privilege {
            self.end_privilege(number).await?;
        }
        self.inodes().mark_dirty(number);
        let write = || self.vfs.write(caller, id, offset, data.clone(), how.stability);
        let change = self.retry_change(write);
        let out = match how.is_a_call {
            true => self.changing_object(number, change).await?,
            false => change.await?,
        };
        self.changed(out.before, &out.node);
        Ok(())
    }

    /// Stores all that was written as the junction's policy wants it of a file that is closed, or returns the error of what
    /// cannot be.
    pub async fn flush(&self, caller: &Caller, number: u64) -> Result<()> {
        let id = self.file(number)?;
        // Called even if this inode is clean: `vfs` knows what others wrote.
        self.inodes().take_dirty(number);
        let out = self.retry_change(|| self.vfs.close_written(caller, id)).await;
        self.stored(out)
    }

    /// Returns when what was done to the file, and what was done before that, is on stable storage.
    pub async fn fsync(&self, caller: &Caller, number: u64) -> Result<()> {
        let id = self.file(number)?;
        self.inodes().take_dirty(number);
        let out = self.retry_change(|| self.vfs.commit(caller, id, ByteRange::new(0, 0))).await;
        self.stored(out)
    }

    /// The same of a directory.
    pub async fn fsyncdir(&self, number: u64) -> Result<()> {
        let id = self.file(number)?;
        self.retry_change(|| self.vfs.sync_names(id)).await
    }

    fn stored(&self, out: Result<CommitOut>) -> Result<()> {
        match out {
            Ok(out) => {
                self.changed(out.before, &out.node);
                Ok(())
            }
            // A read-only junction has nothing to store.
            Err(e) if e.kind() == ErrorKind::ReadOnly => Ok(()),
            Err(e) => Err(e),
        }
    }

    pub async fn fallocate(
        &self,
        asker: &Asker,
        number: u64,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<()> {
        let past = || Error::new(ErrorKind::FileTooLarge, "allocate", number);
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok()).ok_or_else(past)?;
        let keeps = mode & KEEP_SIZE != 0;
        self.end_privilege_of(asker, number).await?;
        let caller = &asker.caller;
        match mode & !KEEP_SIZE {
            0 if !keeps => self.grow(caller, number, end).await,
            PUNCH_HOLE if keeps => self.zero(caller, number, offset, end).await,
            ZERO_RANGE => {
                if !keeps {
                    self.grow(caller, number, end).await?;
                }
                self.zero(caller, number, offset, end).await
            }
            _ => Err(Error::new(ErrorKind::NotSupported, "allocate with mode", mode)),
        }
    }

    /// Extends the file to at least `end`, and never truncates what others append meanwhile.
    async fn grow(&self, caller: &Caller, number: u64, end: u64) -> Result<()> {
        let id = self.file(number)?;
        for _ in 0..GROW_TRIES {
            let node = self.retry_read(|| self.vfs.getattr_in_use(id)).await?;
            if node.attr.kind != FileKind::Regular {
                return Err(Error::new(ErrorKind::NotSupported, "allocate in what is no file,", id));
            }
            if node.attr.size >= end {
                return self.require_writable(&node);
            }
            let set = SetAttr { size: Some(end), ..SetAttr::default() };
            let guard = Some(node.attr.ctime);
            match self.retry_change(|| self.vfs.setattr(caller, id, set, guard)).await {
                Ok(altered) => {
                    self.changed(altered.before, &altered.node);
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::VersionChanged => self.flush(caller, number).await?,
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(ErrorKind::Busy, "make a file longer that keeps changing,", id))
    }

    /// Zeros in what there is of the range.
    async fn zero(&self, caller: &Caller, number: u64, offset: u64, end: u64) -> Result<()> {
        static ZERO: [u8; ZEROS] = [0; ZEROS];
        let id = self.file(number)?;
        let node = self.retry_read(|| self.vfs.getattr_in_use(id)).await?;
        let mut at = offset;
        let end = end.min(node.attr.size);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(ZEROS).min(ZEROS);
            let zeros = Bytes::from_static(&ZERO[..piece]);
            self.write(
                caller,
                number,
                at,
                zeros,
                HowWritten { stability: Stability::Unstable, is_a_call: false, ends_privilege: false },
            )
            .await?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Stores what a mapping wrote after the last `close`; an error can only be logged.
    pub async fn flush_after_close(&self, file: FileId) {
        let caller = trusted_root();
        let stored = self.retry_change(|| self.vfs.close_written(&caller, file)).await;
        match stored {
            Ok(out) => self.changed(out.before, &out.node),
            // Removed since.
            Err(e) if matches!(e.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {}
            Err(e) => tracing::warn!("what was written to a file that is closed may be lost: {e}"),
        }
    }

    /// The memory permit of a WRITE, taken before its bytes are copied.
    pub fn write_permit(&self, length: usize) -> tokio::sync::OwnedSemaphorePermit {
        let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        let budget = || self.write_budget.clone();
        let room = budget().try_acquire_many_owned(kib);
        let room = room.or_else(|_| self.runtime.block_on(budget().acquire_many_owned(kib)));
        room.expect("the budget is never closed")
    }
}

/// What a WRITE is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HowWritten {
    pub stability: Stability,
    /// The answer ends a system call that writes, by which the kernel drops size and times that it has of the file. It does
    /// not for all other writes.
    pub is_a_call: bool,
    /// The writer may not leave a program its setuid and setgid.
    pub ends_privilege: bool,
}

/// What the flags of `open` ask of each write.
pub fn how_written(flags: i32, write_flags: WriteFlags) -> HowWritten {
    let from_pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
    let ends_privilege = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
    let stability = if from_pages {
        // A page that was dirtied through a mapping is not waited for; whose flags these are is the kernel's guess.
        Stability::Unstable
    } else if flags & O_SYNC == O_SYNC {
        Stability::FileSync
    } else if flags & O_DSYNC != 0 {
        Stability::DataSync
    } else {
        Stability::Unstable
    };
    HowWritten { stability, is_a_call: !from_pages, ends_privilege }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_say_how_stable_a_write_is() {
        let stability_of = |flags, from_pages| {
            let pages = if from_pages { WriteFlags::FUSE_WRITE_CACHE } else { WriteFlags::empty() };
            how_written(flags, pages).stability
        };
        assert_eq!(stability_of(1, false), Stability::Unstable);
        assert_eq!(stability_of(1 | O_DSYNC, false), Stability::DataSync);
        assert_eq!(stability_of(2 | O_SYNC, false), Stability::FileSync);
        assert_eq!(stability_of(O_SYNC, true), Stability::Unstable);
    }
}
