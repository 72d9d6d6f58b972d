//! The border between the file system and the ways to write: what each write policy does with changes, and what it lays
//! over the state of the origin until the origin has them.
//!
//! [`JunctionWriter`] is a write policy as the rest of the crate knows it: `through.rs` and `back/writer.rs` implement it, and
//! [`ReadOnly`] below. One writer serves all junctions with its policy. A call asks [`Vfs::writer`] once, with the
//! junction of its object, and goes on with what it gets; who does not know the junction asks
//! [`Writers`](crate::writers::Writers), which asks
//! all of them: an object is of one junction, so at most one writer has anything to say of it.
//!
//! A change comes with the [`Durability`] that its caller was promised. Who writes to the origin before he answers has
//! nothing to decide by it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cache::Piece;
use namespace::{New, Old};
use origin::{PartReceipt, PartedFile};
use tokio::sync::watch;
use types::{
    ByteRange, Caller, CreateVerifier, Durability, Error, ErrorKind, FileId, JunctionId, Name, Result,
    SetAttr, SetXattr, Stability, Timestamp, WriteVerifier, XattrName,
};
use writeback::FlushPolicy;

use crate::change_results::{Altered, AttrsAround, CommitOut, Made, WriteOut};
use crate::through::DraftFile;
use crate::{Node, Vfs};

/// Names of a directory that are not as its origin lists them.
#[derive(Default)]
pub struct EntryOverlay {
    /// The object that has the name; `None` if nothing has it any more.
    pub entries: Vec<(Name, Option<FileId>)>,
    /// The origin does not have the directory: there are no other names.
    pub is_local: bool,
}

/// A write policy. Permission is decided before a change gets here; what is there is looked at here, as clients see it,
/// under whatever locks the policy needs.
///
/// The first group of methods says what lies over the origin's state of an object; by default nothing does.
#[async_trait]
pub trait JunctionWriter: Send + Sync {
    /// Puts what is known here only over the origin's attributes and version.
    fn apply_overlay(&self, node: &mut Node) {
        let _ = node;
    }

    /// An object that its origin does not have yet.
    fn local(&self, id: FileId) -> Option<Node> {
        let _ = id;
        None
    }

    /// The same by its inode number.
    fn local_of_number(&self, number: u64) -> Option<FileId> {
        let _ = number;
        None
    }

    /// The target of a symbolic link that its origin does not have yet.
    fn local_target(&self, link: FileId) -> Option<Bytes> {
        let _ = link;
        None
    }

    /// What has this name, or that nothing has it; `None` if that is the origin's to say.
    fn lookup(&self, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        let _ = (dir, name);
        None
    }

    fn entries(&self, dir: FileId) -> Option<EntryOverlay> {
        let _ = dir;
        None
    }

    /// Where clients see the object, if that is not where its origin has it.
    fn place(&self, id: FileId) -> Option<(FileId, Name)> {
        let _ = id;
        None
    }

    /// Something of the object has not reached its origin, and may change without `Vfs::changes` telling.
    fn is_changing(&self, id: FileId) -> bool {
        let _ = id;
        false
    }

    /// Some bytes of the file are not at its origin, or on their way to it. Such a file is fetched for nobody but who reads
    /// it: while we write, the origin may show a version before it has all bytes of it, for the kernel notes the time of a
    /// write before the bytes.
    fn has_dirty_bytes(&self, id: FileId) -> bool {
        let _ = id;
        false
    }

    /// Cached bytes of the file are needed to bring home what was written over them.
    fn needs_clean_bytes(&self, id: FileId) -> bool {
        let _ = id;
        false
    }

    /// It is known where the origin has what an interrupted flush had begun to rename. Every look at an object asks.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns when it is so.
    async fn ready(&self) {}

    /// Dirty bytes over clean ones; `None` if all of the file's bytes are the origin's.
    async fn read(&self, vfs: &Vfs, id: FileId, range: ByteRange) -> Result<Option<Vec<Piece>>>;

    /// False: every change is refused as one of a read-only file system, and no method below is called.
    fn takes_changes(&self) -> bool {
        true
    }

    fn verifier(&self) -> WriteVerifier;

    /// `data` is not empty, and ends where a file may. Setuid and setgid end before it, if this caller's writing ends
    /// them.
    async fn write(
        &self,
        vfs: &Vfs,
        caller: &Caller,
        file: &Node,
        data: (u64, Bytes),
        stability: Stability,
    ) -> Result<WriteOut>;

    async fn commit(
        &self,
        vfs: &Vfs,
        file: &Node,
        range: ByteRange,
        promised: Durability,
    ) -> Result<CommitOut>;

    /// Whether `close_written` has something to do or an error to tell.
    fn close_stores(&self, junction: JunctionId, promised: Durability) -> bool {
        let _ = (junction, promised);
        true
    }

    /// Whoever wrote to the file has closed it, and did not ask for a commit.
    async fn close_written(&self, vfs: &Vfs, file: &Node, promised: Durability) -> Result<CommitOut> {
        self.commit(vfs, file, ByteRange::new(0, 0), promised).await
    }

    /// Returns when all changes of names that were answered are durable.
    async fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    async fn set(
        &self,
        vfs: &Vfs,
        object: &Node,
        change: (SetAttr, Option<Timestamp>),
        promised: Durability,
    ) -> Result<Altered>;

    /// Extended attributes are the origin's own: what was done to the object before is there first.
    async fn set_xattr(&self, vfs: &Vfs, object: &Node, name: &XattrName, set: &SetXattr) -> Result<Altered>;

    async fn make(&self, vfs: &Vfs, dir: &Node, name: &Name, new: &New, promised: Durability)
    -> Result<Made>;

    /// A file; a repetition with the same verifier finds it. `are_given`: the client named attributes.
    async fn create_once(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        verifier: CreateVerifier,
        attributes: (SetAttr, bool),
        promised: Durability,
    ) -> Result<Made>;

    /// A file that nobody sees before it is complete. `None`: neither the policy nor the origin has such files.
    async fn draft(
        &self,
        vfs: &Arc<Vfs>,
        dir: &Node,
        name: &Name,
        set: SetAttr,
    ) -> Result<Option<DraftFile>> {
        let _ = (vfs, dir, name, set);
        Ok(None)
    }

    /// A file whose parts are stored at the origin as they come. `None`: neither the policy nor the origin has such files.
    async fn begin_parts(
        &self,
        vfs: &Vfs,
        dir: &Node,
        path: &[Name],
        set: SetAttr,
    ) -> Result<Option<PartedFile>> {
        let _ = (vfs, dir, path, set);
        Ok(None)
    }

    /// What those parts make.
    async fn draft_of_parts(
        &self,
        vfs: &Arc<Vfs>,
        (dir, name): (&Node, &Name),
        file: &PartedFile,
        parts: &[PartReceipt],
    ) -> Result<DraftFile> {
        let _ = (vfs, name, file, parts);
        Err(Error::new(ErrorKind::NotSupported, "assemble a file in", dir.id))
    }

    async fn remove(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        old: Old,
        promised: Durability,
    ) -> Result<AttrsAround>;

    async fn rename(
        &self,
        vfs: &Vfs,
        from: (FileId, &Name),
        to: (FileId, &Name),
        promised: Durability,
    ) -> Result<(AttrsAround, AttrsAround)>;

    /// The junction is served from now on.
    fn serve(&self, junction: JunctionId, flush: FlushPolicy, durability: Durability) {
        let _ = (junction, flush, durability);
    }

    /// Tells when outages of a junction that is served are over.
    fn follow_recoveries(&self, junction: JunctionId, recoveries: watch::Receiver<()>) {
        let _ = (junction, recoveries);
    }

    /// Bytes of acknowledged operations that only a flush brings to the origin of the junction; `None`: there are none,
    /// also of operations without bytes.
    async fn unflushed_bytes(&self, junction: JunctionId) -> Result<Option<u64>> {
        let _ = junction;
        Ok(None)
    }

    /// Stores what is stored without a flush, for as long as `patience` lasts. Returns bytes that are not stored then;
    /// `None`: there are none.
    async fn settle(&self, junction: JunctionId, patience: Duration) -> Option<u64> {
        let _ = (junction, patience);
        None
    }
}

/// The writer of junctions in which nothing may be changed.
pub struct ReadOnly;

impl ReadOnly {
    pub fn refused<T>(id: FileId) -> Result<T> {
        Err(Error::new(ErrorKind::ReadOnly, "change", id))
    }
}

#[async_trait]
impl JunctionWriter for ReadOnly {
    async fn read(&self, _: &Vfs, _: FileId, _: ByteRange) -> Result<Option<Vec<Piece>>> {
        Ok(None)
    }

    fn takes_changes(&self) -> bool {
        false
    }

    fn verifier(&self) -> WriteVerifier {
        WriteVerifier::default()
    }

    async fn write(
        &self,
        _: &Vfs,
        _: &Caller,
        file: &Node,
        _: (u64, Bytes),
        _: Stability,
    ) -> Result<WriteOut> {
        ReadOnly::refused(file.id)
    }

    async fn commit(&self, _: &Vfs, file: &Node, _: ByteRange, _: Durability) -> Result<CommitOut> {
        ReadOnly::refused(file.id)
    }

    async fn set(
        &self,
        _: &Vfs,
        object: &Node,
        _: (SetAttr, Option<Timestamp>),
        _: Durability,
    ) -> Result<Altered> {
        ReadOnly::refused(object.id)
    }

    async fn set_xattr(&self, _: &Vfs, object: &Node, _: &XattrName, _: &SetXattr) -> Result<Altered> {
        ReadOnly::refused(object.id)
    }

    async fn make(&self, _: &Vfs, dir: &Node, _: &Name, _: &New, _: Durability) -> Result<Made> {
        ReadOnly::refused(dir.id)
    }

    async fn create_once(
        &self,
        _: &Vfs,
        dir: &Node,
        _: &Name,
        _: CreateVerifier,
        _: (SetAttr, bool),
        _: Durability,
    ) -> Result<Made> {
        ReadOnly::refused(dir.id)
    }

    async fn remove(&self, _: &Vfs, dir: &Node, _: &Name, _: Old, _: Durability) -> Result<AttrsAround> {
        ReadOnly::refused(dir.id)
    }

    async fn rename(
        &self,
        _: &Vfs,
        from: (FileId, &Name),
        _: (FileId, &Name),
        _: Durability,
    ) -> Result<(AttrsAround, AttrsAround)> {
        ReadOnly::refused(from.0)
    }
}
