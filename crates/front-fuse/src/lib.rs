//! The tree as a local file system, through the kernel's FUSE.
//!
//! The kernel asks, `dispatch.rs` hands each request to a task, `ops.rs` answers it with one call of `vfs`. What
//! the kernel may keep, and for how long, follows from the junction's freshness; a file that is complete in the
//! cache is read by the kernel itself (`open.rs`). Knows nothing of origins and of how the cache works.
//!
//! Start with `inodes.rs` (which version is behind which inode), then `open.rs`, then `write.rs` and `change.rs`, then
//! `mount.rs`.
//!
//! Permission: the kernel decides, with the mode bits it was told (`default_permissions`). It knows the groups of
//! a process; a FUSE request names only one of them. So the kernel never asks us (ACCESS is not sent). It also takes
//! setuid and setgid from a file that is written, cut or given away, with a SETATTR of its own (we do not take
//! FUSE_HANDLE_KILLPRIV: only the kernel knows who is privileged), and keeps advisory locks to itself: they hold among
//! the processes of this mount.

mod attr;
mod change;
mod dispatch;
mod errors;
mod helper;
mod inodes;
mod metrics;
mod mount;
mod mountinfo;
mod notices;
mod open;
mod ops;
mod orphans;
mod refresh;
mod write;
mod xattr;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use types::Caller;
use vfs::Vfs;

pub use metrics::Metrics;
pub use mount::{Mounted, check_mount_point};

use inodes::Inodes;
use notices::Notices;
use open::{Backing, Passthrough};
use orphans::Orphans;

/// Most bytes of one READ or WRITE. The kernel's requests grow to this where its read-ahead, or the writer, allows.
pub const READ_MAX: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// What `df` and `mount` say is mounted there.
    pub source: String,
    /// Also where nothing can be changed now: what can may come while it is mounted.
    pub writable: bool,
    /// Threads that take requests from the kernel, and answer what is in memory. Above a few they wait for each other
    /// in the kernel's queue.
    pub threads: usize,
    /// Requests of its own (read-ahead) that the kernel has under way at most; what processes wait for is not
    /// counted. Its default, 12, is one reader's worth.
    pub background_max: u16,
    /// Bytes of READ answers in memory.
    pub reply_bytes_max: usize,
    /// Bytes of WRITE requests in memory. Above it no request is taken from the kernel until some are through: it
    /// takes as many processes that write 1 MiB at once as there are MiB, while the origin takes nothing.
    pub write_bytes_max: usize,
    /// What the origin does not answer is tried again for this long, then the system call fails with EIO.
    pub deadline: Duration,
    /// As `deadline`, of what changes something: a program that writes is rarely ready for an error, and what it wrote
    /// is lost with it.
    pub change_deadline: Duration,
    /// A file that changed less than this ago is taken to be still in writing: its opens show what comes, and it is
    /// not read by the kernel itself. Longer than a writer usually pauses.
    pub writing_window: Duration,
    /// Let the kernel read complete cached files by itself, where it can and this process may.
    pub passthrough: bool,
    /// How far the kernel reads ahead of a reader, in bytes; set where this process may. The kernel's default of
    /// 128 KiB is eight times the requests.
    pub kernel_readahead: u64,
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
        }
    }
}

/// What all requests share.
struct Shared {
    vfs: Arc<Vfs>,
    config: Config,
    /// Who asks: the kernel, which has checked what its processes may do.
    kernel: Caller,
    inodes: Mutex<Inodes<Arc<Backing>>>,
    notices: Arc<Notices>,
    passthrough: Passthrough,
    metrics: Metrics,
    /// KiB of READ answers that may still be made.
    reply_budget: Arc<Semaphore>,
    /// KiB of WRITE requests that may still be taken.
    write_budget: Arc<Semaphore>,
    orphans: Orphans,
    runtime: Handle,
    /// For tasks that outlive the request that begins them.
    me: Weak<Shared>,
}

impl Shared {
    fn new(vfs: Arc<Vfs>, config: Config, metrics: Metrics, runtime: Handle) -> Arc<Shared> {
        Arc::new_cyclic(|me| Shared {
            inodes: Mutex::new(Inodes::new(vfs.root())),
            notices: Arc::default(),
            passthrough: Passthrough::new(config.passthrough),
            metrics,
            kernel: Caller::root(),
            reply_budget: Arc::new(Semaphore::new(config.reply_bytes_max / 1024)),
            // At least one request.
            write_budget: Arc::new(Semaphore::new(config.write_bytes_max.max(READ_MAX as usize) / 1024)),
            orphans: Orphans::default(),
            runtime,
            me: me.clone(),
            vfs,
            config,
        })
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes<Arc<Backing>>> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
