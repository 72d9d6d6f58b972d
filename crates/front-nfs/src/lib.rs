//! NFSv3 and MOUNT v3 over TCP, in front of `vfs`.
//!
//! Decodes, checks handle and export, calls one function of `vfs`, encodes. Knows nothing of caches and origins.
//! Start with `connection.rs` (how calls become answers, many at a time), then `dispatch.rs`, then any file of
//! `procs/`. What is different for calls that change something: `changing.rs`.

mod attr;
mod budget;
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

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vfs::{Lend, Vfs};

pub use exports::{ExportRules, Network, Rule, Squash};
pub use listener::NfsServer;
pub use rpcbind::Registration;

use budget::Budget;
use changing::Changes;
use handle::HandleCodec;
use metrics::Metrics;
use mount::MountList;

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
    /// Connections at the same time; more wait to be accepted.
    pub connections_max: usize,
    /// Calls of one connection at the same time; above it the connection is not read (back-pressure).
    pub calls_per_connection: usize,
    /// Bytes of READ answers in memory, over all connections.
    pub reply_bytes_max: usize,
    /// Bytes of calls larger than 4 KiB (WRITE) in memory, over all connections. Above it they stay at the clients.
    pub call_bytes_max: usize,
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
            calls_per_connection: 64,
            reply_bytes_max: 64 << 20,
            // A quarter, that of one connection, is 1 Gbit/s for a round trip of 250 ms.
            call_bytes_max: 128 << 20,
            idle_timeout: Duration::from_secs(30 * 60),
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
    /// Of READ answers.
    reply_budget: Budget,
    /// Of large calls.
    call_budget: Budget,
    changes: Changes,
}
