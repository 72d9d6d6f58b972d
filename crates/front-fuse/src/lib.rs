//! The tree as a local file system, through the kernel's FUSE. This crate knows nothing of origins and of how the
//! cache works.
//!
//! The cast, in the order in which a request meets it:
//! - [`FuseMount`] (`mount.rs`, with `helper.rs` and `mountinfo.rs`) mounts the tree, replaces what a killed tier
//!   left, and unmounts.
//! - `dispatch.rs` takes requests from the kernel and answers them, at once or in a task; `FuseState` is what all
//!   of them share.
//! - `ops.rs` answers look-ups, attributes, reads and listings with one call of `vfs` each; `change.rs` changes of
//!   names and attributes; `write.rs` writes; `xattr.rs` extended attributes.
//! - `asker.rs`: who sent a request, and whether an answer to somebody else may be under way.
//! - `InodeTable` (`inodes.rs`, pure) knows what the kernel has: which version is behind which inode number, and
//!   how it is open. `open.rs` decides how: through us, or read by the kernel from the cached file (passthrough).
//! - `Orphans` (`orphans.rs`) are files that were removed while they are open; they live on under a hidden name.
//! - `refresh.rs` listens to changes of all but this front and asks about files being written; `Invalidations` tells the
//!   kernel to drop what it has.
//! - `wakefulness.rs` keeps the machine's processors awake while the mount is busy, if that is wanted.
//!
//! What the kernel may keep, and for how long, follows from the junction's freshness (`vfs.fresh_for`). Before that is over
//! it is told of changes: of those that others make by a notice, of those that it asked for by their answers, which say all
//! that is new or have it drop what is old.
//!
//! Invariants: an inode that is open as a snapshot shows one version until its last close. An inode's mode of
//! opening never changes while the kernel has it open, except to following. Pages are only of the version that the
//! table says. A change is never cut short by a deadline. No thread that answers requests sends invalidations.
//!
//! Permission is the kernel's to decide, by the mode bits that it was given (`default_permissions`): it knows all
//! groups of a process, while a request names one. So ACCESS is never sent. Setuid and setgid of a file that is written,
//! cut or given away are ours to end (`privilege.rs`). Advisory locks the kernel keeps to itself: they hold among the
//! processes of this mount.
//!
//! Begin with `inodes.rs`, then `open.rs`, then `write.rs` and `change.rs`, then `mount.rs`.

mod asker;
mod attr;
mod change;
mod dispatch;
mod errors;
mod helper;
mod inodes;
mod invalidations;
mod metrics;
mod mount;
mod mountinfo;
mod open;
mod ops;
mod orphans;
mod privilege;
mod refresh;
mod wakefulness;
mod write;
mod xattr;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use types::Caller;
use vfs::{ListenerMark, Node, Vfs};

pub use metrics::Metrics;
pub use mount::{FuseMount, check_mount_point};

use inodes::InodeTable;
use invalidations::Invalidations;
use open::{Backing, Passthrough};
use orphans::Orphans;

/// The most bytes of one READ or WRITE. The kernel's requests grow to this where its read-ahead, or the writer,
/// allows.
pub const READ_MAX: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    /// The mount point, an empty directory.
    pub mount_point: PathBuf,
    /// The source that `df` and `mount` show.
    pub source: String,
    /// Mounts read-write. Also true where nothing can be changed now: a writable junction may come while it is
    /// mounted.
    pub writable: bool,
    /// The threads that take requests from the kernel and answer what is in memory. Above a few they wait for each
    /// other in the kernel's queue.
    pub threads: usize,
    /// The most requests of its own (read-ahead) that the kernel has in flight; what processes wait for is not
    /// counted. Its default, 12, is one reader's worth.
    pub background_max: u16,
    /// The most bytes of READ answers in memory.
    pub reply_bytes_max: usize,
    /// The most bytes of WRITE requests in memory. Above it no request is taken from the kernel until some are done:
    /// it takes as many processes that write 1 MiB at once as there are MiB, while the origin takes nothing.
    pub write_bytes_max: usize,
    /// How long a request that the origin does not answer is retried before the system call fails with EIO.
    pub deadline: Duration,
    /// As `deadline`, for changes: a program that writes is rarely ready for an error, and its data is lost with it.
    pub change_deadline: Duration,
    /// A file that changed less than this ago is taken to be still written: its opens follow it, and it is not
    /// passed through. Longer than a writer usually pauses.
    pub writing_window: Duration,
    /// Lets the kernel read complete cached files by itself, where it can and this process may.
    pub passthrough: bool,
    /// How far the kernel reads ahead of a reader, in bytes; set where this process may. The kernel's default is 128
    /// KiB; eight times that makes requests of this size.
    pub kernel_readahead: u64,
    /// While requests come in quick succession no processor of this machine sleeps: each request is answered sooner, for power. Needs
    /// /dev/cpu_dma_latency.
    pub low_latency: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mount_point: PathBuf::from("."),
            source: "forebay".to_owned(),
            writable: false,
            threads: std::thread::available_parallelism().map_or(4, |many| many.get().clamp(4, 16)),
            background_max: 64,
            reply_bytes_max: 128 << 20,
            write_bytes_max: 512 << 20,
            deadline: Duration::from_secs(30),
            change_deadline: Duration::from_secs(300),
            writing_window: Duration::from_secs(60),
            passthrough: true,
            kernel_readahead: 1 << 20,
            low_latency: false,
        }
    }
}

/// The state that all requests share.
struct FuseState {
    vfs: Arc<Vfs>,
    config: Config,
    /// The caller of reads: the kernel, which has checked what its processes may do.
    kernel: Caller,
    inodes: Mutex<InodeTable<Arc<Backing>>>,
    invalidations: Arc<Invalidations>,
    passthrough: Passthrough,
    metrics: Metrics,
    /// The KiB of READ answers that may still be built.
    reply_budget: Arc<Semaphore>,
    /// The KiB of WRITE requests that may still be taken.
    write_budget: Arc<Semaphore>,
    orphans: Orphans,
    runtime: Handle,
    /// Of the listener that hears of the changes that others make.
    mark: ListenerMark,
    /// For tasks that outlive the request that starts them.
    me: Weak<FuseState>,
}

impl FuseState {
    fn new(
        vfs: Arc<Vfs>,
        mark: ListenerMark,
        config: Config,
        metrics: Metrics,
        runtime: Handle,
    ) -> Arc<FuseState> {
        Arc::new_cyclic(|me| FuseState {
            inodes: Mutex::new(InodeTable::new(vfs.root())),
            invalidations: Arc::default(),
            passthrough: Passthrough::new(config.passthrough),
            metrics,
            kernel: Caller::root(),
            reply_budget: Arc::new(Semaphore::new(config.reply_bytes_max / 1024)),
            // Room for at least one request.
            write_budget: Arc::new(Semaphore::new(config.write_bytes_max.max(READ_MAX as usize) / 1024)),
            orphans: Orphans::default(),
            runtime,
            mark,
            me: me.clone(),
            vfs,
            config,
        })
    }

    fn inodes(&self) -> MutexGuard<'_, InodeTable<Arc<Backing>>> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, for who has looked at this file: it may have got its version by a flush, which changes no bytes.
    fn inodes_for(&self, node: &Node) -> MutexGuard<'_, InodeTable<Arc<Backing>>> {
        let mut inodes = self.inodes();
        inodes.renew(node, |version| self.vfs.has_bytes_of(node, version));
        inodes
    }
}
