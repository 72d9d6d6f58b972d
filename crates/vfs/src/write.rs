//! Bytes that clients write: taken, sent and stored as the junction's policy says. How they get to the origin is in
//! `pending.rs`.

use std::time::Duration;

use bytes::Bytes;
use namespace::Ask;
use origin::change::end_of_write;
use types::{
    ByteRange, Caller, Error, ErrorKind, FileId, FileKind, Result, SetAttr, Stability, WeakAttr,
    WriteVerifier,
};

use crate::access;
use crate::{Node, Vfs};

/// How often a file that others change meanwhile is looked at again before its writer is told to come back.
const PRIVILEGE_TRIES: usize = 8;

/// All bytes that were given were taken.
#[derive(Clone, Debug)]
pub struct WriteOut {
    /// At least what was asked for.
    pub stability: Stability,
    /// Another one than before: what was written `Unstable` under the old one may be lost, and is to be written again.
    pub verifier: WriteVerifier,
    pub node: Node,
    pub before: Option<WeakAttr>,
}

#[derive(Clone, Debug)]
pub struct CommitOut {
    pub verifier: WriteVerifier,
    pub node: Node,
    pub before: Option<WeakAttr>,
}

impl Vfs {
    /// Returns when nothing that was written to this file is still on its way to the origin. Tells what was lost of it.
    pub(crate) async fn settle(&self, id: FileId) -> Result<()> {
        self.store(id, ByteRange::new(0, u64::MAX)).await
    }

    /// Readers see the bytes from now on, whatever their stability. The owner may always (an open file stays writable
    /// after chmod), as NFS servers have it. Waits while too much is pending already.
    pub async fn write(
        &self,
        caller: &Caller,
        id: FileId,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<WriteOut> {
        let node = self.to_write(caller, id).await?;
        let end = end_of_write(offset, data.len())?;
        if data.is_empty() {
            let verifier = self.verifier_for(&node);
            return Ok(WriteOut { stability, verifier, before: Some(node.attr.weak()), node });
        }
        self.demand_takes_size(&node, end).await?;
        if let Some(back) = self.back_of(&node) {
            return self.write_back(caller, back, id, (offset, data), stability).await;
        }
        self.end_privilege(caller, &node).await?;
        let verifier = self.pending.verifier();
        if let Some(lost) = self.pending.untold(id) {
            return Err(lost);
        }
        let room = self.pending.room(data.len()).await;
        let (file, taken, waiter) = {
            let _inside = self.leaving.enter(node.junction).await?;
            self.pending.take(id, (offset, &data), stability, &room)?
        };
        drop((data, room));
        if let Some(waiter) = waiter {
            file.over(ByteRange::new(offset, end - offset), taken.sequence).await;
            if let Some(error) = waiter.error() {
                return Err(error);
            }
        }
        let node = self.node(&self.namespace.getattr_known(id)?);
        Ok(WriteOut { stability, verifier, node, before: Some(taken.before) })
    }

    /// Takes setuid and setgid from a file before the first byte that this caller writes to it, so that no program ever
    /// runs with its bytes and another's rights. A file without them costs nothing. A mode that somebody sets meanwhile
    /// is not undone: the change is made of the object that was looked at, or not at all.
    async fn end_privilege(&self, caller: &Caller, node: &Node) -> Result<()> {
        if access::mode_after_write(caller, &node.attr).is_none() {
            return Ok(());
        }
        let (id, tier) = (node.id, Caller { trusted: true, ..Caller::root() });
        for _ in 0..PRIVILEGE_TRIES {
            self.settle(id).await?;
            let now = self.object(id, Ask::Use).await?;
            let Some(mode) = access::mode_after_write(caller, &now.attr) else { return Ok(()) };
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            match self.setattr(&tier, id, set, Some(now.attr.ctime)).await {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::VersionChanged => {
                    self.namespace.refresh_changed(id).await?;
                }
                // An origin at which we may not change modes takes us for nobody special, and ends them by itself.
                Err(e) if matches!(e.kind(), ErrorKind::NotPermitted | ErrorKind::AccessDenied) => {
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Err(Vfs::busy(id))
    }

    /// Returns when what was written to `range` before is on stable storage, as the junction's policy has it; the
    /// errors of writes that were taken before and failed since come out here. A range of no length goes to the end.
    pub async fn commit(&self, caller: &Caller, id: FileId, range: ByteRange) -> Result<CommitOut> {
        let node = self.to_write(caller, id).await?;
        if let Some(back) = self.back_of(&node) {
            return self.commit_back(back, id).await;
        }
        let before = Some(node.attr.weak());
        let range = if range.is_empty() { ByteRange::new(range.offset, u64::MAX) } else { range };
        self.store(id, range).await?;
        let node = self.node(&self.namespace.getattr_known(id)?);
        Ok(CommitOut { verifier: self.pending.verifier(), node, before })
    }

    /// The file, if this caller may write to it. What is being written to is not asked about again.
    async fn to_write(&self, caller: &Caller, id: FileId) -> Result<Node> {
        let node = self.object(id, Ask::Use).await?;
        self.leaving.stays(node.junction).await?;
        self.demand_writable(id, node.junction)?;
        access::demand(access::may_write_bytes(caller, &node.attr), "write to a file", caller)?;
        match node.attr.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(Error::new(ErrorKind::IsADirectory, "write to", id)),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "write to a special file,", id)),
        }
    }

    fn verifier_for(&self, node: &Node) -> WriteVerifier {
        self.back_of(node).map_or_else(|| self.pending.verifier(), |back| back.journal.verifier())
    }

    async fn store(&self, id: FileId, range: ByteRange) -> Result<()> {
        if let Some(file) = self.pending.get(id) {
            let asked = {
                let mut state = file.lock();
                let asked = state.ask_commit();
                state.take_error().map_or(Ok(asked), Err)
            };
            file.poke.notify_one();
            file.over(range, asked?).await;
            if let Some(lost) = file.lock().take_error() {
                return Err(lost);
            }
        }
        self.pending.untold(id).map_or(Ok(()), Err)
    }

    /// Sends and commits what is pending of all files, for as long as `patience` lasts. Returns what could not be
    /// stored: paths are not known here, so each file by its id, with its bytes.
    pub async fn flush(&self, patience: Duration) -> Vec<(FileId, u64)> {
        self.pending.flush(patience).await
    }

    /// The error that a reader is told who would have to wait for too long for what is being written.
    pub(crate) fn busy(id: FileId) -> Error {
        Error::new(ErrorKind::Busy, "read what is being written to,", id)
    }
}
