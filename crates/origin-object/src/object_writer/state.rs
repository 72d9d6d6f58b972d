//! What a writer knows of its object: its size and metadata to be, and how far each part is. Pure.

use std::collections::BTreeMap;

use super::part_buffer::PartBuffer;
use crate::geometry::part_at;
use crate::store::{Metadata, MultipartUpload, UploadedPart};

pub struct WriterState {
    /// The size that the object will have.
    pub size: u64,
    /// The leading bytes of the base that are still part of the object: what a truncation cut off stays away.
    pub kept: u64,
    pub metadata: Metadata,
    /// Times were set that are to be stored with what is written.
    pub described: bool,
    /// There is something to complete.
    pub changed: bool,
    /// The number of changes.
    pub changes: u64,
    /// The number of changes at the first attempt to complete.
    pub tried_at: Option<u64>,
    /// Completed or given up: the next write needs another writer.
    pub over: bool,
    pub upload: Option<MultipartUpload>,
    pub parts: BTreeMap<u32, PartState>,
    /// The base is composed into the upload as a whole, as the part of this number.
    pub composed: Option<u32>,
}

pub enum PartState {
    Filling(PartBuffer),
    /// In flight.
    Sent,
    Stored(UploadedPart),
}

impl WriterState {
    /// Nothing is changed yet of a base of this size.
    pub fn over(size: u64, metadata: Metadata) -> WriterState {
        WriterState {
            size,
            kept: size,
            metadata,
            described: false,
            changed: false,
            changes: 0,
            tried_at: None,
            over: false,
            upload: None,
            parts: BTreeMap::new(),
            composed: None,
        }
    }

    /// Removes the stored times: the time of the last write is the store's own. The metadata of an upload is fixed
    /// when it begins.
    pub fn forget_times(&mut self, names: [&'static str; 2]) {
        if !self.described && self.upload.is_none() {
            names.into_iter().for_each(|name| drop(self.metadata.remove(name)));
        }
    }

    /// Whether the part is sent, so that nothing more can be written to it.
    pub fn is_sent(&self, number: u32) -> bool {
        self.parts.get(&number).is_some_and(|part| !matches!(part, PartState::Filling(_)))
            || self.composed.is_some_and(|last| number <= last + 1)
    }

    /// Whether a part that is stored cannot be told to the store.
    pub fn lacks_etag(&self) -> bool {
        let is_unknown = |part: &PartState| matches!(part, PartState::Stored(part) if part.etag.is_empty());
        self.parts.values().any(is_unknown)
    }

    /// Whether the last part is sent with its final length: nothing can follow it.
    pub fn is_end_sent(&self) -> bool {
        let last = self.size.checked_sub(1).and_then(part_at);
        last.is_some_and(|(number, range)| range.end() > self.size && self.is_sent(number))
    }

    /// If all that was written lies behind the base, the last of the parts that the base fills.
    pub fn whole_base(&self, base: u64) -> Option<u32> {
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
