//! Which stripes were read twice within a minute, in memory that does not grow. Pure.
//!
//! The first read of a stripe leaves a mark where it began, and a read that goes over the mark is the second one. So a reader
//! that goes through a stripe in many small reads has read it once, whatever their size, and who reads the same again has
//! read it twice. Of two stripes that share their 64 bits one counts for the other, which costs room and nothing else.

use super::ledger::StripeId;

/// Stripes that are remembered. The one that was read first makes room.
const REMEMBERED: usize = 1 << 15;
/// Places in which a stripe may be remembered.
const WAYS: usize = 8;
/// A second read within this time counts, and so long after its last read a stripe counts as read twice.
const MINUTE_MS: u64 = 60_000;

#[derive(Default)]
pub struct StripeReads {
    /// Empty before the first one; then `REMEMBERED`.
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    /// Of the stripe; 0: none.
    hash: u64,
    /// Of the first read, or of the last one since it was read twice.
    at_ms: u64,
    /// Where the first read began, in the stripe.
    mark: u32,
    twice: bool,
}

impl StripeReads {
    /// A read of the bytes `from..to` of the stripe. `true`: within a minute it was read before.
    pub fn note(&mut self, stripe: StripeId, from: u32, to: u32, now_ms: u64) -> bool {
        if self.seen.is_empty() {
            self.seen.resize(REMEMBERED, Seen::default());
        }
        let hash = hash(stripe);
        let set = &mut self.seen[set_of(hash)];
        if let Some(seen) = set.iter_mut().find(|seen| seen.hash == hash) {
            if seen.is_over(now_ms) {
                *seen = Seen { hash, at_ms: now_ms, mark: from, twice: false };
            } else if seen.twice || (from..to).contains(&seen.mark) {
                (seen.twice, seen.at_ms) = (true, now_ms);
            }
            return seen.twice;
        }
        if let Some(oldest) = set.iter_mut().min_by_key(|seen| (seen.hash != 0, seen.at_ms)) {
            *oldest = Seen { hash, at_ms: now_ms, mark: from, twice: false };
        }
        false
    }

    /// As the last `note` of it said, unless that is long ago.
    pub fn was_read_twice(&self, stripe: StripeId, now_ms: u64) -> bool {
        let hash = hash(stripe);
        let set = self.seen.get(set_of(hash)).unwrap_or_default();
        set.iter().any(|seen| seen.hash == hash && seen.twice && !seen.is_over(now_ms))
    }
}

impl Seen {
    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) >= MINUTE_MS
    }
}

fn hash((file, version, number): StripeId) -> u64 {
    let half = |bytes: [u8; 16], at: usize| {
        bytes[at..at + 8].iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    let mix = |sum: u64, next: u64| (sum.rotate_left(29) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let all = [half(file.0, 0), half(file.0, 8), half(version.0, 0), half(version.0, 8), number];
    let mixed = all.into_iter().fold(0, mix);
    (mixed ^ (mixed >> 32)).max(1)
}

fn set_of(hash: u64) -> std::ops::Range<usize> {
    let set = (hash % (REMEMBERED / WAYS) as u64) as usize * WAYS;
    set..set + WAYS
}

#[cfg(test)]
mod tests {
    use types::{FileId, Version};

    use super::*;

    fn stripe(number: u64) -> StripeId {
        (FileId([7; 16]), Version([1; 16]), number)
    }

    #[test]
    fn one_pass_in_many_reads_is_one_read_and_its_repetition_is_the_second() {
        for step in [4 << 10, 100_000, 1 << 20, 64 << 20] {
            let mut reads = StripeReads::default();
            let mut pass = |begin: u32, now: u64| {
                let steps = (begin..64 << 20).step_by(step).map(|at| (at, (at + step as u32).min(64 << 20)));
                let told: Vec<bool> = steps.map(|(at, to)| reads.note(stripe(1), at, to, now)).collect();
                told
            };
            assert!(pass(0, 1000).iter().all(|twice| !twice), "{step}");
            assert!(pass(0, 2000).iter().all(|twice| *twice), "{step}");
        }
    }

    #[test]
    fn a_second_read_after_more_than_a_minute_is_a_first_one() {
        let mut reads = StripeReads::default();
        assert!(!reads.note(stripe(1), 0, 100, 0));
        assert!(!reads.note(stripe(1), 0, 100, MINUTE_MS));
        assert!(!reads.was_read_twice(stripe(1), MINUTE_MS));
        assert!(
            reads.note(stripe(1), 50, 60, 2 * MINUTE_MS - 1)
                || reads.note(stripe(1), 0, 1, 2 * MINUTE_MS - 1)
        );
        assert!(reads.was_read_twice(stripe(1), 3 * MINUTE_MS - 2));
        assert!(!reads.was_read_twice(stripe(1), 3 * MINUTE_MS));
        assert!(!reads.note(stripe(1), 0, 100, 3 * MINUTE_MS));
    }

    #[test]
    fn other_places_stripes_versions_and_files_are_not_a_second_read() {
        let mut reads = StripeReads::default();
        assert!(!reads.note(stripe(1), 100, 200, 0));
        for (from, to) in [(0, 100), (101, 300), (100, 100)] {
            assert!(!reads.note(stripe(1), from, to, 1), "{from}..{to}");
        }
        assert!(!reads.note(stripe(2), 100, 200, 1));
        assert!(!reads.note((FileId([7; 16]), Version([2; 16]), 1), 100, 200, 1));
        assert!(!reads.note((FileId([8; 16]), Version([1; 16]), 1), 100, 200, 1));
        assert!(reads.note(stripe(1), 99, 101, 1));
    }

    #[test]
    fn memory_is_bounded_and_what_was_read_last_is_remembered_best() {
        let mut reads = StripeReads::default();
        for number in 0..10 * REMEMBERED as u64 {
            assert!(!reads.note(stripe(number), 0, 1, number / 100));
        }
        assert_eq!(reads.seen.len(), REMEMBERED);
        let last = 10 * REMEMBERED as u64 - 1000..10 * REMEMBERED as u64;
        let now = last.end / 100;
        let found = last.filter(|number| reads.note(stripe(*number), 0, 1, now)).count();
        assert!(found >= 990, "{found} of the last thousand");
    }
}
