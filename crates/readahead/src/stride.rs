//! A reader that takes pieces at equal distances, up or down: a column of a table, every tenth frame, a file from its
//! end. Its next pieces are foreseen, and nothing between them is fetched.

use std::collections::VecDeque;

use types::{BLOCK_SIZE, ByteRange};

/// Reads of a file that are compared with the next one. Few, because of any two of many random places the middle is
/// likely to be among them, too.
const RECENT_MAX: usize = 16;
/// Strided readers of one file.
const STRIDES_MAX: usize = 16;
/// Parallel reads overtake each other: a read this many strides further is still the reader's.
const SKIP_MAX: i128 = 8;

#[derive(Clone, Debug, Default)]
pub struct Strides {
    recent: VecDeque<ByteRange>,
    known: VecDeque<Stride>,
}

#[derive(Clone, Debug)]
struct Stride {
    last: ByteRange,
    step: i128,
    /// Steps seen.
    seen: u32,
    /// Steps beyond `last` that are planned.
    planned: u64,
}

impl Strides {
    /// A read that goes on with nothing. What to fetch besides, with `window` bytes to spend?
    pub fn ahead(&mut self, range: ByteRange, size: u64, window: u64) -> Vec<ByteRange> {
        if let Some(at) = self.known.iter().position(|stride| stride.steps_to(range).is_some()) {
            let Some(mut stride) = self.known.remove(at) else { return Vec::new() };
            stride.go_on(range);
            let planned = stride.ahead(size, window);
            self.known.push_back(stride);
            return planned;
        }
        let Some(step) = self.step_to(range) else { return Vec::new() };
        if self.known.len() >= STRIDES_MAX {
            self.known.pop_front();
        }
        let mut stride = Stride { last: range, step, seen: 2, planned: 0 };
        let planned = stride.ahead(size, window);
        self.known.push_back(stride);
        planned
    }

    /// Remember a read, whoever it belongs to.
    pub fn note(&mut self, range: ByteRange) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(range);
    }

    /// The distance at which two reads of the same length lie before this one.
    fn step_to(&self, range: ByteRange) -> Option<i128> {
        let alike = |other: &&ByteRange| other.length == range.length;
        self.recent.iter().enumerate().rev().filter(|(_, r)| alike(r)).find_map(|(at, second)| {
            let step = i128::from(range.offset) - i128::from(second.offset);
            let first = i128::from(second.offset) - step;
            let is_first = |r: &ByteRange| i128::from(r.offset) == first;
            let wide = step.unsigned_abs() > u128::from(range.length.max(BLOCK_SIZE));
            (wide && self.recent.iter().take(at).filter(alike).any(is_first)).then_some(step)
        })
    }
}

impl Stride {
    fn steps_to(&self, range: ByteRange) -> Option<i128> {
        let way = i128::from(range.offset) - i128::from(self.last.offset);
        let steps = way / self.step;
        let fits = range.length == self.last.length && steps * self.step == way;
        (fits && (1..=SKIP_MAX).contains(&steps)).then_some(steps)
    }

    fn go_on(&mut self, range: ByteRange) {
        let steps = self.steps_to(range).and_then(|steps| u64::try_from(steps).ok()).unwrap_or(1);
        self.planned = self.planned.saturating_sub(steps);
        self.seen = self.seen.saturating_add(1);
        self.last = range;
    }

    /// The next pieces: twice as many with each step seen, as far as the window goes.
    fn ahead(&mut self, size: u64, window: u64) -> Vec<ByteRange> {
        let each = self.last.length.next_multiple_of(BLOCK_SIZE).max(BLOCK_SIZE);
        let trusted = 1_u64 << (self.seen - 1).min(20);
        let mut ranges = Vec::new();
        for n in self.planned + 1..=trusted.min(window / each) {
            let offset = i128::from(self.last.offset) + self.step * i128::from(n);
            let Ok(offset) = u64::try_from(offset) else { break };
            if offset >= size {
                break;
            }
            self.planned = n;
            ranges.push(ByteRange::new(offset, self.last.length).clamp_to(size));
        }
        ranges
    }
}
