//! Which parts of which files were handed to sockets a short while ago.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use types::{FileId, Version};

/// Blocks of one note, a bit for each: 1 MiB, what one answer has.
const RUN_BLOCKS: u64 = u16::BITS as u64;
/// A socket that took the last byte has sent it by then, unless its client takes less than 17 KiB each second (crate `send` leaves 512 KiB
/// unsent).
const IN_SOCKETS: Duration = Duration::from_secs(30);
/// Notes that are kept before they are looked through for such as are out of date.
const NOTES_MAX: usize = 1024;

/// Of one file. Of what was not sent for long nothing is known.
#[derive(Default)]
pub struct SentRuns {
    /// By the number of the run: when the last byte of it went to a socket, and which of its blocks were sent.
    ended: HashMap<u64, (Instant, u16)>,
    /// The number of notes at which they are looked through.
    look_at: usize,
    /// Until then any block may be in sockets: the file was closed meanwhile.
    all_until: Option<Instant>,
}

impl SentRuns {
    /// Of a file that is opened again.
    pub fn of_reopened(all_until: Option<Instant>) -> SentRuns {
        SentRuns { all_until, ..SentRuns::default() }
    }

    pub fn note(&mut self, blocks: &Range<u64>, now: Instant) {
        for block in blocks.clone() {
            let (ended, sent) = self.ended.entry(block / RUN_BLOCKS).or_insert((now, 0));
            (*ended, *sent) = (now, *sent | bit(block));
        }
        if self.ended.len() > self.look_at.max(NOTES_MAX) {
            self.ended.retain(|_, (ended, _)| now - *ended < IN_SOCKETS);
            self.look_at = 2 * self.ended.len();
        }
    }

    /// What sockets hold of this block are not the file's pages any more.
    pub fn detached(&mut self, block: u64) {
        if let Some((_, sent)) = self.ended.get_mut(&(block / RUN_BLOCKS)) {
            *sent &= !bit(block);
        }
    }

    /// Sockets may still hold pages of this block.
    pub fn may_be_in_sockets(&self, block: u64, now: Instant) -> bool {
        let run = self.ended.get(&(block / RUN_BLOCKS)).filter(|(_, sent)| sent & bit(block) != 0);
        run.map(|(ended, _)| *ended + IN_SOCKETS).max(self.all_until).is_some_and(|until| now < until)
    }

    /// The time from which on sockets hold none of its pages.
    fn until(&self) -> Option<Instant> {
        self.ended.values().map(|(ended, _)| *ended + IN_SOCKETS).max().max(self.all_until)
    }
}

fn bit(block: u64) -> u16 {
    1 << (block % RUN_BLOCKS)
}

/// Of files that are closed.
#[derive(Default)]
pub struct ClosedSentFiles {
    until: HashMap<(FileId, Version), Instant>,
    look_at: usize,
}

impl ClosedSentFiles {
    pub fn note(&mut self, id: (FileId, Version), runs: &SentRuns, now: Instant) {
        let Some(until) = runs.until().filter(|until| now < *until) else { return };
        self.until.insert(id, until);
        if self.until.len() > self.look_at.max(NOTES_MAX) {
            self.until.retain(|_, until| now < *until);
            self.look_at = 2 * self.until.len();
        }
    }

    pub fn forget(&mut self, id: (FileId, Version)) {
        self.until.remove(&id);
    }

    pub fn until(&self, id: (FileId, Version)) -> Option<Instant> {
        self.until.get(&id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_known_for_half_a_minute_and_memory_stays_bounded() {
        let (mut sent, begun) = (SentRuns::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        sent.note(&(20..40), at(0));
        let blocks = |sent: &SentRuns, now| -> Vec<u64> {
            (0..64).filter(|block| sent.may_be_in_sockets(*block, now)).collect()
        };
        assert_eq!(blocks(&sent, at(29_999)), (20..40).collect::<Vec<_>>());
        sent.note(&(33..34), at(20_000));
        sent.detached(35);
        sent.detached(5);
        let left = [32, 33, 34, 36, 37, 38, 39];
        assert_eq!(blocks(&sent, at(30_000)), left);
        sent.note(&(35..36), at(21_000));
        assert_eq!(blocks(&sent, at(30_000)), (32..40).collect::<Vec<_>>());
        assert_eq!(blocks(&sent, at(51_000)), Vec::<u64>::new());
        for ms in 0..1_000_000 {
            sent.note(&(ms * RUN_BLOCKS..ms * RUN_BLOCKS + 1), at(ms * 10));
        }
        assert!(sent.ended.len() < 10_000, "{} notes of 3,000 runs in half a minute", sent.ended.len());
    }

    #[test]
    fn what_was_sent_of_a_file_is_known_when_it_is_closed_and_opened_again() {
        let (mut sent, mut closed, begun) = (SentRuns::default(), ClosedSentFiles::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let id = |number: u32| (FileId([0; 16]), Version(u128::from(number).to_le_bytes()));
        sent.note(&(20..40), at(0));
        closed.note(id(1), &sent, at(10_000));
        let again = SentRuns::of_reopened(closed.until(id(1)));
        assert!(again.may_be_in_sockets(7, at(29_999)) && !again.may_be_in_sockets(7, at(30_000)));
        assert_eq!(closed.until(id(2)), None);
        for number in 0..100_000 {
            let now = at(u64::from(number) * 10);
            let mut sent = SentRuns::default();
            sent.note(&(0..1), now);
            closed.note(id(number), &sent, now);
        }
        assert!(closed.until.len() < 10_000, "{} notes of 3,000 files in half a minute", closed.until.len());
    }
}
