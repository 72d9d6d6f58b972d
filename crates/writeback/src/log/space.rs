//! Giving room back: segments that nobody needs leave, oldest first; an entry that is stuck moves out of the way.

use std::sync::Arc;

use types::{ByteRange, Error, ErrorKind, Result};

use super::Log;
use super::room::spare_name;
use crate::crash_points::JournalStep;
use crate::disk::is_full;
use crate::index::{IndexedSegment, LiveEntry, Position};
use crate::sabotage::Bug;
use crate::segment::{self, RecordFrame, RecordKind};

/// What `compact` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// Bytes of records copied; the segment they were in has left.
    Moved(u64),
    /// There is only the segment that is being written.
    Nothing,
    /// There is no room for the copies, not even in the reserve.
    NoRoom,
}

impl Log {
    /// Remove the oldest segment while all its entries are done; returns how many left.
    ///
    /// Oldest first, and each removal durable before the next: a Done record speaks of an entry in its own segment or
    /// an older one, so none is needed any more when its segment leaves.
    pub fn reclaim(&self) -> Result<u64> {
        let _maintenance = self.maintenance.lock().expect("nobody panics in maintenance");
        self.reclaim_in_maintenance()
    }

    fn reclaim_in_maintenance(&self) -> Result<u64> {
        let mut removed = 0;
        while let Some(number) = self.removable() {
            self.usable()?;
            self.let_go(number)?;
            removed += 1;
            self.step(JournalStep::SegmentRemoved);
        }
        let mut writer = self.writer();
        if !writer.reserve && self.usable().is_ok() {
            self.make_reserve(&mut writer)?;
        }
        Ok(removed)
    }

    /// As a spare, if there is room for one and nobody reads the segment: who does keeps its file, and would see it
    /// written over. Nobody can begin to read it, since nothing in it is live.
    fn let_go(&self, number: u64) -> Result<()> {
        let name = segment::name(number);
        let fail = |e: std::io::Error| match is_full(&e) {
            true => Error::new(ErrorKind::Busy, "remove journal segment", &name).with_source(e),
            false => self.latch("remove journal segment", &name, e),
        };
        self.covered.leave(self.disk.as_ref(), number as u32 + 1).map_err(fail)?;
        let unread = |one: &&IndexedSegment| Arc::strong_count(&one.file) == 1;
        let unread = self.index().segments.get(&number).filter(unread).map(|one| one.end);
        let mut writer = self.writer();
        if unread.is_some_and(|end| self.spare_fits(&writer, end)) {
            let spare = spare_name(number);
            self.disk.rename(&name, &spare).map_err(fail)?;
            // Before anybody writes into it: its old name must not come back with new bytes.
            self.disk.sync_dir().map_err(fail)?;
            writer.spares.push(spare);
            self.index().segments.remove(&number);
            return Ok(());
        }
        drop(writer);
        self.disk.remove(&name).map_err(fail)?;
        if !self.sabotage.is(Bug::SkipSyncDirOnRemove) {
            self.disk.sync_dir().map_err(fail)?;
        }
        self.index().segments.remove(&number);
        Ok(())
    }

    fn removable(&self) -> Option<u64> {
        let index = self.index();
        let (number, oldest) = index.oldest()?;
        if oldest.live == 0 {
            return Some(number);
        }
        let newest = index.segments.last_key_value().map(|(number, _)| *number);
        let any = || index.segments.iter().find(|(number, one)| one.live == 0 && Some(**number) != newest);
        self.sabotage.is(Bug::RemoveOutOfOrder).then(any).flatten().map(|(number, _)| *number)
    }

    /// Copy what is live in the oldest segment behind everything else, under its old sequences, and let the segment
    /// go. A copy is durable before the index points at it and before the original leaves.
    pub fn compact(&self) -> Result<Compacted> {
        let _maintenance = self.maintenance.lock().expect("nobody panics in maintenance");
        self.usable()?;
        self.reclaim_in_maintenance()?;
        let sequences = {
            let index = self.index();
            let Some((number, _)) = index.oldest() else { return Ok(Compacted::Nothing) };
            index.live_in(number)
        };
        let (mut copies, mut no_room) = (Vec::new(), false);
        for sequence in sequences {
            match self.copy_forward(sequence)? {
                CompactionCopy::To(live) => copies.push(live),
                CompactionCopy::Done => {}
                // What was copied until now stays where it is, so that the next attempt has less to do.
                CompactionCopy::NoRoom => {
                    no_room = true;
                    break;
                }
            }
        }
        if !self.sabotage.is(Bug::RemoveBeforeCopy) {
            self.commit()?;
        }
        self.step(JournalStep::CompactCopied);
        let mut moved = 0;
        {
            let mut index = self.index();
            for live in copies {
                // It may be done by now.
                if index.live.contains_key(&live.position.sequence) {
                    moved += live.position.span();
                    index.insert(live);
                }
            }
        }
        self.metrics.compacted_bytes.inc_by(moved);
        self.reclaim_in_maintenance()?;
        Ok(if no_room { Compacted::NoRoom } else { Compacted::Moved(moved) })
    }

    fn copy_forward(&self, sequence: u64) -> Result<CompactionCopy> {
        let Ok((live, _)) = self.find(sequence) else { return Ok(CompactionCopy::Done) };
        let whole = ByteRange::new(0, live.position.data_length.into());
        // Read whole and checked, so that a copy does not make rot look right.
        let read = self.head(sequence).and_then(|(_, head)| Ok((head, self.read(live.position, whole)?)));
        let (head, data) = match read {
            Err(e) if e.kind() == ErrorKind::Stale => return Ok(CompactionCopy::Done),
            read => read?,
        };
        let mut writer = self.writer();
        if !self.index().live.contains_key(&sequence) {
            return Ok(CompactionCopy::Done);
        }
        if !self.make_room_from_reserve(&mut writer, live.position.span())? {
            return Ok(CompactionCopy::NoRoom);
        }
        if self.sabotage.is(Bug::DoneBeforeMove) && !self.write_done(&mut writer, sequence)? {
            return Ok(CompactionCopy::NoRoom);
        }
        let frame = RecordFrame {
            kind: RecordKind::Moved,
            sequence,
            head_length: live.position.head_length,
            data_length: live.position.data_length,
            head_crc: live.head_crc,
            data_crc: live.data_crc,
            covered: 0,
            written_ms: live.written_ms,
        };
        if !self.make_room_from_reserve(&mut writer, live.position.span())? {
            return Ok(CompactionCopy::NoRoom);
        }
        let position = self.write_record(&mut writer, frame, &head, &data)?;
        Ok(match position {
            Some(position) if self.sabotage.is(Bug::StalePosition) => {
                let position = Position { offset: live.position.offset, ..position };
                CompactionCopy::To(LiveEntry { position, ..live })
            }
            Some(position) => CompactionCopy::To(LiveEntry { position, verified: false, ..live }),
            None => CompactionCopy::NoRoom,
        })
    }

    /// Is it worth while to let the oldest segment go by moving what is live in it?
    pub fn worth_compacting(&self) -> bool {
        let index = self.index();
        let (used, max) = (index.bytes(), self.entries_max());
        index.oldest().is_some_and(|(_, one)| crate::quota::worth_moving(one.live_bytes, one.end, used, max))
    }

    /// Bytes of segments at which the journal is full: the quota without the reserve.
    pub fn entries_max(&self) -> u64 {
        self.size_max.saturating_sub(self.segment_size)
    }

    pub fn used_bytes(&self) -> u64 {
        self.index().bytes()
    }
}

enum CompactionCopy {
    To(LiveEntry),
    /// Nobody needs it any more.
    Done,
    NoRoom,
}
