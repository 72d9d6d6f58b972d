//! NFSv3 and MOUNT v3 over TCP, in front of `vfs`.
//!
//! Decodes, checks handle and export, calls one function of `vfs`, encodes. Knows nothing of caches and origins.
//! Start with `connection.rs` (how calls become answers, many at a time), then `dispatch.rs`, then any file of
//! `procs/`. What is different for calls that change something: `changing.rs`.

mod attr;
mod changing;
mod connection;
mod dispatch;
mod duplicates;
mod errors;
pub mod exports;
pub mod handle;
mod listener;
mod metrics;
mod mount;
mod procs;
mod rpcbind;
mod send;
mod shown;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fair::{ConnectionSlots, SharedBudgets};
use vfs::{Lend, Vfs};

pub use exports::{ExportRules, Network, Rule, Squash};
pub use listener::NfsServer;
pub use rpcbind::Registration;

use changing::Changes;
use handle::HandleCodec;
use metrics::Metrics;
use mount::MountList;

/// How this front is called in metrics and logs.
const FRONT: &str = "nfs";

/// Most bytes of one READ. What Linux clients ask for at most.
pub const READ_MAX: u32 = 1 << 20;
/// Most bytes of one WRITE. What Linux clients send at most.
pub const WRITE_MAX: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    /// Address for NFS and MOUNT.
    pub listen: SocketAddr,
    /// Secret under which handles are signed. Keep it over restarts, or handles go stale.
    pub handle_key: [u8; 16],
    pub exports: ExportRules,
    /// Connections at the same time. When they run out, the least active one of who has most is closed for a new one.
    pub connections_max: usize,
    /// Of one client.
    pub connections_per_client: usize,
    /// Of clients that no export rule admits: each has one answer, which says so.
    pub strangers_max: usize,
    /// Calls of one connection at the same time; above it the connection is not read (back-pressure).
    pub calls_per_connection: usize,
    /// Bytes of answers (READ, READDIR, DUMP) and of calls larger than 4 KiB (WRITE) in memory, over all fronts. Above
    /// it calls stay at the clients.
    pub shared_budgets: SharedBudgets,
    /// A connection without calls is closed after this. Clients connect again by themselves.
    pub idle_timeout: Duration,
    /// A call that began to arrive must be complete, and a reply be taken, within this.
    pub stall_timeout: Duration,
    /// A call that takes longer, and changes nothing, is answered "try again later" (JUKEBOX) while the work goes
    /// on. Below the 60 s after which Linux clients send a call again.
    pub call_deadline: Duration,
    /// Which READ answers the kernel sends from the cached file itself, instead of a copy of it in our memory.
    pub lend: Lend,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 2049)),
            handle_key: [0; 16],
            exports: ExportRules::default(),
            connections_max: 4096,
            connections_per_client: 1024,
            strangers_max: 64,
            calls_per_connection: 64,
            shared_budgets: SharedBudgets::default(),
            // Linux clients close theirs after 5 minutes.
            idle_timeout: Duration::from_secs(10 * 60),
            stall_timeout: Duration::from_secs(30),
            call_deadline: Duration::from_secs(12),
            // Measured: docs/benchmarks.md, "Copied or lent".
            lend: Lend::From(64 << 10),
        }
    }
}

/// What all connections share.
struct Shared {
    vfs: Arc<Vfs>,
    config: Config,
    handles: HandleCodec,
    mounts: MountList,
    metrics: Metrics,
    slots: Arc<ConnectionSlots>,
    changes: Changes,
}
