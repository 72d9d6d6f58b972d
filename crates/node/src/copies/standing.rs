//! How many copies of a stripe there are, who lacks what, and whose affair that is. Pure: answers of nodes in, a [`Standing`] out.
//!
//! A node looks at each stripe that it holds some of. What it holds and a node that keeps the stripe lacks is missing there. So that
//! not all who hold a stripe count it and tell of it, the first of them in the order of ranks does: a node that keeps the stripe
//! leaves it to a node before it that has all that it has itself, and a node that does not keep it leaves it to any that does.

use peer::message::{FeedReason, OtherVersion, StripeBlocks};
use types::NodeId;

/// What another node said of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// It is passed over: it does not answer heartbeats.
    Silent,
    /// It answers heartbeats, and did not answer this question.
    Unknown,
    Held {
        blocks: StripeBlocks,
        has_room: bool,
        other: OtherVersion,
    },
}

/// A stripe as this node holds it.
#[derive(Clone, Debug)]
pub struct OwnCopy {
    pub node: NodeId,
    pub blocks: StripeBlocks,
    /// This version was asked for here since the node was started.
    pub is_read: bool,
}

/// What of a stripe is missing at one of the nodes that are to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    pub node: Option<NodeId>,
    pub blocks: u64,
    pub why: LackReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackReason {
    /// The node does not answer.
    Silent,
    /// There are fewer nodes than copies are wanted.
    NoNode,
    /// It can be told, and copies what it lacks.
    Behind,
    /// Nobody knows whether it lacks anything.
    Unknown,
    /// Its cache is full of other bytes.
    NoRoom,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing of it is here, or only of a version that is not the file's any more.
    NotHeld,
    /// Another node counts it.
    Others,
    Ours {
        /// Nodes that keep the stripe and have all that is here.
        copies: usize,
        lacks: Vec<Lack>,
    },
}

/// The others among `keepers` (the nodes that keep the stripe, in the order of ranks), in the order in which they are asked; how
/// many of them this node leaves the stripe to.
pub fn asked(own: NodeId, keepers: &[NodeId]) -> (Vec<NodeId>, usize) {
    let before = keepers.iter().position(|node| *node == own).unwrap_or(keepers.len());
    (keepers.iter().copied().filter(|node| *node != own).collect(), before)
}

/// Whether a node that answered so has all of `blocks`.
pub fn has_all(answer: &NodeAnswer, blocks: &StripeBlocks) -> bool {
    matches!(answer, NodeAnswer::Held { blocks: theirs, .. } if blocks.without(theirs).is_empty())
}

/// `wanted` copies are wanted. `answer` says what each of the other keepers answered.
pub fn standing(
    own: &OwnCopy,
    keepers: &[NodeId],
    wanted: usize,
    answer: impl Fn(NodeId) -> NodeAnswer,
) -> Standing {
    if own.blocks.is_empty() {
        return Standing::NotHeld;
    }
    let (others, before) = asked(own.node, keepers);
    if others.iter().take(before).any(|node| has_all(&answer(*node), &own.blocks)) {
        return Standing::Others;
    }
    let all = own.blocks.count();
    let mut copies = usize::from(keepers.contains(&own.node));
    let mut lacks = Vec::new();
    for node in others {
        let mut lack = |blocks, why| lacks.push(Lack { node: Some(node), blocks, why });
        match answer(node) {
            NodeAnswer::Silent => lack(all, LackReason::Silent),
            NodeAnswer::Unknown => lack(all, LackReason::Unknown),
            NodeAnswer::Held { blocks, has_room, other } => match own.blocks.without(&blocks).count() {
                0 => copies += 1,
                // Which of two versions is the file's, its next reader finds out.
                _ if !replaces(own.is_read, other) => {}
                missing if has_room => lack(missing, LackReason::Behind),
                missing => lack(missing, LackReason::NoRoom),
            },
        }
    }
    for _ in keepers.len()..wanted {
        lacks.push(Lack { node: None, blocks: all, why: LackReason::NoNode });
    }
    Standing::Ours { copies, lacks }
}

/// Whether a version may take the place of another one of its file. Versions have no order: of one that was asked for since its node
/// was started and one that was not, the first is newer.
fn replaces(is_read: bool, other: OtherVersion) -> bool {
    match other {
        OtherVersion::None => true,
        OtherVersion::Held => is_read,
        OtherVersion::Read => false,
    }
}

/// Whether a stripe that was told for `reason` may take the place of what is here of other versions.
pub fn may_replace(reason: FeedReason, here: OtherVersion) -> bool {
    reason == FeedReason::Filled || replaces(reason == FeedReason::Read, here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn held(blocks: std::ops::Range<u64>) -> NodeAnswer {
        NodeAnswer::Held { blocks: StripeBlocks::of(blocks), has_room: true, other: OtherVersion::None }
    }

    fn at(node: u64, blocks: std::ops::Range<u64>, answers: &[(u64, NodeAnswer)]) -> Standing {
        let own = OwnCopy { node: NodeId(node), blocks: StripeBlocks::of(blocks), is_read: true };
        let answer = |node: NodeId| answers.iter().find(|(id, _)| *id == node.0).expect("it is asked").1;
        standing(&own, &KEEPERS, 3, answer)
    }

    fn lack(node: u64, blocks: u64, why: LackReason) -> Lack {
        Lack { node: Some(NodeId(node)), blocks, why }
    }

    #[test]
    fn the_first_that_has_all_counts_and_the_others_leave_it_to_that_one() {
        let whole = [(1, held(0..9)), (2, held(0..9)), (3, held(0..9))];
        assert_eq!(at(1, 0..9, &whole), Standing::Ours { copies: 3, lacks: vec![] });
        for other in [2, 3, 7] {
            assert_eq!(at(other, 0..9, &whole), Standing::Others, "node {other}");
        }
        assert_eq!(at(1, 0..0, &whole), Standing::NotHeld);
        // The primary has come back with nothing.
        let returned = [(1, held(0..0)), (2, held(0..9)), (3, held(0..4))];
        let lacks = vec![lack(1, 9, LackReason::Behind), lack(3, 5, LackReason::Behind)];
        assert_eq!(at(2, 0..9, &returned), Standing::Ours { copies: 1, lacks });
        assert_eq!(at(3, 0..4, &returned), Standing::Others);
    }

    #[test]
    fn who_keeps_no_copy_counts_only_what_no_keeper_has() {
        let none = [(1, held(0..0)), (2, held(0..3)), (3, NodeAnswer::Silent)];
        let lacks =
            [lack(1, 9, LackReason::Behind), lack(2, 6, LackReason::Behind), lack(3, 9, LackReason::Silent)];
        assert_eq!(at(7, 0..9, &none), Standing::Ours { copies: 0, lacks: lacks.to_vec() });
        assert_eq!(at(7, 0..3, &none), Standing::Others);
    }

    #[test]
    fn a_node_that_does_not_answer_has_no_copy_that_counts() {
        let answers = [(1, NodeAnswer::Silent), (2, NodeAnswer::Unknown), (3, held(0..9))];
        let lacks = vec![lack(2, 9, LackReason::Unknown)];
        let by_third =
            Standing::Ours { copies: 1, lacks: [vec![lack(1, 9, LackReason::Silent)], lacks].concat() };
        assert_eq!(at(3, 0..9, &answers), by_third);
    }

    #[test]
    fn copies_for_which_there_are_no_nodes_are_missing() {
        let own = OwnCopy { node: NodeId(1), blocks: StripeBlocks::of(0..4), is_read: false };
        let standing = standing(&own, &KEEPERS[..1], 3, |_| NodeAnswer::Unknown);
        let lacks = vec![Lack { node: None, blocks: 4, why: LackReason::NoNode }; 2];
        assert_eq!(standing, Standing::Ours { copies: 1, lacks });
    }

    #[test]
    fn a_full_cache_is_told_apart_and_of_two_versions_only_one_that_was_read_is_told() {
        let answer = |has_room, other| NodeAnswer::Held { blocks: StripeBlocks::default(), has_room, other };
        let lacks = |is_read, answer| {
            let own = OwnCopy { node: NodeId(1), blocks: StripeBlocks::of(0..4), is_read };
            match standing(&own, &KEEPERS[..2], 2, |_| answer) {
                Standing::Ours { lacks, .. } => lacks.iter().map(|lack| lack.why).collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(lacks(true, answer(false, OtherVersion::None)), [LackReason::NoRoom]);
        assert_eq!(lacks(false, answer(true, OtherVersion::None)), [LackReason::Behind]);
        assert_eq!(lacks(true, answer(true, OtherVersion::Held)), [LackReason::Behind]);
        assert_eq!(lacks(false, answer(true, OtherVersion::Held)), []);
        assert_eq!(lacks(true, answer(true, OtherVersion::Read)), []);
        assert!(may_replace(FeedReason::Filled, OtherVersion::Read));
        assert!(may_replace(FeedReason::Read, OtherVersion::Held));
        assert!(!may_replace(FeedReason::Held, OtherVersion::Held));
        assert!(!may_replace(FeedReason::Read, OtherVersion::Read));
    }
}
