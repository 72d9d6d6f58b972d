//! Who lists one directory after the other walks a tree: its next directories are listed before it gets there.
//!
//! Pure decision (`Walks`), and the listings that it starts. They cost the origin what the walker itself would have
//! cost it, unless it stops: who has listed one sub-directory of a directory gets the next few, who has listed more
//! gets more.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use types::{FileId, Result};

use crate::Namespace;
use crate::config::Freshness;
use crate::freshness::Ask;
use crate::record::StoredListing;

/// Directories listed ahead of who has listed so many of their siblings.
const DEPTHS: [usize; 4] = [0, 8, 32, 256];
/// Once it is sure, what lies ahead is looked at again after this many directories.
const LOOK_EVERY: usize = 3;
/// The first sub-directories of a directory that a walker has just listed: it goes down before it goes on.
const CHILDREN: usize = 4;
/// Listings ahead of walkers under way at the same time; what a walker itself asks for has room beside them.
pub const AHEAD_MAX: usize = 64;
/// Directories whose walkers are remembered; when full, all are forgotten and counted afresh.
const WALKS_MAX: usize = 4096;
/// A listing that follows the last one later than this is no walk.
const PAUSE_MS: u64 = 60_000;

/// How many sub-directories of which directories were listed of late.
#[derive(Debug, Default)]
pub struct Walks {
    seen: HashMap<FileId, SiblingWalk>,
}

#[derive(Clone, Copy, Debug)]
struct SiblingWalk {
    listed: usize,
    last: FileId,
    at_ms: u64,
}

impl Walks {
    /// A client lists `dir`, which is in `parent`. How many of the directories beside it to list, and how many in it?
    fn note(&mut self, parent: FileId, dir: FileId, now_ms: u64) -> (usize, usize) {
        if self.seen.len() >= WALKS_MAX {
            self.seen.clear();
        }
        // How sure the walk around the parent was says how sure one goes on in here.
        let walk = self.seen.entry(parent).or_insert(SiblingWalk { listed: 0, last: parent, at_ms: now_ms });
        if now_ms.saturating_sub(walk.at_ms) > PAUSE_MS {
            walk.listed = 0;
        }
        if walk.last != dir {
            walk.listed += 1;
        }
        (walk.last, walk.at_ms) = (dir, now_ms);
        let sure = walk.listed >= DEPTHS.len() - 1;
        let beside = if sure && !walk.listed.is_multiple_of(LOOK_EVERY) {
            0 // looked just now
        } else {
            DEPTHS[walk.listed.min(DEPTHS.len() - 1)]
        };
        (beside, if walk.listed >= 2 { CHILDREN } else { 0 })
    }
}

impl Namespace {
    /// A client begins to list `dir`: list ahead of it.
    pub(crate) fn walk_on(self: &Arc<Self>, dir: FileId, parent: FileId) {
        if !self.list_ahead || dir == parent {
            return; // the root of a junction is its own parent
        }
        let now = self.clock.now_ms();
        let (beside, within) =
            self.walks.lock().unwrap_or_else(PoisonError::into_inner).note(parent, dir, now);
        // Where the walker stands among its siblings, from the listing that it came from.
        let (Ok(Some(_)), Ok(node)) = (self.listing_of(parent), self.load(dir)) else { return };
        let Ok(Some(here)) = self.store.find_entry(parent, &node.record.name) else { return };
        // Up or down: some clients walk a listing from its end. What lies behind a walker is listed already.
        let mut ahead = self.directories_beside(parent, here.cookie, beside);
        ahead.extend(self.directories_beside(dir, 0, within));
        for dir in ahead {
            let Ok(room) = self.walk_room.clone().try_acquire_owned() else { return };
            let mut answer = self.start_listing_ahead(dir);
            tokio::spawn(async move {
                let _ = crate::flights::wait(&mut answer).await; // who needs it asks again
                drop(room);
            });
        }
    }

    /// As `start_listing`, unless another listing has just ended, which a look before could not see.
    fn start_listing_ahead(
        self: &Arc<Self>,
        dir: FileId,
    ) -> tokio::sync::watch::Receiver<Option<Result<StoredListing>>> {
        let this = self.clone();
        self.listing_flights.start_or_join(dir, move || async move {
            match this.listing_of(dir) {
                // Not with `always`: who joins has asked for a new one.
                Ok(Some(listing)) if this.is_listed_well(dir) && !this.always_asks(dir) => Ok(listing),
                _ => {
                    this.metrics.listed_ahead.inc();
                    this.list(dir).await
                }
            }
        })
    }

    fn always_asks(&self, dir: FileId) -> bool {
        let junction = self.load(dir).and_then(|node| self.junction(node.junction()));
        let always = Freshness::Always;
        junction.is_ok_and(|junction| [junction.rules.files, junction.rules.directories].contains(&always))
    }

    /// The `most` sub-directories of `dir` nearest to a cookie, of those that would have to be listed anew. One whose
    /// listing is under way takes no room of the others.
    fn directories_beside(&self, dir: FileId, cookie: u64, most: usize) -> Vec<FileId> {
        if most == 0 {
            return Vec::new();
        }
        // Directories among files are found as far as a few times as many names go.
        let names = most.saturating_mul(4).max(64);
        let mut after = self.store.entries_after(dir, cookie, names).unwrap_or_default().into_iter();
        let mut before = self.store.entries_before(dir, cookie, names).unwrap_or_default().into_iter();
        let mut found = Vec::new();
        loop {
            let pair = [after.next(), before.next()];
            if pair.iter().all(Option::is_none) || found.len() >= most {
                return found;
            }
            let children =
                pair.into_iter().flatten().filter_map(|entry| self.load_near(entry.child?, Some(dir)).ok());
            let directories = children.filter(|node| node.attr().is_dir() && node.parent() == dir);
            found.extend(
                directories
                    .filter(|node| !self.is_being_listed(node.id) && !self.is_listed_well(node.id))
                    .map(|node| node.id),
            );
        }
    }

    fn is_being_listed(&self, dir: FileId) -> bool {
        self.listing_flights.is_running(&dir)
    }

    fn is_listed_well(&self, dir: FileId) -> bool {
        let (Ok(node), Ok(Some(listing))) = (self.load(dir), self.listing_of(dir)) else { return false };
        let Ok(junction) = self.junction(node.junction()) else { return true };
        let rules = &junction.rules;
        junction.is_failing()
            || junction.is_fresh(rules.files, Ask::Use, listing.listed_ms, self.clock.now_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> FileId {
        FileId([n; 16])
    }

    #[test]
    fn who_lists_one_directory_after_the_other_gets_more_each_time() {
        let mut walks = Walks::default();
        let steps = (1..6).map(|n| walks.note(id(0), id(n), 1000)).collect::<Vec<_>>();
        assert_eq!(steps, [(8, 0), (32, 4), (256, 4), (0, 4), (0, 4)]);
        assert_eq!(walks.note(id(0), id(6), 1000), (256, 4), "now and then");
    }

    #[test]
    fn listing_the_same_directory_again_is_no_walk() {
        let mut walks = Walks::default();
        for _ in 0..10 {
            assert_eq!(walks.note(id(0), id(1), 1000), (8, 0));
        }
    }

    #[test]
    fn a_pause_ends_a_walk() {
        let mut walks = Walks::default();
        walks.note(id(0), id(1), 1000);
        walks.note(id(0), id(2), 1000);
        assert_eq!(walks.note(id(0), id(3), 2000 + PAUSE_MS), (8, 0));
    }
}
