//! Room for records: the next segment's file, the reserve for what helps when nothing else is left, and the spares.
//!
//! A segment that leaves becomes a spare, and a spare the next segment: a sync after a write into blocks that were
//! written before has no allocation to make durable, and takes about half the time; and where the kernel still has the
//! pages, a write finds them. Old records in it do not count, because a frame's checksum names its segment.
//!
//! On the disk there are never more bytes than the quota: the segments, the rest of the tail, the reserve, the spares.

use std::io;
use std::sync::Arc;

use types::Result;

use super::{Full, Log, RecordWriter};
use crate::crash_points::JournalStep;
use crate::disk::{DiskFile, is_full};
use crate::segment;

/// As large as a segment.
pub const RESERVE_NAME: &str = "RESERVE";
/// How the names of segments that have left begin; each as large as a segment once it is used.
const SPARE: &str = "SPARE";
/// Of the quota, as spares.
const SPARES_SHARE: u64 = 4;

pub fn spare_name(number: u64) -> String {
    format!("{SPARE}-{number:08}")
}

impl Log {
    /// Room for an entry's record at the tail; the reason if there is none.
    pub(super) fn make_room(&self, writer: &mut RecordWriter, span: u64) -> Result<Option<Full>> {
        if !writer.reserve {
            // Without the reserve the last room is for what frees room.
            if let Some(full) = self.make_reserve(writer)? {
                return Ok(Some(full));
            }
        }
        if self.fits(writer, span) {
            return Ok(None);
        }
        if !self.another_fits(writer) {
            return Ok(Some(Full::Quota));
        }
        let name = segment::unborn_name(writer.next_number);
        match self.unborn(writer, &name) {
            Ok(file) => self.begin(writer, file).map(|begun| (!begun).then_some(Full::Disk)),
            Err(e) if is_full(&e) => Ok(Some(Full::Disk)),
            Err(e) => Err(self.latch("create journal segment", &name, e)),
        }
    }

    /// Room for what helps to free room (Done, Moved): from the reserve, if there is no other.
    pub(super) fn make_room_from_reserve(&self, writer: &mut RecordWriter, span: u64) -> Result<bool> {
        if self.fits(writer, span) {
            return Ok(true);
        }
        let name = segment::unborn_name(writer.next_number);
        let fail = |e| self.latch("create journal segment", &name, e);
        let created = if self.another_fits(writer) { Some(self.unborn(writer, &name)) } else { None };
        let file = match created {
            Some(Ok(file)) => file,
            Some(Err(e)) if !is_full(&e) => return Err(fail(e)),
            _ if !writer.reserve => return Ok(false),
            _ => {
                // Opened first: without a free descriptor the reserve stays where it is.
                let file = match self.disk.open(RESERVE_NAME) {
                    Err(e) if is_full(&e) => return Ok(false),
                    opened => opened.map_err(fail)?,
                };
                match self.disk.rename(RESERVE_NAME, &name) {
                    Err(e) if is_full(&e) => return Ok(false),
                    renamed => renamed.map_err(fail)?,
                }
                writer.reserve = false;
                self.step(JournalStep::ReserveTaken);
                file
            }
        };
        self.begin(writer, file)
    }

    pub(super) fn fits(&self, writer: &RecordWriter, span: u64) -> bool {
        writer.tail.as_ref().is_some_and(|tail| tail.end + span <= self.segment_size)
    }

    /// One more segment beside the reserve. The tail is cut to its length only after the new one is made.
    fn another_fits(&self, writer: &RecordWriter) -> bool {
        self.held_bytes() + self.tail_rest(writer) + 2 * self.segment_size <= self.size_max
    }

    /// A file for a new segment, under this name: a spare, or a new one.
    fn unborn(&self, writer: &mut RecordWriter, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let Some(spare) = writer.spares.last() else { return self.disk.create(name, self.segment_size) };
        self.disk.rename(spare, name)?;
        writer.spares.pop();
        let file = self.disk.open(name)?;
        if let Err(e) = file.allocate(self.segment_size) {
            self.disk.remove(name)?;
            return Err(e);
        }
        Ok(file)
    }

    /// Bytes that the segments hold on the disk, the tail as far as it is written.
    fn held_bytes(&self) -> u64 {
        self.index().bytes()
    }

    /// May a segment of `end` bytes that leaves stay on the disk as a spare?
    pub(super) fn spare_fits(&self, writer: &RecordWriter, end: u64) -> bool {
        let held = self.held_bytes() - end + self.tail_rest(writer);
        writer.reserve && self.spares_fit(held, writer.spares.len() as u64 + 1)
    }

    /// Beside the reserve and what is held.
    fn spares_fit(&self, held: u64, spares: u64) -> bool {
        let bytes = spares * self.segment_size;
        bytes <= self.size_max / SPARES_SHARE && held + self.segment_size + bytes <= self.size_max
    }

    fn tail_rest(&self, writer: &RecordWriter) -> u64 {
        writer.tail.as_ref().map_or(0, |tail| self.segment_size - tail.end)
    }

    /// At open: spares and reserve from last time, or a new reserve if there is room.
    pub(super) fn find_reserve(&self) -> Result<()> {
        let fail = |e| types::Error::io("open journal", self.disk.place(), e);
        let mut writer = self.writer();
        let names = self.disk.list().map_err(fail)?;
        let there = |wanted: &str| names.iter().any(|name| name == wanted);
        if there(RESERVE_NAME) {
            let file = self.disk.open(RESERVE_NAME).map_err(fail)?;
            // A crash, or another configuration, can leave one for which there is no room.
            let fits = self.held_bytes() + self.segment_size <= self.size_max;
            writer.reserve = fits && file.length().map_err(fail)? == self.segment_size;
            if !writer.reserve {
                self.disk.remove(RESERVE_NAME).map_err(fail)?;
            }
        }
        writer.spares = names.iter().filter(|name| name.starts_with(SPARE)).cloned().collect();
        if !writer.reserve {
            self.make_reserve(&mut writer)?;
        }
        while let Some(spare) = writer.spares.last()
            && !(writer.reserve && self.spares_fit(self.held_bytes(), writer.spares.len() as u64))
        {
            self.disk.remove(spare).map_err(fail)?;
            writer.spares.pop();
        }
        Ok(())
    }

    /// Set a segment's room aside again. Its name needs no sync: a reserve that is lost is made anew.
    pub(super) fn make_reserve(&self, writer: &mut RecordWriter) -> Result<Option<Full>> {
        if self.held_bytes() + self.tail_rest(writer) + self.segment_size > self.size_max {
            return Ok(Some(Full::Quota));
        }
        match self.unborn(writer, RESERVE_NAME) {
            Ok(_) => {
                writer.reserve = true;
                self.step(JournalStep::ReserveMade);
                Ok(None)
            }
            Err(e) if is_full(&e) => Ok(Some(Full::Disk)),
            Err(e) => Err(self.latch("create journal reserve in", &self.disk.place(), e)),
        }
    }
}
