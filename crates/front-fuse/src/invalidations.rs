//! Invalidations: telling the kernel to drop what it has cached.
//!
//! For that the kernel takes locks (of pages, of directories) that may be held by requests which wait for our
//! answer. So it is done on a thread of its own that answers no requests, and invalidations are collected by inode:
//! never more than the kernel has.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use fuser::{INodeNo, Notifier};
use rustix::io::Errno;
use tracing::debug;

use crate::metrics::Metrics;

#[derive(Default)]
struct NoticeQueue {
    inodes: HashMap<u64, Invalidation>,
    closed: bool,
}

#[derive(Clone, Debug, Default)]
struct Invalidation {
    /// Drop the pages, too, not only the attributes.
    pages: bool,
    /// Expire these names: directory and name.
    entries: HashSet<(u64, Bytes)>,
}

#[derive(Default)]
pub struct Invalidations {
    pending: Mutex<NoticeQueue>,
    wake: Condvar,
    notifier: OnceLock<Notifier>,
}

impl Invalidations {
    /// Drops the pages and attributes of an inode.
    pub fn pages(&self, number: u64) {
        self.add(number, Invalidation { pages: true, entries: HashSet::new() });
    }

    /// Drops the attributes of an object, and expires its name.
    pub fn object(&self, number: u64, entry: Option<(u64, Bytes)>) {
        self.add(number, Invalidation { pages: false, entries: entry.into_iter().collect() });
    }

    /// Expires negative entries of a directory.
    pub fn names(&self, dir: u64, names: HashSet<Bytes>) {
        if !names.is_empty() {
            let entries = names.into_iter().map(|name| (dir, name)).collect();
            self.add(dir, Invalidation { pages: false, entries });
        }
    }

    /// Drops the attributes of an inode before it returns. For that the kernel takes no lock that a request may hold, so an
    /// answer may wait for it; but not the thread that is to give other answers.
    pub async fn attributes_now(&self, number: u64) {
        let Some(notifier) = self.notifier.get().cloned() else { return };
        let tell = move || notifier.inval_inode(INodeNo(number), -1, 0);
        match tokio::task::spawn_blocking(tell).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => debug!(number, "the kernel does not take an invalidation: {e}"),
            Err(e) => debug!(number, "the kernel is not told: {e}"),
        }
    }

    fn add(&self, number: u64, notice: Invalidation) {
        let mut pending = self.lock();
        if pending.closed {
            return;
        }
        let known = pending.inodes.entry(number).or_default();
        known.pages |= notice.pages;
        known.entries.extend(notice.entries);
        self.wake.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, NoticeQueue> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    fn next(&self) -> Option<HashMap<u64, Invalidation>> {
        let mut pending = self.lock();
        while pending.inodes.is_empty() && !pending.closed {
            pending = self.wake.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        (!pending.closed).then(|| std::mem::take(&mut pending.inodes))
    }
}

/// Starts the thread; it ends with `close`, or when the mount is gone. `device` is the mount's.
pub fn start(
    invalidations: Arc<Invalidations>,
    notifier: Notifier,
    device: OwnedFd,
    metrics: Metrics,
) -> std::io::Result<()> {
    let _ = invalidations.notifier.set(notifier.clone()); // it is the first one
    let run = move || {
        while let Some(batch) = invalidations.next() {
            for (number, notice) in batch {
                metrics.invalidations.inc();
                if let Err(e) = notify_kernel(&notifier, &device, number, &notice) {
                    debug!(number, "the kernel does not take an invalidation: {e}");
                }
            }
        }
    };
    std::thread::Builder::new().name("fuse-notices".into()).spawn(run).map(drop)
}

fn notify_kernel(
    notifier: &Notifier,
    device: &OwnedFd,
    number: u64,
    notice: &Invalidation,
) -> std::io::Result<()> {
    // A negative offset means attributes only; length 0 means to the end.
    let mut told = notifier.inval_inode(INodeNo(number), if notice.pages { 0 } else { -1 }, 0);
    for (dir, name) in &notice.entries {
        told = told.and(expire(device, *dir, name));
    }
    told
}

/// FUSE_NOTIFY_INVAL_ENTRY and its flag FUSE_EXPIRE_ONLY, of linux/fuse.h.
const INVAL_ENTRY: u32 = 3;
const EXPIRE_ONLY: u32 = 1;

/// Makes the kernel look a name up before it uses it again. Not by fuser, whose call unhashes the name at once: a
/// process in a directory below it would find itself gone (`getcwd`: ENOENT). Kernels before Linux 6.2 ignore the
/// flag, and do that.
fn expire(device: impl AsFd, dir: u64, name: &[u8]) -> std::io::Result<()> {
    match rustix::io::write(device, &expiry(dir, name)?) {
        // The kernel does not have the name.
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn expiry(dir: u64, name: &[u8]) -> std::io::Result<Vec<u8>> {
    /// The length of header and body, without the name and the zero after it.
    const FIXED: u32 = 32;
    let length = u32::try_from(name.len()).map_err(std::io::Error::other)?;
    let mut message = Vec::with_capacity(name.len() + FIXED as usize + 1);
    message.extend((FIXED + length + 1).to_ne_bytes());
    message.extend(INVAL_ENTRY.to_ne_bytes());
    message.extend(0_u64.to_ne_bytes()); // answers no request
    message.extend(dir.to_ne_bytes());
    message.extend(length.to_ne_bytes());
    message.extend(EXPIRE_ONLY.to_ne_bytes());
    message.extend(name);
    message.push(0);
    Ok(message)
}
