//! Writes to an object. Stores take an object whole or in large parts, and show it when it is complete.
//!
//! An [`ObjectWriter`] buffers bytes until a part is full; that part is uploaded while the next ones fill. A commit
//! uploads what is left, takes from the old object what was not written (the store copies whole parts), and
//! completes the new one on the condition that the object still is what it was when the writer began. Until then
//! everybody sees the old object. A draft has no old object, and is completed on the condition that its publisher
//! gives.

mod part_buffer;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use types::{ByteRange, Error, ErrorKind, Result, Timestamp};

use crate::geometry::{PART, PART_LEAST, part_at, parts_of};
use crate::part_pacer::PartPacer;
use crate::store::{
    CopySource, Metadata, MultipartUpload, ObjectStat, ObjectStore, Precondition, PutResult, UploadedPart,
};
use part_buffer::PartBuffer;
use state::{PartState, WriterState};

pub struct ObjectWriter {
    key: String,
    /// The object that the writer began on, which is shown until the new one is complete; of a draft, no bytes.
    pub base: ObjectStat,
    /// A mark that is stored with the new object and with no other, so that a completion whose answer was lost is
    /// recognized.
    mark: (String, String),
    /// The metadata names of stored times, which a write removes.
    times: [&'static str; 2],
    /// Shared by writes, exclusive for the completion.
    path_locks: RwLock<()>,
    /// Held while the store begins an upload.
    begins: tokio::sync::Mutex<()>,
    /// The upload and its parts are somebody else's, and stay unless they become the object.
    is_assembled: bool,
    state: Mutex<WriterState>,
}

/// The outcome of a write.
pub enum WriteOutcome {
    Taken,
    /// The bytes lie in a part that is sent already: what was written so far must be completed first.
    Behind,
    /// The writer is over.
    Over,
}

/// The object that was completed.
#[derive(Debug)]
pub struct CompletedObject {
    pub etag: String,
    pub size: u64,
    pub metadata: Metadata,
    /// `None`: only a HEAD tells it.
    pub modified: Option<Timestamp>,
}

impl CompletedObject {
    pub fn stat(&self) -> Option<ObjectStat> {
        self.modified.map(|modified| self.stat_at(modified))
    }

    pub fn stat_at(&self, modified: Timestamp) -> ObjectStat {
        ObjectStat { size: self.size, etag: self.etag.clone(), modified, metadata: self.metadata.clone() }
    }
}

impl ObjectWriter {
    /// `mark`: the metadata name and the unique value that mark the object of this writer.
    pub fn new(
        key: String,
        base: ObjectStat,
        mark: (String, String),
        times: [&'static str; 2],
    ) -> Arc<ObjectWriter> {
        let mut metadata = base.metadata.clone();
        metadata.insert(mark.0.clone(), mark.1.clone());
        let state = WriterState::over(base.size, metadata);
        Arc::new(ObjectWriter::with(key, base, mark, times, state))
    }

    /// A writer that begins on nothing: what is not written is zeros, and an object is made of it though nothing is.
    pub fn draft(
        key: String,
        metadata: Metadata,
        mark: (String, String),
        times: [&'static str; 2],
    ) -> Arc<ObjectWriter> {
        let nothing = ObjectStat {
            size: 0,
            etag: String::new(),
            modified: Timestamp { seconds: 0, nanos: 0 },
            metadata,
        };
        let writer = ObjectWriter::new(key, nothing, mark, times);
        writer.state().changed = true;
        writer
    }

    /// A writer of which nothing is missing but the completion: of these parts of an upload that others began, which are
    /// `size` bytes long. If the ETag of one is empty, the object is not completed, but found if it was.
    pub fn assembled(
        upload: MultipartUpload,
        parts: Vec<UploadedPart>,
        size: u64,
        mark: (String, String),
        times: [&'static str; 2],
    ) -> Arc<ObjectWriter> {
        let parts = parts.into_iter().map(|part| (part.number, PartState::Stored(part))).collect();
        let base = ObjectStat {
            size: 0,
            etag: String::new(),
            modified: Timestamp { seconds: 0, nanos: 0 },
            metadata: Metadata::new(),
        };
        let state = WriterState {
            kept: 0,
            described: true,
            changed: true,
            parts,
            upload: Some(upload.clone()),
            ..WriterState::over(size, upload.metadata.clone())
        };
        let writer = ObjectWriter::with(upload.key, base, mark, times, state);
        Arc::new(ObjectWriter { is_assembled: true, ..writer })
    }

    fn with(
        key: String,
        base: ObjectStat,
        mark: (String, String),
        times: [&'static str; 2],
        state: WriterState,
    ) -> ObjectWriter {
        ObjectWriter {
            key,
            base,
            mark,
            times,
            path_locks: RwLock::new(()),
            begins: Default::default(),
            is_assembled: false,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes in memory.
    pub fn buffered_bytes(&self) -> u64 {
        let state = self.state();
        let held = state.parts.values().map(|part| match part {
            PartState::Filling(filling) => filling.bytes.len() as u64,
            PartState::Sent | PartState::Stored(_) => 0,
        });
        held.sum()
    }

    pub async fn write(
        &self,
        store: &dyn ObjectStore,
        pacer: &PartPacer,
        offset: u64,
        data: &Bytes,
    ) -> Result<WriteOutcome> {
        let _gate = self.path_locks.read().await;
        let mut pieces = Vec::new();
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (number, part) = part_at(at).ok_or_else(|| {
                Error::new(ErrorKind::FileTooLarge, "write", format!("{at} bytes into {}", self.key))
            })?;
            let until = part.end().min(end);
            pieces.push((number, part, ByteRange::new(at, until - at)));
            at = until;
        }
        let full = {
            let mut state = self.state();
            if state.over || self.is_assembled {
                return Ok(WriteOutcome::Over);
            }
            if pieces.iter().any(|(number, ..)| state.is_sent(*number))
                || end > state.size && state.is_end_sent()
            {
                return Ok(WriteOutcome::Behind);
            }
            let mut full = Vec::new();
            for (number, part, range) in &pieces {
                let place =
                    state.parts.entry(*number).or_insert_with(|| PartState::Filling(PartBuffer::new()));
                let PartState::Filling(filling) = place else { continue };
                let from = (range.offset - offset) as usize;
                filling
                    .write((range.offset - part.offset) as usize, &data[from..from + range.length as usize]);
                if filling.is_full(part.length as usize) {
                    full.push((*number, std::mem::take(&mut filling.bytes).freeze()));
                    *place = PartState::Sent;
                }
            }
            (state.size, state.changed) = (state.size.max(end), true);
            state.changes += 1;
            state.forget_times(self.times);
            full
        };
        // If one of them fails, or the caller is dropped, all parts that are not stored are put back.
        let back = |(number, bytes)| UnsentPart { writer: self, number, bytes: Some(bytes) };
        let all: Vec<UnsentPart<'_>> = full.into_iter().map(back).collect();
        for part in all {
            self.send(store, pacer, part).await?;
        }
        Ok(WriteOutcome::Taken)
    }

    /// Uploads a part; one that fails is put back into its buffer, so that it can be retried.
    async fn send(&self, store: &dyn ObjectStore, pacer: &PartPacer, back: UnsentPart<'_>) -> Result<()> {
        let (number, bytes) = (back.number, back.bytes.clone().unwrap_or_default());
        let sent = async {
            let upload = self.upload(store).await?;
            let _turn = pacer.acquire().await;
            store.part(&upload, number, bytes).await
        };
        let part = sent.await?;
        back.stored(part);
        Ok(())
    }

    /// The upload, begun by the first full part; the others wait for that.
    async fn upload(&self, store: &dyn ObjectStore) -> Result<MultipartUpload> {
        let known = || self.state().upload.clone();
        if let Some(upload) = known() {
            return Ok(upload);
        }
        let _begins = self.begins.lock().await;
        if let Some(upload) = known() {
            return Ok(upload);
        }
        let metadata = self.state().metadata.clone();
        let upload = store.begin(&self.key, &metadata).await?;
        self.state().upload = Some(upload.clone());
        Ok(upload)
    }

    /// Sets the size that the object will have. `false`: the parts that are sent must be completed first.
    pub async fn resize(&self, size: u64) -> bool {
        let _gate = self.path_locks.write().await;
        let mut state = self.state();
        let sent = state.parts.values().any(|part| !matches!(part, PartState::Filling(_)));
        if self.is_assembled || state.over || sent || state.composed.is_some() {
            return false;
        }
        state.kept = state.kept.min(size);
        let parts = std::mem::take(&mut state.parts);
        state.parts = parts
            .into_iter()
            .filter_map(|(number, part)| {
                let (_, range) = parts_of(size).into_iter().find(|(known, _)| *known == number)?;
                let PartState::Filling(mut filling) = part else { return None };
                filling.cut(range.length as usize);
                Some((number, PartState::Filling(filling)))
            })
            .collect();
        (state.size, state.changed) = (size, true);
        state.changes += 1;
        state.forget_times(self.times);
        true
    }

    /// The metadata that would be stored with the object now.
    pub fn metadata(&self) -> Metadata {
        self.state().metadata.clone()
    }

    /// Sets the metadata of the object. `false`: an upload has begun with other metadata.
    pub async fn describe(&self, mut metadata: Metadata) -> bool {
        metadata.insert(self.mark.0.clone(), self.mark.1.clone());
        let _gate = self.path_locks.write().await;
        let mut state = self.state();
        // The metadata of an upload is fixed when it begins.
        if state.over || state.upload.is_some() {
            return false;
        }
        (state.metadata, state.described, state.changed) = (metadata, true, true);
        state.changes += 1;
        true
    }

    /// The condition under which the writer of an object completes it.
    pub fn unchanged(&self) -> Precondition<'_> {
        Precondition::Unchanged(&self.base.etag)
    }

    /// Completes the object, if the condition holds; nothing can be written afterwards. `None` if there was nothing to
    /// do. `changed` is called with the new object, if it is known, before any write finds this writer over.
    pub async fn complete(
        &self,
        store: &Arc<dyn ObjectStore>,
        pacer: &Arc<PartPacer>,
        condition: Precondition<'_>,
        changed: &(dyn Fn(Option<&ObjectStat>) + Sync),
    ) -> Result<Option<CompletedObject>> {
        let _gate = self.path_locks.write().await;
        let (size, is_changed, over) = {
            let mut state = self.state();
            let changes = state.changes;
            state.tried_at.get_or_insert(changes);
            (state.size, state.changed, state.over)
        };
        if !is_changed || over {
            self.state().over = true;
            return Ok(None);
        }
        let done = if self.state().upload.is_none() && size <= PART {
            self.put_whole(&**store, size, condition).await
        } else {
            self.complete_parts(store, pacer, size, condition).await
        };
        match done {
            Ok(PutResult { etag, modified }) => {
                let completed = CompletedObject { etag, size, metadata: self.metadata(), modified };
                changed(completed.stat().as_ref());
                self.state().over = true;
                Ok(Some(completed))
            }
            // The object was replaced: what was written to the old one is not for the new one.
            Err(e) if matches!(e.kind(), ErrorKind::VersionChanged | ErrorKind::NotFound) => {
                let ours = self.was_completed(&**store, size).await?;
                changed(ours.as_ref());
                // The store may still have parts, which are not needed any more.
                self.give_up(&**store).await;
                if let Some(ObjectStat { size, etag, modified, metadata }) = ours {
                    return Ok(Some(CompletedObject { etag, size, metadata, modified: Some(modified) }));
                }
                // Without its upload nothing can come of it; that is no matter of conditions.
                let is_gone = self.is_assembled && e.kind() == ErrorKind::NotFound;
                let kind = if is_gone { ErrorKind::InvalidArgument } else { ErrorKind::VersionChanged };
                Err(Error::new(kind, "complete", &self.key).with_source(e))
            }
            Err(e) => Err(e),
        }
    }

    /// Whether an earlier attempt, whose answer was lost, has completed the object; not what was written since.
    async fn was_completed(&self, store: &dyn ObjectStore, size: u64) -> Result<Option<ObjectStat>> {
        let same = {
            let state = self.state();
            state.tried_at == Some(state.changes)
        };
        let found = if same { store.head(&self.key).await? } else { None };
        Ok(found.filter(|stat| self.is_result(stat) && stat.size == size))
    }

    /// Whether this is the object that this writer made.
    pub fn is_result(&self, stat: &ObjectStat) -> bool {
        let (name, value) = &self.mark;
        stat.metadata.get(name) == Some(value)
    }

    /// Gives up what was written; `lost` is called before anybody finds the writer over.
    pub async fn abandon(&self, store: &dyn ObjectStore, lost: impl FnOnce()) {
        {
            let _gate = self.path_locks.write().await;
            let mut state = self.state();
            if state.over {
                return;
            }
            lost();
            state.over = true;
        }
        self.give_up(store).await;
    }

    /// Ends the writer, and aborts its upload.
    pub async fn give_up(&self, store: &dyn ObjectStore) {
        let upload = {
            let mut state = self.state();
            state.over = true;
            state.parts.clear();
            state.upload.take()
        };
        if let Some(upload) = upload.filter(|_| !self.is_assembled)
            && let Err(e) = store.abort(&upload).await
        {
            tracing::warn!("an incomplete upload stays at the store: {e}");
        }
    }

    /// The caller may be dropped at any time: the bytes stay here until the store has them.
    async fn put_whole(
        &self,
        store: &dyn ObjectStore,
        size: u64,
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let (filling, kept, metadata) = {
            let state = self.state();
            let filling = match state.parts.get(&1) {
                Some(PartState::Filling(filling)) => filling.clone(),
                _ => PartBuffer::new(),
            };
            (filling, state.kept, state.metadata.clone())
        };
        let whole = ByteRange::new(0, size);
        let bytes = fill(store, &self.key, &self.base, kept, whole, &filling).await?;
        store.put(&self.key, bytes, &metadata, condition).await
    }

    async fn complete_parts(
        &self,
        store: &Arc<dyn ObjectStore>,
        pacer: &Arc<PartPacer>,
        size: u64,
        condition: Precondition<'_>,
    ) -> Result<PutResult> {
        let upload = self.upload(&**store).await?;
        if self.is_assembled && self.state().lacks_etag() {
            return Err(Error::new(ErrorKind::NotFound, "complete without all parts", &self.key));
        }
        let (kept, composed) = {
            let mut state = self.state();
            if state.composed.is_none() && store.composes() {
                state.composed = state.whole_base(self.base.size);
            }
            (state.kept, state.composed)
        };
        let mut sending = JoinSet::new();
        let missing = if self.is_assembled { Vec::new() } else { parts_of(size) };
        for (number, mut range) in missing {
            let mut filling = match self.state().parts.get(&number) {
                Some(PartState::Stored(_)) => continue,
                None if composed.is_some_and(|last| number < last) => continue,
                Some(PartState::Filling(filling)) => filling.clone(),
                // The write that was to upload it was dropped.
                Some(PartState::Sent) => {
                    let why = format!("a part of {} was never stored", self.key);
                    return Err(Error::new(ErrorKind::Unavailable, "complete", why));
                }
                None => PartBuffer::new(),
            };
            let (store, pacer, key, base) =
                (store.clone(), pacer.clone(), self.key.clone(), self.base.clone());
            let upload = upload.clone();
            // One part is the whole base, and the next one begins where it ends.
            if composed == Some(number) {
                range = ByteRange::new(0, base.size);
            } else if composed.is_some() && range.offset < base.size {
                let at = base.size - range.offset;
                filling = filling.behind(at as usize);
                range = ByteRange::new(base.size, range.length - at);
            }
            if range.length == 0 {
                continue;
            }
            sending.spawn(async move {
                let _turn = pacer.acquire().await;
                let last = range.end() == size;
                let whole = range.end() <= kept && (last || range.length >= PART_LEAST);
                if filling.written.is_empty() && whole {
                    let from = CopySource { key: &key, etag: &base.etag, size: base.size };
                    return store.part_of(&upload, number, from, range).await;
                }
                let bytes = fill(&*store, &key, &base, kept, range, &filling).await?;
                store.part(&upload, number, bytes).await
            });
        }
        while let Some(part) = sending.join_next().await {
            let part =
                part.map_err(|e| Error::new(ErrorKind::Io, "complete", &self.key).with_source(e))??;
            self.state().parts.insert(part.number, PartState::Stored(part));
        }
        let parts: Vec<UploadedPart> = {
            let state = self.state();
            let stored = state.parts.values().filter_map(|part| match part {
                PartState::Stored(part) => Some(part.clone()),
                PartState::Filling(_) | PartState::Sent => None,
            });
            stored.collect()
        };
        store.complete(&upload, &parts, condition).await
    }
}

/// The bytes of `range`: what was written, else the base's, else zeros.
async fn fill(
    store: &dyn ObjectStore,
    key: &str,
    base: &ObjectStat,
    kept: u64,
    range: ByteRange,
    filling: &PartBuffer,
) -> Result<Bytes> {
    let length = range.length as usize;
    let holes = filling.holes(length);
    let from_base = |(from, to): &(usize, usize)| {
        let end = (range.offset + *to as u64).min(kept);
        let start = range.offset + *from as u64;
        (start < end).then(|| ByteRange::new(start, end - start))
    };
    // One read spans all missing bytes: a round trip costs more than what lies between.
    let needed: Vec<ByteRange> = holes.iter().filter_map(from_base).collect();
    let mut bytes = filling.bytes.clone();
    bytes.resize(length, 0);
    if let (Some(first), Some(last)) = (needed.first(), needed.last()) {
        let all = ByteRange::new(first.offset, last.end() - first.offset);
        let got = store.get(key, Some(&base.etag), all).await?;
        for hole in &needed {
            let (to, from) = ((hole.offset - range.offset) as usize, (hole.offset - all.offset) as usize);
            let length = hole.length as usize;
            bytes[to..to + length].copy_from_slice(&got.data[from..from + length]);
        }
    }
    Ok(bytes.freeze())
}

/// A part in flight; dropped, it is put back into its buffer.
struct UnsentPart<'a> {
    writer: &'a ObjectWriter,
    number: u32,
    bytes: Option<Bytes>,
}

impl UnsentPart<'_> {
    fn stored(mut self, part: UploadedPart) {
        self.bytes = None;
        self.writer.state().parts.insert(self.number, PartState::Stored(part));
    }
}

impl Drop for UnsentPart<'_> {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let mut state = self.writer.state();
        if !state.over {
            let mut filling = PartBuffer::new();
            filling.write(0, &bytes);
            state.parts.insert(self.number, PartState::Filling(filling));
        }
    }
}

#[cfg(test)]
mod tests;
