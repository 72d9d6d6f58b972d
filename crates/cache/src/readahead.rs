//! What else will this reader want? Pure: where it read before goes in, what to fetch comes out.
//!
//! Kept per file and not per open (NFSv3 has no open). A file may have several streams: readers at different
//! offsets. A reader becomes a stream when it goes on where it left off; its window then doubles with each read up
//! to the configured farthest. Random readers never become streams.

use std::collections::HashMap;

use types::{BLOCK_SIZE, ByteRange, FileId};

/// Files up to this size are fetched whole at the first touch: one round trip instead of several.
pub const WHOLE_FILE_MAX: u64 = 1 << 20;
/// Window after the second sequential read.
const WINDOW_START: u64 = 1 << 20;
/// Streams kept per file; the one not used for longest makes room.
const STREAMS_MAX: usize = 64;
/// Files whose readers are remembered.
const FILES_MAX: usize = 4096;
/// NFS clients send a stream's reads in parallel, so that they arrive out of order; a read that is this many of its
/// own lengths from the expected place, within these bounds, goes on with the stream.
const SLACK_READS: u64 = 8;
const SLACK_MIN: u64 = 256 << 10;
const SLACK_MAX: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    /// Where the next read is expected.
    next: u64,
    /// Bytes from the first read of the stream to `next`, and how many of them were read: a reader that only
    /// happens to hit near the expected place leaves most of them out.
    span: u64,
    got: u64,
    /// Bytes to be fetched beyond `next`.
    window: u64,
    /// Everything before this was planned already.
    planned: u64,
    used: u64,
}

/// The readers of one file.
#[derive(Clone, Debug, Default)]
pub struct History {
    streams: Vec<Stream>,
    clock: u64,
}

impl History {
    /// A client reads `range` of a file of `size` bytes: what should be fetched besides?
    pub fn plan(&mut self, range: ByteRange, size: u64, farthest: u64) -> Option<ByteRange> {
        if farthest == 0 {
            return None;
        }
        if size <= WHOLE_FILE_MAX {
            return Some(ByteRange::new(0, size));
        }
        self.clock += 1;
        let clock = self.clock;
        let slack = range.length.saturating_mul(SLACK_READS).clamp(SLACK_MIN, SLACK_MAX);
        let known = self.streams.iter_mut().find(|stream| {
            range.offset <= stream.next.saturating_add(slack)
                && range.end().saturating_add(slack) >= stream.next
        });
        let Some(stream) = known else {
            if self.streams.len() >= STREAMS_MAX
                && let Some(oldest) = (0..self.streams.len()).min_by_key(|&i| self.streams[i].used)
            {
                self.streams.swap_remove(oldest);
            }
            // From the start of a file, one read is enough to guess that it is read as a whole.
            let window = if range.offset == 0 { WINDOW_START.min(farthest) } else { 0 };
            let (next, length) = (range.end(), range.length);
            let stream = Stream { next, span: length, got: length, window, planned: next, used: clock };
            self.streams.push(stream);
            return self.streams.last_mut().and_then(|stream| stream.ahead(size));
        };
        stream.used = clock;
        stream.got = stream.got.saturating_add(range.length).min(stream.span.saturating_add(range.length));
        if range.end() > stream.next {
            stream.span = stream.span.saturating_add(range.end() - stream.next);
            stream.next = range.end();
            stream.window = (stream.window * 2).max(WINDOW_START).min(farthest);
        }
        // Less than half of what it passed was read: not a reader in order.
        if stream.got < stream.span / 2 { None } else { stream.ahead(size) }
    }

    /// Of what was planned, only the part before `end` could be started; plan the rest again.
    pub fn stopped_at(&mut self, planned: ByteRange, end: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.planned == planned.end()) {
            stream.planned = end;
        }
    }
}

impl Stream {
    /// Top the window up, in steps worth a call to the origin.
    fn ahead(&mut self, size: u64) -> Option<ByteRange> {
        const STEP: u64 = 8 * BLOCK_SIZE;
        let target = self.next.saturating_add(self.window).min(size);
        let start = self.planned.max(self.next);
        if target <= start || (target - start < STEP && target < size) {
            return None;
        }
        self.planned = target;
        Some(ByteRange::new(start, target - start))
    }
}

/// The histories of the files read of late.
pub struct Readers {
    files: HashMap<FileId, History>,
    farthest: u64,
}

impl Readers {
    pub fn new(farthest: u64) -> Readers {
        Readers { files: HashMap::new(), farthest }
    }

    pub fn plan(&mut self, file: FileId, range: ByteRange, size: u64) -> Option<ByteRange> {
        if size <= WHOLE_FILE_MAX {
            return History::default().plan(range, size, self.farthest); // nothing to remember
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&file) {
            self.files.clear(); // all start anew: one read each, then they are streams again
        }
        self.files.entry(file).or_default().plan(range, size, self.farthest)
    }

    pub fn stopped_at(&mut self, file: FileId, planned: ByteRange, end: u64) {
        if let Some(history) = self.files.get_mut(&file) {
            history.stopped_at(planned, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 1 << 30;

    fn plan(history: &mut History, offset: u64, length: u64) -> Option<(u64, u64)> {
        let range = ByteRange::new(offset, length);
        history.plan(range, SIZE, 32 * MIB).map(|r| (r.offset / MIB, r.end() / MIB))
    }

    #[test]
    fn a_sequential_reader_gets_a_window_that_doubles_to_the_farthest() {
        let mut history = History::default();
        assert_eq!(plan(&mut history, 0, MIB), Some((1, 2)));
        assert_eq!(plan(&mut history, MIB, MIB), Some((2, 4)));
        assert_eq!(plan(&mut history, 2 * MIB, MIB), Some((4, 7)));
        for step in 3..100 {
            let ahead = plan(&mut history, step * MIB, MIB);
            assert!(ahead.is_none_or(|(_, end)| end <= step + 1 + 32), "{step}: {ahead:?}");
        }
        assert_eq!(plan(&mut history, 100 * MIB, MIB), Some((132, 133)));
    }

    #[test]
    fn nothing_is_planned_twice_and_nothing_left_out() {
        let mut history = History::default();
        let mut planned_to = MIB;
        for step in 0..512 {
            if let Some(range) = history.plan(ByteRange::new(step * MIB / 4, MIB / 4), SIZE, 32 * MIB) {
                assert_eq!(
                    range.offset.max(MIB / 4),
                    planned_to.min(range.offset.max(MIB / 4)).max(range.offset)
                );
                assert!(range.offset >= planned_to || step == 0);
                planned_to = range.end();
            }
        }
    }

    #[test]
    fn a_random_reader_is_left_alone() {
        let mut history = History::default();
        let mut random = 7_u64;
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (random >> 33) % (SIZE / 4096);
            let offset = (block * 4096).max(4096); // never the start of the file
            let in_order = history.streams.iter().any(|s| s.next.abs_diff(offset) <= 4 * 4096);
            let ahead = history.plan(ByteRange::new(offset, 4096), SIZE, 32 * MIB);
            assert!(ahead.is_none() || in_order, "read ahead of a random read at {offset}");
        }
    }

    #[test]
    fn readers_at_many_places_of_a_file_are_streams_of_their_own() {
        let mut history = History::default();
        let step = SIZE / 40;
        let mut planned = 0;
        for turn in 0..20 {
            for reader in 0..40 {
                let range = ByteRange::new(reader * step + turn * MIB / 8, MIB / 8);
                planned += u64::from(history.plan(range, SIZE, 32 * MIB).is_some());
            }
        }
        assert_eq!(history.streams.len(), 40);
        assert!(planned >= 40 * 3, "{planned}");
    }

    #[test]
    fn a_window_smaller_than_the_first_step_is_not_exceeded() {
        let mut history = History::default();
        for turn in 0..10 {
            let read = ByteRange::new(turn * MIB, MIB);
            if let Some(ahead) = history.plan(read, SIZE, 600 << 10) {
                assert!(ahead.end() <= read.end() + (600 << 10), "{ahead:?} after {read:?}");
            }
        }
    }

    #[test]
    fn reads_that_arrive_out_of_order_are_one_stream() {
        let mut history = History::default();
        for step in [0, 2, 1, 3, 5, 4, 7, 6] {
            plan(&mut history, step * MIB, MIB);
        }
        assert_eq!(history.streams.len(), 1);
    }

    #[test]
    fn a_small_file_is_wanted_whole_and_a_switched_off_window_wants_nothing() {
        let whole = History::default().plan(ByteRange::new(500, 10), 1000, 32 * MIB);
        assert_eq!(whole, Some(ByteRange::new(0, 1000)));
        assert_eq!(History::default().plan(ByteRange::new(0, 10), 1000, 0), None);
    }

    #[test]
    fn a_window_ends_at_the_end_of_the_file() {
        let mut history = History::default();
        let size = 3 * MIB + 5;
        assert_eq!(history.plan(ByteRange::new(0, MIB), size, 32 * MIB), Some(ByteRange::new(MIB, MIB)));
        let rest = history.plan(ByteRange::new(MIB, MIB), size, 32 * MIB);
        assert_eq!(rest, Some(ByteRange::new(2 * MIB, MIB + 5)));
        assert_eq!(history.plan(ByteRange::new(2 * MIB, MIB), size, 32 * MIB), None);
    }
}
