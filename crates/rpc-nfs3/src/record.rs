//! Record marking: RPC messages in a TCP stream, in one or more fragments.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The last fragment of a record has this bit in its mark.
const LAST: u32 = 1 << 31;
/// Fragments that one record may have. Real peers send one to a few; a stream of empty fragments is an
/// attack.
const FRAGMENTS_MAX: usize = 64;
/// Of these, smaller ones than this, but for the last: each costs as much work as a large one.
const FRAGMENT_SMALL: usize = 512;
const FRAGMENTS_SMALL_MAX: usize = 16;
/// Room is made in steps of this size, as bytes really arrive.
const STEP: usize = 64 * 1024;
/// Before anything came: who only connects holds little.
const FIRST: usize = 4 * 1024;
/// A longer record gets room for so many times what has come of it: of 1 MiB, 384 KiB are moved.
const GROWTH: usize = 5;

/// Why no record came.
#[derive(Debug)]
pub enum RecordError {
    /// The peer closed the connection between two records.
    Closed,
    /// The record is larger than allowed, or in too many pieces.
    TooLong,
    Io(std::io::Error),
}

/// The mark in front of a record that is sent in one fragment.
pub fn mark(length: usize) -> [u8; 4] {
    (crate::xdr::length32(length) | LAST).to_be_bytes()
}

/// Reads records off a stream, keeping what arrived early for the next one.
pub struct RecordReader<R> {
    stream: R,
    buffer: BytesMut,
    record_max: usize,
    /// The record that is being read: its whole fragments, how many there were, and the mark of the next one.
    joined: Option<BytesMut>,
    fragments: usize,
    small: usize,
    mark: Option<u32>,
}

impl<R: AsyncRead + Unpin> RecordReader<R> {
    pub fn new(stream: R, record_max: usize) -> RecordReader<R> {
        let buffer = BytesMut::with_capacity(FIRST);
        RecordReader { stream, buffer, record_max, joined: None, fragments: 0, small: 0, mark: None }
    }

    /// Wait for the next record to begin: so that a caller can give the rest of it a deadline while an idle
    /// connection may stay.
    pub async fn begin(&mut self) -> Result<(), RecordError> {
        if self.buffer.is_empty() && self.more().await? == 0 {
            return Err(RecordError::Closed);
        }
        Ok(())
    }

    /// Most bytes that the next record can have, by its first mark. Waits for that.
    pub async fn announced(&mut self) -> Result<usize, RecordError> {
        self.need(4).await?;
        let mark = u32::from_be_bytes(self.buffer[..4].try_into().unwrap_or([0; 4]));
        let length = (mark & !LAST) as usize;
        match length <= self.record_max {
            true if mark & LAST != 0 => Ok(length),
            true => Ok(self.record_max),
            false => Err(RecordError::TooLong),
        }
    }

    /// The next whole record, its fragments joined. One that came in one fragment is not copied: it is a slice of what
    /// it was read into, which is no larger than the record and 64 KiB.
    pub async fn record(&mut self) -> Result<Bytes, RecordError> {
        self.begin().await?;
        loop {
            if let Some(record) = self.record_up_to(usize::MAX).await? {
                return Ok(record);
            }
        }
    }

    /// The next whole record, or `None` once so many bytes of a longer one are here: the rest is left for a later call.
    pub async fn record_up_to(&mut self, bytes: usize) -> Result<Option<Bytes>, RecordError> {
        loop {
            let mark = match self.mark {
                Some(mark) => mark,
                None => self.next_mark().await?,
            };
            let length = (mark & !LAST) as usize;
            let so_far = self.joined.as_ref().map_or(0, BytesMut::len);
            if length > self.record_max.saturating_sub(so_far) {
                return Err(RecordError::TooLong);
            }
            let wanted = length.min(bytes.saturating_sub(so_far));
            self.need(wanted).await?;
            if wanted < length {
                return Ok(None);
            }
            self.mark = None;
            let fragment = self.buffer.split_to(length);
            let whole = match self.joined.take() {
                None => fragment,
                Some(mut whole) => {
                    whole.extend_from_slice(&fragment);
                    whole
                }
            };
            if mark & LAST != 0 {
                (self.fragments, self.small) = (0, 0);
                return Ok(Some(whole.freeze()));
            }
            self.joined = Some(whole);
        }
    }

    async fn next_mark(&mut self) -> Result<u32, RecordError> {
        if self.fragments >= FRAGMENTS_MAX {
            return Err(RecordError::TooLong);
        }
        self.need(4).await?;
        let mark = u32::from_be_bytes(self.buffer.split_to(4).as_ref().try_into().unwrap_or([0; 4]));
        self.fragments += 1;
        if mark & LAST == 0 && (mark as usize) < FRAGMENT_SMALL {
            self.small += 1;
            if self.small > FRAGMENTS_SMALL_MAX {
                return Err(RecordError::TooLong);
            }
        }
        self.mark = Some(mark);
        Ok(mark)
    }

    /// Bytes of memory held for what may come: never more than a few times what has come, plus one step.
    pub fn reserved(&self) -> usize {
        self.buffer.capacity()
    }

    async fn need(&mut self, length: usize) -> Result<(), RecordError> {
        while self.buffer.len() < length {
            let here = self.buffer.len();
            // Full, or the rest of a step that would be read into in small pieces.
            if self.buffer.capacity() == here || self.buffer.capacity() < length.min(STEP) {
                self.make_room(STEP.max(length.min(here.saturating_mul(GROWTH))));
            }
            if self.more().await? == 0 {
                return Err(RecordError::Io(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<usize, RecordError> {
        if self.buffer.capacity() == self.buffer.len() {
            self.make_room(self.buffer.len() + STEP);
        }
        self.stream.read_buf(&mut self.buffer).await.map_err(RecordError::Io)
    }

    /// Room for `capacity` bytes in all, in memory of its own: a slice of a record keeps all that it was read into.
    fn make_room(&mut self, capacity: usize) {
        let mut roomy = BytesMut::with_capacity(capacity);
        roomy.extend_from_slice(&self.buffer);
        self.buffer = roomy;
    }
}
