//! What is being written to an object: stores take it whole or in large parts, and show it when it is complete.
//!
//! Bytes wait in memory until a part is full; that part travels while the next ones fill. A commit brings what is left,
//! takes from the object what was not written (the store copies it, where it is a whole part), and completes it on the
//! condition that the object still is what it was when the draft began. Until then everybody sees that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use types::{ByteRange, Error, ErrorKind, Result, Timestamp};

use crate::geometry::{PART, PART_LEAST, part_at, parts_of};
use crate::store::{Condition, Made, Metadata, Part, Source, Stat, Store, Upload};
use crate::turns::Turns;

pub struct Draft {
    key: String,
    /// The object as it is until this is complete.
    pub base: Stat,
    /// Stored with what this becomes, and with nothing else: an answer that got lost is not missed.
    mark: (String, String),
    /// Under which names times are stored, of which bytes that are written make an end.
    times: [&'static str; 2],
    /// Writers side by side, and alone who completes.
    gate: RwLock<()>,
    /// Who has the store begin an upload.
    begins: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// Bytes that the object will have.
    size: u64,
    /// Of the base's bytes these, from the first, are still part of it: a cut, and what was behind it stays away.
    kept: u64,
    metadata: Metadata,
    /// It has times that are to be stored with what is written.
    described: bool,
    /// Something is to be completed.
    changed: bool,
    /// Counts the changes.
    changes: u64,
    /// How many there were when it was to be completed for the first time.
    tried_at: Option<u64>,
    /// Completed, or given up: who wants to write begins another one.
    over: bool,
    upload: Option<Upload>,
    parts: BTreeMap<u32, PartState>,
    /// The base is taken into the upload whole, as the part of this number.
    joined: Option<u32>,
}

impl State {
    /// Those of the last write are the store's. An upload has been told already what is stored with it.
    fn forget_times(&mut self, names: [&'static str; 2]) {
        if !self.described && self.upload.is_none() {
            names.into_iter().for_each(|name| drop(self.metadata.remove(name)));
        }
    }
}

enum PartState {
    Filling(Filling),
    /// On its way.
    Sent,
    Stored(Part),
}

impl State {
    /// Nothing more can be written to it.
    fn is_sent(&self, number: u32) -> bool {
        self.parts.get(&number).is_some_and(|part| !matches!(part, PartState::Filling(_)))
            || self.joined.is_some_and(|last| number <= last + 1)
    }

    /// The store has the last part as it was when it was to be completed: nothing goes behind that.
    fn ends(&self) -> bool {
        let last = self.size.checked_sub(1).and_then(part_at);
        last.is_some_and(|(number, range)| range.end() > self.size && self.is_sent(number))
    }

    /// Where what was written lies behind all of the base, the last of the parts that the base fills.
    fn whole_base(&self, base: u64) -> Option<u32> {
        let (next, range) = part_at(base)?;
        let last = next - 1;
        let touched = match self.parts.get(&next) {
            None => false,
            Some(PartState::Filling(filling)) => {
                filling.written.first().is_some_and(|(from, _)| range.offset + (*from as u64) < base)
            }
            Some(PartState::Sent | PartState::Stored(_)) => range.offset < base,
        };
        let is_whole = self.kept == base && self.size >= base && !touched;
        (is_whole && last > 0 && self.parts.range(..next).next().is_none()).then_some(last)
    }
}

#[derive(Clone)]
struct Filling {
    bytes: BytesMut,
    /// Ranges of it that were written, relative to its beginning: apart, in order.
    written: Vec<(usize, usize)>,
}

impl Filling {
    fn new() -> Filling {
        Filling { bytes: BytesMut::new(), written: Vec::new() }
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
        let (mut from, mut to) = (at, end);
        self.written.retain(|(a, b)| {
            let touches = *a <= to && from <= *b;
            if touches {
                (from, to) = (from.min(*a), to.max(*b));
            }
            !touches
        });
        let place = self.written.partition_point(|(a, _)| *a < from);
        self.written.insert(place, (from, to));
    }

    fn is_full(&self, length: usize) -> bool {
        self.written.first() == Some(&(0, length))
    }

    fn cut(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.written.retain_mut(|(from, to)| {
            *to = (*to).min(length);
            from < to
        });
    }

    /// Without what is in front of that.
    fn behind(mut self, at: usize) -> Filling {
        let bytes = if at < self.bytes.len() { self.bytes.split_off(at) } else { BytesMut::new() };
        let written = self.written.into_iter().filter(|(_, to)| *to > at);
        Filling { bytes, written: written.map(|(from, to)| (from.saturating_sub(at), to - at)).collect() }
    }

    /// What was not written, of a part of this length.
    fn holes(&self, length: usize) -> Vec<(usize, usize)> {
        let (mut holes, mut at) = (Vec::new(), 0);
        for (from, to) in &self.written {
            if at < *from {
                holes.push((at, *from));
            }
            at = *to;
        }
        if at < length {
            holes.push((at, length));
        }
        holes
    }
}

/// What a write found.
pub enum Wrote {
    Taken,
    /// These bytes lie in a part that the store has already: what was written until now must be completed first.
    Behind,
    /// The draft is over.
    Over,
}

/// The object that a draft became.
#[derive(Debug)]
pub struct Completed {
    pub etag: String,
    pub size: u64,
    pub metadata: Metadata,
    /// `None`: only a look at it tells.
    pub modified: Option<Timestamp>,
}

impl Completed {
    pub fn stat(&self) -> Option<Stat> {
        self.modified.map(|modified| self.stat_at(modified))
    }

    pub fn stat_at(&self, modified: Timestamp) -> Stat {
        Stat { size: self.size, etag: self.etag.clone(), modified, metadata: self.metadata.clone() }
    }
}

impl Draft {
    /// `mark`: the name of the metadata that tells one draft from all others, and this one's.
    pub fn new(key: String, base: Stat, mark: (String, String), times: [&'static str; 2]) -> Arc<Draft> {
        let mut metadata = base.metadata.clone();
        metadata.insert(mark.0.clone(), mark.1.clone());
        let state = State {
            size: base.size,
            kept: base.size,
            metadata,
            described: false,
            changed: false,
            changes: 0,
            tried_at: None,
            over: false,
            upload: None,
            parts: BTreeMap::new(),
            joined: None,
        };
        Arc::new(Draft {
            key,
            base,
            mark,
            times,
            gate: RwLock::new(()),
            begins: Default::default(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in memory.
    pub fn held(&self) -> u64 {
        let state = self.state();
        let held = state.parts.values().map(|part| match part {
            PartState::Filling(filling) => filling.bytes.len() as u64,
            PartState::Sent | PartState::Stored(_) => 0,
        });
        held.sum()
    }

    pub async fn write(&self, store: &dyn Store, turns: &Turns, offset: u64, data: &Bytes) -> Result<Wrote> {
        let _gate = self.gate.read().await;
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
            if state.over {
                return Ok(Wrote::Over);
            }
            if pieces.iter().any(|(number, ..)| state.is_sent(*number)) || end > state.size && state.ends() {
                return Ok(Wrote::Behind);
            }
            let mut full = Vec::new();
            for (number, part, range) in &pieces {
                let place = state.parts.entry(*number).or_insert_with(|| PartState::Filling(Filling::new()));
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
        // If one of them fails, or the caller goes away, all that are not stored go back.
        let back = |(number, bytes)| Back { draft: self, number, bytes: Some(bytes) };
        let all: Vec<Back<'_>> = full.into_iter().map(back).collect();
        for part in all {
            self.send(store, turns, part).await?;
        }
        Ok(Wrote::Taken)
    }

    /// A part that fails goes back to where it was, so that it can be asked for again.
    async fn send(&self, store: &dyn Store, turns: &Turns, back: Back<'_>) -> Result<()> {
        let (number, bytes) = (back.number, back.bytes.clone().unwrap_or_default());
        let sent = async {
            let upload = self.upload(store).await?;
            let _turn = turns.take().await;
            store.part(&upload, number, bytes).await
        };
        let part = sent.await?;
        back.stored(part);
        Ok(())
    }

    /// Begun by the first part that is full; the others wait for that.
    async fn upload(&self, store: &dyn Store) -> Result<Upload> {
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

    /// Longer with zeros, or shorter, when it is completed. `false`: what the store has of it must be completed first.
    pub async fn resize(&self, size: u64) -> bool {
        let _gate = self.gate.write().await;
        let mut state = self.state();
        let sent = state.parts.values().any(|part| !matches!(part, PartState::Filling(_)));
        if state.over || sent || state.joined.is_some() {
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

    /// What would be stored with it now.
    pub fn metadata(&self) -> Metadata {
        self.state().metadata.clone()
    }

    /// What is stored with it from when it is completed.
    pub async fn describe(&self, mut metadata: Metadata) -> bool {
        metadata.insert(self.mark.0.clone(), self.mark.1.clone());
        let _gate = self.gate.write().await;
        let mut state = self.state();
        // An upload has been told already what is stored with it.
        if state.over || state.upload.is_some() {
            return false;
        }
        (state.metadata, state.described, state.changed) = (metadata, true, true);
        state.changes += 1;
        true
    }

    /// `None` if there was nothing to do. Nothing can be written to it afterwards. `changed` is told when the object is
    /// another one, and what it is if that is known, before any writer finds this draft over.
    pub async fn complete(
        &self,
        store: &Arc<dyn Store>,
        turns: &Arc<Turns>,
        changed: &(dyn Fn(Option<&Stat>) + Sync),
    ) -> Result<Option<Completed>> {
        let _gate = self.gate.write().await;
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
            self.put_whole(&**store, size).await
        } else {
            self.complete_parts(store, turns, size).await
        };
        match done {
            Ok(Made { etag, modified }) => {
                let completed = Completed { etag, size, metadata: self.metadata(), modified };
                changed(completed.stat().as_ref());
                self.state().over = true;
                Ok(Some(completed))
            }
            // The object is another one now: what was written on the old one is not for it.
            Err(e) if matches!(e.kind(), ErrorKind::VersionChanged | ErrorKind::NotFound) => {
                let ours = self.was_completed(&**store, size).await?;
                changed(ours.as_ref());
                // Parts may still be there, which are not needed any more.
                self.give_up(&**store).await;
                if let Some(Stat { size, etag, modified, metadata }) = ours {
                    return Ok(Some(Completed { etag, size, metadata, modified: Some(modified) }));
                }
                Err(Error::new(ErrorKind::VersionChanged, "complete", &self.key).with_source(e))
            }
            Err(e) => Err(e),
        }
    }

    /// By a call before this one, whose answer nobody heard: the object is ours then. Not what was written since.
    async fn was_completed(&self, store: &dyn Store, size: u64) -> Result<Option<Stat>> {
        let same = {
            let state = self.state();
            state.tried_at == Some(state.changes)
        };
        let found = if same { store.head(&self.key).await? } else { None };
        Ok(found.filter(|stat| self.became(stat) && stat.size == size))
    }

    /// Is this what was stored of it?
    pub fn became(&self, stat: &Stat) -> bool {
        let (name, value) = &self.mark;
        stat.metadata.get(name) == Some(value)
    }

    /// What was written to it is lost, which `lost` tells before anybody finds the draft over.
    pub async fn abandon(&self, store: &dyn Store, lost: impl FnOnce()) {
        {
            let _gate = self.gate.write().await;
            let mut state = self.state();
            if state.over {
                return;
            }
            lost();
            state.over = true;
        }
        self.give_up(store).await;
    }

    /// Take the store's memory of it away.
    pub async fn give_up(&self, store: &dyn Store) {
        let upload = {
            let mut state = self.state();
            state.over = true;
            state.parts.clear();
            state.upload.take()
        };
        if let Some(upload) = upload
            && let Err(e) = store.abort(&upload).await
        {
            tracing::warn!("an incomplete upload stays at the store: {e}");
        }
    }

    /// Who waits for it may go away at any time: what was written stays here until the store has it.
    async fn put_whole(&self, store: &dyn Store, size: u64) -> Result<Made> {
        let (filling, kept, metadata) = {
            let state = self.state();
            let filling = match state.parts.get(&1) {
                Some(PartState::Filling(filling)) => filling.clone(),
                _ => Filling::new(),
            };
            (filling, state.kept, state.metadata.clone())
        };
        let whole = ByteRange::new(0, size);
        let bytes = fill(store, &self.key, &self.base, kept, whole, &filling).await?;
        store.put(&self.key, bytes, &metadata, Condition::Unchanged(&self.base.etag)).await
    }

    async fn complete_parts(&self, store: &Arc<dyn Store>, turns: &Arc<Turns>, size: u64) -> Result<Made> {
        let upload = self.upload(&**store).await?;
        let (kept, joined) = {
            let mut state = self.state();
            if state.joined.is_none() && store.joins() {
                state.joined = state.whole_base(self.base.size);
            }
            (state.kept, state.joined)
        };
        let mut sending = JoinSet::new();
        for (number, mut range) in parts_of(size) {
            let mut filling = match self.state().parts.get(&number) {
                Some(PartState::Stored(_)) => continue,
                None if joined.is_some_and(|last| number < last) => continue,
                Some(PartState::Filling(filling)) => filling.clone(),
                // The writer that was to bring it went away.
                Some(PartState::Sent) => {
                    let why = format!("a part of {} was never stored", self.key);
                    return Err(Error::new(ErrorKind::Unavailable, "complete", why));
                }
                None => Filling::new(),
            };
            let (store, turns, key, base) =
                (store.clone(), turns.clone(), self.key.clone(), self.base.clone());
            let upload = upload.clone();
            // One part is all of the base, and the next one begins where that ends.
            if joined == Some(number) {
                range = ByteRange::new(0, base.size);
            } else if joined.is_some() && range.offset < base.size {
                let at = base.size - range.offset;
                filling = filling.behind(at as usize);
                range = ByteRange::new(base.size, range.length - at);
            }
            if range.length == 0 {
                continue;
            }
            sending.spawn(async move {
                let _turn = turns.take().await;
                let last = range.end() == size;
                let whole = range.end() <= kept && (last || range.length >= PART_LEAST);
                if filling.written.is_empty() && whole {
                    let from = Source { key: &key, etag: &base.etag, size: base.size };
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
        let parts: Vec<Part> = {
            let state = self.state();
            let stored = state.parts.values().filter_map(|part| match part {
                PartState::Stored(part) => Some(part.clone()),
                PartState::Filling(_) | PartState::Sent => None,
            });
            stored.collect()
        };
        store.complete(&upload, &parts, Condition::Unchanged(&self.base.etag)).await
    }
}

/// The bytes of `range`: what was written, the base's where it was not, zeros where that has none.
async fn fill(
    store: &dyn Store,
    key: &str,
    base: &Stat,
    kept: u64,
    range: ByteRange,
    filling: &Filling,
) -> Result<Bytes> {
    let length = range.length as usize;
    let holes = filling.holes(length);
    let from_base = |(from, to): &(usize, usize)| {
        let end = (range.offset + *to as u64).min(kept);
        let start = range.offset + *from as u64;
        (start < end).then(|| ByteRange::new(start, end - start))
    };
    // One read from the first to the last byte that is needed: a round trip costs more than what lies between.
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

/// A part on its way: put back if it does not arrive.
struct Back<'a> {
    draft: &'a Draft,
    number: u32,
    bytes: Option<Bytes>,
}

impl Back<'_> {
    fn stored(mut self, part: Part) {
        self.bytes = None;
        self.draft.state().parts.insert(self.number, PartState::Stored(part));
    }
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let mut state = self.draft.state();
        if !state.over {
            let mut filling = Filling::new();
            filling.write(0, &bytes);
            state.parts.insert(self.number, PartState::Filling(filling));
        }
    }
}

#[cfg(test)]
mod tests;
