//! Tells the other nodes that keep a stripe what they lack of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::Cache;
use cluster::Stripe;
use peer::message::{FeedNotice, FeedReason, FilledStripe, StripeBlocks, ToldCopies};
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::NodeId;

use crate::copies::feed_pace::FeedPace;
use crate::copies::fill_ring::NotedFill;
use crate::copies::{CopyBooks, HeldStripe, percent_of};
use crate::reads::ClusterReads;

const TICK: Duration = Duration::from_millis(200);
/// A stripe is told so long after its first fill: more of it has come by then, and is on the disk.
const SETTLE: Duration = Duration::from_millis(300);
/// Stripes that are told in one round.
const ROUND: usize = 1024;
const DEADLINE: Duration = Duration::from_secs(5);

pub struct CopyFeeder {
    pub reads: Arc<ClusterReads>,
    pub cache: Arc<Cache>,
    pub books: Arc<CopyBooks>,
}

/// FEEDs under way, one for each node at most.
#[derive(Default)]
struct FeedCalls {
    tasks: JoinSet<bool>,
    called: HashMap<tokio::task::Id, NodeId>,
    pace: FeedPace,
}

impl CopyFeeder {
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut calls = FeedCalls::default();
        loop {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                Some(ended) = calls.tasks.join_next_with_id() => self.ended(&mut calls, ended),
                _ = stop.wait_for(|stop| *stop) => return,
            }
            tokio::select! {
                () = self.round(&mut calls) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// All that is due by now, as long as the nodes that are well keep up. One that is slow is not waited for: what has no room in
    /// its outbox is dropped.
    async fn round(&self, calls: &mut FeedCalls) {
        let until = self.books.now().saturating_sub(SETTLE);
        self.send(calls);
        while !self.is_held_up(calls) {
            let fills = self.books.fills().take(until, ROUND);
            let is_last = fills.len() < ROUND;
            for fill in fills {
                self.address(fill).await;
            }
            self.send(calls);
            if is_last {
                return;
            }
        }
    }

    fn is_held_up(&self, calls: &FeedCalls) -> bool {
        let now = self.books.now();
        calls.pace.in_flight().chain(self.books.outbox().nodes()).any(|node| calls.pace.holds_up(node, now))
    }

    /// Puts a fill into the outbox for each of the nodes that keep the stripe.
    async fn address(&self, fill: NotedFill) {
        let HeldStripe { key, index } = fill.stripe;
        let view = &self.reads.view;
        let Some((copies, placement)) = view.placement(fill.junction, key.file) else { return };
        if copies < 2 {
            return;
        }
        let ranks = placement.ranks(Stripe { file: key.file, index });
        let others = ranks.keepers(copies).iter().copied().filter(|node| *node != view.own());
        let others: Vec<_> = others.filter(|node| !view.is_passed_over(*node)).collect();
        self.books.ledger().watch(fill.stripe, fill.junction, self.books.now());
        if others.is_empty() {
            return;
        }
        let held = self.cache.held_blocks(&key, index..index + 1).await;
        let held = held.first().map_or(0, |words| StripeBlocks::from_words(*words).count());
        if held == 0 {
            return; // not on the disk yet, or never: the look that was put down finds out
        }
        let percent = percent_of(held, index, key.size);
        let copies = view.file_copies().of(fill.junction, key.file);
        let feed = filled_stripe(fill.stripe, fill.junction, percent, FeedReason::Filled, copies);
        let mut outbox = self.books.outbox();
        for node in others {
            outbox.put(node, feed.clone());
        }
    }

    /// Tells each node that is not being told already.
    fn send(&self, calls: &mut FeedCalls) {
        let view = &self.reads.view;
        let map = view.map();
        calls.pace.retain(|node| map.node(node).is_some());
        let feeds = self.books.outbox().take(|node| calls.pace.may_call(node));
        for (node, mut filled) in feeds {
            // Another version may have been asked for since it was put down: then this one is no news.
            for feed in filled.iter_mut().filter(|feed| feed.reason == FeedReason::Filled) {
                if self.books.known().read_version(feed.file).is_some_and(|read| read != feed.version) {
                    feed.reason = FeedReason::Held;
                }
            }
            if view.is_passed_over(node) {
                continue;
            }
            let Some(client) = self.reads.peers.client(node) else { continue };
            calls.pace.began(node, self.books.now());
            let told = async move {
                let told = client.feed(FeedNotice { filled }, DEADLINE).await;
                told.inspect_err(|e| tracing::debug!(%node, "tell a node what it lacks: {e}")).is_ok()
            };
            let task = calls.tasks.spawn(told).id();
            calls.called.insert(task, node);
        }
    }

    fn ended(&self, calls: &mut FeedCalls, ended: Result<(tokio::task::Id, bool), tokio::task::JoinError>) {
        let (task, was_told) = ended.unwrap_or_else(|e| (e.id(), false));
        if let Some(node) = calls.called.remove(&task) {
            calls.pace.ended(node, was_told, self.books.now());
        }
    }
}

/// Copies are read from whoever tells of them, as holder, so no reference travels.
pub fn filled_stripe(
    stripe: HeldStripe,
    junction: types::JunctionId,
    percent: u8,
    reason: FeedReason,
    copies: Option<ToldCopies>,
) -> FilledStripe {
    let HeldStripe { key, index } = stripe;
    FilledStripe {
        file: key.file,
        version: key.version,
        size: key.size,
        junction,
        reference: Bytes::new(),
        stripe: index,
        percent,
        reason,
        copies,
    }
}
