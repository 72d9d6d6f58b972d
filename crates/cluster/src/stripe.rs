//! Stripes, the unit of placement.

use types::{ByteRange, FileId};

/// The bytes of a stripe. A smaller file is one stripe.
pub const STRIPE_BYTES: u64 = 64 << 20;

/// `STRIPE_BYTES` of a file, from a multiple of them. The last one of a file is as short as the file makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stripe {
    pub file: FileId,
    pub index: u64,
}

impl Stripe {
    /// The stripe in which the byte at `offset` lies.
    pub fn at(file: FileId, offset: u64) -> Stripe {
        Stripe { file, index: offset / STRIPE_BYTES }
    }

    /// How many stripes a file of `size` bytes has. An empty one has one, so that it has a place.
    pub fn count(size: u64) -> u64 {
        size.div_ceil(STRIPE_BYTES).max(1)
    }

    /// Its bytes in a file of `size` bytes.
    pub fn range(&self, size: u64) -> ByteRange {
        ByteRange::new(self.index.saturating_mul(STRIPE_BYTES), STRIPE_BYTES).clamp_to(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_cover_a_file_once() {
        let file = FileId([7; 16]);
        for size in [0, 1, STRIPE_BYTES - 1, STRIPE_BYTES, STRIPE_BYTES + 1, 5 * STRIPE_BYTES] {
            let mut next = 0;
            for index in 0..Stripe::count(size) {
                let stripe = Stripe { file, index };
                let range = stripe.range(size);
                assert_eq!(range.offset, next);
                if !range.is_empty() {
                    assert_eq!(Stripe::at(file, range.offset), stripe);
                    assert_eq!(Stripe::at(file, range.end() - 1), stripe);
                }
                next = range.end();
            }
            assert_eq!(next, size);
        }
    }

    #[test]
    fn a_stripe_at_the_end_of_the_numbers_overflows_nothing() {
        let last = Stripe::at(FileId([0; 16]), u64::MAX);
        assert_eq!(last.range(u64::MAX).end(), u64::MAX);
        assert!(Stripe { index: u64::MAX, ..last }.range(1).is_empty());
    }
}
