//! What lies over the clean bytes of one file: which bytes are in the journal, which are zeros, which are still the
//! origin's. Pure: who writes says what was written, who reads asks for a plan and fetches the pieces.
//!
//! A truncation cuts the clean bytes for good: when the file grows again, what the origin still has beyond the cut
//! must not shine through. So clean bytes count only below `clean_up_to`. A cut lasts until it is flushed itself: a
//! flush of what was *before* it brings a clean version in which the cut bytes are there again.

use std::collections::BTreeMap;

use types::ByteRange;

use crate::index::Position;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// In the data of the entry at `position`, from `skip` on.
    Dirty {
        range: ByteRange,
        position: Position,
        skip: u64,
    },
    /// As in the clean version.
    Clean {
        range: ByteRange,
    },
    Zero {
        range: ByteRange,
    },
}

impl Piece {
    pub fn range(&self) -> ByteRange {
        match self {
            Piece::Dirty { range, .. } | Piece::Clean { range } | Piece::Zero { range } => *range,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    length: u64,
    position: Position,
    /// Where in the entry's data it begins: what was in front of it has been written over.
    skip: u64,
}

/// A truncation that is not flushed yet.
#[derive(Clone, Copy, Debug)]
struct Cut {
    sequence: u64,
    to: u64,
}

/// The overlay of one file.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// By offset; they do not overlap.
    extents: BTreeMap<u64, Extent>,
    /// In the order of their sequences, and each further up than the one before: a later cut that goes as deep
    /// makes an earlier one meaningless.
    cuts: Vec<Cut>,
    size: u64,
    clean_size: u64,
    dirty_bytes: u64,
}

impl Overlay {
    /// Over a clean version of this size.
    pub fn new(clean_size: u64) -> Overlay {
        let (extents, cuts) = (BTreeMap::new(), Vec::new());
        Overlay { extents, cuts, size: clean_size, clean_size, dirty_bytes: 0 }
    }

    /// Of the file as its clients see it.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Nothing lies over the clean version.
    pub fn is_clean(&self) -> bool {
        self.extents.is_empty() && self.cuts.is_empty() && self.size == self.clean_size
    }

    /// The entry's data was written at `offset`, over everything before. Ends at 2^64 at the latest.
    pub fn write(&mut self, offset: u64, position: Position) {
        let range = ByteRange::new(offset, position.data_length.into());
        if range.is_empty() {
            return;
        }
        self.clear(range);
        self.extents.insert(offset, Extent { length: range.length, position, skip: 0 });
        self.dirty_bytes += range.length;
        self.size = self.size.max(range.end());
    }

    /// The operation `sequence` gave the file this size.
    pub fn truncate(&mut self, sequence: u64, size: u64) {
        if size < self.size {
            self.clear(ByteRange::new(size, u64::MAX));
            self.cuts.retain(|cut| cut.to < size);
            self.cuts.push(Cut { sequence, to: size });
        }
        self.size = size;
    }

    /// All operations up to `sequence` are in the clean version now, which has this size. What came later stays above.
    pub fn flushed(&mut self, sequence: u64, clean_size: u64) {
        self.cuts.retain(|cut| cut.sequence > sequence);
        self.extents.retain(|_, extent| extent.position.sequence > sequence);
        self.dirty_bytes = self.extents.values().map(|extent| extent.length).sum();
        self.clean_size = clean_size;
    }

    /// Clean bytes at and beyond this offset are not the file's any more.
    pub fn clean_up_to(&self) -> u64 {
        let cut = self.cuts.first().map_or(u64::MAX, |cut| cut.to);
        cut.min(self.clean_size)
    }

    /// Where the bytes of `range` are, in order, as far as the file goes.
    pub fn plan(&self, range: ByteRange) -> Vec<Piece> {
        let range = range.clamp_to(self.size);
        let mut pieces = Vec::new();
        let mut at = range.offset;
        let before = self.extents.range(..=at).next_back();
        let first =
            before.filter(|(offset, extent)| *offset + extent.length > at).map_or(at, |(offset, _)| *offset);
        if !range.is_empty() {
            for (&offset, extent) in self.extents.range(first..range.end()) {
                self.plan_gap(at, offset, &mut pieces);
                let begin = offset.max(at);
                let end = (offset + extent.length).min(range.end());
                let skip = extent.skip + (begin - offset);
                let range = ByteRange::new(begin, end - begin);
                pieces.push(Piece::Dirty { range, position: extent.position, skip });
                at = end;
            }
        }
        self.plan_gap(at, range.end(), &mut pieces);
        pieces
    }

    /// Between two extents: clean as far as clean counts, then zeros.
    fn plan_gap(&self, from: u64, to: u64, pieces: &mut Vec<Piece>) {
        let clean_to = self.clean_up_to().clamp(from, to.max(from));
        if clean_to > from {
            pieces.push(Piece::Clean { range: ByteRange::new(from, clean_to - from) });
        }
        if to > clean_to {
            pieces.push(Piece::Zero { range: ByteRange::new(clean_to, to - clean_to) });
        }
    }

    /// What a flush of all operations up to `sequence` has to take from the journal, in order of offset.
    pub fn dirty_up_to(&self, sequence: u64) -> impl Iterator<Item = Piece> + '_ {
        let due = self.extents.iter().filter(move |(_, extent)| extent.position.sequence <= sequence);
        due.map(|(offset, extent)| Piece::Dirty {
            range: ByteRange::new(*offset, extent.length),
            position: extent.position,
            skip: extent.skip,
        })
    }

    /// Take the range out of all extents; one that reaches over both ends is split.
    fn clear(&mut self, range: ByteRange) {
        let before = self.extents.range(..range.offset).next_back();
        let first = before.map_or(range.offset, |(offset, _)| *offset);
        let touched: Vec<(u64, Extent)> = self
            .extents
            .range(first..range.end())
            .filter(|(offset, extent)| *offset + extent.length > range.offset)
            .map(|(offset, extent)| (*offset, *extent))
            .collect();
        for (offset, extent) in touched {
            self.extents.remove(&offset);
            self.dirty_bytes -= extent.length;
            if offset < range.offset {
                self.keep(offset, Extent { length: range.offset - offset, ..extent });
            }
            let end = offset + extent.length;
            if end > range.end() {
                let gone = range.end() - offset;
                let skip = extent.skip + gone;
                self.keep(range.end(), Extent { length: extent.length - gone, skip, ..extent });
            }
        }
    }

    fn keep(&mut self, offset: u64, extent: Extent) {
        self.extents.insert(offset, extent);
        self.dirty_bytes += extent.length;
    }
}

#[cfg(test)]
mod tests;
