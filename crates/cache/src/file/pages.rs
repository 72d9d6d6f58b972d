//! What the kernel has of a cached file in memory, and why the pages that a socket holds do not change.
//!
//! `sendfile` leaves the pages of the file themselves in the socket until the other end has them, and the pin of the blocks ends
//! when the call does. Linux has folios of many pages (ext4 since 6.16, XFS since 5.18), as large as what is written or read ahead at
//! once; where a hole is punched into a part of one, or the file is cut within one, it puts zeros there in place: the client gets
//! them. A write changes pages in place, too.
//!
//! So no folio has bytes of two blocks (each block is written by a call of its own, and nothing is read ahead), holes are of whole
//! blocks, and a block is taken off the file before it is cut or written over (`relabel.rs`). Where somebody else makes the folios
//! nothing is punched, cut or written over: the kernel, when it reads a file by itself (passthrough), until a restart. What former
//! processes left in memory is dropped when the file is first opened, unless all of them kept these rules (`folio_history.rs`).
//!
//! Where nobody is lent pages (`Config::lends`), folios may be of any size: the kernel is faster at those. A file that the kernel reads by
//! itself is read at random with 1.2 times the rate then.
//!
//! That is not enough: on Linux 6.18 (ext4), pages that a pipe held of blocks that were filled, punched, filled and punched again within
//! seconds were zeros after the second hole, five of some thousand, on a machine that was short of memory; why is not known. So what was lent
//! is not punched for some time (`sent.rs`), and guests, which leave when they were read, are copied (`read.rs`). A block that is to be
//! cut or written over meanwhile is detached first: its bytes are written once more past the kernel's memory (`O_DIRECT`), for which the
//! kernel takes the pages off the file as they are, whoever holds them.

use std::ffi::{c_long, c_uint};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, FallocateFlags, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ReadWriteFlags;
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange};

use super::CachedFile;

/// Of the kernel's memory. Where pages are larger, a look at `PAGE` bytes is one at the page around them.
const PAGE: u64 = 4096;

/// What the kernel may have of a cached file in one folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioRule {
    /// Bytes of one block: sockets may hold some of its pages.
    OneBlock,
    /// As many as it likes.
    AnySize,
}

impl FolioRule {
    /// To be kept by what the kernel reads of a file that has just been opened.
    pub(super) fn apply(self, data: &File) -> std::io::Result<()> {
        match self {
            // Folios of one page, and nothing is read ahead.
            FolioRule::OneBlock => Ok(rustix::fs::fadvise(data, 0, None, Advice::Random)?),
            FolioRule::AnySize => Ok(()),
        }
    }

    pub(super) fn write(self, data: &File, first_block: u64, bytes: &[u8]) -> std::io::Result<()> {
        let at_once = match self {
            FolioRule::OneBlock => BLOCK_SIZE as usize,
            FolioRule::AnySize => bytes.len().max(1),
        };
        let mut at = first_block * BLOCK_SIZE;
        for chunk in bytes.chunks(at_once) {
            data.write_all_at(chunk, at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }
}

/// Whole blocks, also the last one of the file: of a page of which only a part is punched the kernel keeps the rest.
pub(super) fn punch(data: &File, run: Range<u64>) -> std::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (offset, length) = (run.start * BLOCK_SIZE, (run.end - run.start) * BLOCK_SIZE);
    Ok(rustix::fs::fallocate(data, flags, offset, length)?)
}

/// What direct writes are aligned to, in memory and in the file: no disk wants more.
const DIRECT: usize = 4096;

/// Takes the pages of these blocks off the file, in which they stay as they are for whoever holds them. `false`: they may still be
/// the file's, and the bytes of the file are the same in any case. Nobody else may use this file meanwhile.
pub(super) fn detach(data: &File, blocks: Range<u64>, size: u64) -> std::io::Result<bool> {
    let flags = fcntl_getfl(data)?;
    let (range, mut is_detached) = (bytes_of_blocks(blocks.clone(), size), true);
    for block in blocks {
        let range = bytes_of_blocks(block..block + 1, size);
        let length = range.length as usize;
        let mut buffer = vec![0; length.next_multiple_of(DIRECT) + DIRECT];
        let aligned = buffer.as_ptr().align_offset(DIRECT);
        let bytes = &mut buffer[aligned..aligned + length.next_multiple_of(DIRECT)];
        data.read_exact_at(&mut bytes[..length], range.offset)?;
        // Memory as a file system, and some others, do not know it.
        if fcntl_setfl(data, flags | OFlags::DIRECT).is_err() {
            return Ok(false);
        }
        let written = data.write_all_at(bytes, range.offset);
        fcntl_setfl(data, flags)?;
        is_detached &= written.is_ok();
    }
    // The kernel may have written them by way of its memory after all.
    let length = range.length.next_multiple_of(PAGE);
    is_detached = is_detached && are_absent(data, range.offset, length);
    if data.metadata()?.len() > size {
        data.set_len(size)?;
    }
    Ok(is_detached)
}

fn are_absent(data: &File, offset: u64, length: u64) -> bool {
    match pages_in_memory(data, offset, length) {
        Some(there) => there == 0,
        None => (offset..offset + length).step_by(PAGE as usize).all(|at| !has_byte(data, at)),
    }
}

/// If the kernel does not have it in memory, it begins to read its page.
fn has_byte(data: &File, at: u64) -> bool {
    let mut byte = [0];
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(data, &mut slices, at, ReadWriteFlags::NOWAIT) == Ok(1)
}

/// Pages of so many bytes from `offset` on that are in memory or being read. `None`: this kernel does not tell.
#[expect(unsafe_code, reason = "no library wraps this call")]
fn pages_in_memory(data: &File, offset: u64, length: u64) -> Option<u64> {
    /// The same on all machines but two old ones, where it is another call's number and fails.
    const CACHESTAT: c_long = 451;
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    let range = [offset, length];
    let mut counts = [0_u64; 5]; // in memory, dirty, being written, evicted, evicted lately
    // SAFETY: the kernel reads the two words of `range` and writes at most the five of `counts`. It keeps no pointer.
    let done =
        unsafe { syscall(CACHESTAT, data.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), c_uint::MIN) };
    (done == 0).then_some(counts[0])
}

impl CachedFile {
    /// Does the kernel have all of `range` in memory now, so that nobody who reads it waits for the disk?
    pub fn is_resident(&self, range: ByteRange) -> bool {
        let first = range.offset / PAGE;
        let pages = range.end().div_ceil(PAGE) - first;
        match pages_in_memory(&self.data, first * PAGE, pages * PAGE) {
            // Pages that are being read count, and they arrive in order.
            Some(there) => there >= pages && has_byte(&self.data, range.end() - 1),
            // Linux before 6.5.
            None => range.blocks().all(|block| {
                has_byte(
                    &self.data,
                    bytes_of_blocks(block..block + 1, self.key.size).end().min(range.end()) - 1,
                )
            }),
        }
    }

    /// As [`Self::is_resident`]. What is not there comes from the disk at its next use: its blocks count as not checked from now on, so
    /// that they are not lent before somebody has read and checked them.
    pub fn look(&self, range: ByteRange) -> bool {
        let is_there = self.is_resident(range);
        if !is_there {
            let mut state = self.lock();
            range.blocks().for_each(|block| state.verified.set(block, false));
        }
        is_there
    }

    /// It leaves as a whole only.
    pub fn has_kernel_reads(&self) -> bool {
        self.lock().kernel_reads
    }

    pub fn note_kernel_reads(&self) {
        self.lock().kernel_reads = true;
    }

    /// Take out of the kernel's memory what a former process left there, in folios of any size. `is_written`: all of it is on the disk.
    pub fn forget_pages(&self, is_written: bool) -> std::io::Result<()> {
        if !is_written {
            self.data.sync_data()?; // dirty pages stay
        }
        Ok(rustix::fs::fadvise(&self.data, 0, None, Advice::DontNeed)?)
    }
}
