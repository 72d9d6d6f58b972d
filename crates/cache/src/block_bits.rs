//! Blocks of a file as bits, 64 to a mask (4 MiB of file).

use std::ops::Range;

/// Blocks of one mask.
pub const MASK: u64 = 64;

/// The masks over these blocks by their numbers, with the bits that are theirs.
pub fn masks(blocks: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    (blocks.start / MASK..blocks.end.div_ceil(MASK)).map(move |mask| (mask, bits_of(mask, &blocks)))
}

/// Of one mask, the bits of these blocks.
pub fn bits_of(mask: u64, blocks: &Range<u64>) -> u64 {
    let first = blocks.start.max(mask * MASK) - mask * MASK;
    let end = blocks.end.min(mask.saturating_add(1).saturating_mul(MASK)).saturating_sub(mask * MASK);
    if end <= first {
        return 0;
    }
    (u64::MAX >> (MASK - (end - first))) << first
}

/// A set of blocks with small numbers: it takes 8 bytes for each 64 blocks up to its highest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSet {
    masks: Vec<u64>,
}

impl BlockSet {
    pub fn of(blocks: Range<u64>) -> BlockSet {
        let mut set = BlockSet::default();
        for (mask, bits) in masks(blocks) {
            *set.mask(mask as usize) |= bits;
        }
        set
    }

    fn mask(&mut self, number: usize) -> &mut u64 {
        if number >= self.masks.len() {
            self.masks.resize(number + 1, 0);
        }
        &mut self.masks[number]
    }

    pub fn is_empty(&self) -> bool {
        self.masks.iter().all(|mask| *mask == 0)
    }

    pub fn insert(&mut self, others: &BlockSet) {
        for (number, bits) in others.masks.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            *self.mask(number) |= bits;
        }
    }

    pub fn remove(&mut self, others: &BlockSet) {
        for (mask, bits) in self.masks.iter_mut().zip(&others.masks) {
            *mask &= !bits;
        }
    }

    /// Those that are in both.
    pub fn and(&self, others: &BlockSet) -> BlockSet {
        BlockSet { masks: self.masks.iter().zip(&others.masks).map(|(one, other)| one & other).collect() }
    }

    pub fn without(&self, others: &BlockSet) -> BlockSet {
        let mut rest = self.clone();
        rest.remove(others);
        rest
    }

    /// In ascending order.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        let bits = |mask: u64| (0..MASK).filter(move |bit| mask >> bit & 1 == 1);
        let numbered = (0_u64..).zip(&self.masks);
        numbered.flat_map(move |(number, mask)| bits(*mask).map(move |bit| number * MASK + bit))
    }
}

impl FromIterator<u64> for BlockSet {
    fn from_iter<I: IntoIterator<Item = u64>>(blocks: I) -> BlockSet {
        let mut set = BlockSet::default();
        for block in blocks {
            *set.mask((block / MASK) as usize) |= 1 << (block % MASK);
        }
        set
    }
}

/// Ascending numbers as ranges.
pub fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end = number + 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sets_of_blocks_are_what_sets_of_numbers_are() {
        let ranges = [0..0, 0..1, 3..70, 63..65, 64..128, 127..1024, 1000..1001];
        for one in &ranges {
            for other in &ranges {
                let (numbers, others): (BTreeSet<u64>, BTreeSet<u64>) =
                    (one.clone().collect(), other.clone().collect());
                let (set, other_set) = (BlockSet::of(one.clone()), BlockSet::of(other.clone()));
                let same = |set: &BlockSet, numbers: BTreeSet<u64>| {
                    assert_eq!(set.blocks().collect::<BTreeSet<u64>>(), numbers, "{one:?} {other:?}");
                    assert_eq!(set.is_empty(), numbers.is_empty());
                    assert!(numbers.into_iter().collect::<BlockSet>().without(set).is_empty());
                };
                same(&set.and(&other_set), &numbers & &others);
                same(&set.without(&other_set), &numbers - &others);
                let mut both = set.clone();
                both.insert(&other_set);
                same(&both, &numbers | &others);
            }
        }
    }
}
