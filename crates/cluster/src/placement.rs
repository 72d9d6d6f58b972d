//! Which nodes keep a stripe, and whom to ask for it: weighted rendezvous over stripes.
//!
//! Every node has a score for every stripe, `-weight / ln(x)`, where `x` is a hash of file, stripe and node as a
//! fraction of 0 to 1; the node with the largest score is the stripe's primary, rank 0. So a node's share of the
//! primaries is its share of the weights, and since no score depends on other nodes, a node that joins takes stripes
//! for itself and one that leaves gives its own away, and nothing else moves. What is compared here is the inverse,
//! `-ln(x) / weight`, of which the smallest wins, by multiplying crosswise, so that nothing is rounded after the
//! logarithm.
//!
//! Ranks after the first skip labels that were used already while there are others. A node's *round* says how many
//! nodes of its label are before it; ranks are sorted by round, and within a round by score. With two labels and four
//! copies each label has two.

use std::cmp::Ordering;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use types::NodeId;

use crate::label::NodeLabel;
use crate::logarithm::minus_ln;
use crate::map::{ClusterMap, NodeState};
use crate::stripe::Stripe;

/// Of SipHash-1-3 (the bytes of "forebay!" and "stripes!"). Ranks have to be equal everywhere; they are no secret.
const HASH_KEYS: (u64, u64) = (0x666f_7265_6261_7921, 0x7374_7269_7065_7321);

/// How many ranks after those that keep a stripe are asked when none of those answers.
const SUBSTITUTES: usize = 2;

/// A map as one junction sees it: the nodes among which its stripes are placed.
#[derive(Clone, Debug)]
pub struct Placement {
    map: Arc<ClusterMap>,
    /// Sorted by id.
    placed: Vec<PlacedNode>,
    /// How many labels the map has at most.
    domains: usize,
}

/// A node that stripes are placed on.
#[derive(Clone, Copy, Debug)]
struct PlacedNode {
    node: NodeId,
    weight: u64,
    /// Stands for its label; see `ClusterMap::with_domains`.
    domain: u32,
    draining: bool,
}

/// A node with its score for one stripe.
#[derive(Clone, Copy)]
struct Scored {
    placed: PlacedNode,
    /// `-ln` of the hash as a fraction, in the units of `logarithm.rs`.
    minus_ln: u64,
    round: u32,
}

impl Scored {
    fn new(placed: &PlacedNode, stripe: Stripe) -> Scored {
        Scored { placed: *placed, minus_ln: minus_ln(hash(stripe, placed.node)), round: 0 }
    }

    /// `Less` is the better one. Never `Equal` for different nodes.
    fn compare(&self, other: &Scored) -> Ordering {
        // -ln(x) / weight of both, times both weights.
        let own = u128::from(self.minus_ln) * u128::from(other.placed.weight);
        let others = u128::from(other.minus_ln) * u128::from(self.placed.weight);
        own.cmp(&others).then(self.placed.node.cmp(&other.placed.node))
    }
}

/// The same on every machine: the bytes are laid out here, and not by the machine's byte order.
fn hash(stripe: Stripe, node: NodeId) -> u64 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&stripe.file.0);
    bytes[16..24].copy_from_slice(&stripe.index.to_le_bytes());
    bytes[24..].copy_from_slice(&node.0.to_le_bytes());
    SipHasher13::new_with_keys(HASH_KEYS.0, HASH_KEYS.1).hash(&bytes)
}

/// Brings nodes that are sorted by score into the order of ranks.
fn by_rounds(scored: &mut [Scored], domains: usize) {
    let mut before = vec![0; domains];
    for one in scored.iter_mut() {
        let before = &mut before[one.placed.domain as usize];
        one.round = *before;
        *before += 1;
    }
    // Keeps the order within a round.
    scored.sort_by_key(|one| one.round);
}

impl Placement {
    /// Of a junction that is bound to `topology`: only nodes with a label within it have ranks. [`NodeLabel::root`] binds
    /// it to nothing. Where no node is within it, stripes have no ranks: bytes are read from the origin by whoever
    /// needs them.
    pub fn new(map: Arc<ClusterMap>, topology: &NodeLabel) -> Placement {
        let keepers =
            map.with_domains().filter(|(node, _)| node.is_placed() && node.label.is_within(topology));
        let placed: Vec<PlacedNode> = keepers
            .map(|(node, domain)| PlacedNode {
                node: node.id,
                weight: node.weight,
                domain,
                draining: node.state == NodeState::Draining,
            })
            .collect();
        let domains = placed.iter().map(|placed| placed.domain as usize + 1).max().unwrap_or(0);
        Placement { map, placed, domains }
    }

    pub fn map(&self) -> &Arc<ClusterMap> {
        &self.map
    }

    /// The order of all nodes for this stripe.
    pub fn ranks(&self, stripe: Stripe) -> StripeRanks {
        let mut scored: Vec<Scored> = self.placed.iter().map(|placed| Scored::new(placed, stripe)).collect();
        scored.sort_unstable_by(Scored::compare);
        let mut leaving = Vec::new();
        if scored.iter().any(|one| one.placed.draining) {
            // The ranks as they were before any of them began to drain.
            let mut before = scored.clone();
            by_rounds(&mut before, self.domains);
            let ranked = before.iter().enumerate().filter(|(_, one)| one.placed.draining);
            leaving = ranked.map(|(rank, one)| LeavingRank { node: one.placed.node, rank }).collect();
            scored.retain(|one| !one.placed.draining);
        }
        by_rounds(&mut scored, self.domains);
        let nodes = scored.iter().map(|one| one.placed.node).collect();
        StripeRanks { nodes, leaving }
    }

    /// As [`StripeRanks::primary`], for less.
    pub fn primary(&self, stripe: Stripe) -> Option<NodeId> {
        let best = |draining: bool| {
            let placed = self.placed.iter().filter(|placed| placed.draining == draining);
            placed.map(|placed| Scored::new(placed, stripe)).min_by(Scored::compare)
        };
        best(false).or_else(|| best(true)).map(|one| one.placed.node)
    }

    /// As [`StripeRanks::keeps`], for less: among many nodes most of those that do not keep the stripe are told by the
    /// scores of a few others.
    pub fn keeps(&self, stripe: Stripe, node: NodeId, copies: usize) -> bool {
        let own =
            self.placed.binary_search_by_key(&node, |placed| placed.node).ok().map(|at| self.placed[at]);
        let Some(own) = own.filter(|own| !own.draining && copies > 0) else { return false };
        let own_score = Scored::new(&own, stripe);
        let mut better_domains: Vec<u32> = Vec::new();
        for placed in self.placed.iter().filter(|placed| !placed.draining && placed.node != node) {
            if better_domains.contains(&placed.domain)
                || Scored::new(placed, stripe).compare(&own_score).is_gt()
            {
                continue;
            }
            better_domains.push(placed.domain);
            // The best of each of these labels is of the first round, and before this node.
            if better_domains.len() == copies {
                return false;
            }
        }
        // If it is the best of its label, those of the other labels are all that is before it.
        !better_domains.contains(&own.domain) || self.ranks(stripe).keeps(node, copies)
    }

    /// Whom a gateway asks for bytes of a stripe, one after the other until one of them answers with the bytes: itself
    /// if it keeps the stripe, then those that keep it and have the gateway's own label, then the others that keep it,
    /// then those that kept it before they began to drain, then the next two ranks. After them there is the origin.
    ///
    /// `own` is `None` for a gateway that is no node (a client that knows the map). Nodes that are not `reachable` are
    /// left out. Within one [`Nearness`] the order is that of ranks; callers may sort those of [`Nearness::SameLabel`]
    /// and [`Nearness::Elsewhere`] by what they know of their load, and leave the [`Nearness::Substitute`]s as they
    /// are, so that all gateways come to the same one.
    pub fn ask_order(
        &self,
        ranks: &StripeRanks,
        copies: usize,
        own: Option<NodeId>,
        label: &NodeLabel,
        reachable: impl Fn(NodeId) -> bool,
    ) -> Vec<AskTarget> {
        let nearness = |node: NodeId| match self.map.node(node) {
            _ if own == Some(node) => Nearness::Itself,
            Some(known) if known.label == *label => Nearness::SameLabel,
            _ => Nearness::Elsewhere,
        };
        let keepers = ranks.keepers(copies);
        let target = |node: NodeId| AskTarget { node, nearness: nearness(node) };
        let mut order: Vec<_> = keepers.iter().copied().filter(|node| reachable(*node)).map(target).collect();
        order.sort_by_key(|target| target.nearness);
        let rest = ranks.nodes[keepers.len()..].iter().copied();
        // What this gateway has itself it need not ask for.
        let leaving = ranks.leaving(copies).filter(|node| own != Some(*node));
        let leaving = leaving.map(|node| (node, Nearness::Leaving));
        let reachable_rest = rest.filter(|node| reachable(*node)).take(SUBSTITUTES);
        let substitutes = reachable_rest.map(|node| (node, Nearness::Substitute));
        let after = leaving.filter(|(node, _)| reachable(*node)).chain(substitutes);
        order.extend(after.map(|(node, nearness)| AskTarget { node, nearness }));
        order
    }
}

/// How near a node is to the gateway that asks it, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Nearness {
    /// It is the gateway, and keeps the stripe.
    Itself,
    /// It keeps the stripe, and has the gateway's label.
    SameLabel,
    /// It keeps the stripe.
    Elsewhere,
    /// It is draining, and kept the stripe before.
    Leaving,
    /// It does not keep the stripe, and gets it where those that do cannot be reached.
    Substitute,
}

/// A node that may be asked for a stripe. It may be the asking gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskTarget {
    pub node: NodeId,
    pub nearness: Nearness,
}

/// The nodes of a stripe in order. They are good for as long as the map is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeRanks {
    nodes: Vec<NodeId>,
    leaving: Vec<LeavingRank>,
}

/// A draining node, with the rank that it had before any node began to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeavingRank {
    node: NodeId,
    rank: usize,
}

impl StripeRanks {
    /// Rank 0, which alone asks the origin. Where all nodes drain, it is one of them; it keeps nothing.
    pub fn primary(&self) -> Option<NodeId> {
        self.primary_among(|_| true)
    }

    /// The primary where ranks count among the nodes that are `reachable`.
    pub fn primary_among(&self, reachable: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        self.all().find(|node| reachable(*node))
    }

    /// The nodes that keep the stripe: the first `copies` ranks, or as many as there are.
    pub fn keepers(&self, copies: usize) -> &[NodeId] {
        &self.nodes[..copies.min(self.nodes.len())]
    }

    pub fn keeps(&self, node: NodeId, copies: usize) -> bool {
        self.keepers(copies).contains(&node)
    }

    /// The draining nodes that kept the stripe before.
    pub fn leaving(&self, copies: usize) -> impl Iterator<Item = NodeId> {
        self.leaving.iter().take_while(move |leaving| leaving.rank < copies).map(|leaving| leaving.node)
    }

    /// 0 for the primary. A draining node has none.
    pub fn rank_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|ranked| *ranked == node)
    }

    /// All nodes in order; those that drain come after all others.
    pub fn all(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied().chain(self.leaving.iter().map(|leaving| leaving.node))
    }
}

#[cfg(test)]
mod tests;
