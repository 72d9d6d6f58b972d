//! A new file that nobody sees before all of it is at the origin: its bytes go to a draft there, many pieces at a time,
//! and become the file of their name by one change. Only origins that have drafts offer that; elsewhere a file is made
//! under another name and renamed.
//!
//! What was sent is given to the cache as it goes, under a version that no origin gives, and under the file's own when
//! it is published: so a reader has it at once, and memory is not needed for all of it.
//!
//! A draft belongs to its writer alone. It does not touch what is written to the file that it may replace: those writers
//! find the file changed, as by others.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cache::CacheKey;
use fetch::key_of;
use namespace::{Found, KnownNode};
use origin::{Draft, Origin, PartReceipt, PartedFile, Reference, Replacing};
use tokio::task::JoinSet;
use types::{
    Caller, Error, ErrorKind, FileId, JunctionId, Name, Result, SetAttr, Stability, Version, WriteVerifier,
};
use write_buffer::BudgetPermit;

use super::buffer::WriteBuffer;
use super::sender::parts_in_flight;
use super::{Through, around};
use crate::change_results::Made;
use crate::{Node, Vfs};

/// The bytes of one write.
const PIECE: usize = 1 << 20;
/// So many bytes are given to the cache at a time.
const LAID_AT: u64 = 4 << 20;

/// A file that is being written from its beginning to its end. Dropped before it is published, it leaves nothing.
pub struct DraftFile {
    vfs: Arc<Vfs>,
    junction: JunctionId,
    name: Name,
    draft: OpenDraft,
    /// Bytes that do not make a piece yet.
    gathered: BytesMut,
    /// The bytes that were given to the origin.
    end: u64,
    sends: JoinSet<Result<WriteVerifier>>,
    verifier: Option<WriteVerifier>,
    cached: CachedDraft,
}

/// The draft at its origin; discarded when this goes, also after it was published: the origin remembers until then what
/// became of it.
struct OpenDraft {
    origin: Arc<dyn Origin>,
    reference: Reference,
    is_closed: bool,
}

impl OpenDraft {
    async fn close(&mut self) {
        self.is_closed = true;
        discard(&*self.origin, &self.reference).await;
    }
}

impl Drop for OpenDraft {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let (origin, reference) = (self.origin.clone(), self.reference.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { discard(&*origin, &reference).await });
        }
    }
}

async fn discard(origin: &dyn Origin, draft: &Reference) {
    if let Err(e) = origin.discard(draft).await {
        tracing::warn!("what was written of a file stays at its origin: {e}");
    }
}

/// What the cache has of it.
struct CachedDraft {
    buffer: Arc<WriteBuffer>,
    /// Under which it lies there, so far.
    key: CacheKey,
    /// What follows that, with its room in the budget.
    next: Vec<(u64, Bytes)>,
    room: Vec<BudgetPermit>,
}

impl CachedDraft {
    fn new(buffer: &Arc<WriteBuffer>, id: FileId) -> CachedDraft {
        let nothing = CacheKey { file: id, version: Version([0; 16]), size: 0 };
        let key = buffer.provisional(&nothing, 0);
        CachedDraft { buffer: buffer.clone(), key, next: Vec::new(), room: Vec::new() }
    }

    fn add(&mut self, offset: u64, data: Bytes, room: BudgetPermit) {
        self.next.push((offset, data));
        self.room.push(room);
    }

    fn waiting(&self) -> u64 {
        self.next.iter().map(|(_, data)| data.len() as u64).sum()
    }

    /// Gives to the cache what is here, as of this version.
    async fn lay(&mut self, key: CacheKey) {
        let written = std::mem::take(&mut self.next);
        self.buffer.cache.rebase(self.key, key, written, Vec::new()).await;
        self.room.clear();
        self.key = key;
    }

    /// How far the file reaches of which the cache has all bytes.
    fn end(&self) -> u64 {
        self.key.size + self.waiting()
    }

    async fn lay_aside(&mut self) {
        if let Some((offset, data)) = self.next.last() {
            let key = self.buffer.provisional(&self.key, offset + data.len() as u64);
            self.lay(key).await;
        }
    }

    async fn forget(&mut self) {
        self.next.clear();
        self.room.clear();
        self.buffer.cache.forget(self.key).await;
    }
}

impl Through {
    pub(super) async fn begin_draft(
        &self,
        vfs: &Arc<Vfs>,
        dir: &Node,
        name: &Name,
        set: SetAttr,
    ) -> Result<Option<DraftFile>> {
        let Found::Node(known) = vfs.namespace.getattr_known(dir.id)? else {
            return Err(Error::new(ErrorKind::ReadOnly, "create a file in", dir.id));
        };
        let begin = |node: Arc<KnownNode>| async move {
            let (origin, reference) = vfs.namespace.origin_of(&node)?;
            Ok((origin.draft(&reference, name, &set).await?, origin))
        };
        let (Some(draft), origin) = vfs.namespace.ask_healed(known, begin).await? else { return Ok(None) };
        Ok(Some(self.open_draft(vfs, (dir, name), (draft, origin), 0)))
    }

    /// A draft of bytes that the origin has already, in parts. The cache has none of them.
    pub(super) async fn assemble_draft(
        &self,
        vfs: &Arc<Vfs>,
        (dir, name): (&Node, &Name),
        file: &PartedFile,
        parts: &[PartReceipt],
    ) -> Result<DraftFile> {
        let Found::Node(known) = vfs.namespace.getattr_known(dir.id)? else {
            return Err(Error::new(ErrorKind::ReadOnly, "create a file in", dir.id));
        };
        let assemble = |node: Arc<KnownNode>| async move {
            let (origin, reference) = vfs.namespace.origin_of(&node)?;
            Ok((origin.draft_of_parts(file, (&reference, name), parts).await?, origin))
        };
        let begun = vfs.namespace.ask_healed(known, assemble).await?;
        let size = parts.iter().map(|part| part.size).sum();
        Ok(self.open_draft(vfs, (dir, name), begun, size))
    }

    /// `end`: the bytes that the origin has of it.
    fn open_draft(
        &self,
        vfs: &Arc<Vfs>,
        (dir, name): (&Node, &Name),
        (draft, origin): (Draft, Arc<dyn Origin>),
        end: u64,
    ) -> DraftFile {
        let id = vfs.namespace.id_of(dir.junction, &draft.identity);
        DraftFile {
            vfs: vfs.clone(),
            junction: dir.junction,
            name: name.clone(),
            draft: OpenDraft { origin, reference: draft.reference, is_closed: false },
            gathered: BytesMut::new(),
            end,
            sends: JoinSet::new(),
            verifier: None,
            cached: CachedDraft::new(&self.buffer, id),
        }
    }
}

impl DraftFile {
    /// The bytes so far.
    pub fn length(&self) -> u64 {
        self.end + self.gathered.len() as u64
    }

    /// Takes the next bytes. Waits while too much is under way. After an error nothing can come of it any more.
    pub async fn append(&mut self, mut data: Bytes) -> Result<()> {
        if self.gathered.is_empty() {
            while data.len() >= PIECE {
                let piece = data.split_to(PIECE);
                self.send(piece).await?;
            }
        }
        self.gathered.extend_from_slice(&data);
        while self.gathered.len() >= PIECE {
            let piece = self.gathered.split_to(PIECE).freeze();
            self.send(piece).await?;
        }
        Ok(())
    }

    async fn send(&mut self, data: Bytes) -> Result<()> {
        let room = self.room(data.len()).await;
        while self.sends.len() >= parts_in_flight(&*self.draft.origin, PIECE as u64) {
            self.one_is_sent().await?;
        }
        let (buffer, offset) = (self.cached.buffer.clone(), self.end);
        let (origin, reference, piece) =
            (self.draft.origin.clone(), self.draft.reference.clone(), data.clone());
        self.sends.spawn(async move {
            let _turn = buffer.parts.acquire().await;
            buffer.metrics.sent_parts.inc();
            buffer.metrics.sent_bytes.inc_by(piece.len() as u64);
            let told = origin.write(&reference, offset, piece, Stability::Unstable).await?;
            Ok(told.verifier)
        });
        self.end += data.len() as u64;
        self.cached.add(offset, data, room);
        if self.cached.waiting() >= LAID_AT {
            self.cached.lay_aside().await;
        }
        Ok(())
    }

    /// Room in the budget. Who waits for it keeps none that can be given back.
    async fn room(&mut self, length: usize) -> BudgetPermit {
        if let Some(room) = self.cached.buffer.try_permit(length) {
            return room;
        }
        self.cached.lay_aside().await;
        self.cached.buffer.permit(length).await
    }

    async fn one_is_sent(&mut self) -> Result<()> {
        let Some(sent) = self.sends.join_next().await else { return Ok(()) };
        let failed = |e| Error::new(ErrorKind::Io, "write", &self.name).with_source(e);
        let verifier = sent.map_err(failed)??;
        match self.verifier.replace(verifier) {
            Some(before) if before != verifier => Err(Error::new(
                ErrorKind::Unavailable,
                "write a file whose first bytes were lost,",
                &self.name,
            )),
            _ => Ok(()),
        }
    }

    /// Returns when the origin has all that was appended.
    pub async fn store(&mut self) -> Result<()> {
        let rest = self.gathered.split().freeze();
        if !rest.is_empty() {
            self.send(rest).await?;
        }
        while !self.sends.is_empty() {
            self.one_is_sent().await?;
        }
        Ok(())
    }

    /// Makes what was appended the file of its name in `dir`, which has the place that the draft was begun in: all of it
    /// at once, and durably. May be asked for again.
    pub async fn publish(&mut self, caller: &Caller, dir: FileId, over: Replacing) -> Result<Made> {
        self.store().await?;
        let vfs = self.vfs.clone();
        let parent = vfs.dir_to_replace_in(caller, dir, &self.name).await?;
        if parent.junction != self.junction {
            return Err(Error::new(ErrorKind::CrossDevice, "publish a draft in", dir));
        }
        let _inside = vfs.leaving.enter(self.junction).await?;
        let made = vfs.namespace.publish(dir, &self.name, &self.draft.reference, over).await?;
        let node = vfs.node(&made.found);
        self.cached.buffer.told.forget(node.id);
        match key_of(&made.found) {
            Ok(key)
                if key.file == self.cached.key.file
                    && key.size == self.end
                    && self.cached.end() == self.end =>
            {
                self.cached.lay(key).await
            }
            _ => self.cached.forget().await,
        }
        self.draft.close().await;
        Ok(Made { node, dir: around(dir, &made.dir) })
    }

    /// Gives up what was written.
    pub async fn discard(mut self) {
        self.sends.shutdown().await;
        self.draft.close().await;
        self.cached.forget().await;
    }
}
