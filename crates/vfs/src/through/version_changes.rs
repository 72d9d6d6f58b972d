//! What is cached of a file stays so when our own change of its names gives it another version.

use std::sync::Arc;

use cache::CacheKey;
use namespace::{Ask, Found, KnownNode, Renewed};
use types::{FileId, Version};

use super::Through;
use crate::Vfs;

impl Through {
    /// A file with at least so many names of which bytes are here, and none pending: these lie over what they were
    /// written on, and are sent as that.
    pub(super) async fn cached_file(
        &self,
        vfs: &Vfs,
        id: Option<FileId>,
        names: u32,
    ) -> Option<Arc<KnownNode>> {
        let Found::Node(node) = vfs.namespace.getattr_known(id?).ok()? else { return None };
        let key = CacheKey { file: node.id, version: node.version(), size: node.attr().size };
        let is_wanted = node.attr().is_file()
            && node.attr().nlink >= names
            && vfs.cache.has(&key).await
            && self.buffer.get(node.id).is_none();
        is_wanted.then_some(node)
    }

    pub(super) async fn keep_bytes(&self, vfs: &Vfs, renewed: &Renewed) {
        if self.buffer.get(renewed.id).is_none() {
            vfs.version_chain.keep(&vfs.cache, renewed).await;
        }
    }

    /// A name more, less, or another moves the ctime of a file, and its version where that is made of its times. Where an
    /// origin does not tell (NFS) it is asked, and the caller does not wait for that.
    pub(super) async fn names_changed(&self, vfs: &Vfs, was: Option<Arc<KnownNode>>) {
        let Some(was) = was.filter(|was| was.version() == Version::from_attr(was.attr())) else { return };
        let Ok(Found::Node(told)) = vfs.namespace.getattr_known(was.id) else { return };
        if told.version() != was.version() {
            if let Some(renewed) = same_bytes(&was, &told) {
                self.keep_bytes(vfs, &renewed).await;
            }
            return;
        }
        let (namespace, cache, version_chain) =
            (vfs.namespace.clone(), vfs.cache.clone(), vfs.version_chain.clone());
        tokio::spawn(async move {
            // A client who wrote meanwhile may have set the times back.
            if let Ok(Found::Node(now)) = namespace.getattr(was.id, Ask::Use).await
                && now.own == told.own
                && let Some(renewed) = same_bytes(&was, &now)
            {
                version_chain.keep(&cache, &renewed).await;
            }
        });
    }
}

/// Of all that tells of a file's bytes only the ctime is another one, and that is our doing.
fn same_bytes(was: &KnownNode, now: &KnownNode) -> Option<Renewed> {
    let told = |node: &KnownNode| (node.attr().kind, node.attr().size, node.attr().mtime);
    let (before, after) = (was.version(), now.version());
    let is_same = before != after && after == Version::from_attr(now.attr()) && told(was) == told(now);
    is_same.then(|| Renewed { id: was.id, size: was.attr().size, before, after })
}
