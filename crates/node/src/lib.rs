//! One node of a cluster: its clients' reads are answered by the nodes that keep the bytes, and it answers theirs.
//!
//! The cast:
//! - [`ClusterView`] (`view.rs`): the map in force, who answers, and so the [`ReadRoute`] of each read.
//! - [`FileCopies`] (`file_copies.rs`): how many copies are wanted of which file, where rules say another number than the junction.
//! - `hot_stripes.rs` (pure): which stripes are read so much that more nodes serve them for a while.
//! - [`Placed`] (`placed.rs`): a junction's origin whose bytes take that route. The gateway stack above it knows no cluster.
//! - [`ClusterReads`] (`reads.rs`): goes along a route, from node to node and last of all to the origin.
//! - [`NodeService`] (`service.rs`): answers the other nodes' calls, through the same cache.
//! - [`PeerTable`] (`peers.rs`): calls to the other nodes, and heartbeats.
//! - [`PathFinder`] (`paths.rs`): asks the others for the names of a file that this node does not know.
//! - [`StripeListing`] (`listing.rs`): where a file lies, for operators.
//! - [`NoticeSender`] (`notices.rs`): tells the other nodes which files this one changed; what they tell goes to a [`NoticeTaker`].
//! - [`CopyKeeper`] (`copies.rs`): makes copies of stripes, makes them again after a loss, and counts them.
//!
//! The way of a read that finds nothing here: cache, [`Placed`], route. A node that keeps no copy asks one that does, which asks
//! the stripe's primary, which alone asks the origin. These two keep the bytes; the gateway has them as guests (`cache`). Where a node does not
//! answer, the next one on the route is asked: the others that keep the stripe, then the two ranks after them. Where none of these answers, this
//! node asks the origin itself, around them.
//!
//! What all of this is worth while nodes, links, disks and the coordinator fail is shown by seeded faults and planted bugs: the tests in
//! `faults.rs`; the bugs are in `sabotage.rs`.
//!
//! Invariants: a READ as rank waits only for smaller ranks and the origin, one as primary only for holders and the origin, one as
//! holder for nobody (`types::Supplier`), so no two wait for each other. Bytes are checked before they are kept. Only
//! `VersionChanged` from a node ends a read; after any other error the next node on the route is asked, and the origin last. Nodes
//! that are not in the map get no bytes. Begin with `view.rs`.

// What the cache calls a stripe is what is placed.
const _: () = assert!(cache::STRIPE_BYTES == cluster::STRIPE_BYTES);

mod copies;
#[cfg(test)]
mod faults;
mod file_copies;
mod hot_stripes;
mod listing;
mod metrics;
mod notices;
mod paths;
mod peers;
mod placed;
mod reads;
mod sabotage;
mod service;
mod view;

pub use copies::{CopyConfig, CopyKeeper, CopyProgress, UnderReplicated};
pub use file_copies::{CopyRuleFinder, FileCopies};
pub use hot_stripes::HeatConfig;
pub use listing::{HeldCopy, StripeListing};
pub use metrics::{CopiesLabels, FromLabels, Metrics, ReadFrom};
pub use notices::{NoticeSender, NoticeTaker};
pub use paths::{KnownPaths, PathFinder};
pub use peers::PeerTable;
pub use placed::Placed;
pub use reads::{AskedAs, ClusterReads};
pub use service::{NodeService, ServedJunctions};
pub use view::{ClusterView, JunctionPlacement, ReadRoute, ToldFigures};
