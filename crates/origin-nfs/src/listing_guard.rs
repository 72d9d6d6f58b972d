//! Notices a server whose listing of a directory runs in a circle, which would otherwise be read for ever.
//!
//! A cookie may be given as the place to go on as often as listings of that directory were begun, plus some
//! for pages asked for again. Memory is bounded: beyond the caps the guard forgets and starts to count
//! anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Directories watched at once.
const DIRECTORIES_MAX: usize = 256;
/// Pages remembered of one directory: at 50 names a page five million names.
const PAGES_MAX: usize = 100_000;
/// The same page may be asked for again after errors.
const REPEATS: u32 = 16;

#[derive(Default)]
struct ListingWalks {
    begun: u32,
    pages: HashMap<u64, u32>,
}

#[derive(Default)]
pub struct ListingGuard {
    walks: Mutex<HashMap<Bytes, ListingWalks>>,
}

impl ListingGuard {
    /// A page of `dir` was read from cookie `from` (0: the start) and says to go on at `next` (`None`: it
    /// was the last). False if that has been said too often.
    pub fn page(&self, dir: &Bytes, from: u64, next: Option<u64>) -> bool {
        let mut all = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = next else {
            if let Some(walks) = all.get_mut(dir) {
                walks.begun = walks.begun.saturating_sub(1);
                if walks.begun == 0 {
                    all.remove(dir);
                }
            }
            return true;
        };
        if all.len() >= DIRECTORIES_MAX && !all.contains_key(dir) {
            all.clear();
        }
        let walks = all.entry(dir.clone()).or_default();
        if from == 0 {
            walks.begun = walks.begun.saturating_add(1);
        }
        if walks.pages.len() >= PAGES_MAX {
            walks.pages.clear();
        }
        let times = walks.pages.entry(next).or_default();
        *times += 1;
        *times <= walks.begun.saturating_add(REPEATS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_noticed_and_many_honest_listings_are_not() {
        let guard = ListingGuard::default();
        let dir = Bytes::from_static(b"d");
        // Listings that never end properly, one after the other and interleaved.
        for _ in 0..100 {
            assert!(guard.page(&dir, 0, Some(10)));
            assert!(guard.page(&dir, 10, Some(20)));
        }
        let other = Bytes::from_static(b"o");
        assert!(guard.page(&other, 0, Some(1)));
        let rounds = (0..1000)
            .take_while(|_| guard.page(&other, 1, Some(2)) && guard.page(&other, 2, Some(1)))
            .count();
        assert!(rounds < 20, "{rounds}");
    }
}
