//! `Back` as a [`JunctionWriter`]: which of its methods answer what.

use std::collections::HashSet;
use std::time::Duration;

use ::bytes::Bytes;
use async_trait::async_trait;
use cache::Piece;
use namespace::{New, Old};
use tokio::sync::watch;
use types::{
    ByteRange, Caller, CreateVerifier, Durability, Error, ErrorKind, FileId, JunctionId, Name, Result,
    SetAttr, SetXattr, Stability, Timestamp, WriteVerifier, XattrName,
};
use writeback::{FlushPolicy, Scope};

use super::Back;
use super::locks::StripeGuard;
use crate::change_results::{Altered, AttrsAround, CommitOut, Made, WriteOut};
use crate::places::PlaceOverlay;
use crate::writer::{EntryOverlay, JunctionWriter};
use crate::{Node, Vfs};

/// For what is to be flushed before an extended attribute is set; then the caller is told to try again.
const HOME_PATIENCE: Duration = Duration::from_secs(20);

#[async_trait]
impl JunctionWriter for Back {
    fn apply_overlay(&self, node: &mut Node) {
        self.overlay.apply_overlay(node);
    }

    fn local(&self, id: FileId) -> Option<Node> {
        id.is_made_here().then(|| self.overlay.local(id)).flatten()
    }

    fn local_of_number(&self, number: u64) -> Option<FileId> {
        self.overlay.local_number(number)
    }

    fn local_target(&self, link: FileId) -> Option<Bytes> {
        self.overlay.local_target(link)
    }

    fn lookup(&self, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        self.overlay.lookup(dir, name)
    }

    fn entries(&self, dir: FileId) -> Option<EntryOverlay> {
        self.overlay.entries(dir)
    }

    fn place(&self, id: FileId) -> Option<(FileId, Name)> {
        self.overlay.place(id)
    }

    fn has_dirty_bytes(&self, id: FileId) -> bool {
        self.overlay.has_bytes(id)
    }

    fn needs_clean_bytes(&self, id: FileId) -> bool {
        self.overlay.altered(id).is_some()
    }

    fn is_ready(&self) -> bool {
        self.are_all_found()
    }

    async fn ready(&self) {
        self.all_found().await;
    }

    async fn read(&self, vfs: &Vfs, id: FileId, range: ByteRange) -> Result<Option<Vec<Piece>>> {
        self.read_over_clean(vfs, id, range).await
    }

    fn verifier(&self) -> WriteVerifier {
        self.journal.verifier()
    }

    async fn write(
        &self,
        vfs: &Vfs,
        caller: &Caller,
        file: &Node,
        data: (u64, Bytes),
        stability: Stability,
    ) -> Result<WriteOut> {
        self.journal_write(vfs, caller, file.id, data, stability).await
    }

    async fn commit(
        &self,
        vfs: &Vfs,
        file: &Node,
        _all: ByteRange,
        promised: Durability,
    ) -> Result<CommitOut> {
        match promised {
            Durability::Always => self.journal_commit(vfs, file.id).await,
            // Names and attributes, too, were answered before they were durable.
            Durability::Fsync => {
                self.all_durable().await?;
                self.written(vfs, file.id)
            }
        }
    }

    /// Under `fsync` all that is written is in the journal before it is answered.
    fn close_stores(&self, junction: JunctionId, promised: Durability) -> bool {
        promised.max(self.durability(junction)) == Durability::Always
    }

    async fn close_written(&self, vfs: &Vfs, file: &Node, promised: Durability) -> Result<CommitOut> {
        match promised.max(self.durability(file.junction)) {
            Durability::Always => self.journal_commit(vfs, file.id).await,
            Durability::Fsync => self.written(vfs, file.id),
        }
    }

    async fn sync_names(&self) -> Result<()> {
        self.all_durable().await
    }

    async fn set(
        &self,
        vfs: &Vfs,
        object: &Node,
        change: (SetAttr, Option<Timestamp>),
        promised: Durability,
    ) -> Result<Altered> {
        self.journal_set(vfs, object.id, change, promised).await
    }

    async fn set_xattr(&self, vfs: &Vfs, object: &Node, name: &XattrName, set: &SetXattr) -> Result<Altered> {
        let _home = self.bring_home(object.id).await?;
        let altered = vfs.namespace.set_xattr(object.id, name, set).await?;
        vfs.keep_cached(&altered).await;
        Ok(vfs.altered(&altered))
    }

    async fn make(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        new: &New,
        promised: Durability,
    ) -> Result<Made> {
        self.journal_make(vfs, dir.id, name, new, promised).await
    }

    async fn create_once(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        verifier: CreateVerifier,
        (set, _): (SetAttr, bool),
        promised: Durability,
    ) -> Result<Made> {
        self.journal_create_once(vfs, dir.id, name, (verifier, set), promised).await
    }

    async fn remove(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        old: Old,
        promised: Durability,
    ) -> Result<AttrsAround> {
        self.journal_remove(vfs, dir.id, name, old, promised).await
    }

    async fn rename(
        &self,
        vfs: &Vfs,
        from: (FileId, &Name),
        to: (FileId, &Name),
        promised: Durability,
    ) -> Result<(AttrsAround, AttrsAround)> {
        self.journal_rename(vfs, from, to, promised).await
    }

    fn serve(&self, junction: JunctionId, flush: FlushPolicy, durability: Durability) {
        self.set_durability(junction, durability);
        self.flusher.serve(junction, flush);
    }

    fn follow_recoveries(&self, junction: JunctionId, recoveries: watch::Receiver<()>) {
        self.resume_after_outages(junction, recoveries);
    }

    async fn unflushed_bytes(&self, junction: JunctionId) -> Result<Option<u64>> {
        self.all_durable().await?;
        let (bytes, oldest) = self.flusher.load(junction);
        Ok(oldest.map(|_| bytes))
    }
}

impl Back {
    /// The origin has the object as clients see it, and it stays so until this is dropped.
    async fn bring_home(&self, id: FileId) -> Result<Vec<StripeGuard<'_>>> {
        let held = self.locks.objects(&[], &[id]).await;
        if self.overlay.is_altered(id) {
            let home = async {
                self.all_durable().await?;
                Ok::<_, Error>(self.flusher.flush(&Scope::Objects(HashSet::from([id]))).wait().await)
            };
            let refused = tokio::time::timeout(HOME_PATIENCE, home).await.map_err(|_| Vfs::busy(id))??;
            if let Some(refused) = refused.into_iter().next() {
                return Err(Error::new(ErrorKind::Io, "bring home first", id).with_source(refused.error));
            }
        }
        match self.overlay.is_altered(id) {
            true => Err(Vfs::busy(id)),
            false => Ok(held),
        }
    }
}
