//! One reader's way through one file: which places it read, which pattern that is, what it wants next.

use std::ops::Range;

use types::{BLOCK_SIZE, ByteRange};

/// Asked for ahead at once when there is that much room: worth a call to the origin.
const STEP: u64 = 8 * BLOCK_SIZE;
/// From the start of a file, one read is enough to guess that it is read as a whole: this much of it.
const FIRST_GUESS: u64 = 1 << 20;
/// A reader is trusted with this many times the bytes that it has read in order. What a wrong guess can cost is in
/// proportion to what the reader did to earn it; 1 MiB read in order is enough for 1 Gbit/s at 221 ms.
const TRUST: u64 = 32;
/// Two reads in a row can be chance.
const TRUST_FIRST: u64 = 4;
/// NFS clients send a stream's reads in parallel, so that they arrive out of order; a read that is this many of its
/// own lengths from the expected place, within these bounds, goes on with the stream.
const SLACK_READS: u64 = 8;
const SLACK_MIN: u64 = 256 << 10;
const SLACK_MAX: u64 = 4 << 20;
/// Reads downwards, more than twice as many as upwards, that make a reader a backward one: one that reads forward in
/// parallel also begins somewhere in its first few reads.
const BACKWARD_READS: u32 = 3;
/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One read, or reads that make no sense together: left alone.
    None,
    Forward,
    Backward,
}

#[derive(Clone, Debug)]
pub struct ReadStream {
    /// The stretch that was read, and how much of it, in whole blocks: a reader that only happens to hit near the
    /// expected place leaves most of it out.
    low: u64,
    high: u64,
    covered: u64,
    /// Bytes asked for, as often as they were.
    got: u64,
    up: u32,
    down: u32,
    reads: u32,
    /// The last read began exactly where the stream ended.
    exact: bool,
    /// Everything between `low` and this was planned already, upwards; and downwards.
    planned_up: u64,
    planned_down: u64,
    pub used: u64,
    pub used_ms: u64,
}

impl ReadStream {
    pub fn new(range: ByteRange) -> ReadStream {
        ReadStream {
            low: range.offset,
            high: range.end(),
            covered: blocks_of(range),
            got: range.length,
            up: 0,
            down: 0,
            reads: 1,
            exact: false,
            planned_up: range.end(),
            planned_down: range.offset,
            used: 0,
            used_ms: 0,
        }
    }

    /// How far from the expected place is `range`? `None`: it is not this stream's.
    pub fn distance_to(&self, range: ByteRange) -> Option<u64> {
        let slack = range.length.saturating_mul(SLACK_READS).clamp(SLACK_MIN, SLACK_MAX);
        let above =
            range.offset <= self.high.saturating_add(slack) && range.end().saturating_add(slack) >= self.high;
        let below = range.offset < self.low && range.end().saturating_add(slack) >= self.low;
        (above || below).then(|| range.offset.abs_diff(self.high).min(range.end().abs_diff(self.low)))
    }

    /// The reader goes on with `range`.
    pub fn note(&mut self, range: ByteRange) {
        self.reads = self.reads.saturating_add(1);
        self.exact = range.offset == self.high;
        let covered_before = self.covered;
        if range.end() > self.high {
            self.up = self.up.saturating_add(1);
            let new = range.offset.max(self.high.div_ceil(BLOCK_SIZE).saturating_mul(BLOCK_SIZE));
            self.covered += blocks_of(ByteRange::new(new, range.end().saturating_sub(new)));
        }
        if range.offset < self.low {
            self.down = self.down.saturating_add(1);
            let new = range.end().min(self.low / BLOCK_SIZE * BLOCK_SIZE);
            self.covered +=
                blocks_of(ByteRange::new(range.offset.min(new), new.saturating_sub(range.offset)));
        }
        (self.low, self.high) = (self.low.min(range.offset), self.high.max(range.end()));
        if self.covered == covered_before {
            self.covered += blocks_of(range); // a gap that is filled later
        }
        let span = blocks_of(ByteRange::new(self.low, self.high - self.low));
        self.covered = self.covered.min(span);
        self.got = self.got.saturating_add(range.length);
        self.planned_up = self.planned_up.max(self.high);
        self.planned_down = self.planned_down.min(self.low);
    }

    /// From the first byte read to behind the last.
    pub fn stretch(&self) -> Range<u64> {
        self.low..self.high
    }

    pub fn pattern(&self) -> Pattern {
        // Less than half of what it passed was read: not a reader in order.
        let dense = self.covered.saturating_mul(2)
            >= blocks_of(ByteRange::new(self.low, self.high.saturating_sub(self.low)));
        if self.down >= BACKWARD_READS && self.down > self.up.saturating_mul(2) && dense {
            Pattern::Backward
        } else if self.up > 0 && dense && (self.reads > 2 || self.exact) {
            Pattern::Forward
        } else {
            Pattern::None
        }
    }

    /// What to fetch besides, with `window` bytes to spend. Marks it as planned.
    pub fn ahead(&mut self, size: u64, window: u64) -> Vec<ByteRange> {
        let trust = match self.reads {
            ..=2 => TRUST_FIRST,
            3 => TRUST_FIRST * 4,
            _ => TRUST,
        };
        let trusted = window.min(self.got.saturating_mul(trust));
        let step = STEP.min(window.div_ceil(2)).max(1);
        match self.pattern() {
            Pattern::None if self.reads == 1 && self.low == 0 => {
                self.upwards(size, FIRST_GUESS.min(window), 1)
            }
            Pattern::None => Vec::new(),
            Pattern::Forward => self.upwards(size, trusted, step),
            Pattern::Backward => self.downwards(trusted, step),
        }
    }

    fn upwards(&mut self, size: u64, window: u64, step: u64) -> Vec<ByteRange> {
        let target = self.high.saturating_add(window).min(size);
        let start = self.planned_up.max(self.high);
        if target <= start || (target - start < step && target < size) {
            return Vec::new();
        }
        self.planned_up = target;
        vec![ByteRange::new(start, target - start)]
    }

    fn downwards(&mut self, window: u64, step: u64) -> Vec<ByteRange> {
        let target = self.low.saturating_sub(window);
        let end = self.planned_down.min(self.low);
        if target >= end || (end - target < step && target > 0) {
            return Vec::new();
        }
        self.planned_down = target;
        vec![ByteRange::new(target, end - target)]
    }

    /// The plan `planned` could not be started from `reached` on (below `planned.end()`).
    pub fn stopped_at(&mut self, planned: ByteRange, reached: u64) -> bool {
        if planned.end() == self.planned_up {
            self.planned_up = reached.max(self.high);
        } else if planned.offset == self.planned_down {
            self.planned_down = planned.end().min(self.low); // planned anew from the top
        } else {
            return false;
        }
        true
    }
}

/// Bytes of the blocks that `range` touches.
fn blocks_of(range: ByteRange) -> u64 {
    let blocks = range.blocks();
    (blocks.end - blocks.start).saturating_mul(BLOCK_SIZE)
}
