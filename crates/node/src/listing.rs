//! Where the stripes of a file lie, and how much of each is there: what operators ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cache::{Cache, CacheKey};
use cluster::Stripe;
use peer::message::{HAVE_STRIPES_MAX, HaveRequest, StripeBlocks};
use tokio::task::JoinSet;
use types::{ByteRange, JunctionId, NodeId};

use crate::copies::percent_of;
use crate::reads::ClusterReads;

/// A node that does not answer in this time is listed without a number.
const PATIENCE: Duration = Duration::from_secs(3);

/// A stripe of one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeListing {
    pub range: ByteRange,
    /// By rank: the primary first.
    pub copies: Vec<HeldCopy>,
}

/// What one of the nodes that keep a stripe has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCopy {
    pub node: NodeId,
    /// In hundredths, rounded down. `None`: the node does not answer.
    pub percent: Option<u8>,
}

impl ClusterReads {
    /// All stripes of a file, of which there are [`HAVE_STRIPES_MAX`] at most. `None`: the junction is not spread over the nodes.
    pub async fn list_stripes(
        &self,
        cache: &Arc<Cache>,
        junction: JunctionId,
        key: &CacheKey,
    ) -> Option<Vec<StripeListing>> {
        let count = Stripe::count(key.size).min(HAVE_STRIPES_MAX);
        let stripes: Vec<Stripe> = (0..count).map(|index| Stripe { file: key.file, index }).collect();
        let keepers: Option<Vec<Vec<NodeId>>> =
            stripes.iter().map(|stripe| self.view.keepers(junction, *stripe)).collect();
        let keepers = keepers?;
        let held = self.held(cache, key, junction, &stripes, &keepers).await;
        let listed = stripes.iter().enumerate().zip(keepers).map(|((at, stripe), keepers)| {
            let copy = |node| {
                let percent = held.get(&node).and_then(|percents| percents.get(at)).copied();
                HeldCopy { node, percent }
            };
            StripeListing { range: stripe.range(key.size), copies: keepers.into_iter().map(copy).collect() }
        });
        Some(listed.collect())
    }

    /// What each keeper has of each stripe. Those that do not answer are left out.
    async fn held(
        &self,
        cache: &Arc<Cache>,
        key: &CacheKey,
        junction: JunctionId,
        stripes: &[Stripe],
        keepers: &[Vec<NodeId>],
    ) -> BTreeMap<NodeId, Vec<u8>> {
        let nodes: BTreeSet<NodeId> = keepers.iter().flatten().copied().collect();
        let mut held = BTreeMap::new();
        let mut asked = JoinSet::new();
        for node in nodes {
            if node == self.view.own() {
                let blocks = cache.held_blocks(key, 0..stripes.len() as u64).await;
                let blocks = blocks.into_iter().map(|words| StripeBlocks::from_words(words).count());
                let percents =
                    stripes.iter().zip(blocks).map(|(at, held)| percent_of(held, at.index, key.size));
                held.insert(node, percents.collect());
                continue;
            }
            let Some(client) = self.peers.client(node) else { continue };
            let (file, version, size) = (key.file, key.version, key.size);
            let stripes = stripes.len() as u64;
            let request = HaveRequest { file, version, size, junction: Some(junction), first: 0, stripes };
            asked.spawn(async move { (node, client.have(&request, PATIENCE).await) });
        }
        while let Some(answer) = asked.join_next().await {
            if let Ok((node, Ok(answer))) = answer {
                held.insert(node, answer.percent);
            }
        }
        held
    }
}
