//! The layout of an upload's parts. Pure. It depends on the offset alone, so that bytes find their part before the
//! size of the object is known.
//!
//! Stores take 10,000 parts at most, of 5 MiB (but for the last) to 5 GiB. Ours are 8 MiB, and twice as large after
//! each thousand: 7.8 TiB fit.

use types::ByteRange;

pub const PART: u64 = 8 << 20;
/// The least size of a part that is not the last, also of a copied one.
pub const PART_LEAST: u64 = 5 << 20;
const PARTS_OF_A_SIZE: u64 = 1000;
pub const PARTS_MAX: u64 = 10_000;

/// The bytes of the first `parts` parts; only whole thousands are counted.
pub fn size_of_parts(parts: u64) -> u64 {
    (0..parts / PARTS_OF_A_SIZE).map(|doublings| (PART << doublings) * PARTS_OF_A_SIZE).sum()
}

/// The part of a byte: its number, from 1, and its range. `None`: no object is that long.
pub fn part_at(offset: u64) -> Option<(u32, ByteRange)> {
    let (mut first, mut start) = (1, 0);
    let mut size = PART;
    while first <= PARTS_MAX {
        let end = start + size * PARTS_OF_A_SIZE;
        if offset < end {
            let index = (offset - start) / size;
            return Some(((first + index) as u32, ByteRange::new(start + index * size, size)));
        }
        (first, start, size) = (first + PARTS_OF_A_SIZE, end, size * 2);
    }
    None
}

/// All parts of an object of this size; the last one ends with the object.
pub fn parts_of(size: u64) -> Vec<(u32, ByteRange)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < size {
        let Some((number, range)) = part_at(at) else { break };
        parts.push((number, ByteRange::new(at, range.length.min(size - at))));
        at = range.end();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_grow() {
        assert_eq!(part_at(0), Some((1, ByteRange::new(0, PART))));
        assert_eq!(part_at(PART - 1), Some((1, ByteRange::new(0, PART))));
        assert_eq!(part_at(PART), Some((2, ByteRange::new(PART, PART))));
        let grown = 1000 * PART;
        assert_eq!(part_at(grown), Some((1001, ByteRange::new(grown, 2 * PART))));
        let last = part_at(7 << 40).expect("7 TiB fit");
        assert!(u64::from(last.0) <= PARTS_MAX && last.1.length <= 5 << 30, "{last:?}");
        assert_eq!(part_at(u64::MAX), None);
        let all = size_of_parts(PARTS_MAX);
        assert_eq!((part_at(all - 1).map(|(number, _)| number), part_at(all)), (Some(10_000), None));
        assert_eq!(part_at(size_of_parts(9000)).map(|(number, _)| number), Some(9001));
    }

    #[test]
    fn the_parts_of_an_object_are_all_of_it() {
        for size in [0, 1, PART, PART + 1, 1000 * PART + 5, 3000 * PART] {
            let parts = parts_of(size);
            assert_eq!(parts.iter().map(|(_, range)| range.length).sum::<u64>(), size);
            assert!(parts.iter().enumerate().all(|(at, (number, _))| at + 1 == *number as usize));
        }
    }
}
