//! A permutation of 0..n that needs no memory: a Feistel network over the next even number of bits, and walking
//! along its cycles until the value is below n. Fewer than four steps on average, since the network is at most
//! four times too large.

use crate::data::{mix, mix_all};

/// Four rounds make a Feistel network with random round functions a pseudo-random permutation (Luby, Rackoff);
/// two more because the halves of small ones are short.
const ROUNDS: usize = 6;

#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    /// Bits of each half.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub fn new(n: u64, seed: u64) -> Permutation {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        let half = bits.div_ceil(2).max(1);
        let keys = std::array::from_fn(|round| mix_all(&[seed, round as u64]));
        Permutation { n, half, keys }
    }

    /// Where `index` goes; an index outside of 0..n stays.
    pub fn at(&self, index: u64) -> u64 {
        if index >= self.n {
            return index;
        }
        let mut value = self.step(index);
        // Ends: the cycle of `index` comes back to `index`, which is below n.
        while value >= self.n {
            value = self.step(value);
        }
        value
    }

    fn step(&self, value: u64) -> u64 {
        let mask = u64::MAX >> (u64::BITS - self.half);
        let (mut left, mut right) = ((value >> self.half) & mask, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everything_comes_exactly_once(n in 0_u64..3000, seed in any::<u64>()) {
            let permutation = Permutation::new(n, seed);
            let mut seen: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }

        #[test]
        fn the_largest_sizes_stay_inside_and_do_not_collide(below in 1_u64..1000, seed in any::<u64>()) {
            let n = u64::MAX - below;
            let permutation = Permutation::new(n, seed);
            let values: std::collections::BTreeSet<u64> = (0..200).map(|i| permutation.at(n - 1 - i)).collect();
            prop_assert_eq!(values.len(), 200);
            prop_assert!(values.iter().all(|value| *value < n));
        }
    }

    #[test]
    fn other_seeds_give_other_orders_and_no_order_is_the_plain_one() {
        let order = |seed| (0..1000).map(|i| Permutation::new(1000, seed).at(i)).collect::<Vec<_>>();
        let (a, b) = (order(1), order(2));
        let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
        let fixed = a.iter().enumerate().filter(|(i, a)| *i as u64 == **a).count();
        // One of 1000 is expected by chance; ten would be a flaw.
        assert!(same < 10 && fixed < 10, "{same} equal places, {fixed} fixed points");
        // A neighbour stays a neighbour in 2 of 1000 cases by chance.
        let neighbours = a.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
        assert!(neighbours < 12, "{neighbours} neighbours");
    }
}
