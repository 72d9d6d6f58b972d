//! What lies over the clean bytes of one file: which bytes are in the journal, which are zeros, which are still the
//! origin's. Pure: who writes says what was written, who reads asks for a plan and fetches the pieces.
//!
//! A truncation cuts the clean bytes for good: when the file grows again, what the origin still has beyond the cut
//! must not shine through. So clean bytes count only below `clean_up_to`. A cut lasts until it is flushed itself: a
//! flush of earlier operations brings a clean version in which the cut bytes are there again.

use types::{ByteRange, Divide, ExtentMap};

use crate::index::Position;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyPiece {
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

impl DirtyPiece {
    pub fn range(&self) -> ByteRange {
        match self {
            DirtyPiece::Dirty { range, .. } | DirtyPiece::Clean { range } | DirtyPiece::Zero { range } => {
                *range
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct DirtyExtent {
    position: Position,
    /// Where in the entry's data it begins: what was in front of it has been written over.
    skip: u64,
}

impl Divide for DirtyExtent {
    fn part(&self, skip: u64, _length: u64) -> DirtyExtent {
        DirtyExtent { skip: self.skip + skip, ..*self }
    }
}

/// A truncation that is not flushed yet.
#[derive(Clone, Copy, Debug)]
struct UnflushedTruncation {
    sequence: u64,
    to: u64,
}

/// The overlay of one file.
#[derive(Clone, Debug)]
pub struct Overlay {
    extents: ExtentMap<DirtyExtent>,
    /// In the order of their sequences, and each further up than the one before: a later cut that goes as deep
    /// makes an earlier one meaningless.
    cuts: Vec<UnflushedTruncation>,
    size: u64,
    clean_size: u64,
}

impl Overlay {
    /// Over a clean version of this size.
    pub fn new(clean_size: u64) -> Overlay {
        let (extents, cuts) = (ExtentMap::default(), Vec::new());
        Overlay { extents, cuts, size: clean_size, clean_size }
    }

    /// Of the file as its clients see it.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.extents.bytes()
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
        self.extents.put(range, DirtyExtent { position, skip: 0 });
        self.size = self.size.max(range.end());
    }

    /// The operation `sequence` gave the file this size.
    pub fn truncate(&mut self, sequence: u64, size: u64) {
        if size < self.size {
            self.extents.clear(ByteRange::new(size, u64::MAX));
            self.cuts.retain(|cut| cut.to < size);
            self.cuts.push(UnflushedTruncation { sequence, to: size });
        }
        self.size = size;
    }

    /// All operations up to `sequence` are in the clean version now, which has this size. What came later stays above.
    pub fn flushed(&mut self, sequence: u64, clean_size: u64) {
        self.cuts.retain(|cut| cut.sequence > sequence);
        self.extents.retain(|extent| extent.position.sequence > sequence);
        self.clean_size = clean_size;
    }

    /// Clean bytes at and beyond this offset are not the file's any more.
    pub fn clean_up_to(&self) -> u64 {
        let cut = self.cuts.first().map_or(u64::MAX, |cut| cut.to);
        cut.min(self.clean_size)
    }

    /// Where the bytes of `range` are, in order, as far as the file goes.
    pub fn plan(&self, range: ByteRange) -> Vec<DirtyPiece> {
        let mut pieces = Vec::new();
        for (range, extent) in self.extents.pieces(range.clamp_to(self.size)) {
            match extent {
                Some((skip, DirtyExtent { position, skip: before })) => {
                    pieces.push(DirtyPiece::Dirty { range, position: *position, skip: before + skip });
                }
                None => self.plan_gap(range.offset, range.end(), &mut pieces),
            }
        }
        pieces
    }

    /// Between two extents: clean as far as clean counts, then zeros.
    fn plan_gap(&self, from: u64, to: u64, pieces: &mut Vec<DirtyPiece>) {
        let clean_to = self.clean_up_to().clamp(from, to.max(from));
        if clean_to > from {
            pieces.push(DirtyPiece::Clean { range: ByteRange::new(from, clean_to - from) });
        }
        if to > clean_to {
            pieces.push(DirtyPiece::Zero { range: ByteRange::new(clean_to, to - clean_to) });
        }
    }

    /// What a flush of all operations up to `sequence` has to take from the journal, in order of offset.
    pub fn dirty_up_to(&self, sequence: u64) -> impl Iterator<Item = DirtyPiece> + '_ {
        let due = self.extents.iter().filter(move |(_, extent)| extent.position.sequence <= sequence);
        due.map(|(range, extent)| DirtyPiece::Dirty { range, position: extent.position, skip: extent.skip })
    }
}

#[cfg(test)]
mod tests;
