//! Where the stripes of files lie on the nodes of a cluster. Pure: no I/O, no clock, no runtime, no floating point.
//!
//! The cast:
//! - [`ClusterMap`] (`map.rs`): the nodes that count for placement, as [`MapNode`]s in a [`NodeState`], and the number
//!   that orders maps. It is read from JSON and written as JSON.
//! - [`ClientMap`] (`client_map.rs`): the map with what a client that reads from the nodes has to know besides.
//! - [`NodeLabel`] (`label.rs`): the failure domains that a node is in, `/dc1/rack2`.
//! - [`Stripe`] (`stripe.rs`): 64 MiB of a file, the unit of placement.
//! - [`Placement`] (`placement.rs`): a map as one junction sees it, which may be bound to a part of the labels. It
//!   answers with the [`StripeRanks`] of a stripe, and with the [`AskTarget`]s of a gateway.
//! - [`MapHistory`] (`map_history.rs`): the map in force and those shortly before it, of whose primaries a primary
//!   asks before it asks the origin.
//! - `logarithm.rs`: the fixed-point logarithm of the scores.
//!
//! The way of the data: nodes become a [`ClusterMap`], which a node gives to its [`MapHistory`]. For each junction and
//! map there is one [`Placement`]; for a read, the offset gives a [`Stripe`], the placement its [`StripeRanks`]
//! (callers may keep them for as long as the map stays), and [`Placement::ask_order`] whom to ask for the bytes.
//!
//! Invariants:
//! - Nodes with the same map compute the same ranks, whatever build and machine they run on. All arithmetic is of
//!   integers; `tests/ranks.txt` holds ranks that no build may change.
//! - A node that joins takes its share of the stripes and moves nothing else; a node that leaves gives its stripes to
//!   the next ranks and moves nothing else.
//! - A node is at most once among the ranks of a stripe. No two of the first ranks have the same label while there is a
//!   node of another one.
//! - Ranks depend on the file and not on its version: a new version lies where the old one does.
//! - Bytes from a disk or a wire give a map or an error, never a panic.
//!
//! Begin with `placement.rs`. `cargo run -p cluster --example scale` prints what it does with up to 1,000 nodes.

mod client_map;
mod label;
mod logarithm;
mod map;
mod map_history;
mod placement;
mod stripe;

pub use client_map::{CLIENT_MAP_BYTES_MAX, ClientJunction, ClientMap, JunctionSpread};
pub use label::NodeLabel;
pub use map::{ADDRESSES_MAX, ClusterMap, MAP_BYTES_MAX, MapNode, NODES_MAX, NodeState};
pub use map_history::{FORMER_MAPS_MAX, FORMER_MAPS_TIME, MapHistory};
pub use placement::{AskTarget, Nearness, Placement, StripeRanks};
pub use stripe::{STRIPE_BYTES, Stripe};
