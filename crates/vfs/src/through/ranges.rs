//! A set of bytes, as ranges that do not touch.

use std::collections::BTreeMap;

use types::ByteRange;

/// Ends by their starts.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn add(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let (mut from, mut to) = (range.offset, range.end());
        while let Some((start, end)) = self.0.range(..=to).next_back().map(|(start, end)| (*start, *end))
            && end >= from
        {
            self.0.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.0.insert(from, to);
    }

    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        while let Some((start, end)) =
            self.0.range(..range.end()).next_back().map(|(start, end)| (*start, *end))
            && end > range.offset
        {
            self.0.remove(&start);
            if end > range.end() {
                self.0.insert(range.end(), end);
            }
            if start < range.offset {
                self.0.insert(start, range.offset);
                break;
            }
        }
    }

    /// All of them, in order; none is left.
    pub fn take(&mut self) -> Vec<ByteRange> {
        let all = std::mem::take(&mut self.0);
        all.into_iter().map(|(start, end)| ByteRange::new(start, end - start)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_has_what_a_set_of_numbers_has() {
        let mut state = 7_u64;
        let mut below = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for _ in 0..300 {
            let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
            for _ in 0..12 {
                let range = ByteRange::new(below(40), below(15));
                let within = range.offset..range.end();
                if below(2) == 0 {
                    ranges.add(range);
                    numbers.extend(within);
                } else {
                    ranges.remove(range);
                    numbers.retain(|number| !within.contains(number));
                }
            }
            let taken = ranges.take();
            assert!(taken.windows(2).all(|pair| pair[0].end() < pair[1].offset), "{taken:?}");
            let shown: BTreeSet<u64> = taken.iter().flat_map(|range| range.offset..range.end()).collect();
            assert_eq!(shown, numbers);
            assert_eq!(ranges.take(), []);
        }
    }
}
