//! Copies what this node lacks from the nodes that told of it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::Cache;
use cluster::Stripe;
use peer::message::{
    FeedReason, HaveRequest, ReadRequest, ReadRole, ReadUrgency, STRIPE_BLOCKS, StripeBlocks,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange, Error, ErrorKind, Result};

use crate::copies::pull_queue::PullJob;
use crate::copies::standing::may_replace;
use crate::copies::{CopyBooks, HeldStripe};
use crate::reads::ClusterReads;
use crate::sabotage::Bug;

/// Stripes that are copied at once, of which one source has a third at most (`books.rs`).
const AT_ONCE: usize = 12;
/// Blocks of one READ: 1 MiB.
const READ_BLOCKS: u64 = 16;
const TICK: Duration = Duration::from_millis(250);
const DEADLINE: Duration = Duration::from_secs(5);
/// A stripe that could not be copied waits so long.
const WAIT: Duration = Duration::from_secs(2);
/// A node that sends copies at its rate already is asked again after so long, so often.
const BUSY_WAIT: Duration = Duration::from_millis(100);
const BUSY_TRIES: u32 = 100;

pub struct Puller {
    pub reads: Arc<ClusterReads>,
    pub cache: Arc<Cache>,
    pub books: Arc<CopyBooks>,
}

/// How the copying of a stripe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulled {
    /// All that the source holds is here, or it is not wanted here.
    Done,
    /// Its source could not give it, or the disk did not take it.
    Failed,
}

impl Puller {
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut under_way = JoinSet::new();
        loop {
            // Before the books of the cache are complete nobody knows which versions are here.
            let is_ready = self.cache.is_counted() && self.books.makes_copies();
            while is_ready && under_way.len() < AT_ONCE && self.cache.takes_fills() {
                let Some(job) = self.books.pulls().take(self.books.now()) else { break };
                let puller = self.clone();
                under_way.spawn(async move {
                    let flight = PullFlight { books: puller.books.clone(), job, pulled: Pulled::Failed };
                    puller.carry_out(flight).await;
                });
            }
            tokio::select! {
                Some(_) = under_way.join_next() => {}
                () = self.books.told.notified() => {}
                () = tokio::time::sleep(TICK) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn carry_out(&self, mut flight: PullFlight) {
        flight.pulled = match self.pull(&flight.job).await {
            Ok(()) => Pulled::Done,
            Err(e) => {
                tracing::debug!(node = %flight.job.source, file = %flight.job.stripe.key.file, "copy a stripe: {e}");
                // It has gone there since, and whoever else holds it will tell.
                if e.kind() == ErrorKind::NotFound { Pulled::Done } else { Pulled::Failed }
            }
        };
    }

    async fn pull(&self, job: &PullJob) -> Result<()> {
        let HeldStripe { key, index } = job.stripe;
        if !self.is_wanted(job) {
            return Ok(());
        }
        let Some(theirs) = self.held_by_source(job).await? else { return Ok(()) };
        let ours = self.cache.held_blocks(&key, index..index + 1).await;
        let ours = ours.first().map_or_else(StripeBlocks::default, |words| StripeBlocks::from_words(*words));
        let first = index * STRIPE_BLOCKS;
        for run in theirs.without(&ours).runs(READ_BLOCKS) {
            let run = first + run.start..first + run.end;
            let range = bytes_of_blocks(run.clone(), key.size);
            if range.is_empty() {
                return Ok(()); // beyond the file: it is the other node's mistake
            }
            // A stripe takes long to copy, and this node's readers fetch some of it meanwhile.
            if self.cache.lacking(&key, run.clone()).await.is_empty() {
                continue;
            }
            tokio::time::sleep(self.books.take(range.length)).await;
            for lacking in self.cache.lacking(&key, run).await {
                if !self.copy(job, lacking).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// `false`: the stripe is not wanted any more.
    async fn copy(&self, job: &PullJob, blocks: Range<u64>) -> Result<bool> {
        let key = &job.stripe.key;
        let range = bytes_of_blocks(blocks.clone(), key.size);
        // While it waited its version may have been replaced, and its room taken.
        if !self.is_wanted(job) {
            return Ok(false);
        }
        if !self.cache.takes_fills() {
            return Err(Error::new(ErrorKind::NoSpace, "keep a copy:", "the disk takes nothing"));
        }
        let mut bytes = self.read(job, range).await?;
        if self.reads.view.sabotage.is(Bug::CopyToWrongPlace) && range.length > BLOCK_SIZE {
            // The bytes of the second block are kept as those of the first, and so on.
            let mut moved = bytes.to_vec();
            moved.rotate_left(BLOCK_SIZE as usize);
            bytes = moved.into();
        }
        if !self.is_wanted(job) {
            return Ok(false);
        }
        if !self.cache.keep_copy(key, blocks, bytes).await {
            return Err(Error::new(ErrorKind::NoSpace, "keep a copy:", "the disk did not take it"));
        }
        // It may have been forgotten while the copy waited, when nothing of the file was here.
        self.books.known().learn(key.file, job.junction);
        self.reads.metrics.repair_bytes.inc_by(range.length);
        Ok(true)
    }

    /// By what is known now, this node keeps the stripe, the version is the file's, and there is room for it: a copy that no reader asked for pushes out nothing.
    fn is_wanted(&self, job: &PullJob) -> bool {
        let key = &job.stripe.key;
        let stripe = Stripe { file: key.file, index: job.stripe.index };
        // The map may have changed since it was told.
        if !self
            .reads
            .view
            .keepers(job.junction, stripe)
            .is_some_and(|nodes| nodes.contains(&self.reads.view.own()))
        {
            return false;
        }
        if self.reads.view.sabotage.is(Bug::CopyOverNewer) {
            return true;
        }
        let read = self.books.known().read_version(key.file);
        if read.is_some_and(|read| read != key.version) {
            return false;
        }
        let others = self.cache.versions_held(key.file);
        let other = self.books.other_version(key.file, key.version, &others);
        let is_fresh = job.reason == FeedReason::Filled;
        may_replace(job.reason, other) && (is_fresh || self.cache.room_for_copies() > 0)
    }

    async fn held_by_source(&self, job: &PullJob) -> Result<Option<StripeBlocks>> {
        let HeldStripe { key, index } = job.stripe;
        let gone = || Error::new(ErrorKind::NotFound, "copy a stripe:", "its source has left the cluster");
        let client = self.reads.peers.client(job.source).ok_or_else(gone)?;
        let (file, version, size) = (key.file, key.version, key.size);
        let request =
            HaveRequest { file, version, size, junction: Some(job.junction), first: index, stripes: 1 };
        let answer = client.have(&request, DEADLINE).await?;
        Ok(answer.blocks.first().copied())
    }

    async fn read(&self, job: &PullJob, range: ByteRange) -> Result<Bytes> {
        let key = &job.stripe.key;
        let request = ReadRequest {
            file: key.file,
            version: key.version,
            size: key.size,
            range,
            junction: job.junction,
            reference: Bytes::new(),
            role: ReadRole::Holder,
            hops: 0,
            urgency: ReadUrgency::Warm,
            map: self.reads.view.number(),
            copies: None,
        };
        let mut tries = 0;
        loop {
            match self.reads.ask(job.source, &request).await? {
                Err(e) if e.kind() == ErrorKind::Busy && tries < BUSY_TRIES => tries += 1,
                told => return told.map(|answer| answer.bytes),
            }
            tokio::time::sleep(BUSY_WAIT).await;
        }
    }
}

/// A stripe that is being copied. Dropped, also by a panic or the end of the node's tasks, it is in flight no more.
struct PullFlight {
    books: Arc<CopyBooks>,
    job: PullJob,
    pulled: Pulled,
}

impl Drop for PullFlight {
    fn drop(&mut self) {
        let now = self.books.now();
        match self.pulled {
            Pulled::Done => self.books.pulls().finished(&self.job.stripe),
            Pulled::Failed => self.books.pulls().failed(self.job, WAIT, now),
        }
        self.books.told.notify_one();
    }
}
