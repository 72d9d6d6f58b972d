//! The operator's "forget what you know below here": the next use asks the origin. Handles stay valid.

use std::sync::Arc;

use types::{FileId, Result};

use crate::freshness::Ask;
use crate::store::StoreChange;
use crate::{Found, Grafted, Namespace};

/// Entries read, and changes queued, at a time.
const PIECE: usize = 4096;

impl Namespace {
    /// Distrust `id` and all that is known below it; calls `file` for each file, so that its bytes can go too.
    /// Asks the origin nothing.
    pub async fn expire_tree(self: &Arc<Self>, id: FileId, mut file: impl FnMut(FileId)) -> Result<()> {
        // Names that are absent are in no listing by which to find them; learning the others anew is cheap.
        self.singles.clear();
        self.given_up().forget_all();
        // No origin told anything of the directories above the junctions.
        let mut starts = vec![id];
        while let Some(start) = starts.pop() {
            let children = self.grafts.load().virtual_tree.children(start);
            match children {
                Some(children) => starts.extend(children.into_iter().map(|(_, child)| child)),
                None => self.expire_in_junction(start, &mut file).await?,
            }
        }
        Ok(())
    }

    /// The same within one junction, whose order is held except between pieces.
    async fn expire_in_junction(&self, start: FileId, file: &mut impl FnMut(FileId)) -> Result<()> {
        // An object that was never seen is not trusted anyway.
        let Ok(junction) = self.load(start).map(|node| node.junction()) else { return Ok(()) };
        let mut dirs = Vec::new();
        let mut changes = Vec::new();
        // One piece is stored while the next one is read: more of them would hold the tree in memory.
        let mut behind = None;
        self.orders.note_eviction(junction);
        let mut order = self.in_order(junction).await;
        self.expire_one(start, None, &mut dirs, &mut changes, file);
        while let Some(dir) = dirs.pop() {
            changes.push(self.drop_listing(dir));
            let mut after = 0;
            loop {
                let piece = self.store.entries_after(dir, after, PIECE)?;
                let Some(last) = piece.last() else { break };
                after = last.cookie;
                for entry in &piece {
                    if let Some(child) = entry.child {
                        self.expire_one(child, Some(dir), &mut dirs, &mut changes, file);
                    }
                }
                if changes.len() >= PIECE {
                    let committing = self.store.begin_commit(std::mem::take(&mut changes)).await?;
                    drop(order);
                    if let Some(before) = behind.replace(committing) {
                        before.wait().await?;
                    }
                    order = self.in_order(junction).await;
                }
            }
        }
        self.orders.note_eviction(junction);
        self.commit_in(order, changes).await?;
        match behind {
            Some(before) => before.wait().await,
            None => Ok(()),
        }
    }

    /// Drops all names that are known in the junction's root: each is asked for at the origin again.
    pub(crate) async fn forget_names_in(&self, junction: &Grafted) -> Result<()> {
        let dir = junction.root;
        let order = self.in_order(junction.id).await;
        let mut changes = vec![self.drop_listing(dir)];
        let mut after = 0;
        loop {
            let piece = self.store.entries_after(dir, after, PIECE)?;
            let Some(last) = piece.last() else { break };
            after = last.cookie;
            changes.extend(piece.iter().map(|entry| StoreChange::RemoveEntry { dir, cookie: entry.cookie }));
        }
        self.commit_in(order, changes).await
    }

    fn expire_one(
        &self,
        id: FileId,
        within: Option<FileId>,
        dirs: &mut Vec<FileId>,
        changes: &mut Vec<StoreChange>,
        file: &mut impl FnMut(FileId),
    ) {
        let Ok(node) = self.load_near(id, within) else { return };
        node.distrust();
        self.changed.tell(Some(id));
        self.links.remove(&id);
        let mut record = node.record.clone();
        record.checked_ms = 0;
        changes.push(StoreChange::PutNode(id, record));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use origin::memory::MemoryOrigin;

    use super::*;
    use crate::{Config, Junction};

    const DIRECTORIES: usize = 8;

    /// The disk takes nothing: an evict goes as far as it may hold changes in memory, and goes on afterwards.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_evict_holds_a_few_pieces_of_a_tree_however_large_it_is() {
        let (memory, dir) = (MemoryOrigin::new(), tempfile::tempdir().expect("a directory"));
        let path = |at: usize| format!("d{at}");
        for at in 0..DIRECTORIES {
            memory.mkdir(path(at).as_bytes()).expect("made");
            for file in 0..PIECE {
                memory.write_file(format!("{}/f{file}", path(at)).as_bytes(), b"").expect("made");
            }
        }
        let config = Config { dir: dir.path().to_owned(), ..Config::default() };
        let ns = Namespace::open(config, vec![Junction::new("/", memory)]).expect("opened");
        for at in 0..DIRECTORIES {
            let listed = ns.resolve(path(at).as_bytes()).await.expect("found").id();
            ns.readdir(listed, 0, 1).await.expect("listed");
        }
        let hold = ns.store.hold_commits();
        let mut met = 0;
        let evict = tokio::time::timeout(Duration::from_secs(2), ns.expire_tree(ns.root(), |_| met += 1));
        let ended = evict.await;
        assert!(met <= 3 * PIECE, "changes of {met} files are held");
        assert!(ended.is_err(), "it is not stored yet: {ended:?}");
        drop(hold);
        let mut met = 0;
        ns.expire_tree(ns.root(), |_| met += 1).await.expect("evicted");
        assert_eq!(met, DIRECTORIES * PIECE);
    }
}
