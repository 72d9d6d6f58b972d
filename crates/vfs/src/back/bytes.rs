//! Bytes of what is written `back`: into the journal, and read from there.

use std::time::Duration;

use ::bytes::Bytes;
use cache::Piece;
use fetch::key_of;
use namespace::Ask;
use tokio::time::Instant;
use types::{ByteRange, Caller, Error, ErrorKind, FileId, Result, SetAttr, Stability, WeakAttr};
use write_buffer::ReadSegment;
use writeback::{Action, Attributes, DATA_MAX};

use super::Back;
use super::overlay::{CleanBase, ReadPlan};
use crate::Vfs;
use crate::change_results::{CommitOut, WriteOut};
use crate::gather::GatherReach;

/// While a file is being flushed its clean bytes belong to no version; then a reader waits, so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest pause before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Back {
    /// `data` is not empty, and ends where a file may. Setuid and setgid end before it, if this caller's writing ends them.
    pub(super) async fn journal_write(
        &self,
        vfs: &Vfs,
        caller: &Caller,
        id: FileId,
        (mut offset, mut data): (u64, Bytes),
        stability: Stability,
    ) -> Result<WriteOut> {
        let verifier = self.journal.verifier();
        let file = self.locks.objects(&[], &[id]).await;
        let node = vfs.object(id, Ask::Use).await?;
        let before: Option<WeakAttr> = Some(node.attr.weak());
        if let Some(mode) = permission::mode_after_write(caller, &node.attr) {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            let now = self.stamp();
            let action = Action::Set { object: id, set: Attributes::resolve(&set, now), base: self.base(id) };
            self.record(node.junction, (now, action), Bytes::new(), &[]).await?;
        }
        let (mut sequence, mut size_before) = (0, node.attr.size);
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(DATA_MAX as usize));
            let end = offset + piece.len() as u64;
            // What was written just now may be at the origin already.
            let action = Action::Write { file: id, offset, size_before, base: self.base(id) };
            sequence = self.record(node.junction, (self.stamp(), action), piece, &[]).await?.sequence;
            (offset, size_before) = (end, size_before.max(end));
        }
        let node = vfs.object_known(id)?;
        drop(file);
        if stability > Stability::Unstable {
            self.durable(sequence).await?;
        }
        Ok(WriteOut { stability, verifier, node, before })
    }

    /// All that was written to the file is in the journal, on the disk.
    pub(super) async fn journal_commit(&self, vfs: &Vfs, id: FileId) -> Result<CommitOut> {
        if let Some(altered) = self.overlay.altered(id)
            && altered.last_write > 0
        {
            self.durable(altered.last_write).await?;
        }
        self.written(vfs, id)
    }

    /// All that was written to the file is in the journal.
    pub(super) fn written(&self, vfs: &Vfs, id: FileId) -> Result<CommitOut> {
        let (verifier, node) = (self.journal.verifier(), vfs.object_known(id)?);
        Ok(CommitOut { verifier, before: Some(node.attr.weak()), node })
    }

    /// Dirty bytes over clean ones. `None` if all of the file's bytes are the origin's.
    pub(super) async fn read_over_clean(
        &self,
        vfs: &Vfs,
        id: FileId,
        range: ByteRange,
    ) -> Result<Option<Vec<Piece>>> {
        let deadline = Instant::now() + PATIENCE;
        let mut progress = self.overlay.progress();
        loop {
            progress.borrow_and_update();
            let Some(plan) = self.overlay.plan(id, range) else { return Ok(None) };
            match self.read_plan(vfs, id, plan).await {
                // Flushed meanwhile, or the flush is at it: what was planned is somewhere else soon.
                Err(e) if matches!(e.kind(), ErrorKind::Stale | ErrorKind::VersionChanged) => {
                    if Instant::now() >= deadline {
                        return Err(Vfs::busy(id));
                    }
                    let _ = tokio::time::timeout(LOOK_AGAIN, progress.changed()).await;
                }
                data => return data,
            }
        }
    }

    async fn read_plan(&self, vfs: &Vfs, id: FileId, plan: ReadPlan) -> Result<Option<Vec<Piece>>> {
        let mut segments = Vec::with_capacity(plan.pieces.len());
        for piece in plan.pieces {
            segments.push(match piece {
                writeback::DirtyPiece::Dirty { range, position, skip } => {
                    ReadSegment::Dirty(self.journal.read(position, ByteRange::new(skip, range.length)).await?)
                }
                writeback::DirtyPiece::Zero { range } => ReadSegment::Zeros(range.length),
                writeback::DirtyPiece::Clean { range } => ReadSegment::Clean(range),
            });
        }
        let clean = match &plan.below {
            CleanBase::Version(clean) => Some(clean),
            CleanBase::Nothing => None,
            CleanBase::Unknown if !segments.iter().any(|it| matches!(it, ReadSegment::Clean(_))) => None,
            CleanBase::Unknown => {
                self.overlay.learn(key_of(&vfs.namespace.refresh_changed(id).await?)?);
                return Err(Error::new(ErrorKind::VersionChanged, "read what was asked for now,", id));
            }
        };
        vfs.gather(segments, clean, GatherReach::CacheAndOrigin).await
    }
}
