//! The continuation tokens of ongoing listings, by a number that fits into a cursor.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use ::origin::{DirCursor, Reference};
use bytes::Bytes;

use crate::dir_times::NameFingerprint;

/// The most ongoing listings; an older one loses its token.
const TOKENS_MAX: usize = 1024;
/// The most directories whose keys were reported as no paths; when there are more, all are reported again.
const TOLD_MAX: usize = 4096;

/// The continuation tokens of ongoing listings, by a number that fits into a cursor.
#[derive(Default)]
pub struct ListingTokens {
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    last: u64,
    tokens: VecDeque<OpenListing>,
    /// Directories that were reported to have keys which cannot be shown.
    told: HashSet<Bytes>,
}

/// An ongoing listing.
#[derive(Clone)]
struct OpenListing {
    cookie: u64,
    dir: Bytes,
    token: String,
    /// The fingerprint of the names so far.
    names: NameFingerprint,
}

impl ListingTokens {
    fn state(&self) -> std::sync::MutexGuard<'_, TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn store(&self, dir: &Reference, token: String, names: NameFingerprint) -> DirCursor {
        let mut state = self.state();
        state.last += 1;
        let cookie = state.last;
        state.tokens.push_back(OpenListing { cookie, dir: dir.0.clone(), token, names });
        if state.tokens.len() > TOKENS_MAX {
            state.tokens.pop_front();
        }
        DirCursor { cookie, verifier: [0; 8] }
    }

    pub fn find(&self, dir: &Reference, cursor: DirCursor) -> Option<(String, NameFingerprint)> {
        let state = self.state();
        let found = state.tokens.iter().find(|kept| kept.cookie == cursor.cookie && kept.dir == dir.0);
        found.map(|kept| (kept.token.clone(), kept.names))
    }

    /// True the first time that a directory is reported.
    pub fn first_report(&self, dir: &Reference) -> bool {
        let mut state = self.state();
        if state.told.len() >= TOLD_MAX {
            state.told.clear();
        }
        state.told.insert(dir.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_its_own_listing_only() {
        let (a, b) = (Reference(Bytes::from_static(b"a/")), Reference(Bytes::from_static(b"b/")));
        let tokens = ListingTokens::default();
        let first = tokens.store(&a, "one".into(), NameFingerprint::default());
        assert_eq!(tokens.find(&a, first).map(|(token, _)| token).as_deref(), Some("one"));
        assert!(tokens.find(&b, first).is_none());
        for _ in 0..TOKENS_MAX {
            tokens.store(&b, "more".into(), NameFingerprint::default());
        }
        assert!(tokens.find(&a, first).is_none());
    }
}
