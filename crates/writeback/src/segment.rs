//! Bytes of a journal segment: its header, and the records behind it. Pure: bytes in, facts out.
//!
//! docs/design/journal-format.md has the diagrams. Every length is checked here before anybody uses it, and every
//! checksum of a record's frame is bound to its place (journal, segment, offset): bytes that belong elsewhere, or
//! that a client wrote to look like a record, are not one.

use crate::sabotage::{Bug, Sabotage};

pub const HEADER_BYTES: u64 = 64;
/// The fixed part of a record, before its head.
pub const FRAME_BYTES: u64 = 48;
/// Records begin at multiples of this.
pub const ALIGN: u64 = 8;
/// Longest encoded operation: a rename of two 255-byte names with everything around them is far below.
pub const HEAD_MAX: u32 = 64 << 10;
/// Longest piece of file contents in one entry: four NFS WRITEs of the largest size that clients send.
pub const DATA_MAX: u32 = 4 << 20;
pub const FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"FBAYJRNL";
/// First bytes of a record. Not zero: preallocated room reads as zeros.
const MARK: [u8; 4] = *b"FBjr";
const WRITER_BYTES: usize = 12;

/// What makes this journal another one than all others: 16 random bytes, drawn when its directory was first used.
pub type JournalId = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub journal: JournalId,
    /// Also in the file's name.
    pub number: u64,
    /// The sequence of the first entry here; the following entries count up by one.
    pub first_sequence: u64,
    /// Bytes of the segment before this one; 0 if it had none. A shorter one has lost something.
    pub previous_end: u32,
    /// Bytes this segment may grow to; bounds how many sequences it can have given out.
    pub size: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Zeros, short, or bytes that do not check out.
    Damaged,
    /// Whole, and of a format that we do not read; who wrote it.
    Foreign { format: u32, writer: String },
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let writer = env!("CARGO_PKG_VERSION").as_bytes();
        let length = writer.len().min(WRITER_BYTES);
        bytes[12..12 + length].copy_from_slice(&writer[..length]);
        // From here on it is format 1's own; the magic, the format, the writer and the CRC stay where they are.
        bytes[24..40].copy_from_slice(&self.journal);
        bytes[40..44].copy_from_slice(&(self.number as u32).to_le_bytes());
        bytes[44..52].copy_from_slice(&self.first_sequence.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.previous_end.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.size.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Header, BadHeader> {
        let bytes: &[u8; HEADER_BYTES as usize] = bytes.first_chunk().ok_or(BadHeader::Damaged).and_then(
            |bytes: &[u8; HEADER_BYTES as usize]| {
                let whole = bytes[..8] == MAGIC && crc32c::crc32c(&bytes[..60]) == u32_at(bytes, 60);
                if whole { Ok(bytes) } else { Err(BadHeader::Damaged) }
            },
        )?;
        let format = u32_at(bytes, 8);
        if format != FORMAT {
            let writer = &bytes[12..12 + WRITER_BYTES];
            let length = writer.iter().position(|byte| *byte == 0).unwrap_or(WRITER_BYTES);
            let writer = writer[..length].escape_ascii().to_string();
            return Err(BadHeader::Foreign { format, writer });
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[24..40]);
        Ok(Header {
            journal,
            number: u64::from(u32_at(bytes, 40)),
            first_sequence: u64_at(bytes, 44),
            previous_end: u32_at(bytes, 52),
            size: u32_at(bytes, 56),
        })
    }

    /// A sequence that this segment cannot have given out, however many of its entries were lost.
    pub fn sequence_after(&self) -> u64 {
        self.first_sequence.saturating_add(u64::from(self.size) / FRAME_BYTES + 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An operation, with the next sequence.
    Entry,
    /// The entry of this sequence is at the origin; nobody needs it any more.
    Done,
    /// A copy of an entry of an older segment, under its old sequence.
    Moved,
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFrame {
    pub kind: RecordKind,
    pub sequence: u64,
    pub head_length: u32,
    pub data_length: u32,
    pub head_crc: u32,
    pub data_crc: u32,
    /// Bytes of this segment that an fdatasync had covered when this record was written: whatever is bad below
    /// this offset is damage and no torn tail.
    pub covered: u32,
    /// When it was first written, in milliseconds since 1970.
    pub written_ms: u64,
}

/// Where a record is: its checksum holds nowhere else.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace<'a> {
    pub journal: &'a JournalId,
    pub segment: u64,
    pub offset: u64,
}

impl RecordFrame {
    pub fn encode(&self, place: RecordPlace) -> [u8; FRAME_BYTES as usize] {
        let mut bytes = [0; FRAME_BYTES as usize];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = match self.kind {
            RecordKind::Entry => 1,
            RecordKind::Done => 2,
            RecordKind::Moved => 3,
        };
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        let words = [self.head_length, self.data_length, self.head_crc, self.data_crc, self.covered];
        for (at, word) in words.iter().enumerate() {
            bytes[16 + 4 * at..20 + 4 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes[36..44].copy_from_slice(&self.written_ms.to_le_bytes());
        let crc = frame_crc(&bytes, place);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: no record begins here. The lengths of what is returned are within their limits.
    pub fn decode(bytes: &[u8], place: RecordPlace) -> Option<RecordFrame> {
        let bytes: &[u8; FRAME_BYTES as usize] = bytes.first_chunk()?;
        if bytes[..4] != MARK || frame_crc(bytes, place) != u32_at(bytes, 44) {
            return None;
        }
        let kind = match bytes[4] {
            1 => RecordKind::Entry,
            2 => RecordKind::Done,
            3 => RecordKind::Moved,
            _ => return None,
        };
        let frame = RecordFrame {
            kind,
            sequence: u64_at(bytes, 8),
            head_length: u32_at(bytes, 16),
            data_length: u32_at(bytes, 20),
            head_crc: u32_at(bytes, 24),
            data_crc: u32_at(bytes, 28),
            covered: u32_at(bytes, 32),
            written_ms: u64_at(bytes, 36),
        };
        (frame.head_length <= HEAD_MAX && frame.data_length <= DATA_MAX).then_some(frame)
    }

    pub fn done(sequence: u64, covered: u32, written_ms: u64) -> RecordFrame {
        let empty = crc32c::crc32c(&[]);
        RecordFrame {
            kind: RecordKind::Done,
            sequence,
            head_length: 0,
            data_length: 0,
            head_crc: empty,
            data_crc: empty,
            covered,
            written_ms,
        }
    }

    /// Bytes from this record to the next.
    pub fn span(&self) -> u64 {
        span(self.head_length.into(), self.data_length.into())
    }

    /// Where the data begins, counted from the record's start.
    pub fn data_at(&self) -> u64 {
        FRAME_BYTES + u64::from(self.head_length)
    }
}

/// Bytes that a record with these lengths takes.
pub fn span(head: u64, data: u64) -> u64 {
    (FRAME_BYTES + head + data).next_multiple_of(ALIGN)
}

fn frame_crc(bytes: &[u8; FRAME_BYTES as usize], place: RecordPlace) -> u32 {
    let mut bound = [0; 32];
    bound[..16].copy_from_slice(place.journal);
    bound[16..24].copy_from_slice(&place.segment.to_le_bytes());
    bound[24..].copy_from_slice(&place.offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&bound), &bytes[..44])
}

/// Over the data of an entry.
pub fn data_crc(data: &[u8], sabotage: Sabotage) -> u32 {
    let summed = if sabotage.is(Bug::ShortCrc) { &data[..data.len() / 2] } else { data };
    crc32c::crc32c(summed)
}

/// `00000007.journal`
pub fn name(number: u64) -> String {
    format!("{number:08}.journal")
}

/// The name a segment has until its header is on disk.
pub fn unborn_name(number: u64) -> String {
    format!("{number:08}.new")
}

pub fn is_unborn(name: &str) -> bool {
    parse_number(name, ".new").is_some()
}

pub fn parse_name(name: &str) -> Option<u64> {
    parse_number(name, ".journal")
}

/// Only names that we would give ourselves.
fn parse_number(name: &str, ending: &str) -> Option<u64> {
    let digits = name.strip_suffix(ending)?;
    let ours = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u32 = ours.then(|| digits.parse().ok())??;
    (format!("{number:08}") == digits).then_some(number.into())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the caller has checked the length"))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the caller has checked the length"))
}

#[cfg(test)]
mod tests;
