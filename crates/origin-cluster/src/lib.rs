//! A cluster of tiers as an `Origin`, for a client that is none of its nodes: it knows the map, and reads each stripe from a node
//! that keeps it.
//!
//! The cast:
//! - [`ClusterUrl`] (`url.rs`, `kind.rs`): `forebay://a,b,c/show`.
//! - [`ClusterOrigin`] (`origin.rs`) implements `Origin`: names and changes go to one node, its *home*, bytes to the nodes that
//!   keep them (`reads.rs`); `start.rs` is how it begins.
//! - `route.rs` (pure): from the map, a file and an offset to the nodes to ask, in order; and which node is the home.
//! - `client_view.rs`: a `ClientView` is the map as a node told it, with what this machine makes of it: which nodes are here, and
//!   the links to all of them.
//! - `node_link.rs`: a `NodeLink` is the way to one address of a node: an `NfsOrigin` that is connected when it is first used, what
//!   is under way there, and whether the node lives.
//! - `map_call.rs` asks a node for the map; `refresh.rs` does so every few seconds, and when a node fails.
//!
//! The way of a read: its handle tells the file, the offset the stripe, and the map the nodes that keep it. It is sent over the link
//! of the first of these with the fewest bytes under way. One that refuses the connection, or is silent and does not answer a
//! call that any server answers at once, is left for some seconds, and the next one is asked.
//!
//! Invariants: a read's answer is of the version that was asked for, whatever node it comes from; what a node refuses that is not
//! the home is asked of the home, whose word counts. A change is sent to another node only if it is certain that it was not made,
//! or if making it twice is the same as once. A map of another cluster is not taken.
//!
//! Begin with `route.rs`, then `reads.rs`.

mod client_view;
mod kind;
mod map_call;
mod node_link;
mod origin;
mod reads;
mod refresh;
mod route;
mod start;
mod url;

pub use kind::KIND;
pub use origin::ClusterOrigin;
pub use url::{ClusterUrl, NamedHost};
