//! Bytes that the origin has in memory, and that were replaced here: who wrote them waits until they are stored there, or
//! later ones over them are.

use types::{ByteRange, Stability, WriteVerifier};

#[derive(Clone, Copy, Debug)]
pub struct SupersededPiece {
    pub range: ByteRange,
    /// The first write that waits for this.
    pub first_waiter: u64,
    /// What was promised to any that do.
    pub stability: Stability,
    pub verifier: WriteVerifier,
    /// The origin took it as this one.
    pub arrival: u64,
}

#[derive(Debug, Default)]
pub struct SupersededUncommitted(Vec<SupersededPiece>);

impl SupersededUncommitted {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pieces.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What arrived together and touches is one piece.
    pub fn add(&mut self, piece: SupersededPiece) {
        match self.0.last_mut() {
            Some(last) if last.arrival == piece.arrival && last.range.end() == piece.range.offset => {
                last.range.length += piece.range.length;
                (last.first_waiter, last.stability) =
                    (last.first_waiter.min(piece.first_waiter), last.stability.max(piece.stability));
            }
            _ => self.0.push(piece),
        }
    }

    /// Of writes up to this one.
    pub fn has(&self, sequence: u64) -> bool {
        self.0.iter().any(|piece| piece.first_waiter <= sequence)
    }

    pub fn has_in(&self, range: &ByteRange, sequence: u64) -> bool {
        self.0.iter().any(|piece| piece.first_waiter <= sequence && piece.range.overlaps(range))
    }

    /// Nobody waits for what is in this range any more.
    pub fn take_out(&mut self, range: ByteRange) {
        let touched: Vec<SupersededPiece> =
            self.0.extract_if(.., |piece| piece.range.overlaps(&range)).collect();
        for piece in touched {
            let (from, to) = (piece.range.offset, piece.range.end());
            for (from, to) in [(from, range.offset.min(to)), (range.end().max(from), to)] {
                if from < to {
                    self.0.push(SupersededPiece { range: ByteRange::new(from, to - from), ..piece });
                }
            }
        }
    }

    /// What arrived up to there: a commit is over that was about it.
    pub fn take_up_to(&mut self, arrivals: u64) -> Vec<SupersededPiece> {
        self.0.extract_if(.., |piece| piece.arrival <= arrivals).collect()
    }
}
