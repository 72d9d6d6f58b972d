//! Bytes of what is written `back`: into the journal, and read from there.

use std::sync::Arc;
use std::time::Duration;

use ::bytes::Bytes;
use cache::{CacheKey, Lend, Piece, Source};
use namespace::Ask;
use tokio::time::Instant;
use types::{ByteRange, Caller, Error, ErrorKind, FileId, Result, SetAttr, Stability, WeakAttr};
use writeback::{Action, Attributes, DATA_MAX};

use super::Back;
use super::shown::{Below, Plan};
use crate::Vfs;
use crate::access;
use crate::pending::zeros;
use crate::read::key_of;
use crate::write::{CommitOut, WriteOut};

/// While a file is being flushed its clean bytes belong to no version; then a reader waits, so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest pause before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Vfs {
    /// `data` is not empty, and ends where a file may. Setuid and setgid end before it, if this caller's writing ends them.
    pub(crate) async fn write_back(
        &self,
        caller: &Caller,
        back: &Back,
        id: FileId,
        (mut offset, mut data): (u64, Bytes),
        stability: Stability,
    ) -> Result<WriteOut> {
        let verifier = back.journal.verifier();
        let file = back.locks.objects(&[], &[id]).await;
        let node = self.object(id, Ask::Use).await?;
        let before: Option<WeakAttr> = Some(node.attr.weak());
        if let Some(mode) = access::mode_after_write(caller, &node.attr) {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            let now = back.stamp();
            let action = Action::Set { object: id, set: Attributes::resolve(&set, now), base: back.base(id) };
            back.record(node.junction, (now, action), Bytes::new(), &[]).await?;
        }
        let (mut sequence, mut size_before) = (0, node.attr.size);
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(DATA_MAX as usize));
            let end = offset + piece.len() as u64;
            // What was written just now may be at the origin already.
            let action = Action::Write { file: id, offset, size_before, base: back.base(id) };
            sequence = back.record(node.junction, (back.stamp(), action), piece, &[]).await?.sequence;
            (offset, size_before) = (end, size_before.max(end));
        }
        let node = self.object_known(id)?;
        drop(file);
        if stability > Stability::Unstable {
            back.durable(sequence).await?;
        }
        Ok(WriteOut { stability, verifier, node, before })
    }

    /// All that was written to the file is in the journal, on the disk.
    pub(crate) async fn commit_back(&self, back: &Back, id: FileId) -> Result<CommitOut> {
        let verifier = back.journal.verifier();
        let before = self.object_known(id)?.attr.weak();
        if let Some(altered) = back.shown.altered(id)
            && altered.last_write > 0
        {
            back.durable(altered.last_write).await?;
        }
        Ok(CommitOut { verifier, node: self.object_known(id)?, before: Some(before) })
    }

    /// `None` if the file's bytes are the origin's.
    pub(crate) async fn read_back(&self, id: FileId, range: ByteRange) -> Result<Option<Vec<Piece>>> {
        let Some(back) = self.back.get() else { return Ok(None) };
        let deadline = Instant::now() + PATIENCE;
        let mut progress = back.shown.progress();
        loop {
            progress.borrow_and_update();
            let Some(plan) = back.shown.plan(id, range) else { return Ok(None) };
            match self.gather_back(back, id, &plan).await {
                // Flushed meanwhile, or the flush is at it: what was planned is somewhere else soon.
                Err(e) if matches!(e.kind(), ErrorKind::Stale | ErrorKind::VersionChanged) => {
                    if Instant::now() >= deadline {
                        return Err(Vfs::busy(id));
                    }
                    let _ = tokio::time::timeout(LOOK_AGAIN, progress.changed()).await;
                }
                data => return data.map(Some),
            }
        }
    }

    async fn gather_back(&self, back: &Back, id: FileId, plan: &Plan) -> Result<Vec<Piece>> {
        let mut data = Vec::new();
        for piece in &plan.pieces {
            match piece {
                writeback::Piece::Dirty { range, position, skip } => {
                    let bytes = back.journal.read(*position, ByteRange::new(*skip, range.length)).await?;
                    data.push(Piece::Bytes(bytes));
                }
                writeback::Piece::Zero { range } => zeros(range.length, &mut data),
                writeback::Piece::Clean { range } => match &plan.below {
                    Below::Version(clean) => data.extend(self.read_clean(id, clean, *range).await?),
                    Below::Nothing => zeros(range.length, &mut data),
                    Below::Unknown => {
                        back.shown.learn(key_of(&self.namespace.refresh_changed(id).await?)?);
                        return Err(Error::new(
                            ErrorKind::VersionChanged,
                            "read what was asked for now,",
                            id,
                        ));
                    }
                },
            }
        }
        Ok(data)
    }

    async fn read_clean(&self, id: FileId, clean: &CacheKey, range: ByteRange) -> Result<Vec<Piece>> {
        let there = range.clamp_to(clean.size);
        let source: Arc<dyn Source> = self.source_of(&self.at_origin(id)?);
        let mut data = self.cache.read(clean, there, &source, Lend::Nothing).await?;
        zeros(range.length - there.length, &mut data);
        Ok(data)
    }
}
