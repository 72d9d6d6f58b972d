//! Copies of stripes: they are made, made again after a loss, and counted.
//!
//! The cast:
//! - [`CopyKeeper`] (this file): runs the three tasks below, and tells what is missing ([`UnderReplicated`]).
//! - `books.rs`: what the tasks, the reads of this node and its answers to others share.
//! - `feeder.rs`: tells other nodes what they lack. `fill_ring.rs` (pure): the stripes that were filled here; `outbox.rs` (pure):
//!   what each node is about to be told; `feed_pace.rs` (pure): who is told now, and who is waited for.
//! - `puller.rs`: copies what this node lacks from those that told it. `pull_queue.rs` (pure): which is next, and from whom;
//!   `repair_bucket.rs` (pure): how fast; `repair_yield.rs` (pure): how fast while readers are served.
//! - `scanner.rs`: walks over all that the cache holds, and looks again at what was incomplete. `look.rs` asks the nodes that keep a
//!   stripe what they have of it; `standing.rs` (pure): what follows from their answers; `ledger.rs` (pure): what is missing.
//! - `known_files.rs`: which junction a file is of, over restarts.
//!
//! The way of a copy: a primary fills a stripe for a reader, and notes it. The feeder tells the other nodes that keep the stripe
//! (FEED). They put it into their queues, ask the node that told them which blocks it holds (HAVE), and read those that they lack
//! (READ as `holder`, urgency `warm`) at the repair rate into their caches. What a FEED did not reach, the scanner finds: at the
//! start, after each change of the map or of who answers, and each hour. So the survivors of a lost node copy what it had, a new
//! node fills up, and one that returns gets what it missed.
//!
//! Invariants: a copy never comes from the far origin, for a READ as holder asks nobody. The reference of a file is not needed for
//! it. Bytes were checked before they are kept. A copy that no reader asked for takes free room alone, and never the place of a
//! version that was read. Each queue is bounded, and what does not fit is found by a later look. A node that is slow holds up
//! neither what others are told nor what is copied from others. A stripe is counted by one node,
//! the first in the order of ranks that has all that there is of it. Begin with `standing.rs`.

mod books;
mod feed_pace;
mod feeder;
mod fill_ring;
mod known_files;
mod ledger;
mod look;
mod outbox;
mod pull_queue;
mod puller;
mod repair_bucket;
mod repair_yield;
mod scanner;
mod standing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cache::{Cache, CacheKey};
use tokio::sync::watch;
use types::{JunctionId, Result};

use crate::reads::ClusterReads;

pub use books::CopyBooks;
pub use ledger::UnderReplicated;

use feeder::CopyFeeder;
use known_files::IndexFile;
use look::StripeLook;
use puller::Puller;
use scanner::Scanner;

/// How copies are made.
#[derive(Clone, Debug)]
pub struct CopyConfig {
    /// Bytes per second that this node takes to make copies, and as many that it hands out for others' copies; of these what its readers
    /// get is taken off, down to a tenth of that. 0: none are made.
    pub repair_rate: u64,
    /// A stripe that has had too few copies for so long raises the alarm. Where a node does not answer that keeps it, it does so at
    /// once.
    pub alarm_after: Duration,
    /// Stripes that were filled and that nobody was told of yet; more are left to the scan.
    pub fills_max: usize,
    /// Where the junctions of files are remembered. `None`: they are not, and after a restart a file counts once it is read again.
    pub index: Option<PathBuf>,
}

impl Default for CopyConfig {
    fn default() -> CopyConfig {
        CopyConfig {
            // A tenth of 10 Gbit/s.
            repair_rate: 125_000_000,
            alarm_after: Duration::from_secs(30),
            fills_max: 1 << 20,
            index: None,
        }
    }
}

/// A piece of the cache's map is a stripe.
const _: () = assert!(cluster::STRIPE_BYTES == peer::message::STRIPE_BLOCKS * types::BLOCK_SIZE);

/// A stripe of a version of a file, of which the cache of some node holds some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldStripe {
    pub key: CacheKey,
    pub index: u64,
}

/// What a node that looked at all that it holds found to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The number of the map by which it has last looked at all that it holds. 0: it has not since a node came, went or fell silent.
    pub counted_map: u64,
    /// What nodes of the map are to copy of the stripes that this node counts, as far as it has looked.
    pub to_copy_bytes: u64,
}

/// Sees to it that there are as many copies as the junctions want.
pub struct CopyKeeper {
    reads: Arc<ClusterReads>,
    cache: Arc<Cache>,
    pub(crate) books: Arc<CopyBooks>,
    index: Option<IndexFile>,
}

impl CopyKeeper {
    /// From now on what is read is noted, and FEEDs of other nodes are taken in.
    ///
    /// An index that cannot be read is told of, and is begun anew.
    ///
    /// Errors: there is another keeper for these reads.
    pub fn new(reads: Arc<ClusterReads>, cache: Arc<Cache>, config: &CopyConfig) -> Result<CopyKeeper> {
        let index = config.index.as_deref().map(IndexFile::new);
        let stored = index.as_ref().map_or(Ok(Vec::new()), IndexFile::read).unwrap_or_else(|e| {
            tracing::warn!(
                "the index of files cannot be read, so copies are counted as files are read again: {e}"
            );
            Vec::new()
        });
        let books = Arc::new(CopyBooks::new(config, &stored));
        reads.set_books(books.clone())?;
        Ok(CopyKeeper { reads, cache, books, index })
    }

    /// Runs until told to stop.
    pub async fn run(self: Arc<Self>, stop: watch::Receiver<bool>) {
        let (reads, cache, books) = (self.reads.clone(), self.cache.clone(), self.books.clone());
        let look = StripeLook { reads: reads.clone(), cache: cache.clone(), books: books.clone() };
        let feeder = CopyFeeder { reads: reads.clone(), cache: cache.clone(), books: books.clone() };
        let puller = Arc::new(Puller { reads, cache: cache.clone(), books });
        let scanner = Scanner::new(look, self.index.clone());
        tokio::join!(feeder.run(stop.clone()), puller.run(stop.clone()), scanner.run(stop));
    }

    /// The junctions that have too few copies of something, as far as this node counts: each stripe is counted by one node, so the
    /// cluster's number is the sum over its nodes. It clears by itself.
    pub fn under_replicated(&self) -> BTreeMap<JunctionId, UnderReplicated> {
        self.books.alarm()
    }

    /// How far this node is with making copies after a change of the map.
    pub fn progress(&self) -> CopyProgress {
        // In this order: what is to be copied is at least as new as the walk.
        let counted_map = self.books.walked_map.load(Ordering::Acquire);
        CopyProgress { counted_map, to_copy_bytes: self.books.ledger().to_copy_bytes() }
    }
}

/// How many hundredths of a stripe so many blocks are.
pub(crate) fn percent_of(blocks: u64, stripe: u64, size: u64) -> u8 {
    let all = cluster::Stripe { file: types::FileId([0; 16]), index: stripe }.range(size).blocks();
    (blocks * 100 / (all.end - all.start).max(1)).min(100) as u8
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use peer::message::{FeedReason, FilledStripe};
    use types::{FileId, Version};

    use super::*;

    pub fn stripe(index: u64) -> HeldStripe {
        let key = CacheKey { file: FileId([1; 16]), version: Version([2; 16]), size: u64::MAX };
        HeldStripe { key, index }
    }

    pub fn feed(index: u64) -> FilledStripe {
        let HeldStripe { key, index } = stripe(index);
        let (junction, reference) = (JunctionId(1), Bytes::new());
        let (file, version, size) = (key.file, key.version, key.size);
        FilledStripe {
            file,
            version,
            size,
            junction,
            reference,
            stripe: index,
            percent: 100,
            reason: FeedReason::Read,
            copies: None,
        }
    }

    #[test]
    fn a_stripe_is_whole_when_all_of_its_blocks_are_there() {
        let size = cluster::STRIPE_BYTES + 3 * types::BLOCK_SIZE - 5;
        assert_eq!(
            [percent_of(1024, 0, size), percent_of(1023, 0, size), percent_of(0, 0, size)],
            [100, 99, 0]
        );
        assert_eq!([percent_of(3, 1, size), percent_of(2, 1, size)], [100, 66]);
        assert_eq!(percent_of(9, 77, size), 100, "beyond the file there is nothing");
    }
}
