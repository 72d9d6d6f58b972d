//! Bytes that clients write.

use bytes::Bytes;
use types::{ByteRange, Caller, FileId, Result, Stability, WeakAttr, WriteVerifier};

use crate::change::read_only;
use crate::{Node, Vfs};

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
    /// Returns when nothing that was written to this file is still on its way to the origin.
    pub(crate) async fn settle(&self, _id: FileId) -> Result<()> {
        Ok(())
    }

    /// Readers see the bytes from now on, whatever their stability. The owner may always (an open file stays writable
    /// after chmod), as NFS servers have it.
    pub async fn write(
        &self,
        caller: &Caller,
        id: FileId,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<WriteOut> {
        let _ = (caller, offset, data, stability);
        Err(read_only(id))
    }

    /// Returns when what was written to `range` before is on stable storage, as the junction's policy has it; the
    /// errors of writes that were taken before and failed since come out here. A range of no length goes to the end.
    pub async fn commit(&self, caller: &Caller, id: FileId, range: ByteRange) -> Result<CommitOut> {
        let _ = (caller, range);
        Err(read_only(id))
    }
}
