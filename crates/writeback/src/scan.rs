//! Reading one segment after a restart: which records are good, what is a torn tail, and what is damage.
//!
//! A power cut may keep any part of what no fdatasync covered, later bytes without earlier ones too. So a bad record
//! in front of good ones proves nothing by itself. Each record tells how far an fdatasync had covered the segment
//! when it was written: what is bad *below* the highest such offset was whole once, and is damage. What is bad above
//! it may never have been on disk, was acknowledged to nobody, and is cut with everything behind it.

use std::io;

use crate::SEGMENT_SIZE_MAX;
use crate::disk::DiskFile;
use crate::sabotage::{Bug, Sabotage};
use crate::segment::{
    ALIGN, FRAME_BYTES, HEADER_BYTES, Header, RecordFrame, RecordKind, RecordPlace, data_crc,
};

/// Read in one piece; larger than the longest frame and head together.
const WINDOW: usize = 256 << 10;

#[derive(Clone, Copy, Debug)]
pub enum ScanExtent {
    /// Durable from beginning to end, says what was written after it.
    Sealed { end: u64 },
    /// The last one after an unclean end; known to have been durable up to `whole`.
    Last { whole: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    pub offset: u64,
    pub frame: RecordFrame,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    pub offset: u64,
    pub what: &'static str,
}

#[derive(Debug, Default)]
pub struct Scan {
    /// In order of offset.
    pub records: Vec<ScannedRecord>,
    /// Nothing of what lies beyond is part of the journal.
    pub end: u64,
    /// Up to here it is certain that a sync was seen to succeed.
    pub covered: u64,
    pub damage: Vec<Bad>,
}

pub fn scan(
    file: &dyn DiskFile,
    header: &Header,
    extent: ScanExtent,
    sabotage: Sabotage,
) -> io::Result<Scan> {
    let length = file.length()?.min(SEGMENT_SIZE_MAX.into());
    let mut reader = SegmentReader { file, header, window: Vec::new(), start: 0, sabotage };
    match extent {
        ScanExtent::Sealed { end } => {
            let (records, mut bad, reached) = reader.records(end.min(length))?;
            if sabotage.is(Bug::CutSealed) {
                return Ok(cut(records, bad, end, 0));
            }
            if reached < end {
                bad.push(Bad { offset: reached, what: "what was here is missing" });
            }
            Ok(Scan { records, end, covered: end, damage: bad })
        }
        ScanExtent::Last { whole } => {
            let (mut records, mut bad, mut end) = reader.records(length)?;
            let told = records.iter().map(|found| u64::from(found.frame.covered)).max().unwrap_or(0);
            let covered = whole.max(told).max(HEADER_BYTES);
            if end < covered {
                bad.push(Bad { offset: end, what: "what was here is missing" });
                end = covered;
            }
            if !sabotage.is(Bug::TrustTail) {
                for found in records.iter().filter(|found| found.offset >= covered) {
                    if !reader.data_is_whole(found)? {
                        bad.push(Bad { offset: found.offset, what: "torn data" });
                    }
                }
                bad.sort_by_key(|bad| bad.offset);
            }
            if sabotage.is(Bug::KeepSyncedOnly) {
                bad.insert(0, Bad { offset: covered, what: "not synced" });
            }
            if sabotage.is(Bug::KeepBeyondGap) {
                records.retain(|found| !bad.iter().any(|bad| bad.offset == found.offset));
                bad.retain(|bad| bad.offset < covered);
                return Ok(Scan { records, end, covered, damage: bad });
            }
            Ok(cut(records, bad, end, covered))
        }
    }
}

/// Keep what lies before the first bad byte that no sync had covered.
fn cut(mut records: Vec<ScannedRecord>, mut bad: Vec<Bad>, end: u64, covered: u64) -> Scan {
    let end = bad.iter().map(|bad| bad.offset).find(|offset| *offset >= covered).unwrap_or(end);
    records.retain(|found| found.offset < end);
    bad.retain(|bad| bad.offset < covered);
    Scan { records, end, covered, damage: bad }
}

struct SegmentReader<'a> {
    file: &'a dyn DiskFile,
    header: &'a Header,
    window: Vec<u8>,
    /// Offset of the window's first byte.
    start: u64,
    sabotage: Sabotage,
}

impl SegmentReader<'_> {
    /// Good records and bad places below `limit`, and where the last good record ends.
    fn records(&mut self, limit: u64) -> io::Result<(Vec<ScannedRecord>, Vec<Bad>, u64)> {
        let (mut records, mut bad) = (Vec::new(), Vec::new());
        let mut order = SequenceOrder { next: Some(self.header.first_sequence).filter(|first| *first > 0) };
        let mut offset = HEADER_BYTES;
        while offset < limit {
            let Some(frame) = self.frame_at(offset, limit)? else {
                let Some(next) = self.next_frame(offset + ALIGN, limit)? else { break };
                bad.push(Bad { offset, what: "no record where one must be" });
                order.lost_track();
                offset = next;
                continue;
            };
            if !self.head_is_whole(offset, &frame)? {
                bad.push(Bad { offset, what: "head with a wrong checksum" });
                order.lost_track();
            } else if !order.allows(&frame) {
                bad.push(Bad { offset, what: "sequence out of order" });
            } else {
                records.push(ScannedRecord { offset, frame });
            }
            offset += frame.span();
        }
        Ok((records, bad, offset))
    }

    fn frame_at(&mut self, offset: u64, limit: u64) -> io::Result<Option<RecordFrame>> {
        let journal = self.header.journal;
        let segment = if self.sabotage.is(Bug::UnboundFrame) { 0 } else { self.header.number };
        let bytes = self.bytes(offset, FRAME_BYTES as usize)?;
        let place = RecordPlace { journal: &journal, segment, offset };
        Ok(RecordFrame::decode(bytes, place).filter(|frame| offset + frame.span() <= limit))
    }

    /// The next place at which a record begins.
    fn next_frame(&mut self, from: u64, limit: u64) -> io::Result<Option<u64>> {
        let mut offset = from;
        while offset + FRAME_BYTES <= limit {
            if self.frame_at(offset, limit)?.is_some() {
                return Ok(Some(offset));
            }
            offset += ALIGN;
        }
        Ok(None)
    }

    fn head_is_whole(&mut self, offset: u64, frame: &RecordFrame) -> io::Result<bool> {
        let head = self.bytes(offset + FRAME_BYTES, frame.head_length as usize)?;
        Ok(head.len() == frame.head_length as usize && crc32c::crc32c(head) == frame.head_crc)
    }

    fn data_is_whole(&self, found: &ScannedRecord) -> io::Result<bool> {
        let mut data = vec![0; found.frame.data_length as usize];
        let count = self.file.read_at(found.offset + found.frame.data_at(), &mut data)?;
        Ok(count == data.len() && data_crc(&data, self.sabotage) == found.frame.data_crc)
    }

    /// `length` bytes from `offset`; fewer at the end of the file.
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let inside = offset >= self.start && offset + length as u64 <= self.start + self.window.len() as u64;
        if !inside {
            self.window.resize(WINDOW.max(length), 0);
            let count = self.file.read_at(offset, &mut self.window)?;
            self.window.truncate(count);
            self.start = offset;
        }
        let window = &self.window[(offset - self.start) as usize..];
        Ok(&window[..length.min(window.len())])
    }
}

/// Entries count up by one from the header's first sequence; after damage, from whatever comes next.
struct SequenceOrder {
    /// `None`: unknown.
    next: Option<u64>,
}

impl SequenceOrder {
    fn lost_track(&mut self) {
        self.next = None;
    }

    fn allows(&mut self, frame: &RecordFrame) -> bool {
        if frame.kind != RecordKind::Entry {
            return true;
        }
        let allowed = self.next.is_none_or(|next| next == frame.sequence);
        if allowed {
            self.next = frame.sequence.checked_add(1);
        }
        allowed
    }
}
