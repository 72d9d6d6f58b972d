//! The journal as calls that do their work before they return: append, commit, done, read, reclaim, compact.
//!
//! [`crate::Journal`] puts waiting, threads and deadlines around it. Nothing here starts a thread or looks at a clock
//! to decide, so a history of calls can be played again, step by step, with the power cut at any of them.
//!
//! - [`Log`]: all of it; `RecordWriter`: what the next record needs to know; `Index` (`index.rs`): where live entries lie
//! - `commit.rs`: the group commit, and the step from one segment to the next
//! - `room.rs`: the next segment's file, the reserve and the spares; `space.rs`: segments leave, oldest first
//!
//! The way of an entry: `append` writes its record at the tail, `commit` makes it durable, `done` appends a Done record,
//! and when nothing of its segment is live the segment leaves; an entry that keeps the oldest one is moved forward.
//!
//! Invariants: a sequence is given out once. A segment leaves only if none before it is there. After a failed write or sync
//! nothing is taken any more. Begin with `append` and `commit.rs`.
//!
//! Locks, in the order in which they are taken: `maintenance`, `commits`, `writer`, `index`.

mod commit;
mod room;
mod space;

use commit::ZEROS;
pub use space::Compacted;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use types::{ByteRange, Error, ErrorKind, Result, Timeline};

use crate::bond::{Bond, BondFile};
use crate::covered::{Covered, CoveredFile};
use crate::crash_points::{Hook, JournalStep};
use crate::disk::{Disk, DiskFile, is_full};
use crate::index::{Index, LiveEntry, Position};
use crate::metrics::Metrics;
use crate::recovery::{self, Damage};
use crate::sabotage::{Bug, Sabotage};
use crate::segment::{
    self, DATA_MAX, FRAME_BYTES, HEAD_MAX, HEADER_BYTES, JournalId, RecordFrame, RecordKind, RecordPlace,
};
use crate::state::{STATE_NAME, State};

/// What the kernel keeps of a file in one piece. Where it keeps more together, the cost is a read.
const PAGE: u64 = 4096;

/// What an append came to.
#[derive(Debug)]
pub enum Append {
    Written(Position),
    Full(Full),
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The journal's own quota.
    Quota,
    /// The file system, below the quota: it is full, or read-only.
    Disk,
}

pub struct LogOptions {
    pub size_max: u64,
    pub segment_size: u64,
    /// Random, for a journal that is made now.
    pub fresh: JournalId,
    pub hook: Hook,
    pub sabotage: Sabotage,
    pub timeline: Timeline,
    /// Says which journal belongs here, and how far it was.
    pub bond: Option<BondFile>,
}

pub struct Log {
    disk: Arc<dyn Disk>,
    size_max: u64,
    segment_size: u64,
    hook: Hook,
    sabotage: Sabotage,
    timeline: Timeline,
    state: State,
    pub metrics: Metrics,
    maintenance: Mutex<()>,
    commits: Mutex<()>,
    writer: Mutex<RecordWriter>,
    index: Mutex<Index>,
    /// The highest sequence that was given out.
    last_sequence: AtomicU64,
    /// All entries up to this sequence are on disk.
    durable: watch::Sender<u64>,
    /// The first failure; nothing is appended or called durable after it.
    latched: OnceLock<Error>,
    damage: Vec<Damage>,
    /// Who opened it has seen the damage and wants to go on.
    damage_accepted: OnceLock<()>,
    bond: Option<Mutex<BondFile>>,
    covered: CoveredFile,
}

/// What the next record needs to know.
struct RecordWriter {
    tail: Option<Tail>,
    next_sequence: u64,
    next_number: u64,
    /// Bytes of the last segment before the tail.
    previous_end: u32,
    /// The reserve file is there: entries may be appended.
    reserve: bool,
    /// Names of segments that have left, to be written again; the last one left last.
    spares: Vec<String>,
    /// Done, and not written for lack of room.
    owed: Vec<u64>,
}

impl RecordWriter {
    fn unsynced_bytes(&self) -> u64 {
        self.tail.as_ref().map_or(0, |tail| tail.end - tail.covered)
    }
}

/// The segment that is being written.
struct Tail {
    number: u64,
    file: Arc<dyn DiskFile>,
    end: u64,
    /// As far as a sync was seen to succeed.
    covered: u64,
    /// As far as the segment was written, with the zeros ahead of the end.
    prepared: u64,
}

impl Log {
    pub fn open(disk: Arc<dyn Disk>, options: LogOptions) -> Result<Log> {
        let LogOptions { size_max, segment_size, fresh, hook, sabotage, timeline, bond } = options;
        let mut recovery = recovery::recover(disk.as_ref(), &hook, sabotage, fresh)?;
        if let Some(bond) = &bond {
            recovery.compare(bond);
        }
        let writer = RecordWriter {
            tail: None,
            next_sequence: recovery.state.next_sequence,
            next_number: recovery.next_number,
            previous_end: recovery.previous_end,
            reserve: false,
            spares: Vec::new(),
            owed: Vec::new(),
        };
        let log = Log {
            disk,
            size_max,
            segment_size,
            hook,
            sabotage,
            timeline,
            state: recovery.state,
            metrics: Metrics::default(),
            maintenance: Mutex::default(),
            commits: Mutex::default(),
            writer: Mutex::new(writer),
            index: Mutex::new(recovery.index),
            last_sequence: AtomicU64::new(recovery.state.next_sequence - 1),
            durable: watch::Sender::new(recovery.state.next_sequence - 1),
            latched: OnceLock::new(),
            damage: recovery.damage,
            damage_accepted: OnceLock::new(),
            bond: bond.map(Mutex::new),
            covered: CoveredFile::default(),
        };
        // A damaged journal stays as it was found until somebody accepts that.
        if log.damage.is_empty() {
            log.begin_epoch()?;
        }
        log.find_reserve()?;
        log.note();
        Ok(log)
    }

    pub fn verifier(&self) -> [u8; 8] {
        self.state.verifier()
    }

    /// That nobody has accepted.
    pub fn damage(&self) -> &[Damage] {
        match self.damage_accepted.get() {
            Some(()) => &[],
            None => &self.damage,
        }
    }

    /// Go on with what is readable. The damage is found again at the next open, until its segment has left.
    pub fn accept_damage(&self) -> Result<()> {
        self.begin_epoch()?;
        self.damage_accepted.get_or_init(|| ());
        Ok(())
    }

    /// From here on the journal counts as ended uncleanly, and the verifier is the new one.
    fn begin_epoch(&self) -> Result<()> {
        let (disk, hook) = (self.disk.as_ref(), &self.hook);
        let written = recovery::write_state(disk, hook, &self.state).or_else(|e| match is_full(&e) {
            true => recovery::overwrite_state(disk, hook, &self.state),
            false => Err(e),
        });
        written.map_err(|e| Error::io("write the journal's state in", self.disk.place(), e))?;
        let next = self.writer().next_number;
        let oldest = self.index().segments.first_key_value().map_or(next, |(number, _)| *number);
        let covered = Covered {
            journal: self.state.journal,
            oldest: oldest as u32,
            segment: self.state.whole_segment,
            end: self.state.whole_end,
        };
        self.covered.begin(self.disk.as_ref(), covered);
        // After the state: a bond without its journal would refuse the next start.
        let bond = self.bond_now(self.state.whole_segment, self.state.next_sequence, false);
        match &self.bond {
            Some(file) => file.lock().unwrap_or_else(PoisonError::into_inner).replace(&bond),
            None => Ok(()),
        }
    }

    fn bond_now(&self, segment: u32, next_sequence: u64, clean: bool) -> Bond {
        let waiting = self.index().live.len() as u64;
        Bond { journal: self.state.journal, clean, epoch: self.state.epoch, segment, next_sequence, waiting }
    }

    /// Tell the bond how far the journal is.
    fn note_bond(&self, segment: u32, next_sequence: u64, clean: bool) {
        if let Some(file) = &self.bond {
            let bond = self.bond_now(segment, next_sequence, clean);
            file.lock().unwrap_or_else(PoisonError::into_inner).update(&bond, clean);
        }
    }

    pub fn durable(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    fn writer(&self) -> MutexGuard<'_, RecordWriter> {
        self.writer.lock().expect("nobody panics with the writer")
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("nobody panics with the index")
    }

    fn step(&self, step: JournalStep) {
        (self.hook)(step);
    }

    /// An error if nothing may be written any more.
    pub fn usable(&self) -> Result<()> {
        if let Some(error) = self.latched.get() {
            return Err(error.clone());
        }
        match self.damage.first() {
            Some(first) if self.damage_accepted.get().is_none() => {
                let context = format!("in {}: {first}", self.disk.place());
                Err(Error::new(ErrorKind::Corrupt, "write to the damaged journal", context))
            }
            _ => Ok(()),
        }
    }

    /// Refuse everything from now on, naming what failed first.
    pub fn latch(&self, operation: &'static str, what: &str, source: std::io::Error) -> Error {
        let context = format!("{what} in {} (refused until it is opened anew)", self.disk.place());
        self.latch_with(Error::new(ErrorKind::Io, operation, context).with_source(source))
    }

    pub fn latch_with(&self, error: Error) -> Error {
        let first = self.latched.get_or_init(|| {
            tracing::error!("the journal takes no more writes: {error}");
            error
        });
        self.metrics.latched.set(1);
        // Wake who waits for a sync that will not come.
        self.durable.send_modify(|_| {});
        first.clone()
    }

    pub fn is_latched(&self) -> bool {
        self.latched.get().is_some()
    }

    /// Write an entry behind all others. Not durable before a commit.
    pub fn append(&self, head: &[u8], data: &[u8]) -> Result<Append> {
        self.usable()?;
        self.check_lengths(head, data)?;
        let crcs = self.crcs(head, data);
        let mut writer = self.writer();
        self.usable()?;
        self.pay_owed(&mut writer)?;
        let span = segment::span(head.len() as u64, data.len() as u64);
        if let Some(full) = self.make_room(&mut writer, span)? {
            return Ok(Append::Full(full));
        }
        self.append_to(&mut writer, head, data, crcs)
    }

    /// As `append`, where that takes no more than a copy into the kernel's memory: nobody else is writing, and there is
    /// room in the tail. `None`: it might wait. With the bytes that a commit would have to bring to the disk then.
    pub fn append_at_once(&self, head: &[u8], data: &[u8]) -> Result<Option<(Append, u64)>> {
        self.usable()?;
        self.check_lengths(head, data)?;
        let crcs = self.crcs(head, data);
        let Ok(mut writer) = self.writer.try_lock() else { return Ok(None) };
        self.usable()?;
        let span = segment::span(head.len() as u64, data.len() as u64);
        if !writer.reserve || !writer.owed.is_empty() || !self.fits(&writer, span) {
            return Ok(None);
        }
        let outcome = self.append_to(&mut writer, head, data, crcs)?;
        Ok(Some((outcome, writer.unsynced_bytes())))
    }

    fn crcs(&self, head: &[u8], data: &[u8]) -> (u32, u32) {
        (crc32c::crc32c(head), segment::data_crc(data, self.sabotage))
    }

    /// Where there is room for it in the tail.
    fn append_to(
        &self,
        writer: &mut RecordWriter,
        head: &[u8],
        data: &[u8],
        (head_crc, data_crc): (u32, u32),
    ) -> Result<Append> {
        let frame = RecordFrame {
            kind: RecordKind::Entry,
            sequence: writer.next_sequence,
            head_length: head.len() as u32,
            data_length: data.len() as u32,
            head_crc,
            data_crc,
            covered: 0,
            written_ms: self.timeline.now_ms(),
        };
        let Some(position) = self.write_record(writer, frame, head, data)? else {
            return Ok(Append::Full(Full::Disk));
        };
        writer.next_sequence += 1;
        self.last_sequence.store(frame.sequence, Ordering::SeqCst);
        self.index().insert(LiveEntry::new(position, &frame));
        self.metrics.appended_entries.inc();
        self.metrics.appended_bytes.inc_by((head.len() + data.len()) as u64);
        self.step(JournalStep::EntryWritten);
        Ok(Append::Written(position))
    }

    fn check_lengths(&self, head: &[u8], data: &[u8]) -> Result<()> {
        let fits = segment::span(head.len() as u64, data.len() as u64) + HEADER_BYTES <= self.segment_size;
        if head.len() > HEAD_MAX as usize || data.len() > DATA_MAX as usize || !fits {
            let context = format!("head of {} and data of {} bytes", head.len(), data.len());
            return Err(Error::new(ErrorKind::InvalidArgument, "append to journal", context));
        }
        Ok(())
    }

    /// The entry is at the origin. Not synced by itself: after a crash it may be there again. Without effect if it was
    /// done before.
    pub fn done(&self, sequence: u64) -> Result<()> {
        self.usable()?;
        let mut writer = self.writer();
        if !self.index().live.contains_key(&sequence) {
            return Ok(());
        }
        self.pay_owed(&mut writer)?;
        if !self.write_done(&mut writer, sequence)? {
            writer.owed.push(sequence);
        }
        self.index().remove(sequence);
        Ok(())
    }

    /// All that was called done until now stays done, whatever happens. `Busy` while there is no room to note it.
    pub fn sync_done(&self) -> Result<()> {
        let mut writer = self.writer();
        self.usable()?;
        self.pay_owed(&mut writer)?;
        if let Some(sequence) = writer.owed.last() {
            let context = format!("{sequence} in {}, which is full", self.disk.place());
            return Err(Error::new(ErrorKind::Busy, "note as done journal entry", context));
        }
        drop(writer);
        self.commit().map(drop)
    }

    /// Done records for which there was no room. At most one for each entry of a full journal.
    fn pay_owed(&self, writer: &mut RecordWriter) -> Result<()> {
        while let Some(&sequence) = writer.owed.last() {
            if !self.write_done(writer, sequence)? {
                break;
            }
            writer.owed.pop();
        }
        Ok(())
    }

    fn write_done(&self, writer: &mut RecordWriter, sequence: u64) -> Result<bool> {
        if !self.make_room_from_reserve(writer, FRAME_BYTES)? {
            return Ok(false);
        }
        let frame = RecordFrame::done(sequence, 0, self.timeline.now_ms());
        let written = self.write_record(writer, frame, &[], &[])?.is_some();
        if written {
            self.step(JournalStep::DoneWritten);
        }
        Ok(written)
    }

    /// Put a record at the tail, where there is room for it. `None`: the file system turned out to be full.
    fn write_record(
        &self,
        writer: &mut RecordWriter,
        frame: RecordFrame,
        head: &[u8],
        data: &[u8],
    ) -> Result<Option<Position>> {
        let tail = writer.tail.as_mut().expect("room was made in a tail");
        let frame = RecordFrame { covered: tail.covered as u32, ..frame };
        let number = if self.sabotage.is(Bug::UnboundFrame) { 0 } else { tail.number };
        let place = RecordPlace { journal: &self.state.journal, segment: number, offset: tail.end };
        // To the end of the page, unless that was written before: of a segment that is written again the kernel would
        // have to read the page, to keep what lies behind the record.
        let written = tail.end + frame.data_at() + data.len() as u64;
        let page_end = written.next_multiple_of(PAGE).min(self.segment_size);
        let rest = if written > tail.prepared { &ZEROS[..(page_end - written) as usize] } else { &[] };
        match tail.file.write_at(tail.end, &[&frame.encode(place), head, data, rest]) {
            Ok(()) => tail.prepared = tail.prepared.max(written + rest.len() as u64),
            Err(e) if is_full(&e) => return Ok(None),
            Err(e) => return Err(self.latch("write to journal", &place_of(tail.number, tail.end), e)),
        }
        let position = Position {
            sequence: frame.sequence,
            segment: tail.number as u32,
            offset: tail.end as u32,
            head_length: frame.head_length,
            data_length: frame.data_length,
        };
        tail.end += frame.span();
        let (number, end) = (tail.number, tail.end);
        if let Some(segment) = self.index().segments.get_mut(&number) {
            segment.end = end;
        }
        Ok(Some(position))
    }

    /// Bytes of an entry's data. The whole of it is read and checked the first time.
    pub fn read(&self, position: Position, range: ByteRange) -> Result<Bytes> {
        let (live, file) = self.find(position.sequence)?;
        let range = range.clamp_to(live.position.data_length.into());
        let whole = ByteRange::new(0, live.position.data_length.into());
        let at = u64::from(live.position.offset) + FRAME_BYTES + u64::from(live.position.head_length);
        let asked = if live.verified { range } else { whole };
        let bytes = self.read_exactly(&live.position, file.as_ref(), at + asked.offset, asked.length)?;
        if asked == whole && segment::data_crc(&bytes, self.sabotage) != live.data_crc {
            return Err(corrupt(&live.position, "data"));
        }
        if !live.verified
            && let Some(live) = self.index().live.get_mut(&position.sequence)
        {
            live.verified = true;
        }
        let from = (range.offset - asked.offset) as usize;
        Ok(bytes.slice(from..from + range.length as usize))
    }

    /// The encoded operation of a live entry.
    pub fn head(&self, sequence: u64) -> Result<(Position, Bytes)> {
        let (live, file) = self.find(sequence)?;
        let at = u64::from(live.position.offset) + FRAME_BYTES;
        let head = self.read_exactly(&live.position, file.as_ref(), at, live.position.head_length.into())?;
        if crc32c::crc32c(&head) != live.head_crc {
            return Err(corrupt(&live.position, "head"));
        }
        Ok((live.position, head))
    }

    pub fn live_sequences(&self) -> Vec<u64> {
        self.index().live.keys().copied().collect()
    }

    /// The live entry with the lowest sequence above `sequence`.
    pub fn next_live(&self, sequence: u64) -> Option<u64> {
        self.index().live.range(sequence.checked_add(1)?..).next().map(|(sequence, _)| *sequence)
    }

    /// The highest sequence that was given out.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Ordering::SeqCst)
    }

    fn find(&self, sequence: u64) -> Result<(LiveEntry, Arc<dyn DiskFile>)> {
        let index = self.index();
        let found = index.live.get(&sequence).and_then(|live| {
            let segment = index.segments.get(&u64::from(live.position.segment))?;
            Some((*live, segment.file.clone()))
        });
        found.ok_or_else(|| Error::new(ErrorKind::Stale, "read journal entry", format!("{sequence}: done")))
    }

    fn read_exactly(
        &self,
        position: &Position,
        file: &dyn DiskFile,
        offset: u64,
        length: u64,
    ) -> Result<Bytes> {
        let mut bytes = vec![0; length as usize];
        let count = file.read_at(offset, &mut bytes).map_err(|e| {
            Error::io("read journal", place_of(position.segment.into(), position.offset.into()), e)
        })?;
        if count < bytes.len() {
            return Err(corrupt(position, "missing end"));
        }
        Ok(bytes.into())
    }

    /// Sync everything and note that nothing may be missing. Nothing can be written afterwards. If there is no room for
    /// the note, that is an error, and the end an unclean one; the entries are durable all the same.
    pub fn close(&self) -> Result<()> {
        let _maintenance = self.maintenance.lock().expect("nobody panics in maintenance");
        let _commits = self.commits.lock().expect("nobody panics in a commit");
        let mut writer = self.writer();
        self.usable()?;
        self.pay_owed(&mut writer)?;
        self.seal(&mut writer)?.map_err(|e| self.latch("seal journal segment", &self.disk.place(), e))?;
        let state = State {
            clean: self.damage.is_empty(),
            whole_segment: (writer.next_number - 1) as u32,
            whole_end: writer.previous_end,
            next_sequence: writer.next_sequence,
            ..self.state
        };
        recovery::write_state(self.disk.as_ref(), &self.hook, &state)
            .map_err(|e| self.latch("write journal", STATE_NAME, e))?;
        let last = self.index().segments.last_key_value().map_or(0, |(number, _)| *number);
        self.note_bond(last as u32, writer.next_sequence, true);
        let closed = Error::new(ErrorKind::Unavailable, "write to journal", "which is closed");
        let _ = self.latched.set(closed);
        self.durable.send_modify(|_| {});
        Ok(())
    }

    /// Since the oldest entry that is not done was written.
    pub fn oldest_age(&self) -> Option<Duration> {
        let oldest = self.index().live.values().next().map(|live| live.written_ms)?;
        Some(self.timeline.age_of(oldest))
    }

    pub fn written_ms(&self, sequence: u64) -> Option<u64> {
        self.index().live.get(&sequence).map(|live| live.written_ms)
    }

    /// Bring the gauges up to date.
    pub fn note(&self) {
        let oldest = self.oldest_age().unwrap_or_default();
        self.metrics.oldest_seconds.set(oldest.as_secs_f64());
        self.metrics.max_bytes.set(self.size_max as i64);
        let index = self.index();
        self.metrics.entries.set(index.live.len() as i64);
        self.metrics.live_bytes.set(index.live_bytes() as i64);
        self.metrics.used_bytes.set(index.bytes() as i64);
    }
}

fn corrupt(position: &Position, what: &str) -> Error {
    let place = place_of(position.segment.into(), position.offset.into());
    Error::new(ErrorKind::Corrupt, "read journal", format!("{place}: {what} of entry {}", position.sequence))
}

fn place_of(number: u64, offset: u64) -> String {
    format!("{} at {offset}", segment::name(number))
}

#[cfg(test)]
mod tests;
