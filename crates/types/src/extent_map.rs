//! Values of the byte ranges of a file, of which the last one put counts.

use std::collections::BTreeMap;

use crate::ByteRange;

/// The value of a range that may be divided.
pub trait Divide {
    /// The value of `length` bytes of the range, of all but the first `skip`.
    fn part(&self, skip: u64, length: u64) -> Self;
}

impl Divide for () {
    fn part(&self, _skip: u64, _length: u64) {}
}

/// Ranges that do not overlap, each with its value. Two that touch stay two.
#[derive(Clone, Debug)]
pub struct ExtentMap<V> {
    /// Lengths and values by offset. No range is empty.
    extents: BTreeMap<u64, (u64, V)>,
    bytes: u64,
}

impl<V> Default for ExtentMap<V> {
    fn default() -> ExtentMap<V> {
        ExtentMap { extents: BTreeMap::new(), bytes: 0 }
    }
}

impl<V> ExtentMap<V> {
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// All bytes that have a value.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The end of the last range; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(offset, (length, _))| offset + length)
    }

    /// The value of the range that begins there.
    pub fn at(&self, offset: u64) -> Option<&V> {
        self.extents.get(&offset).map(|(_, value)| value)
    }

    pub fn at_mut(&mut self, offset: u64) -> Option<&mut V> {
        self.extents.get_mut(&offset).map(|(_, value)| value)
    }

    /// All ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (ByteRange, &V)> {
        self.extents.iter().map(|(offset, (length, value))| (ByteRange::new(*offset, *length), value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ByteRange, &mut V)> {
        self.extents.iter_mut().map(|(offset, (length, value))| (ByteRange::new(*offset, *length), value))
    }

    /// The ranges that overlap this one, in order and whole.
    pub fn over(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, &V)> {
        let before = self.extents.range(..range.offset).next_back();
        let reaching = before.filter(|(offset, (length, _))| **offset + length > range.offset);
        let first = reaching.map_or(range.offset, |(offset, _)| *offset);
        let end = if range.is_empty() { first } else { range.end() };
        let over = self.extents.range(first..end);
        over.map(|(offset, (length, value))| (ByteRange::new(*offset, *length), value))
    }

    /// What makes up the range, in order: pieces that have a value, with how many bytes of the value's range are before
    /// the piece, and pieces that have none.
    pub fn pieces(&self, range: ByteRange) -> Vec<(ByteRange, Option<(u64, &V)>)> {
        let mut pieces = Vec::new();
        let mut at = range.offset;
        for (extent, value) in self.over(range) {
            if at < extent.offset {
                pieces.push((ByteRange::new(at, extent.offset - at), None));
            }
            let (from, to) = (extent.offset.max(at), extent.end().min(range.end()));
            pieces.push((ByteRange::new(from, to - from), Some((from - extent.offset, value))));
            at = to;
        }
        if at < range.end() {
            pieces.push((ByteRange::new(at, range.end() - at), None));
        }
        pieces
    }

    /// Takes out the range that begins there.
    pub fn remove(&mut self, offset: u64) -> Option<(ByteRange, V)> {
        let (length, value) = self.extents.remove(&offset)?;
        self.bytes -= length;
        Some((ByteRange::new(offset, length), value))
    }

    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        let gone = self.extents.extract_if(.., |_, (_, value)| !keep(value));
        self.bytes -= gone.map(|(_, (length, _))| length).sum::<u64>();
    }

    fn insert(&mut self, range: ByteRange, value: V) {
        if !range.is_empty() {
            self.bytes += range.length;
            self.extents.insert(range.offset, (range.length, value));
        }
    }
}

impl<V: Divide> ExtentMap<V> {
    /// The range has this value from now on. Returns what it had before, in order.
    pub fn put(&mut self, range: ByteRange, value: V) -> Vec<(ByteRange, V)> {
        let before = self.clear(range);
        self.insert(range, value);
        before
    }

    /// The range has no value any more; what reaches over its ends is divided. Returns what it had, in order.
    pub fn clear(&mut self, range: ByteRange) -> Vec<(ByteRange, V)> {
        let touched: Vec<u64> = self.over(range).map(|(extent, _)| extent.offset).collect();
        let mut taken = Vec::with_capacity(touched.len());
        for offset in touched {
            let Some((extent, value)) = self.remove(offset) else { continue };
            let (from, to) = (extent.offset.max(range.offset), extent.end().min(range.end()));
            let part = |from: u64, to: u64| {
                (ByteRange::new(from, to - from), value.part(from - extent.offset, to - from))
            };
            for (rest, value) in [part(extent.offset, from), part(to, extent.end())] {
                self.insert(rest, value);
            }
            taken.push(part(from, to));
        }
        taken
    }
}

/// A set of bytes, as ranges that do not touch.
#[derive(Debug, Default)]
pub struct RangeSet(ExtentMap<()>);

impl RangeSet {
    pub fn add(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        // What touches it becomes one with it.
        let from = range.offset.saturating_sub(1);
        let near = ByteRange::new(from, range.end().saturating_add(1) - from);
        let near: Vec<ByteRange> = self.0.over(near).map(|(near, ())| near).collect();
        let (mut from, mut to) = (range.offset, range.end());
        for near in near {
            (from, to) = (from.min(near.offset), to.max(near.end()));
        }
        self.0.put(ByteRange::new(from, to - from), ());
    }

    pub fn remove(&mut self, range: ByteRange) {
        self.0.clear(range);
    }

    /// All of them, in order; none is left.
    pub fn take(&mut self) -> Vec<ByteRange> {
        std::mem::take(&mut self.0).iter().map(|(range, ())| range).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The bytes of a value are told apart by how many come before them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Value {
        number: u64,
        skip: u64,
    }

    impl Divide for Value {
        fn part(&self, skip: u64, _length: u64) -> Value {
            Value { skip: self.skip + skip, ..*self }
        }
    }

    fn random() -> impl FnMut(u64) -> u64 {
        let mut state = 7_u64;
        move |most| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        }
    }

    fn each(range: ByteRange, value: Value) -> impl Iterator<Item = (u64, Value)> {
        (range.offset..range.end()).map(move |at| (at, value.part(at - range.offset, 1)))
    }

    #[test]
    fn each_byte_has_the_value_that_was_put_last() {
        let mut below = random();
        for _ in 0..300 {
            let (mut map, mut model) = (ExtentMap::default(), BTreeMap::new());
            for number in 0..12 {
                let range = ByteRange::new(below(40), below(15));
                let before: BTreeMap<u64, Value> =
                    model.range(range.offset..range.end()).map(|(at, value)| (*at, *value)).collect();
                let value = Value { number, skip: 0 };
                let taken = if below(3) > 0 {
                    model.extend(each(range, value));
                    map.put(range, value)
                } else {
                    model.retain(|at, _| !(range.offset..range.end()).contains(at));
                    map.clear(range)
                };
                assert_eq!(
                    taken
                        .into_iter()
                        .flat_map(|(range, value)| each(range, value))
                        .collect::<BTreeMap<_, _>>(),
                    before
                );
                let all = map.iter().flat_map(|(range, value)| each(range, *value));
                assert_eq!(all.collect::<BTreeMap<_, _>>(), model);
                assert_eq!(map.bytes(), model.len() as u64);
                assert_eq!(map.end(), model.last_key_value().map_or(0, |(at, _)| at + 1));
                let wanted = ByteRange::new(below(40), below(15));
                let mut seen = wanted.offset;
                for (range, value) in map.pieces(wanted) {
                    assert_eq!(range.offset, seen);
                    seen = range.end();
                    for at in range.offset..range.end() {
                        let value = value.map(|(skip, value)| value.part(skip + at - range.offset, 1));
                        assert_eq!(value, model.get(&at).copied());
                    }
                }
                assert_eq!(seen, wanted.end());
            }
            let odd = |value: &Value| value.number % 2 == 1;
            map.retain(odd);
            model.retain(|_, value| odd(value));
            assert_eq!(map.bytes(), model.len() as u64);
        }
    }

    #[test]
    fn a_range_set_has_what_a_set_of_numbers_has() {
        let mut below = random();
        for _ in 0..300 {
            let (mut ranges, mut numbers) = (RangeSet::default(), BTreeSet::new());
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
