//! Bytes that clients write: may they, and then the junction's writer takes them.

use std::time::Duration;

use bytes::Bytes;
use namespace::Ask;
use origin::change::end_of_write;
use types::{ByteRange, Caller, Error, ErrorKind, FileId, FileKind, JunctionId, Result, Stability};

use crate::change_results::{CommitOut, WriteOut};
use crate::writer::JunctionWriter;
use crate::{Node, Vfs};

impl Vfs {
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
        let (node, writer) = self.to_write(caller, id).await?;
        let end = end_of_write(offset, data.len())?;
        if data.is_empty() {
            let (verifier, before) = (writer.verifier(), Some(node.attr.weak()));
            return Ok(WriteOut { stability, verifier, before, node });
        }
        self.demand_takes_size(&node, end).await?;
        writer.write(self, caller, &node, (offset, data), stability).await
    }

    /// Returns when what was written to `range` before is on stable storage, as the junction's policy has it; the
    /// errors of writes that were taken before and failed since come out here. A range of no length goes to the end.
    ///
    /// For a caller whose changes need not be stable when they are answered, so is whatever was answered before.
    pub async fn commit(&self, caller: &Caller, id: FileId, range: ByteRange) -> Result<CommitOut> {
        let (node, writer) = self.to_write(caller, id).await?;
        writer.commit(self, &node, range, caller.durability).await
    }

    /// A writer has closed the file. Returns when what was written is where the junction's policy and the caller want it
    /// then; errors as of `commit`.
    pub async fn close_written(&self, caller: &Caller, id: FileId) -> Result<CommitOut> {
        let (node, writer) = self.to_write(caller, id).await?;
        writer.close_written(self, &node, caller.durability).await
    }

    /// Whether a close of what this caller writes in the junction of the file has something to store, or an error to tell.
    /// Where it has not, `close_written` may be left out.
    pub fn close_stores(&self, caller: &Caller, file: &Node) -> bool {
        self.writer(file.junction).close_stores(file.junction, caller.durability)
    }

    /// Returns when the names in a directory, and whatever was answered before, are on stable storage.
    pub async fn sync_names(&self, dir: FileId) -> Result<()> {
        // Nobody is asked, and of one that is removed, as of one above the junctions, all are synced.
        match self.object_known(dir).map_or(JunctionId::VIRTUAL, |node| node.junction) {
            JunctionId::VIRTUAL => self.writers.sync_names().await,
            junction => self.writer(junction).sync_names().await,
        }
    }

    /// The file, if this caller may write to it. What is being written to is not asked about again.
    async fn to_write(&self, caller: &Caller, id: FileId) -> Result<(Node, &dyn JunctionWriter)> {
        let node = self.object(id, Ask::Use).await?;
        let writer = self.writer_to_change(&node).await?;
        permission::demand(permission::may_write_bytes(caller, &node.attr), "write to a file", caller)?;
        match node.attr.kind {
            FileKind::Regular => Ok((node, writer)),
            FileKind::Directory => Err(Error::new(ErrorKind::IsADirectory, "write to", id)),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "write to a special file,", id)),
        }
    }

    /// Sends and commits what is pending of all files, for as long as `patience` lasts. Returns what could not be
    /// stored: paths are not known here, so each file by its id, with its bytes.
    pub async fn flush(&self, patience: Duration) -> Vec<(FileId, u64)> {
        self.writers.through.buffer.flush(patience).await
    }

    /// The error that a reader is told who would have to wait for too long for what is being written.
    pub(crate) fn busy(id: FileId) -> Error {
        Error::new(ErrorKind::Busy, "read what is being written to,", id)
    }
}
