//! What one node of a cluster says to another: HTTP/1.1 over mutual TLS, so that curl, tcpdump and any engineer understand
//! it. This crate knows no cache and no cluster; what answers is behind the trait [`PeerService`].
//!
//! The cast:
//! - `authority.rs`, `identity.rs`, `peer_name.rs`: [`ClusterAuthority`] issues a [`NodeCertificate`] to each node; with it
//!   a [`PeerIdentity`] proves who it is, and knows others by what theirs say. [`NodeToken`] (`node_token.rs`) is the file in which
//!   a node is given it, with the [`ClusterSecret`] that all nodes share.
//! - [`message`] (pure): calls and answers, and their form in HTTP.
//! - [`PeerServer`] (`server.rs`) listens; `inbound.rs` is one connection of another node, `admission.rs` what one node may
//!   have of this one, `answering.rs` one call; [`PeerService`] (`service.rs`) is what the cluster implements.
//! - [`PeerClient`] (`client.rs`) calls one node over all of its addresses; `path.rs` (pure) chooses the path, `pool.rs`
//!   keeps its connections, `outbound.rs` is one of them, `interfaces.rs` finds our own addresses.
//! - `lane.rs`: which calls share connections and places. [`Liveness`] (`liveness.rs`, pure): who is passed over.
//!
//! The way of a READ: [`PeerClient::read`] takes the path with the fewest bytes outstanding, and a connection of the lane of
//! its role; there the head is decoded, a place among the calls and room in the budget of the role are taken, and the
//! service gives the bytes with a checksum for each block; here each block is checked before the caller gets any.
//!
//! Invariants: a peer is known by its certificate, never by what it claims. What arrives is bounded before it is read. One
//! node takes neither all connections nor all bytes. A READ as rank may wait for one as primary, never the other way round,
//! and they share nothing that runs out. Each call may be repeated without a difference. Begin with `message/read.rs`.

mod admission;
mod answering;
mod authority;
mod client;
mod client_config;
mod cluster_secret;
mod identity;
mod inbound;
mod interfaces;
mod lane;
mod liveness;
pub mod message;
mod node_token;
mod outbound;
mod path;
mod peer_name;
mod pool;
mod private_file;
mod server;
mod server_config;
mod service;

pub use authority::{ClusterAuthority, NodeCertificate, Validity, make_authority};
pub use client::{CheckedBytes, HeartbeatSource, PeerClient};
pub use client_config::PeerClientConfig;
pub use cluster_secret::ClusterSecret;
pub use identity::PeerIdentity;
pub use interfaces::local_addresses;
pub use liveness::{HEARTBEAT, IncarnationSeen, Liveness, MISSED_MAX};
pub use node_token::NodeToken;
pub use path::{LEFT_FOR, LocalAddress, PathId, PathReport, PathTable, PeerPath, paths_between};
pub use peer_name::PeerName;
pub use server::PeerServer;
pub use server_config::PeerServerConfig;
pub use service::{PeerCaller, PeerService, ReadAnswer};

/// The version of the wire that the nodes of this build speak.
pub const WIRE: u32 = 1;
