//! Junctions that are written `through`: a change is done when the origin has it.
//!
//! Names and attributes are changed at the origin at once (`namespace` does that). Bytes are taken into memory first, so
//! that a line that is long stays full: many parts of a file are on their way at the same time.
//!
//! - [`WriteBuffer`] (`buffer.rs`): all files with pending bytes, under one budget; the write verifier
//! - `write_buffer::BufferedFile` (crate `write-buffer`): one of them: what is pending, what is to be done next, who waits
//! - `intake.rs`: how bytes get into the buffer; `sender.rs`: a task for each file, which acts on the steps
//! - [`DraftFile`] (`draft.rs`): a new file that is complete before anybody sees it, at an origin that has drafts; it takes
//!   from the buffer nothing but room
//! - `version_changes.rs`: what stays cached of a file when its names are changed through us
//!
//! The way of a write: [`Through::write`] takes it into the buffer; the file's sender sends parts, commits them, and gives
//! them to the cache under the version that the origin has then. Nothing of a file stays here after that.
//!
//! Invariants: two parts that overlap are never on their way together. While parts are, the clean bytes are cached under
//! a version that no origin gives. Bytes leave memory when they are stored at the origin and the cache was given them.
//! Begin with the crate `write-buffer`, then `sender.rs`.

mod buffer;
mod buffer_collector;
mod draft;
mod intake;
mod metrics;
mod read;
mod sender;
mod version_changes;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cache::Piece;
use fetch::key_of;
use namespace::{Ask, Found, KnownNode, New, Old};
use origin::{PartReceipt, PartedFile};
use types::{
    Attr, ByteRange, Caller, CreateHow, CreateVerifier, Durability, ErrorKind, FileId, JunctionId, Name,
    Result, SetAttr, SetXattr, Stability, TimeChange, Timestamp, WeakAttr, WriteVerifier, XattrName,
};
use write_buffer::ExclusiveAccess;

pub use buffer::WriteBuffer;
pub use draft::DraftFile;

use crate::change_results::{Altered, AttrsAround, CommitOut, Made, WriteOut};
use crate::node::outward;
use crate::writer::JunctionWriter;
use crate::{Node, Vfs};

/// How often a file that others change meanwhile is looked at again before its writer is told to come back.
const PRIVILEGE_TRIES: usize = 8;
/// Longest wait for what is being written; then the caller is told to try again.
const PATIENCE: Duration = Duration::from_secs(10);
/// A range of all bytes that a file may have.
const WHOLE: ByteRange = ByteRange { offset: 0, length: u64::MAX };

/// The writer of junctions with the policy `through`.
pub struct Through {
    pub buffer: Arc<WriteBuffer>,
}

#[async_trait]
impl JunctionWriter for Through {
    fn apply_overlay(&self, node: &mut Node) {
        self.buffer.view(node.id, &mut node.attr, &mut node.version);
    }

    fn is_changing(&self, id: FileId) -> bool {
        self.has_dirty_bytes(id)
    }

    fn has_dirty_bytes(&self, id: FileId) -> bool {
        self.buffer.get(id).is_some()
    }

    async fn read(&self, vfs: &Vfs, id: FileId, range: ByteRange) -> Result<Option<Vec<Piece>>> {
        match self.buffer.get(id) {
            Some(file) => read::read_buffered(vfs, &file, range).await,
            None => Ok(None),
        }
    }

    fn verifier(&self) -> WriteVerifier {
        self.buffer.verifier()
    }

    async fn write(
        &self,
        vfs: &Vfs,
        caller: &Caller,
        file: &Node,
        (offset, data): (u64, Bytes),
        stability: Stability,
    ) -> Result<WriteOut> {
        self.end_privilege(vfs, caller, file).await?;
        let (id, range) = (file.id, ByteRange::new(offset, data.len() as u64));
        let verifier = self.buffer.verifier();
        if let Some(lost) = self.buffer.take_unreported(id) {
            return Err(lost);
        }
        let permit = self.buffer.permit(data.len()).await;
        let (file, taken, waiter) = {
            let _inside = vfs.leaving.enter(file.junction).await?;
            self.buffer.take(id, (offset, &data), stability, &permit)?
        };
        drop((data, permit));
        let Some(waiter) = waiter else {
            // As it was just after this write: the answer to another one may tell a later state as the one before it.
            let mut node = vfs.object_known(id)?;
            let WeakAttr { size, mtime, ctime } = taken.after;
            node.attr = Attr { size, mtime, ctime, ..node.attr };
            node.version = taken.after_version;
            return Ok(WriteOut { stability, verifier, node, before: Some(taken.before) });
        };
        file.over(range, taken.sequence).await;
        if let Some(error) = waiter.error() {
            return Err(error);
        }
        self.buffer.told.forget(id);
        Ok(WriteOut { stability, verifier, node: vfs.object_known(id)?, before: Some(taken.before) })
    }

    async fn commit(&self, vfs: &Vfs, file: &Node, range: ByteRange, _: Durability) -> Result<CommitOut> {
        let range = if range.is_empty() { ByteRange::new(range.offset, u64::MAX) } else { range };
        self.store(file.id, range).await?;
        self.buffer.told.forget(file.id);
        let (verifier, node) = (self.buffer.verifier(), vfs.object_known(file.id)?);
        Ok(CommitOut { verifier, node, before: Some(file.attr.weak()) })
    }

    async fn set(
        &self,
        vfs: &Vfs,
        object: &Node,
        (set, guard): (SetAttr, Option<Timestamp>),
        _: Durability,
    ) -> Result<Altered> {
        let id = object.id;
        let times = set.atime != TimeChange::Keep || set.mtime != TimeChange::Keep;
        if set.size.is_some() || times || guard.is_some() {
            // What is written before comes before; a write that arrives later would undo it.
            self.store(id, WHOLE).await?;
        }
        // What is written meanwhile waits.
        let cut = set.size.filter(|_| object.attr.is_file());
        let held = if cut.is_some() { Some(self.hold_all(id).await?) } else { self.hold(id).await? };
        let guard = self.as_at_the_origin(vfs, id, guard)?;
        let answer = self.told_no_more(id, vfs.namespace.set(id, set, guard).await);
        let altered = match (answer, &held) {
            (Ok(altered), _) => altered,
            (Err(e), Some(held)) if cut.is_some() && e.may_have_happened() => {
                held.may_be_cut();
                return Err(e);
            }
            (Err(e), _) => return Err(e),
        };
        vfs.keep_cached(&altered).await;
        if let (Some(held), Ok(new)) = (held, key_of(&altered.found)) {
            cut.map_or_else(|| held.is_now(new), |size| held.is_cut(size, new));
        }
        Ok(vfs.altered(&altered))
    }

    async fn set_xattr(&self, vfs: &Vfs, object: &Node, name: &XattrName, set: &SetXattr) -> Result<Altered> {
        // What is written meanwhile waits.
        let held = self.hold(object.id).await?;
        let answer = vfs.namespace.set_xattr(object.id, name, set).await;
        let altered = self.told_no_more(object.id, answer)?;
        vfs.keep_cached(&altered).await;
        if let (Some(held), Ok(new)) = (held, key_of(&altered.found)) {
            held.is_now(new);
        }
        Ok(vfs.altered(&altered))
    }

    async fn make(&self, vfs: &Vfs, dir: &Node, name: &Name, new: &New, _: Durability) -> Result<Made> {
        let was = match new {
            New::Link { file } => self.cached_file(vfs, Some(*file), 1).await,
            _ => None,
        };
        let made = vfs.namespace.make(dir.id, name, new).await?;
        self.names_changed(vfs, was).await;
        Ok(Made { node: vfs.node(&made.found), dir: around(dir.id, &made.dir) })
    }

    /// The origin keeps the verifier in the times of the file as long as no attributes are given with it. So whose it
    /// is, is set afterwards, and the times are left alone: the client's own next call sets them.
    async fn create_once(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        verifier: CreateVerifier,
        (set, are_given): (SetAttr, bool),
        promised: Durability,
    ) -> Result<Made> {
        let how = CreateHow::Exclusive(verifier);
        let mut made =
            self.make(vfs, dir, name, &New::File { how, set: SetAttr::default() }, promised).await?;
        let attr = &made.node.attr;
        if are_given || set.uid != Some(attr.uid) || set.gid != Some(attr.gid) {
            let set = if are_given { set.with_times() } else { set };
            made.node = vfs.node(&vfs.namespace.set(made.node.id, set, None).await?.found);
        }
        Ok(made)
    }

    async fn draft(
        &self,
        vfs: &Arc<Vfs>,
        dir: &Node,
        name: &Name,
        set: SetAttr,
    ) -> Result<Option<DraftFile>> {
        self.begin_draft(vfs, dir, name, set).await
    }

    async fn begin_parts(
        &self,
        vfs: &Vfs,
        dir: &Node,
        path: &[Name],
        set: SetAttr,
    ) -> Result<Option<PartedFile>> {
        let Found::Node(known) = vfs.namespace.getattr_known(dir.id)? else { return Ok(None) };
        let begin = |node: Arc<KnownNode>| async move {
            let (origin, reference) = vfs.namespace.origin_of(&node)?;
            origin.begin_parts(&reference, path, &set).await
        };
        vfs.namespace.ask_healed(known, begin).await
    }

    async fn draft_of_parts(
        &self,
        vfs: &Arc<Vfs>,
        (dir, name): (&Node, &Name),
        file: &PartedFile,
        parts: &[PartReceipt],
    ) -> Result<DraftFile> {
        self.assemble_draft(vfs, (dir, name), file, parts).await
    }

    async fn remove(
        &self,
        vfs: &Vfs,
        dir: &Node,
        name: &Name,
        old: Old,
        _: Durability,
    ) -> Result<AttrsAround> {
        let was = self.cached_file(vfs, vfs.namespace.child_of(dir.id, name)?, 2).await;
        let removed = vfs.namespace.remove(dir.id, name, old).await?;
        self.names_changed(vfs, was).await;
        Ok(around(dir.id, &removed))
    }

    async fn rename(
        &self,
        vfs: &Vfs,
        (from_dir, from): (FileId, &Name),
        (to_dir, to): (FileId, &Name),
        _: Durability,
    ) -> Result<(AttrsAround, AttrsAround)> {
        let was = self.cached_file(vfs, vfs.namespace.child_of(from_dir, from)?, 1).await;
        let moved = vfs.namespace.rename(from_dir, from, to_dir, to).await?;
        for renewed in &moved.renewed {
            self.keep_bytes(vfs, renewed).await;
        }
        self.names_changed(vfs, was).await;
        Ok((around(from_dir, &moved.from_dir), around(to_dir, &moved.to_dir)))
    }

    async fn settle(&self, junction: JunctionId, patience: Duration) -> Option<u64> {
        self.buffer.settle_junction(junction, patience).await
    }
}

impl Through {
    /// Returns when nothing that was written to `range` of this file is still on its way to the origin. Tells what was
    /// lost of the file.
    async fn store(&self, id: FileId, range: ByteRange) -> Result<()> {
        if let Some(file) = self.buffer.get(id) {
            let asked = {
                let mut state = file.lock();
                let asked = state.ask_commit();
                state.take_error().map_or(Ok(asked), Err)
            };
            file.wake.notify_one();
            file.over(range, asked?).await;
            if let Some(lost) = file.lock().take_error() {
                return Err(lost);
            }
        }
        self.buffer.take_unreported(id).map_or(Ok(()), Err)
    }

    /// The ctime by which a change is guarded, as the origin has it: the client may know the time of the last write in its place.
    fn as_at_the_origin(&self, vfs: &Vfs, id: FileId, guard: Option<Timestamp>) -> Result<Option<Timestamp>> {
        let Found::Node(known) = vfs.namespace.getattr_known(id)? else { return Ok(guard) };
        let told = self.buffer.told.time(id, known.version(), self.buffer.now_ms());
        Ok(if guard.is_some() && guard == told { Some(known.attr().ctime) } else { guard })
    }

    /// A change that was made, or may have been, has times of its own.
    fn told_no_more<T>(&self, id: FileId, answer: Result<T>) -> Result<T> {
        if answer.as_ref().err().is_none_or(types::Error::may_have_happened) {
            self.buffer.told.forget(id);
        }
        answer
    }

    /// If bytes of the file are pending: nothing of it is sent until the guard is dropped.
    async fn hold(&self, id: FileId) -> Result<Option<ExclusiveAccess>> {
        let Some(file) = self.buffer.get(id) else { return Ok(None) };
        tokio::time::timeout(PATIENCE, file.hold()).await.map_err(|_| Vfs::busy(id))
    }

    /// Likewise, also if none are: what is written meanwhile waits too.
    async fn hold_all(&self, id: FileId) -> Result<ExclusiveAccess> {
        loop {
            let wanted = self.buffer.request(id)?;
            let held = tokio::time::timeout(PATIENCE, wanted.granted()).await.map_err(|_| Vfs::busy(id))?;
            if let Some(held) = held {
                return Ok(held);
            }
        }
    }

    /// Takes setuid and setgid from a file before the first byte that this caller writes to it, so that no program ever
    /// runs with its bytes and another's rights. A file without them costs nothing. A mode that somebody sets meanwhile
    /// is not undone: the change is made of the object that was looked at, or not at all.
    async fn end_privilege(&self, vfs: &Vfs, caller: &Caller, file: &Node) -> Result<()> {
        if permission::mode_after_write(caller, &file.attr).is_none() {
            return Ok(());
        }
        let (id, tier) = (file.id, Caller { trusted: true, ..Caller::root() });
        for _ in 0..PRIVILEGE_TRIES {
            self.store(id, WHOLE).await?;
            let now = vfs.object(id, Ask::Use).await?;
            let Some(mode) = permission::mode_after_write(caller, &now.attr) else { return Ok(()) };
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            match vfs.setattr(&tier, id, set, Some(now.attr.ctime)).await {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::VersionChanged => {
                    vfs.namespace.refresh_changed(id).await?;
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
}

/// With the numbers that clients know.
fn around(dir: FileId, told: &origin::Around) -> AttrsAround {
    let after = told.after.as_ref().map(|object| outward(dir, &object.attr));
    AttrsAround { before: told.before.map(|before| before.attr), after }
}
