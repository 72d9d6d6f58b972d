//! A part of an upload that is being received: into a file, or into memory until it is whole and right, and then to the
//! origin, which keeps it until the upload is completed.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fair::MemoryPermit;
use types::{Error, ErrorKind, FileId, Result};
use vfs::{PartedFile, Vfs};

use super::part_layout::{PartPlace, can_be_noted};
use crate::staged_file::StagedFile;
use crate::staged_object::ByteSink;
use crate::write_fence::WriteFence;

pub enum StagedPart {
    /// The place is known beforehand.
    File(Box<StagedFile>, PartPlace),
    Held(HeldPart),
}

/// A part that the origin gets as a whole: what it has under a number must not be replaced by a body that then proves to
/// be wrong or cut short.
pub struct HeldPart {
    vfs: Arc<Vfs>,
    /// A directory of the junction, and the upload at its origin.
    upload: (FileId, PartedFile),
    number: u32,
    bytes: BytesMut,
    /// What the permit is for.
    room: u64,
    _permit: MemoryPermit,
    length: u64,
    receipt: Option<String>,
    /// The origin does not have the upload any more.
    is_gone: bool,
    fate: PartFate,
    fence: Arc<WriteFence>,
}

/// What became of a part that was not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartFate {
    /// It is nowhere, and another one can have its place.
    #[default]
    NotStored,
    /// The origin may store it yet, in place of another one that has its number by then.
    Unknown,
    /// The origin stored it, and its receipt cannot be noted.
    NotNoted,
}

impl PartFate {
    /// After the origin did not take it.
    fn of(error: &Error) -> PartFate {
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::Io => PartFate::Unknown,
            _ => PartFate::NotStored,
        }
    }
}

impl HeldPart {
    /// Of `room` bytes at most, for which there is a permit.
    pub fn new(
        vfs: &Arc<Vfs>,
        upload: (FileId, PartedFile),
        number: u32,
        (room, permit): (u64, MemoryPermit),
        fence: &Arc<WriteFence>,
    ) -> HeldPart {
        HeldPart {
            vfs: vfs.clone(),
            upload,
            number,
            bytes: BytesMut::new(),
            room,
            _permit: permit,
            length: 0,
            receipt: None,
            is_gone: false,
            fate: PartFate::default(),
            fence: fence.clone(),
        }
    }

    fn append(&mut self, data: &Bytes) -> Result<()> {
        self.length += data.len() as u64;
        if self.length > self.room {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "take a part longer than announced,",
                self.number,
            ));
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Called when the body was found to be right. The end of the upload waits for what is on its way to the origin.
    async fn store(&mut self) -> Result<()> {
        let ended = || Error::new(ErrorKind::Stale, "store a part of an upload that has ended,", self.number);
        let _not_ended = self.fence.enter().await.ok_or_else(ended)?;
        let (dir, file) = &self.upload;
        let bytes = self.bytes.split().freeze();
        let stored = self.vfs.store_part(*dir, file, self.number, bytes).await;
        self.is_gone = stored.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound);
        self.fate = stored.as_ref().err().map_or(PartFate::NotStored, PartFate::of);
        let receipt = stored?;
        if !can_be_noted(&receipt) {
            self.fate = PartFate::NotNoted;
            // Sent again, it gets a file of its own.
            return Err(Error::new(ErrorKind::Busy, "note a part whose ETag is", receipt));
        }
        self.receipt = Some(receipt);
        Ok(())
    }
}

impl StagedPart {
    /// The bytes that were taken.
    pub fn length(&self) -> u64 {
        match self {
            StagedPart::File(file, _) => file.length(),
            StagedPart::Held(part) => part.length,
        }
    }

    /// Where it is, after `store`.
    pub fn place(&self) -> Result<PartPlace> {
        match self {
            StagedPart::File(_, place) => Ok(place.clone()),
            StagedPart::Held(HeldPart { receipt: Some(receipt), .. }) => {
                Ok(PartPlace::AtOrigin(receipt.clone()))
            }
            StagedPart::Held(part) => {
                Err(Error::new(ErrorKind::Io, "note a part without receipt,", part.number))
            }
        }
    }

    /// Whether the upload was found to have ended at the origin.
    pub fn is_gone(&self) -> bool {
        matches!(self, StagedPart::Held(HeldPart { is_gone: true, .. }))
    }

    /// After it was not taken.
    pub fn fate(&self) -> PartFate {
        match self {
            StagedPart::File(..) => PartFate::NotStored,
            StagedPart::Held(part) => part.fate,
        }
    }

    /// Removes the file that a part has for itself.
    pub async fn discard(self) {
        if let StagedPart::File(file, PartPlace::Own) = self {
            file.discard().await;
        }
    }
}

impl ByteSink for StagedPart {
    async fn append(&mut self, data: Bytes) -> Result<()> {
        match self {
            StagedPart::File(file, _) => file.append(data).await,
            StagedPart::Held(part) => part.append(&data),
        }
    }

    async fn store(&mut self) -> Result<()> {
        match self {
            StagedPart::File(file, _) => file.store().await,
            StagedPart::Held(part) => part.store().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_origin_refused_leaves_its_number_to_others() {
        let fate = |kind| PartFate::of(&Error::new(kind, "store", "a part"));
        for kind in [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown, ErrorKind::Io] {
            assert_eq!(fate(kind), PartFate::Unknown);
        }
        for kind in
            [ErrorKind::NotFound, ErrorKind::AccessDenied, ErrorKind::InvalidArgument, ErrorKind::Busy]
        {
            assert_eq!(fate(kind), PartFate::NotStored);
        }
    }
}
