//! NFSv3 and MOUNT v3 over TCP in front of `vfs`: decode a call, check handle and export, call one function of
//! `vfs`, encode the reply. This crate knows nothing of caches and origins.
//!
//! The cast, in the order in which a call meets it:
//! - [`NfsServer`] (`listener.rs`) accepts connections; [`ExportRules`] (`exports.rs`) say which client may use
//!   which junction, and as whom.
//! - `connection.rs` reads calls from one connection, many at a time, each under a permit.
//! - `dispatch.rs` decodes the RPC header into an `NfsCall` (`call.rs`). MOUNT is `mount.rs`, and the map
//!   of a cluster, which a [`MapSource`] makes, `cluster_map.rs`. `message.rs` has what passes
//!   between these.
//! - `retention.rs` says which procedures change something, and how long their calls are remembered.
//! - A change goes through `change_calls.rs`: it runs to its end in a task of its own. The duplicate
//!   request cache (`duplicate_cache.rs`) recognizes repeated ones.
//! - `execute.rs` runs the procedure, in `procs/` (a file for each, or for a few small ones of a kind), under a deadline.
//! - [`HandleCodec`] (`handle.rs`) turns file ids into signed file handles and back; `visible_directories.rs` hides
//!   directories that lead only to junctions of others.
//! - `reply_writer.rs` sends the replies as they are ready, cached bytes without a copy (crate `send`).
//! - `errors.rs` maps error kinds to nfsstat3, in one place.
//!
//! Invariants: no call is carried out for a client that no export rule admits; a handle cannot be guessed. A change
//! is made once, however often its call arrives, as long as it is remembered. A call that takes too long is answered
//! JUKEBOX, but never a change. Calls, replies and their memory are bounded, and what is above the bound stays in
//! the client's socket.
//!
//! Begin with `connection.rs`, then `dispatch.rs`, then any file of `procs/`.

mod attr;
mod call;
mod change_calls;
mod cluster_map;
mod connection;
mod dispatch;
mod duplicate_cache;
mod errors;
mod execute;
pub mod exports;
pub mod handle;
mod listener;
mod message;
mod metrics;
mod mount;
mod procs;
mod reply_writer;
mod retention;
mod rpcbind;
mod visible_directories;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fair::{ConnectionSlots, SharedBudgets};
use vfs::{Lend, Vfs};

pub use cluster_map::{MapSource, MappedJunction};
pub use exports::{ExportRule, ExportRules, Network, Squash};
pub use listener::{NfsPort, NfsServer};
pub use rpcbind::Registration;

use change_calls::ChangeTracker;
use handle::HandleCodec;
use metrics::Metrics;
use mount::MountList;

/// This front's name in metrics and logs.
const FRONT: &str = "nfs";

/// The most bytes of one READ, which is the most that Linux clients ask for.
pub const READ_MAX: u32 = 1 << 20;
/// The most bytes of one WRITE, which is the most that Linux clients send.
pub const WRITE_MAX: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    /// The address for NFS and MOUNT.
    pub listen: SocketAddr,
    /// The secret that signs file handles. It must survive restarts, or all handles go stale.
    pub handle_key: [u8; 16],
    /// Of a node of a cluster, whose nodes share `handle_key`: the secret for junctions whose ids mean something here alone.
    pub own_handle_key: Option<[u8; 16]>,
    pub exports: ExportRules,
    /// Of a node of a cluster: the map for clients that read from its nodes.
    pub map: Option<Arc<dyn MapSource>>,
    /// The most connections at the same time. When all slots are taken, the least active connection of the client
    /// with the most connections is closed for a new one.
    pub connections_max: usize,
    /// The most connections of one client.
    pub connections_per_client: usize,
    /// The most connections of clients that no export rule admits; each gets one reply, which says so.
    pub strangers_max: usize,
    /// The most calls of one connection at the same time; above it the connection is not read (back-pressure).
    pub calls_per_connection: usize,
    /// The memory budgets for replies (READ, READDIR, DUMP) and for calls larger than 4 KiB (WRITE), shared with all
    /// fronts. When they are used up, calls stay at the clients.
    pub shared_budgets: SharedBudgets,
    /// A connection without calls is closed after this time. Clients connect again by themselves.
    pub idle_timeout: Duration,
    /// A call that began to arrive must be complete, and a reply must be taken, within this time.
    pub stall_timeout: Duration,
    /// A call that takes longer and changes nothing is answered JUKEBOX ("try again later") while the work goes on.
    /// Below the 60 s after which Linux clients repeat a call.
    pub call_deadline: Duration,
    /// Which READ replies the kernel sends from the cached file, instead of a copy in memory.
    pub lend: Lend,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 2049)),
            handle_key: [0; 16],
            own_handle_key: None,
            exports: ExportRules::default(),
            map: None,
            connections_max: 4096,
            connections_per_client: 1024,
            strangers_max: 64,
            calls_per_connection: 64,
            shared_budgets: SharedBudgets::default(),
            // Linux clients close idle connections after 5 minutes.
            idle_timeout: Duration::from_secs(10 * 60),
            stall_timeout: Duration::from_secs(30),
            call_deadline: Duration::from_secs(12),
            // Measured: docs/benchmarks.md, "Copied or lent".
            lend: Lend::From(64 << 10),
        }
    }
}

/// The state that all connections share.
struct NfsState {
    vfs: Arc<Vfs>,
    config: Config,
    handles: HandleCodec,
    mounts: MountList,
    metrics: Metrics,
    slots: Arc<ConnectionSlots>,
    changes: ChangeTracker,
}
