//! Bytes of a cached file are read, and checked where that was not done yet.

use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rustix::io::ReadWriteFlags;
use rustix::time::{ClockId, clock_gettime};
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange};

use super::{CachedFile, State, changed_at, entry_offset};
use crate::format;

/// What a read found.
pub enum ReadBack {
    Bytes(Bytes),
    /// These blocks are not there, or were there and did not match their checksum and are dropped.
    Missing {
        corrupt: u64,
    },
}

impl CachedFile {
    /// The bytes of `range` if all its blocks are here and good. `now_or_never`: do not wait for the disk.
    ///
    /// A block is checked when it is read whole, at its first use since the file was opened, when somebody else has written
    /// into the file since, and whenever it comes from the disk. Only pieces of checked blocks that the kernel has in
    /// memory are taken as they are. Returns `None` if it would have had to wait.
    pub fn read(&self, range: ByteRange, now_or_never: bool) -> std::io::Result<Option<ReadBack>> {
        let blocks = range.blocks();
        if !now_or_never {
            // From the disk: not lent before it is checked, which is done below.
            self.look(range);
        }
        let mut expected = Vec::with_capacity((blocks.end - blocks.start) as usize);
        {
            let mut state = self.lock();
            let whole = bytes_of_blocks(blocks.clone(), self.key.size) == range;
            if !whole {
                self.notice_strangers(&mut state);
            }
            for block in blocks.clone() {
                match state.entry(&self.map, block).and_then(format::decode_entry) {
                    // Who may wait does so because the kernel does not have the bytes: they come from the disk.
                    Some(crc) => expected.push((crc, now_or_never && state.verified.is_set(block))),
                    None => return Ok(Some(ReadBack::Missing { corrupt: 0 })),
                }
            }
        }
        // A block that was never checked is read whole, even if only a piece of it is asked for.
        let unchecked = |at: Option<&(u32, bool)>| at.is_some_and(|(_, verified)| !verified);
        let mut from = range.offset;
        let mut to = range.end();
        if unchecked(expected.first()) {
            from = blocks.start * BLOCK_SIZE;
        }
        if unchecked(expected.last()) {
            to = bytes_of_blocks(blocks.clone(), self.key.size).end();
        }
        let Some(bytes) = self.pread(ByteRange::new(from, to - from), now_or_never)? else { return Ok(None) };
        let there = from + bytes.len() as u64;
        let mut corrupt = 0;
        for (block, (crc, verified)) in blocks.zip(expected) {
            let whole = bytes_of_blocks(block..block + 1, self.key.size);
            let cut_short = whole.end().min(to) > there;
            if !cut_short && (whole.offset < from || whole.end() > to) {
                continue; // a piece of a block that was checked before
            }
            let start = whole.offset.saturating_sub(from) as usize;
            let chunk = bytes.get(start..start + whole.length as usize).unwrap_or_default();
            if cut_short {
                // Who cut it may have cut others too, and they may be holes by the time they are read.
                self.lock().verified.clear();
            }
            if cut_short || format::checksum(&self.key, &self.label, block, chunk) != crc {
                corrupt += 1;
                self.drop_block(block, crc)?;
            } else if !verified {
                self.lock().verify(&self.map, block, crc);
            }
        }
        if corrupt > 0 {
            return Ok(Some(ReadBack::Missing { corrupt }));
        }
        let start = (range.offset - from) as usize;
        Ok(Some(ReadBack::Bytes(bytes.slice(start..start + range.length as usize))))
    }

    /// Compares the file's timestamp with the one that we left: blocks that were checked before somebody else wrote into the
    /// file must be checked again. While blocks arrive the timestamp is ours.
    ///
    /// Once in each tick of the kernel's clock (10 ms at most), since timestamps are no finer and the system call is a
    /// twentieth of a read of 4 KiB.
    pub(super) fn notice_strangers(&self, state: &mut State) {
        if !state.flights.is_empty() {
            return;
        }
        let now = Some(clock_gettime(ClockId::MonotonicCoarse));
        if state.compared == now {
            return;
        }
        state.compared = now;
        let changed = changed_at(&self.data);
        if state.left != changed {
            state.left = changed;
            state.verified.clear();
        }
    }

    fn pread(&self, range: ByteRange, now_or_never: bool) -> std::io::Result<Option<Bytes>> {
        let length = usize::try_from(range.length).map_err(std::io::Error::other)?;
        let mut buffer = vec![0; length];
        let mut done = 0;
        while done < length {
            let offset = range.offset + done as u64;
            let rest = &mut buffer[done..];
            let read = if now_or_never {
                let mut slices = [std::io::IoSliceMut::new(rest)];
                match rustix::io::preadv2(&self.data, &mut slices, offset, ReadWriteFlags::NOWAIT) {
                    Ok(read) => read,
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::OPNOTSUPP) => return Ok(None),
                    Err(e) => return Err(e.into()),
                }
            } else {
                self.data.read_at(rest, offset)?
            };
            if read == 0 {
                if now_or_never {
                    return Ok(None);
                }
                break; // cut short by somebody
            }
            done += read;
        }
        buffer.truncate(done);
        Ok(Some(Bytes::from(buffer)))
    }

    /// The block is bad: not here any more, unless it was filled anew meanwhile.
    fn drop_block(&self, block: u64, crc: u32) -> std::io::Result<()> {
        let mut state = self.lock();
        if state.entry(&self.map, block) == Some(format::encode_entry(crc)) {
            self.map.write_all_at(&[0; 8], entry_offset(block))?;
            state.set(&self.map, block, 0, false);
        }
        Ok(())
    }

    /// Checks a block again, whatever was found before; one that is bad is not here any more. `true`: it was bad.
    pub fn recheck(&self, block: u64) -> std::io::Result<bool> {
        if block >= self.blocks().end {
            return Ok(false);
        }
        self.lock().verified.set(block, false);
        let read = self.read(bytes_of_blocks(block..block + 1, self.key.size), false)?;
        Ok(matches!(read, Some(ReadBack::Missing { corrupt: 1.. })))
    }

    /// A block that is here and good, from the disk.
    pub fn read_block(&self, block: u64) -> Option<Bytes> {
        let range = bytes_of_blocks(block..block + 1, self.key.size);
        match self.read(range, false) {
            Ok(Some(ReadBack::Bytes(bytes))) => Some(bytes),
            _ => None,
        }
    }
}
