//! How far a listing is followed, and when one that led nowhere is tried again. Pure.
//!
//! A store that never ends a listing, that leads it in a circle or that answers nonsense would otherwise be asked for ever,
//! and fill the metadata database with names.

use std::collections::HashMap;

use types::{Error, FileId, Result};

/// Pages in a row that bring no name that was not there before. A directory that others change meanwhile may repeat some.
const REPEATED_PAGES_MAX: u32 = 16;
/// What a page without any name counts as: a store that shows none of the keys that it looked at looks at about as many.
const EMPTY_PAGE: u64 = 1000;

/// A listing under way.
pub struct Course {
    names_max: u64,
    names: u64,
    repeated: u32,
}

impl Course {
    pub fn new(names_max: u64) -> Course {
        Course { names_max, names: 0, repeated: 0 }
    }

    /// A page with so many names came, so many of them for the first time. `Err`: why it is not followed any further.
    pub fn page(&mut self, names: usize, new: usize) -> std::result::Result<(), String> {
        self.names += if names == 0 { EMPTY_PAGE } else { names as u64 };
        if self.names > self.names_max {
            return Err(format!(
                "the origin tells of more than {} names in one directory; directory_names_max says how many are taken",
                self.names_max
            ));
        }
        self.repeated = if names > 0 && new == 0 { self.repeated + 1 } else { 0 };
        if self.repeated >= REPEATED_PAGES_MAX {
            return Err(format!(
                "the origin tells the same names again, {REPEATED_PAGES_MAX} times in a row"
            ));
        }
        Ok(())
    }
}

/// Directories whose listing led nowhere: the same answer is given for a while, without asking.
#[derive(Default)]
pub struct GivenUpListings(HashMap<FileId, Wait>);

struct Wait {
    times: u32,
    until_ms: u64,
    error: Error,
}

impl GivenUpListings {
    /// Directories remembered; when full, all are forgotten, and each is tried once more.
    const MAX: usize = 4096;
    const FIRST_MS: u64 = 10_000;
    const LAST_MS: u64 = 600_000;

    pub fn check(&self, dir: FileId, now_ms: u64) -> Result<()> {
        match self.0.get(&dir) {
            Some(wait) if now_ms < wait.until_ms => Err(wait.error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the seconds for which it is not tried again.
    pub fn note(&mut self, dir: FileId, error: &Error, now_ms: u64) -> u64 {
        if self.0.len() >= GivenUpListings::MAX && !self.0.contains_key(&dir) {
            self.0.clear();
        }
        let times = self.0.get(&dir).map_or(0, |wait| wait.times);
        let wait_ms = (GivenUpListings::FIRST_MS << times.min(10)).min(GivenUpListings::LAST_MS);
        let wait = Wait { times: times + 1, until_ms: now_ms.saturating_add(wait_ms), error: error.clone() };
        self.0.insert(dir, wait);
        wait_ms / 1000
    }

    pub fn forget(&mut self, dir: FileId) {
        self.0.remove(&dir);
    }

    pub fn forget_all(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use types::ErrorKind;

    use super::*;

    #[test]
    fn a_listing_ends_when_it_brings_nothing_new_or_too_much() {
        let mut circle = Course::new(1_000_000);
        assert!(circle.page(10, 10).is_ok());
        let followed = (0..100).take_while(|_| circle.page(10, 0).is_ok()).count();
        assert_eq!(followed, 15);
        let mut moving = Course::new(1_000_000);
        assert!((0..1000).all(|page| moving.page(10, usize::from(page % 10 == 0)).is_ok()));
        let mut endless = Course::new(5000);
        assert!((0..5).all(|_| endless.page(1000, 1000).is_ok()), "as many as may be");
        assert!(endless.page(1, 1).unwrap_err().contains("more than 5000 names"));
        let mut nothing = Course::new(5000);
        assert_eq!((0..100).take_while(|_| nothing.page(0, 0).is_ok()).count(), 5);
    }

    #[test]
    fn what_led_nowhere_is_tried_again_more_and_more_seldom() {
        let (dir, mut given_up) = (FileId([1; 16]), GivenUpListings::default());
        let error = Error::new(ErrorKind::Corrupt, "list", "x");
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert!(given_up.check(dir, now).is_ok());
            let seconds = given_up.note(dir, &error, now);
            assert!(given_up.check(dir, now + seconds * 1000 - 1).is_err());
            assert!(given_up.check(FileId([2; 16]), now).is_ok(), "of another one nothing is said");
            now += seconds * 1000;
            waits.push(seconds);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        given_up.forget(dir);
        assert_eq!(given_up.note(dir, &error, now), 10);
        for number in 0..10_000_u128 {
            given_up.note(FileId(number.to_be_bytes()), &error, now);
        }
        assert!(given_up.0.len() <= GivenUpListings::MAX);
    }
}
