//! Going over all that is kept, a piece at a time.

use types::{FileId, Version};

use super::DiskSpace;

impl DiskSpace {
    /// The versions in the next `slots` slots from `from` on, and the slot to go on from; `None`: these were the last ones. What comes
    /// or goes meanwhile may be missed, or met twice; what stays is met once.
    pub fn walk(&self, from: usize, slots: usize) -> (Vec<(FileId, Version)>, Option<usize>) {
        let end = from.saturating_add(slots).min(self.kept.len());
        let piece = self.kept.get(from..end).unwrap_or_default();
        let versions = piece.iter().flatten().map(|kept| (kept.file, kept.version)).collect();
        (versions, (end < self.kept.len()).then_some(end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_walk_meets_what_stays_once_in_pieces_of_any_length() {
        for slots in [1, 2, 3, 7, 100] {
            let mut space = DiskSpace::new(Duration::ZERO, HashSet::new());
            for n in 0..20 {
                space.add(FileId([n; 16]), Version([n; 16]), 1);
            }
            for n in (0..20).step_by(3) {
                space.remove(FileId([n; 16]), Version([n; 16]));
            }
            let (mut met, mut next) = (Vec::new(), Some(0));
            while let Some(from) = next {
                let (versions, after) = space.walk(from, slots);
                assert!(versions.len() <= slots && after.is_none_or(|after| after > from));
                met.extend(versions.into_iter().map(|(file, _)| file.0[0]));
                next = after;
            }
            assert_eq!(met, (0..20).filter(|n| n % 3 != 0).collect::<Vec<_>>());
            assert_eq!(space.walk(1000, slots), (Vec::new(), None), "it may have shrunk meanwhile");
        }
    }
}
