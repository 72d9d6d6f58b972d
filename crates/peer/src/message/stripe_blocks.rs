//! Which blocks of a stripe a node holds: a bit for each.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::fields;

/// 64 MiB in blocks of 64 KiB.
pub const STRIPE_BLOCKS: u64 = 1024;
const WORDS: usize = 16;
const BYTES: usize = WORDS * 8;

/// A set of blocks, counted from the first one of their stripe. On the wire it is base64 of 128 bytes, bit 0 of the first byte for
/// the first block; zeros at the end are left out.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct StripeBlocks([u64; WORDS]);

impl StripeBlocks {
    /// Bit `n % 64` of word `n / 64` stands for block `n`.
    pub fn from_words(words: [u64; WORDS]) -> StripeBlocks {
        StripeBlocks(words)
    }

    /// Blocks beyond the stripe are passed over.
    pub fn of(blocks: impl IntoIterator<Item = u64>) -> StripeBlocks {
        let mut set = StripeBlocks::default();
        for block in blocks.into_iter().filter(|block| *block < STRIPE_BLOCKS) {
            set.0[(block / 64) as usize] |= 1 << (block % 64);
        }
        set
    }

    pub fn contains(&self, block: u64) -> bool {
        self.0.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// These, but for those of `others`.
    pub fn without(&self, others: &StripeBlocks) -> StripeBlocks {
        StripeBlocks(std::array::from_fn(|at| self.0[at] & !others.0[at]))
    }

    /// Runs of blocks in ascending order, each `max` blocks at most.
    pub fn runs(&self, max: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in (0..STRIPE_BLOCKS).filter(|block| self.contains(*block)) {
            match runs.last_mut() {
                Some(run) if run.end == block && run.end - run.start < max => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }
}

impl fmt::Debug for StripeBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs(STRIPE_BLOCKS)).finish()
    }
}

impl Serialize for StripeBlocks {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        to.serialize_str(&fields::base64(&bytes[..end]))
    }
}

impl<'de> Deserialize<'de> for StripeBlocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<StripeBlocks, D::Error> {
        let text = String::deserialize(from)?;
        let told = fields::from_base64(&text, BYTES);
        let told =
            told.ok_or_else(|| de::Error::custom("the blocks of a stripe are not 128 bytes of base64"))?;
        let byte = |at: usize| told.get(at).copied().unwrap_or(0);
        let word = |word: usize| u64::from_le_bytes(std::array::from_fn(|at| byte(word * 8 + at)));
        Ok(StripeBlocks(std::array::from_fn(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_blocks_is_read_back_and_cut_into_runs() {
        for blocks in [vec![], vec![0], vec![1023], vec![0, 1, 2, 63, 64, 65, 500], (0..1024).collect()] {
            let set = StripeBlocks::of(blocks.clone());
            let text = serde_json::to_string(&set).expect("written");
            assert!(text.len() <= 2 + 172);
            assert_eq!(serde_json::from_str::<StripeBlocks>(&text).expect("read"), set);
            assert_eq!(set.count(), blocks.len() as u64);
            assert_eq!(set.runs(7).into_iter().flatten().collect::<Vec<_>>(), blocks);
            assert!(set.runs(7).iter().all(|run| run.end - run.start <= 7));
        }
        let set = StripeBlocks::of([0, 1, 2, 63, 64]);
        assert_eq!(set.runs(1024), [0..3, 63..65]);
        assert_eq!(set.without(&StripeBlocks::of([1, 64, 99])), StripeBlocks::of([0, 2, 63]));
        assert_eq!(StripeBlocks::of([5000]), StripeBlocks::default());
        assert!(!set.contains(u64::MAX) && set.contains(63));
    }

    #[test]
    fn what_is_no_set_of_blocks_is_refused() {
        let long = serde_json::to_string(&fields::base64(&[1; 129])).expect("written");
        for text in ["7", "\"!\"", &long] {
            assert!(serde_json::from_str::<StripeBlocks>(text).is_err(), "{text}");
        }
    }
}
