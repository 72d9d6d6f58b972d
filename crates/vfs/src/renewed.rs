//! A file has another version because of what we did to its attributes or names.

use std::sync::Arc;
use std::time::Duration;

use cache::CacheKey;
use namespace::{Ask, Found, Renewed};
use types::{FileId, Result, Version};

use crate::Vfs;
use crate::pending::Held;
use crate::read::key_of;

/// Longest wait for what is being written; then the caller is told to try again.
const PATIENCE: Duration = Duration::from_secs(10);

impl Vfs {
    /// If bytes of the file are pending: nothing of it is sent until the guard is dropped.
    pub(crate) async fn hold(&self, id: FileId) -> Result<Option<Held>> {
        let Some(file) = self.pending.get(id) else { return Ok(None) };
        tokio::time::timeout(PATIENCE, file.hold()).await.map_err(|_| Vfs::busy(id))
    }

    /// Likewise, also if none are: what is written meanwhile waits too.
    pub(crate) async fn hold_all(&self, id: FileId) -> Result<Held> {
        loop {
            let wanted = self.pending.want(id)?;
            let held = tokio::time::timeout(PATIENCE, wanted.granted()).await.map_err(|_| Vfs::busy(id))?;
            if let Some(held) = held {
                return Ok(held);
            }
        }
    }

    /// The file is `new` now. If it was `old` before, and nobody else changed it: bytes up to the smaller of the two sizes
    /// are the same, those between are zeros, and the cache keeps what it has.
    pub(crate) async fn renewed(&self, old: Option<&Found>, new: &Found) {
        let Ok(new) = key_of(new) else { return }; // no file
        if let Some(Ok(old)) = old.map(key_of)
            && old != new
        {
            self.cache.succeed(old, new, Vec::new(), Vec::new()).await;
        }
    }

    /// A file with at least so many names of which bytes are here, and none pending: these lie over what they were
    /// written on, and are sent as that.
    pub(crate) fn cached_file(&self, id: Option<FileId>, names: u32) -> Option<Arc<namespace::Node>> {
        let Found::Node(node) = self.namespace.getattr_known(id?).ok()? else { return None };
        let key = CacheKey { file: node.id, version: node.version(), size: node.attr().size };
        let is_wanted = node.attr().is_file()
            && node.attr().nlink >= names
            && self.cache.has(&key)
            && self.pending.get(node.id).is_none();
        is_wanted.then_some(node)
    }

    pub(crate) async fn keep_bytes(&self, renewed: &Renewed) {
        if self.pending.get(renewed.id).is_none() {
            self.successors.keep(&self.cache, renewed).await;
        }
    }

    /// A name more, less, or another moves the ctime of a file, and its version where that is made of its times. Where an
    /// origin does not tell (NFS) it is asked, and the caller does not wait for that.
    pub(crate) async fn named_anew(&self, was: Option<Arc<namespace::Node>>) {
        let Some(was) = was.filter(|was| was.version() == Version::from_attr(was.attr())) else { return };
        let Ok(Found::Node(told)) = self.namespace.getattr_known(was.id) else { return };
        if told.version() != was.version() {
            if let Some(renewed) = same_bytes(&was, &told) {
                self.keep_bytes(&renewed).await;
            }
            return;
        }
        let (namespace, cache, successors) =
            (self.namespace.clone(), self.cache.clone(), self.successors.clone());
        tokio::spawn(async move {
            // A client who wrote meanwhile may have set the times back.
            if let Ok(Found::Node(now)) = namespace.getattr(was.id, Ask::Use).await
                && now.own == told.own
                && let Some(renewed) = same_bytes(&was, &now)
            {
                successors.keep(&cache, &renewed).await;
            }
        });
    }
}

/// Of all that tells of a file's bytes only the ctime is another one, and that is our doing.
fn same_bytes(was: &namespace::Node, now: &namespace::Node) -> Option<Renewed> {
    let told = |node: &namespace::Node| (node.attr().kind, node.attr().size, node.attr().mtime);
    let (before, after) = (was.version(), now.version());
    let is_same = before != after && after == Version::from_attr(now.attr()) && told(was) == told(now);
    is_same.then(|| Renewed { id: was.id, size: was.attr().size, before, after })
}
