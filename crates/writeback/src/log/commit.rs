//! Making durable: the group commit, and the step from one segment to the next.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use types::Result;

use super::{Log, RecordWriter, Tail, place_of};
use crate::crash_points::JournalStep;
use crate::disk::{DiskFile, is_full};
use crate::index::IndexedSegment;
use crate::sabotage::Bug;
use crate::segment::{self, HEADER_BYTES, Header};

/// Bytes of a commit.
const LITTLE: u64 = 64 << 10;
pub(super) static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

impl Log {
    /// One fdatasync for all that has been written until now; returns the sequence up to which all is durable.
    /// Appends go on meanwhile.
    pub fn commit(&self) -> Result<u64> {
        let commits = self.commits.lock().expect("nobody panics in a commit");
        self.commit_alone(&commits)
    }

    /// The same; `None` if another is under way.
    pub fn try_commit(&self) -> Option<Result<u64>> {
        let commits = self.commits.try_lock().ok()?;
        Some(self.commit_alone(&commits))
    }

    fn commit_alone(&self, _commits: &MutexGuard<'_, ()>) -> Result<u64> {
        let (file, number, end, last) = {
            let mut writer = self.writer();
            self.usable()?;
            let last = writer.next_sequence - 1;
            match &mut writer.tail {
                Some(tail) if tail.end > tail.covered => {
                    self.prepare(tail)?;
                    (tail.file.clone(), tail.number, tail.end, last)
                }
                // A segment is left and begun durable.
                _ => return Ok(self.now_durable(last)),
            }
        };
        self.step(JournalStep::BeforeSync);
        if self.sabotage.is(Bug::AcknowledgeBeforeSync) {
            self.now_durable(last);
        }
        self.sync_file(file.as_ref(), number, end)?;
        let mut writer = self.writer();
        // A latch between the sync and here does not take back what the sync has done, and what was latched is
        // another file's or a later write's failure. But nobody is told of anything good any more.
        self.usable()?;
        if let Some(tail) = writer.tail.as_mut().filter(|tail| tail.number == number) {
            tail.covered = tail.covered.max(end);
        }
        drop(writer);
        self.covered.note(number as u32, end as u32);
        self.now_durable(last);
        self.step(JournalStep::AfterSync);
        Ok(last)
    }

    /// A sync after a write into blocks that were never written makes their allocation durable, too, and takes half as
    /// long again. So who commits little at a time finds zeros ahead of the tail; who writes much would write twice.
    fn prepare(&self, tail: &mut Tail) -> Result<()> {
        let is_little = tail.end - tail.covered <= LITTLE;
        if !is_little || tail.end + LITTLE <= tail.prepared || tail.prepared >= self.segment_size {
            return Ok(());
        }
        let from = tail.prepared.max(tail.end);
        let to = (from + ZEROS.len() as u64).min(self.segment_size);
        match tail.file.write_at(from, &[&ZEROS[..(to - from) as usize]]) {
            Ok(()) => tail.prepared = to,
            // A file system that copies on write: there it is of no use.
            Err(e) if is_full(&e) => tail.prepared = self.segment_size,
            Err(e) => return Err(self.latch("prepare journal", &place_of(tail.number, from), e)),
        }
        Ok(())
    }

    fn now_durable(&self, last: u64) -> u64 {
        self.durable.send_if_modified(|durable| {
            let grown = last > *durable;
            *durable = last.max(*durable);
            grown
        });
        last
    }

    fn sync_file(&self, file: &dyn DiskFile, number: u64, end: u64) -> Result<()> {
        if self.sabotage.is(Bug::SkipSync) {
            return Ok(());
        }
        let begun = Instant::now();
        match file.sync() {
            Err(_) if self.sabotage.is(Bug::IgnoreFailedSync) => {}
            Err(e) => return Err(self.latch("sync journal", &place_of(number, end), e)),
            Ok(()) => {}
        }
        self.metrics.sync_seconds.observe(begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Bytes that a commit would have to bring to the disk now.
    pub fn unsynced_bytes(&self) -> u64 {
        self.writer().unsynced_bytes()
    }

    /// Leave the tail and go on in `file`, which has the name of an unborn segment. When this returns, all that was
    /// written before is durable, and so is the new segment's name. `false`: a file system that copies on write has no
    /// room even for what has room, or one that is read-only: the file is given up, and there may be no tail then.
    pub(super) fn begin(&self, writer: &mut RecordWriter, file: Arc<dyn DiskFile>) -> Result<bool> {
        let number = writer.next_number;
        let fail = |e| self.latch("begin journal segment", &segment::name(number), e);
        if number > u32::MAX.into() {
            // Names and positions end here. Not in our time, unless somebody put such a name there.
            return Err(fail(std::io::ErrorKind::FileTooLarge.into()));
        }
        self.step(JournalStep::SegmentCreated);
        if self.seal(writer)?.is_err() {
            let _ = self.disk.remove(&segment::unborn_name(number));
            return Ok(false);
        }
        let header = Header {
            journal: self.state.journal,
            number,
            first_sequence: writer.next_sequence,
            previous_end: writer.previous_end,
            size: self.segment_size as u32,
        };
        match file.write_at(0, &[&header.encode()]) {
            Err(e) if is_full(&e) => {
                // Where it cannot be removed either, the next one takes its place.
                let _ = self.disk.remove(&segment::unborn_name(number));
                return Ok(false);
            }
            written => written.map_err(fail)?,
        }
        self.step(JournalStep::HeaderWritten);
        file.sync().map_err(fail)?;
        match self.disk.rename(&segment::unborn_name(number), &segment::name(number)) {
            Err(e) if is_full(&e) => return Ok(false),
            renamed => renamed.map_err(fail)?,
        }
        if !self.sabotage.is(Bug::SkipSyncDir) {
            self.disk.sync_dir().map_err(fail)?;
        }
        self.step(JournalStep::SegmentNamed);
        // Not synced: it is for what people and file systems do to the journal's directory, and lags without harm.
        self.note_bond(number as u32, writer.next_sequence, false);
        self.index().segments.insert(number, IndexedSegment::new(file.clone(), HEADER_BYTES));
        writer.next_number += 1;
        writer.tail =
            Some(Tail { number, file, end: HEADER_BYTES, covered: HEADER_BYTES, prepared: HEADER_BYTES });
        Ok(true)
    }

    /// Make the tail durable, then cut it to its length; it is written no more. In this order, so that after a crash a
    /// tail that is shorter than its room and ends in the midst of a record was cut by somebody else. The error inside is one
    /// that passes: the tail is what it was.
    pub(super) fn seal(&self, writer: &mut RecordWriter) -> Result<io::Result<()>> {
        let Some(tail) = &writer.tail else { return Ok(Ok(())) };
        let fail = |e| self.latch("seal journal segment", &place_of(tail.number, tail.end), e);
        if !self.sabotage.is(Bug::SkipSyncOnSeal) {
            self.sync_file(tail.file.as_ref(), tail.number, tail.end)?;
        }
        match tail.file.truncate(tail.end) {
            Err(e) if is_full(&e) => return Ok(Err(e)),
            cut => cut.map_err(fail)?,
        }
        if !self.sabotage.is(Bug::SkipSyncOnSeal) {
            // Or a power cut may give the segment its room back, beyond the quota.
            self.sync_file(tail.file.as_ref(), tail.number, tail.end)?;
        }
        writer.previous_end = tail.end as u32;
        writer.tail = None;
        self.now_durable(writer.next_sequence - 1);
        self.step(JournalStep::SegmentSealed);
        Ok(Ok(()))
    }
}
