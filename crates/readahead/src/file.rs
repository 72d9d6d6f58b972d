//! What else will this reader want? Pure: where it read before and how far the origin is go in, what to fetch comes out.
//!
//! Kept per file and not per open (NFSv3 has no open). A file may have several streams: readers at different
//! offsets, that share what they fetch. How a stream goes on is in `stream.rs` (forward,
//! backward) and `stride.rs`; what is neither is random and left alone. How far is in `window.rs`: latency x rate of the
//! origin, divided by all stretches that are read now, over all files.

use std::collections::HashMap;

use types::{ByteRange, Distance, FileId};

use crate::stream::{Pattern, ReadStream};
use crate::stride::Strides;
use crate::window;

/// Files up to this size are fetched whole at the first touch: one round trip instead of several.
pub const WHOLE_FILE_MAX: u64 = 1 << 20;
/// Streams kept per file; the one not used for longest makes room.
const STREAMS_MAX: usize = 64;
/// Files whose readers are remembered.
const FILES_MAX: usize = 4096;
/// A stream that did not read for this long has no share of the line: longer than the pause of a reader that waits for
/// a round trip, or that thinks between reads.
const ACTIVE_MS: u64 = 2_000;
/// The active ones are counted anew no more often: the count walks over all streams.
const COUNT_MS: u64 = 200;

/// The readers of one file.
#[derive(Clone, Debug, Default)]
pub struct History {
    streams: Vec<ReadStream>,
    strides: Strides,
    clock: u64,
}

impl History {
    /// A client reads `range`. Returns the stream that this belongs to, and if one more stretch is read in order now.
    fn note(&mut self, range: ByteRange, now_ms: u64) -> (usize, bool) {
        self.clock += 1;
        let clock = self.clock;
        let (at, was) = self.stream_of(range);
        let stream = &mut self.streams[at];
        (stream.used, stream.used_ms) = (clock, now_ms);
        let began = was == Pattern::None && stream.pattern() != Pattern::None;
        (at, began && !self.follows(at))
    }

    /// What to fetch besides `range`, that was noted in the stream at `at`, with `window` bytes to spend.
    fn ahead(&mut self, at: usize, range: ByteRange, size: u64, window: u64) -> Vec<ByteRange> {
        let mut planned = self.streams[at].ahead(size, window);
        if self.streams[at].pattern() == Pattern::None {
            planned.extend(self.strides.ahead(range, size, window));
        }
        self.strides.note(range);
        planned
    }

    /// The stream that goes on with `range`, or that begins with it, and what it was before.
    fn stream_of(&mut self, range: ByteRange) -> (usize, Pattern) {
        let nearest = |(at, stream): (usize, &ReadStream)| Some((stream.distance_to(range)?, at));
        if let Some((_, at)) = self.streams.iter().enumerate().filter_map(nearest).min() {
            let was = self.streams[at].pattern();
            self.streams[at].note(range);
            return (at, was);
        }
        if self.streams.len() >= STREAMS_MAX
            && let Some(oldest) = (0..self.streams.len()).min_by_key(|&i| self.streams[i].used)
        {
            self.streams.swap_remove(oldest);
        }
        self.streams.push(ReadStream::new(range));
        (self.streams.len() - 1, Pattern::None)
    }

    /// Only the part of a plan before `end` could be started; plan the rest again.
    pub fn stopped_at(&mut self, planned: ByteRange, end: u64) {
        for stream in &mut self.streams {
            if stream.stopped_at(planned, end) {
                return;
            }
        }
    }

    /// Does another reader in order pass, or has it passed, where the stream at `at` begins?
    fn follows(&self, at: usize) -> bool {
        let begin = self.streams[at].stretch().start;
        let others =
            self.streams.iter().enumerate().filter(|(other, s)| *other != at && s.pattern() != Pattern::None);
        others.map(|(_, s)| s.stretch()).any(|stretch| (stretch.start..=stretch.end).contains(&begin))
    }

    /// Stretches that are read in order, and were since `since_ms`. Readers of one stretch are one: who leads fetches for
    /// all who follow, and a share for each of them would leave the leader, and so all, a fraction of the line.
    fn active(&self, since_ms: u64) -> usize {
        let active = self.streams.iter().filter(|s| s.used_ms >= since_ms && s.pattern() != Pattern::None);
        let mut stretches: Vec<_> = active.map(ReadStream::stretch).collect();
        stretches.sort_unstable_by_key(|stretch| stretch.start);
        let (mut count, mut reached) = (0, None);
        for stretch in stretches {
            count += usize::from(reached.is_none_or(|reached| stretch.start > reached));
            reached = reached.max(Some(stretch.end));
        }
        count
    }
}

/// The histories of the files read of late.
pub struct Readers {
    files: HashMap<FileId, History>,
    farthest: u64,
    /// Stretches read in order now, over all files, and when they were counted.
    active: usize,
    counted_ms: u64,
}

impl Readers {
    /// `farthest`: most bytes ahead of one reader; 0 switches it off.
    pub fn new(farthest: u64) -> Readers {
        Readers { files: HashMap::new(), farthest, active: 0, counted_ms: 0 }
    }

    pub fn plan(
        &mut self,
        file: FileId,
        range: ByteRange,
        size: u64,
        distance: impl FnOnce() -> Distance,
        now_ms: u64,
    ) -> Vec<ByteRange> {
        if self.farthest == 0 {
            return Vec::new();
        }
        if size <= WHOLE_FILE_MAX {
            return vec![ByteRange::new(0, size)]; // nothing to remember
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&file) {
            self.files.clear(); // all start anew: one read each, then they are streams again
        }
        if now_ms.saturating_sub(self.counted_ms) >= COUNT_MS || now_ms < self.counted_ms {
            let since = now_ms.saturating_sub(ACTIVE_MS);
            self.active = self.files.values().map(|history| history.active(since)).sum();
            self.counted_ms = now_ms;
        }
        let history = self.files.entry(file).or_default();
        let (at, is_new) = history.note(range, now_ms);
        self.active += usize::from(is_new);
        history.ahead(at, range, size, window::share(distance(), self.active, self.farthest))
    }

    pub fn stopped_at(&mut self, file: FileId, planned: ByteRange, end: u64) {
        if let Some(history) = self.files.get_mut(&file) {
            history.stopped_at(planned, end);
        }
    }
}

#[cfg(test)]
mod tests;
