//! A look at stripes that this node holds: what the nodes that are to keep them have, and what is told to those that are behind.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cache::{Cache, CacheKey};
use cluster::Stripe;
use peer::message::{FeedReason, HaveAnswer, HaveRequest, StripeBlocks};
use types::{FileId, JunctionId, NodeId};

use crate::copies::feeder::filled_stripe;
use crate::copies::standing::{LackReason, NodeAnswer, OwnCopy, Standing, asked, has_all, standing};
use crate::copies::{CopyBooks, HeldStripe, percent_of};
use crate::paths::PathFinder;
use crate::reads::ClusterReads;

const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct StripeLook {
    pub reads: Arc<ClusterReads>,
    pub cache: Arc<Cache>,
    pub books: Arc<CopyBooks>,
}

impl StripeLook {
    /// Looks at stripes of one version of a file, `HAVE_BLOCKS_MAX` at most, enters what was found into the ledger and puts what is to
    /// be told into the outbox. `is_walk`: it is part of a walk over all stripes, which counts them.
    pub async fn at(&self, key: CacheKey, junction: JunctionId, stripes: Range<u64>, is_walk: bool) {
        self.ask_for_rule(junction, key.file).await;
        let read = self.books.known().read_version(key.file);
        let is_known = read == Some(key.version);
        let placement = self.reads.view.placement(junction, key.file);
        // A node that has it as a guest, or kept it before, hears of another version at its next fetch alone.
        let is_read = is_known
            && placement.as_ref().is_some_and(|(wanted, placed)| {
                let keeps =
                    |index| placed.keeps(Stripe { file: key.file, index }, self.reads.view.own(), *wanted);
                stripes.clone().all(keeps)
            });
        let found = match placement {
            // Of a file that has another version by now nothing is copied.
            Some(placed) if read.is_none() || is_known => {
                self.find(key, junction, stripes.clone(), placed, is_read).await
            }
            _ => stripes.clone().map(|_| (Standing::NotHeld, 0)).collect(),
        };
        let copies = self.reads.view.file_copies().of(junction, key.file);
        let reason = if is_read { FeedReason::Read } else { FeedReason::Held };
        for (index, (standing, held)) in stripes.zip(found) {
            let stripe = HeldStripe { key, index };
            let now = self.books.now();
            let is_told = {
                let mut ledger = self.books.ledger();
                let is_told = ledger.record(stripe, junction, &standing, now);
                if is_walk {
                    ledger.count(&stripe, junction, &standing, now);
                }
                is_told
            };
            let Standing::Ours { lacks, .. } = &standing else { continue };
            let behind = lacks.iter().filter(|lack| is_told && lack.why == LackReason::Behind);
            for node in behind.filter_map(|lack| lack.node) {
                let percent = percent_of(held, index, key.size);
                // One that is dropped is told by a later look.
                self.books.outbox().put(node, filled_stripe(stripe, junction, percent, reason, copies));
            }
        }
    }

    /// A node that keeps a file does not know its path, unless its own clients read it, too. Where the junction has rules on copies,
    /// the others are asked for it. If all have answered and none knows it, it is remembered that no rule is about the file.
    async fn ask_for_rule(&self, junction: JunctionId, file: FileId) {
        let copies = self.reads.view.file_copies();
        if copies.revision(junction).is_none() || copies.of(junction, file).is_some() {
            return;
        }
        match PathFinder::new(self.reads.clone()).find(junction, file).await {
            Ok(names) => copies.told_names(junction, file, names.as_deref()),
            Err(e) => {
                tracing::debug!(%file, "ask for a file's path, to know how many copies are wanted: {e}");
                self.books.unruled.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The standing of each stripe, and how many blocks of it are here.
    async fn find(
        &self,
        key: CacheKey,
        junction: JunctionId,
        stripes: Range<u64>,
        (wanted, placement): (usize, Arc<cluster::Placement>),
        is_read: bool,
    ) -> Vec<(Standing, u64)> {
        let own = self.reads.view.own();
        let held = self.cache.held_blocks(&key, stripes.clone()).await;
        let mut answers = Answers { look: self, key, junction, stripes: stripes.clone(), known: Vec::new() };
        let mut found = Vec::new();
        for (at, (index, words)) in stripes.zip(held).enumerate() {
            let blocks = StripeBlocks::from_words(words);
            let ranks = placement.ranks(Stripe { file: key.file, index });
            let keepers = ranks.keepers(wanted);
            if !blocks.is_empty() {
                let (others, before) = asked(own, keepers);
                for (rank, node) in others.into_iter().enumerate() {
                    let answer = answers.of(node, at).await;
                    if rank < before && has_all(&answer, &blocks) {
                        break;
                    }
                }
            }
            let copy = OwnCopy { node: own, blocks, is_read };
            let standing = standing(&copy, keepers, wanted, |node| answers.known(node, at));
            found.push((standing, blocks.count()));
        }
        found
    }
}

/// What other nodes say of the stripes; each is asked once, about all of them.
struct Answers<'a> {
    look: &'a StripeLook,
    key: CacheKey,
    junction: JunctionId,
    stripes: Range<u64>,
    known: Vec<(NodeId, TheirAnswer)>,
}

enum TheirAnswer {
    Silent,
    Unknown,
    Have(HaveAnswer),
}

impl Answers<'_> {
    async fn of(&mut self, node: NodeId, at: usize) -> NodeAnswer {
        if !self.known.iter().any(|(known, _)| *known == node) {
            let answer = self.ask(node).await;
            self.known.push((node, answer));
        }
        self.known(node, at)
    }

    /// Of a node that was not asked nothing is known.
    fn known(&self, node: NodeId, at: usize) -> NodeAnswer {
        match self.known.iter().find(|(known, _)| *known == node) {
            Some((_, TheirAnswer::Silent)) => NodeAnswer::Silent,
            Some((_, TheirAnswer::Have(have))) => match have.blocks.get(at) {
                Some(blocks) => {
                    NodeAnswer::Held { blocks: *blocks, has_room: have.has_room, other: have.other }
                }
                None => NodeAnswer::Unknown,
            },
            Some((_, TheirAnswer::Unknown)) | None => NodeAnswer::Unknown,
        }
    }

    async fn ask(&self, node: NodeId) -> TheirAnswer {
        let reads = &self.look.reads;
        if reads.view.is_passed_over(node) {
            return TheirAnswer::Silent;
        }
        let Some(client) = reads.peers.client(node) else { return TheirAnswer::Unknown };
        let CacheKey { file, version, size } = self.key;
        let (first, stripes) = (self.stripes.start, self.stripes.end - self.stripes.start);
        let request = HaveRequest { file, version, size, junction: Some(self.junction), first, stripes };
        tokio::select! {
            answer = client.have(&request, DEADLINE) => match answer {
                Ok(have) => TheirAnswer::Have(have),
                Err(e) => {
                    tracing::debug!(%node, %file, "ask what a node holds: {e}");
                    TheirAnswer::Unknown
                }
            },
            () = reads.view.until_gone(node) => TheirAnswer::Silent,
        }
    }
}
