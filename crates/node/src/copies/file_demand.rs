//! Which files readers of other nodes want at present: those of which this node was asked for bytes by them a moment ago. Pure: the
//! caller brings the time.

use std::collections::HashMap;
use std::time::Duration;

use types::FileId;

/// A file is wanted for so long after the last read of it.
const WANTED_FOR: Duration = Duration::from_secs(5);

/// When as many files are wanted as are remembered, further ones are not: their copies are made as those of files nobody wants.
#[derive(Debug)]
pub struct FileDemand {
    max: usize,
    /// When each was read last.
    read: HashMap<FileId, Duration>,
    /// When those that are wanted no more were forgotten last.
    swept: Duration,
}

impl FileDemand {
    pub fn new(max: usize) -> FileDemand {
        FileDemand { max, read: HashMap::new(), swept: Duration::ZERO }
    }

    /// A reader of another node has asked for bytes of the file.
    pub fn note(&mut self, file: FileId, now: Duration) {
        if let Some(read) = self.read.get_mut(&file) {
            *read = now;
            return;
        }
        if now.saturating_sub(self.swept) >= WANTED_FOR {
            self.swept = now;
            self.read.retain(|_, read| now.saturating_sub(*read) < WANTED_FOR);
        }
        if self.read.len() < self.max {
            self.read.insert(file, now);
        }
    }

    pub fn is_wanted(&self, file: FileId, now: Duration) -> bool {
        self.read.get(&file).is_some_and(|read| now.saturating_sub(*read) < WANTED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn file(n: u8) -> FileId {
        FileId([n; 16])
    }

    #[test]
    fn a_file_is_wanted_for_a_while_after_each_read() {
        let mut demand = FileDemand::new(9);
        let at = Duration::from_millis;
        demand.note(file(1), at(0));
        demand.note(file(2), at(3000));
        assert!(demand.is_wanted(file(1), at(4999)) && !demand.is_wanted(file(3), at(0)));
        demand.note(file(1), at(4999));
        assert!(demand.is_wanted(file(1), at(9998)) && !demand.is_wanted(file(2), at(8000)));
        assert!(!demand.is_wanted(file(1), at(9999)));
    }

    #[test]
    fn no_more_files_than_its_bound_are_remembered_and_those_of_before_make_room() {
        let mut demand = FileDemand::new(3);
        let at = Duration::from_secs;
        (1..=9).for_each(|n| demand.note(file(n), at(20)));
        assert_eq!((1..=9).filter(|n| demand.is_wanted(file(*n), at(20))).collect::<Vec<u8>>(), [1, 2, 3]);
        demand.note(file(1), at(24));
        demand.note(file(7), at(25));
        assert_eq!((1..=9).filter(|n| demand.is_wanted(file(*n), at(25))).collect::<Vec<u8>>(), [1, 7]);
        assert_eq!(demand.read.len(), 2);
    }
}
