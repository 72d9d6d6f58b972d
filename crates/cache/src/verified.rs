//! Which blocks of a file were checked against their checksum since it was opened: a bit each, and how many.

use std::collections::HashMap;

/// Blocks of one word.
const WORD: u64 = 64;
/// Words kept together: 1024 blocks, 64 MiB of file.
const WORDS: usize = 16;

#[derive(Default)]
pub struct Verified {
    groups: HashMap<u64, [u64; WORDS]>,
    count: u64,
}

fn place(block: u64) -> (u64, usize, u64) {
    let word = block / WORD;
    (word / WORDS as u64, (word % WORDS as u64) as usize, 1 << (block % WORD))
}

impl Verified {
    pub fn set(&mut self, block: u64, verified: bool) {
        let (group, word, bit) = place(block);
        let word = &mut self.groups.entry(group).or_insert([0; WORDS])[word];
        let before = *word & bit != 0;
        match (before, verified) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => {}
        }
        *word = if verified { *word | bit } else { *word & !bit };
    }

    pub fn is_set(&self, block: u64) -> bool {
        let (group, word, bit) = place(block);
        self.groups.get(&group).is_some_and(|words| words[word] & bit != 0)
    }

    pub fn clear(&mut self) {
        *self = Verified::default();
    }

    /// The first of `total` blocks that is not set. Costs nothing if all are.
    pub fn first_missing(&self, total: u64) -> Option<u64> {
        if self.count >= total {
            return None;
        }
        let mut at = 0;
        while at < total {
            let (group, word, _) = place(at);
            let bits = self.groups.get(&group).map_or(0, |words| words[word]);
            let missing = at + u64::from((!bits).trailing_zeros());
            if bits != u64::MAX {
                return (missing < total).then_some(missing);
            }
            at += WORD;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_block_is_found_and_the_count_is_kept() {
        let mut verified = Verified::default();
        assert_eq!(verified.first_missing(0), None);
        assert_eq!(verified.first_missing(5000), Some(0));
        for block in 0..5000 {
            verified.set(block, true);
            verified.set(block, true);
        }
        assert_eq!(verified.first_missing(5000), None);
        assert_eq!(verified.first_missing(5001), Some(5000));
        for block in [4999, 1024, 63] {
            verified.set(block, false);
            verified.set(block, false);
            assert_eq!(verified.first_missing(5000), Some(block));
            assert!(!verified.is_set(block) && verified.is_set(block - 1));
        }
        verified.clear();
        assert_eq!(verified.first_missing(5000), Some(0));
    }
}
