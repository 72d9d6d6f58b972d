//! Which parts of a file were lent to be sent a short while ago.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Blocks of one note: 1 MiB, what one answer has.
const RUN_BLOCKS: u64 = 16;
/// A socket that took the last byte has sent it by then, unless its client takes less than 17 KiB each second (crate `send` leaves 512 KiB
/// unsent).
const IN_SOCKETS: Duration = Duration::from_secs(30);
/// Runs of which the notes are looked through for such as are out of date.
const NOTES_MAX: usize = 1024;

/// When the last byte of each run of blocks went to a socket. Of what was not lent for long nothing is known.
#[derive(Default)]
pub struct LentRuns {
    ended: HashMap<u64, Instant>,
    /// The number of notes at which they are looked through.
    look_at: usize,
}

impl LentRuns {
    pub fn note(&mut self, blocks: &Range<u64>, now: Instant) {
        for run in blocks.start / RUN_BLOCKS..blocks.end.div_ceil(RUN_BLOCKS) {
            self.ended.insert(run, now);
        }
        if self.ended.len() > self.look_at.max(NOTES_MAX) {
            self.ended.retain(|_, ended| now - *ended < IN_SOCKETS);
            self.look_at = 2 * self.ended.len();
        }
    }

    /// Sockets may still hold pages of this block.
    pub fn may_be_in_sockets(&self, block: u64, now: Instant) -> bool {
        self.ended.get(&(block / RUN_BLOCKS)).is_some_and(|ended| now - *ended < IN_SOCKETS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lent_is_known_for_half_a_minute_and_memory_stays_bounded() {
        let (mut lent, begun) = (LentRuns::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        lent.note(&(20..40), at(0));
        let runs = |lent: &LentRuns, now| -> Vec<u64> {
            (0..64).filter(|block| lent.may_be_in_sockets(*block, now)).collect()
        };
        assert_eq!(runs(&lent, at(29_999)), (16..48).collect::<Vec<_>>());
        lent.note(&(33..34), at(20_000));
        assert_eq!(runs(&lent, at(30_000)), (32..48).collect::<Vec<_>>());
        assert_eq!(runs(&lent, at(50_000)), Vec::<u64>::new());
        for ms in 0..1_000_000 {
            lent.note(&(ms * RUN_BLOCKS..ms * RUN_BLOCKS + 1), at(ms * 10));
        }
        assert!(lent.ended.len() < 10_000, "{} notes of 3,000 runs in half a minute", lent.ended.len());
    }
}
