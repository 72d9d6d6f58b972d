//! One node of a cluster: its clients' reads are answered by the nodes that keep the bytes, and it answers theirs.
//!
//! The cast:
//! - [`ClusterView`] (`view.rs`): the map in force, who answers, and so the [`ReadRoute`] of each read.
//! - [`Placed`] (`placed.rs`): a junction's origin whose bytes take that route. The gateway stack above it knows no cluster.
//! - [`ClusterReads`] (`reads.rs`): goes along a route, from node to node and last of all to the origin.
//! - [`NodeService`] (`service.rs`): answers the other nodes' calls, through the same cache.
//! - [`PeerTable`] (`peers.rs`): calls to the other nodes, and heartbeats.
//!
//! The way of a read that finds nothing here: cache, [`Placed`], route. A node that keeps no copy asks one that does, which asks
//! the stripe's primary, which alone asks the origin; each keeps what passes through it. Where a node does not answer, the next
//! one in the order of ranks takes its place, and where none does, the origin is asked around them.
//!
//! Invariants: a read waits for nodes of a smaller rank only (`types::Supplier`), so no two wait for each other. Bytes are checked
//! before they are kept. What a node says of the file or of the origin is the answer; only a node that cannot be asked is passed
//! over. Begin with `view.rs`.

mod metrics;
mod peers;
mod placed;
mod reads;
mod service;
mod view;

pub use metrics::{FromLabels, Metrics, ReadFrom};
pub use peers::PeerTable;
pub use placed::Placed;
pub use reads::{AskedAs, ClusterReads};
pub use service::{NodeService, ServedJunctions};
pub use view::{ClusterView, JunctionPlacement, ReadRoute};
