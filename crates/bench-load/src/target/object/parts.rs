//! How the blocks of a file become an object, or parts of one: decisions only.
//!
//! A part is stored as soon as all of its bytes are there, whoever brought them; an object that fits in one part is
//! stored as a whole, at its end.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Error, ErrorKind, Result};

use crate::target::joined;

/// What was written to an object that is not complete yet.
#[derive(Debug)]
pub struct Parts {
    part_bytes: u64,
    /// Of the whole object, where that is known before its end.
    size: Option<u64>,
    /// By number, from 1: what is not handed out yet.
    filling: BTreeMap<u32, Filling>,
    /// Bytes of the parts that were handed out.
    sent: BTreeMap<u32, u64>,
}

/// Blocks of one part, by their offset in the object.
#[derive(Debug, Default)]
struct Filling {
    blocks: BTreeMap<u64, Bytes>,
    bytes: u64,
}

/// What is left to do when everything was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing was written.
    Nothing,
    /// The object.
    Whole(Bytes),
    /// Its last parts; others were handed out before.
    Parts(Vec<(u32, Bytes)>),
}

impl Parts {
    pub fn new(part_bytes: u64, size: Option<u64>) -> Parts {
        Parts { part_bytes: part_bytes.max(1), size, filling: BTreeMap::new(), sent: BTreeMap::new() }
    }

    /// Takes a block. What was written once is not written again: an object is not changed in place.
    pub fn write(&mut self, offset: u64, mut data: Bytes) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(ErrorKind::NotSupported, "write", why));
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| self.size.is_some_and(|size| end > size)) {
            return wrong("bytes behind the end of the object");
        }
        let mut at = offset;
        while !data.is_empty() {
            let index = at / self.part_bytes;
            let Ok(number) = u32::try_from(index + 1) else { return wrong("an object has fewer parts") };
            let left = (index + 1).saturating_mul(self.part_bytes) - at;
            let block = data.split_to(usize::try_from(left).unwrap_or(usize::MAX).min(data.len()));
            let length = block.len() as u64;
            let twice = self.sent.contains_key(&number)
                || self.filling.get(&number).is_some_and(|filling| filling.overlaps(at, length));
            if twice {
                return wrong(
                    "bytes of an object that were written before; an object is replaced as a whole",
                );
            }
            let filling = self.filling.entry(number).or_default();
            filling.blocks.insert(at, block);
            filling.bytes += length;
            at += length;
        }
        Ok(())
    }

    /// The parts that have all their bytes, to be stored now. None while one part may be all there is.
    pub fn full(&mut self) -> Vec<(u32, Bytes)> {
        let several = self.size.is_some_and(|size| size > self.part_bytes)
            || !self.sent.is_empty()
            || self.filling.keys().any(|number| *number > 1);
        if !several {
            return Vec::new();
        }
        let is_full = |(number, filling): (&u32, &Filling)| {
            (filling.bytes == self.length_of(*number)).then_some(*number)
        };
        let numbers: Vec<u32> = self.filling.iter().filter_map(is_full).collect();
        numbers.into_iter().filter_map(|number| self.hand_out(number)).collect()
    }

    /// Everything was written. An error if bytes are missing: they must not be made up.
    pub fn finish(&mut self) -> Result<Rest> {
        let all = self.filling.iter().map(|(number, filling)| (*number, filling.bytes));
        let lengths: BTreeMap<u32, u64> =
            all.chain(self.sent.iter().map(|(n, bytes)| (*n, *bytes))).collect();
        let written: u64 = lengths.values().sum();
        let last = lengths.keys().next_back().copied().unwrap_or(0);
        let size = self.size.unwrap_or_else(|| {
            let short = lengths.get(&last).copied().unwrap_or(0);
            u64::from(last.saturating_sub(1)) * self.part_bytes + short
        });
        let gapless = self.filling.iter().all(|(number, filling)| filling.starts_at(self.start_of(*number)));
        if written != size || !gapless {
            let why = format!("{written} bytes were written of an object of {size}, or not in one piece");
            return Err(Error::new(ErrorKind::Io, "complete", why));
        }
        let numbers: Vec<u32> = self.filling.keys().copied().collect();
        let mut parts: Vec<(u32, Bytes)> =
            numbers.into_iter().filter_map(|number| self.hand_out(number)).collect();
        Ok(match (self.sent.len(), parts.len()) {
            (0, _) => Rest::Nothing,
            (1, 1) => parts.pop().map_or(Rest::Nothing, |(_, whole)| Rest::Whole(whole)),
            _ => Rest::Parts(parts),
        })
    }

    /// Parts that were handed out.
    pub fn sent(&self) -> usize {
        self.sent.len()
    }

    fn start_of(&self, number: u32) -> u64 {
        u64::from(number - 1) * self.part_bytes
    }

    /// Of a part that is not the last one, or whose object's size is known.
    fn length_of(&self, number: u32) -> u64 {
        self.size
            .map_or(self.part_bytes, |size| size.saturating_sub(self.start_of(number)).min(self.part_bytes))
    }

    fn hand_out(&mut self, number: u32) -> Option<(u32, Bytes)> {
        let filling = self.filling.remove(&number)?;
        self.sent.insert(number, filling.bytes);
        Some((number, joined(filling.blocks.into_values().collect())))
    }
}

impl Filling {
    fn overlaps(&self, at: u64, length: u64) -> bool {
        let before = self.blocks.range(..at).next_back();
        before.is_some_and(|(start, block)| start + block.len() as u64 > at)
            || self.blocks.range(at..at + length).next().is_some()
    }

    fn starts_at(&self, start: u64) -> bool {
        let mut next = start;
        self.blocks.iter().all(|(at, block)| {
            let follows = *at == next;
            next = at + block.len() as u64;
            follows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(length: usize) -> Bytes {
        (0..length).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>().into()
    }

    /// Blocks in this order; what was to be stored, put together by number.
    fn stored(size: Option<u64>, blocks: &[(usize, usize)], whole: &Bytes) -> (Vec<usize>, Vec<u8>) {
        let (mut parts, mut out) = (Parts::new(10, size), BTreeMap::new());
        for (from, to) in blocks {
            parts.write(*from as u64, whole.slice(*from..*to)).expect("taken");
            out.extend(parts.full());
        }
        match parts.finish().expect("whole") {
            Rest::Nothing => assert!(out.is_empty()),
            Rest::Whole(whole) => drop(out.insert(1, whole)),
            Rest::Parts(rest) => out.extend(rest),
        }
        assert_eq!(parts.sent(), out.len());
        (out.values().map(Bytes::len).collect(), out.values().flat_map(|part| part.to_vec()).collect())
    }

    #[test]
    fn blocks_in_any_order_end_as_parts_with_all_their_bytes() {
        let whole = pattern(35);
        for size in [None, Some(35)] {
            for blocks in [
                vec![(0, 35)],
                vec![(30, 35), (20, 30), (0, 20)],
                vec![(0, 7), (21, 28), (7, 14), (28, 35), (14, 21)],
                (0..35).rev().map(|at| (at, at + 1)).collect(),
            ] {
                let (lengths, bytes) = stored(size, &blocks, &whole);
                assert_eq!((lengths, bytes.as_slice()), (vec![10, 10, 10, 5], &whole[..]), "{blocks:?}");
            }
        }
    }

    #[test]
    fn an_object_of_one_part_is_stored_as_a_whole_at_its_end() {
        let whole = pattern(10);
        let mut parts = Parts::new(10, None);
        for at in [5, 0] {
            parts.write(at as u64, whole.slice(at..at + 5)).expect("taken");
            assert_eq!(parts.full(), []);
        }
        assert_eq!(parts.finish().expect("whole"), Rest::Whole(whole.clone()));
        assert_eq!(Parts::new(10, None).finish().expect("empty"), Rest::Nothing);
        assert_eq!(stored(None, &[(0, 10)], &whole).0, [10]);
    }

    #[test]
    fn a_part_is_handed_out_when_its_last_byte_comes_whoever_brings_it() {
        let whole = pattern(30);
        let mut parts = Parts::new(10, Some(30));
        parts.write(5, whole.slice(5..15)).expect("taken");
        assert_eq!(parts.full(), []);
        parts.write(0, whole.slice(0..5)).expect("taken");
        assert_eq!(parts.full(), [(1, whole.slice(0..10))]);
        assert!(parts.write(3, whole.slice(3..4)).is_err(), "it is gone");
        assert!(parts.write(14, whole.slice(14..16)).is_err(), "it overlaps");
        assert!(parts.write(29, whole.slice(0..2)).is_err(), "behind the end");
    }

    #[test]
    fn what_was_not_written_is_not_made_up() {
        let whole = pattern(30);
        let finish = |size, blocks: &[(usize, usize)]| {
            let mut parts = Parts::new(10, size);
            for (from, to) in blocks {
                parts.write(*from as u64, whole.slice(*from..*to)).expect("taken");
                parts.full();
            }
            parts.finish().map(drop)
        };
        assert!(finish(Some(30), &[(0, 20)]).is_err(), "the end is missing");
        assert!(finish(None, &[(0, 5), (10, 20)]).is_err(), "a hole");
        assert!(finish(None, &[(1, 9)]).is_err(), "the first byte");
        assert!(finish(None, &[(0, 4), (5, 6)]).is_err(), "a hole in the last part");
        assert!(finish(None, &[(0, 25)]).is_ok());
    }
}
