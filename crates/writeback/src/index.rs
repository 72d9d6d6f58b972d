//! The books of a journal, in memory: which segments there are, and where each live entry lies.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::segment::{RecordFrame, span};

/// Where an entry lies. To be kept with what points at it (the dirty overlay does) and handed back to `read`; it
/// stays good when the entry moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    pub sequence: u64,
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) head_length: u32,
    pub data_length: u32,
}

impl Position {
    /// Bytes of its record.
    pub(crate) fn span(&self) -> u64 {
        span(self.head_length.into(), self.data_length.into())
    }
}

/// An entry that is not done.
#[derive(Clone, Copy, Debug)]
pub struct LiveEntry {
    /// Where it lies now.
    pub position: Position,
    pub head_crc: u32,
    pub data_crc: u32,
    pub written_ms: u64,
    /// Its data was read and checked since the journal was opened.
    pub verified: bool,
}

impl LiveEntry {
    pub fn new(position: Position, frame: &RecordFrame) -> LiveEntry {
        let RecordFrame { head_crc, data_crc, written_ms, .. } = *frame;
        LiveEntry { position, head_crc, data_crc, written_ms, verified: false }
    }
}

pub struct IndexedSegment {
    pub file: Arc<dyn DiskFile>,
    /// Bytes in use. For the tail: as of the last time somebody asked.
    pub end: u64,
    pub live: u64,
    pub live_bytes: u64,
}

impl IndexedSegment {
    pub fn new(file: Arc<dyn DiskFile>, end: u64) -> IndexedSegment {
        IndexedSegment { file, end, live: 0, live_bytes: 0 }
    }
}

#[derive(Default)]
pub struct Index {
    pub segments: BTreeMap<u64, IndexedSegment>,
    pub live: BTreeMap<u64, LiveEntry>,
}

impl Index {
    pub fn insert(&mut self, live: LiveEntry) {
        self.count(&live.position, 1);
        if let Some(old) = self.live.insert(live.position.sequence, live) {
            self.count(&old.position, -1);
        }
    }

    pub fn remove(&mut self, sequence: u64) {
        if let Some(old) = self.live.remove(&sequence) {
            self.count(&old.position, -1);
        }
    }

    /// Count anew, after `live` was filled directly.
    pub fn count_live(&mut self) {
        let positions: Vec<Position> = self.live.values().map(|live| live.position).collect();
        positions.iter().for_each(|position| self.count(position, 1));
    }

    fn count(&mut self, position: &Position, by: i64) {
        if let Some(segment) = self.segments.get_mut(&u64::from(position.segment)) {
            segment.live = segment.live.saturating_add_signed(by);
            segment.live_bytes = segment.live_bytes.saturating_add_signed(by * position.span() as i64);
        }
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.end).sum()
    }

    pub fn live_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live_bytes).sum()
    }

    /// The oldest segment, unless it is the only one.
    pub fn oldest(&self) -> Option<(u64, &IndexedSegment)> {
        let newest = self.segments.last_key_value().map(|(number, _)| *number);
        let (number, segment) = self.segments.first_key_value()?;
        (Some(*number) != newest).then_some((*number, segment))
    }

    /// Numbers and sequences of a segment's live entries, in order.
    pub fn live_in(&self, number: u64) -> Vec<u64> {
        let inside = self.live.values().filter(|live| u64::from(live.position.segment) == number);
        inside.map(|live| live.position.sequence).collect()
    }
}
