//! The operator's "forget what you know below here": the next use asks the origin. Handles stay valid.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{FileId, Result};

use crate::freshness::Ask;
use crate::store::Change;
use crate::{Found, Namespace};

/// Entries read, and changes queued, at a time.
const PIECE: usize = 4096;

impl Namespace {
    /// Distrust `id` and all that is known below it; calls `file` for each file, so that its bytes can go too.
    /// Asks the origin nothing.
    pub async fn expire_tree(self: &Arc<Self>, id: FileId, mut file: impl FnMut(FileId)) -> Result<()> {
        let mut dirs = Vec::new();
        let mut changes = Vec::new();
        // Listings under way begin again.
        self.evictions.fetch_add(1, Ordering::SeqCst);
        // Absent names are in no listing by which to find them; to learn the others anew is cheap.
        self.singles.clear();
        self.given_up().forget_all();
        let mut order = self.in_order().await;
        self.expire_one(id, &mut dirs, &mut changes, &mut file);
        while let Some(dir) = dirs.pop() {
            if let Some(children) = self.grafts.load().virtual_tree.children(dir) {
                for (_, child) in children {
                    self.expire_one(child, &mut dirs, &mut changes, &mut file);
                }
                continue;
            }
            changes.push(self.drop_listing(dir));
            let mut after = 0;
            loop {
                let piece = self.store.entries_after(dir, after, PIECE)?;
                let Some(last) = piece.last() else { break };
                after = last.cookie;
                for entry in &piece {
                    if let Some(child) = entry.child {
                        self.expire_one(child, &mut dirs, &mut changes, &mut file);
                    }
                }
                if changes.len() >= PIECE {
                    self.store.enqueue(std::mem::take(&mut changes)).await?;
                    drop(order);
                    order = self.in_order().await;
                }
            }
        }
        self.evictions.fetch_add(1, Ordering::SeqCst);
        self.commit_in(order, changes).await
    }

    /// No name is known in this directory any more: whoever asks for one asks the origin.
    pub(crate) async fn forget_names_in(self: &Arc<Self>, dir: FileId) -> Result<()> {
        let order = self.in_order().await;
        let mut changes = vec![self.drop_listing(dir)];
        let mut after = 0;
        loop {
            let piece = self.store.entries_after(dir, after, PIECE)?;
            let Some(last) = piece.last() else { break };
            after = last.cookie;
            changes.extend(piece.iter().map(|entry| Change::RemoveEntry { dir, cookie: entry.cookie }));
        }
        self.commit_in(order, changes).await
    }

    fn expire_one(
        &self,
        id: FileId,
        dirs: &mut Vec<FileId>,
        changes: &mut Vec<Change>,
        file: &mut impl FnMut(FileId),
    ) {
        if self.is_virtual(id) {
            return dirs.push(id);
        }
        let Ok(node) = self.load(id) else { return };
        node.distrust();
        let _ = self.changed.send(Some(id));
        self.links.remove(&id);
        let mut record = node.record.clone();
        record.checked_ms = 0;
        changes.push(Change::PutNode(id, record));
        if node.attr().is_dir() {
            dirs.push(id);
        } else {
            file(id);
        }
    }

    /// Walk an absolute path from the root. Links are not followed; empty components and `.` are skipped,
    /// `..` is refused.
    pub async fn resolve(self: &Arc<Self>, path: &[u8]) -> Result<Found> {
        let mut at = self.getattr(self.root(), Ask::Open).await?;
        for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
            let name = types::Name::new(bytes::Bytes::copy_from_slice(part))?;
            at = self.lookup(at.id(), &name).await?;
        }
        Ok(at)
    }
}
