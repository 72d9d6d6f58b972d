//! Checks of a store's listings: that they make progress and end. An entry that makes no sense spoils only itself.
//! Pure.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use types::Result;

use crate::errors::garbled;
use crate::store::ListPage;

/// The keys that an empty page counts as: the store looked at about as many.
const EMPTY_PAGE: u64 = 1000;
/// The most keys that a listing may skip without showing one: deleted ones, parts of uploads.
pub const HIDDEN_MAX: u64 = 10_000_000;
/// The characters of a key in a message.
const SHOWN_MAX: usize = 200;

/// The progress of a listing over its pages.
pub struct ListingProgress {
    keys_max: u64,
    keys: u64,
    /// The continuation tokens so far, hashed.
    tokens: HashSet<u64>,
}

impl ListingProgress {
    pub fn new(keys_max: u64) -> ListingProgress {
        ListingProgress { keys_max, keys: 0, tokens: HashSet::new() }
    }

    /// The token of the next page; `None` at the end. An error if the listing runs in a circle, or has no end.
    pub fn after(&mut self, page: &ListPage, place: impl FnOnce() -> String) -> Result<Option<String>> {
        let Some(next) = page.next.as_ref() else { return Ok(None) };
        let why = if !self.tokens.insert(BuildHasherDefault::<DefaultHasher>::default().hash_one(next)) {
            "the listing runs in a circle".to_owned()
        } else {
            self.keys += if page.is_empty() { EMPTY_PAGE } else { page.len() };
            if self.keys <= self.keys_max {
                return Ok(Some(next.clone()));
            }
            format!("the listing has no end: more than {} keys, and to be gone on with", self.keys_max)
        };
        Err(garbled("list", place(), why))
    }
}

/// The keys of a page whose entries are incomplete or make no sense.
#[derive(Default)]
pub struct UnclearEntries {
    first: Option<String>,
    keys: Vec<String>,
    nameless: u64,
}

impl UnclearEntries {
    pub fn note(&mut self, key: Option<String>, why: &str) {
        if self.first.is_none() {
            let shown =
                |key: &String| key.chars().take(SHOWN_MAX).collect::<String>().escape_debug().to_string();
            self.first = Some(format!("{}: {why}", key.as_ref().map_or_else(|| "an entry".into(), shown)));
        }
        match key {
            Some(key) => self.keys.push(key),
            None => self.nameless += 1,
        }
    }

    /// The keys that need a HEAD each. Logs one line for a page.
    pub fn report(self, place: impl FnOnce() -> String) -> Vec<String> {
        if let Some(first) = self.first {
            let (more, place) = (self.keys.len() as u64 + self.nameless - 1, place());
            tracing::warn!(
                "a listing makes no sense in part, and is asked for singly there: {place}, {first}; {more} more"
            );
        }
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use types::ErrorKind;

    use super::*;

    fn page(next: Option<&str>, prefixes: usize) -> ListPage {
        let prefixes = (0..prefixes).map(|i| format!("{i}/")).collect();
        ListPage { next: next.map(str::to_owned), prefixes, ..ListPage::default() }
    }

    #[test]
    fn a_listing_that_leads_in_a_circle_or_has_no_end_is_noticed() {
        let place = || "somewhere".to_owned();
        let mut circle = ListingProgress::new(1000);
        for (token, is_good) in [("a", true), ("b", true), ("a", false)] {
            let after = circle.after(&page(Some(token), 1), place);
            assert_eq!(after.is_ok(), is_good, "{token}");
            assert!(after.is_ok() || after.unwrap_err().kind() == ErrorKind::Corrupt);
        }
        assert_eq!(circle.after(&page(None, 1), place).unwrap(), None);
        let mut endless = ListingProgress::new(1000);
        let pages =
            (0..).take_while(|n| endless.after(&page(Some(&n.to_string()), 100), place).is_ok()).count();
        assert_eq!(pages, 10);
        let mut hidden = ListingProgress::new(5000);
        let pages = (0..).take_while(|n| hidden.after(&page(Some(&n.to_string()), 0), place).is_ok()).count();
        assert_eq!(pages, 5);
    }

    #[test]
    fn what_makes_no_sense_is_told_by_its_key() {
        let mut unclear = UnclearEntries::default();
        unclear.note(Some("a".into()), "the size \"-5\"");
        unclear.note(None, "no key");
        assert_eq!(unclear.report(String::new), ["a"]);
    }
}
