//! An object that is being written. A reader sees all of the old object or all of the new one, and nobody sees a part:
//! where the key's junction has drafts, the object is one, and becomes the file of its key at once; elsewhere it is a
//! file under a hidden name in the key's directory, which is renamed to the key.

use std::sync::Arc;

use bytes::Bytes;
use types::{Caller, ErrorKind, FileId, Name, Result, SetAttr, Version};
use vfs::{DraftFile, Node, PartReceipt, PartedFile, Replacing, Vfs};

use crate::resolve::{TRIES_MAX, is_gone, make_dirs, name_of};
use crate::staged_file::StagedFile;
use crate::unique_ids::UniqueIds;

/// How a staged object takes the key's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishMode {
    Replace,
    /// Fails with `Exists` if the name is taken.
    IfAbsent,
    /// Replaces this version of the object that was looked at. Fails with `VersionChanged` if it is another one since,
    /// where that can be told.
    ReplaceVersion(Version),
}

/// Takes bytes in order.
pub trait ByteSink {
    fn append(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;

    /// Returns when all that was appended is stored, so that nothing but its name is missing.
    fn store(&mut self) -> impl Future<Output = Result<()>> + Send;
}

pub struct StagedObject {
    vfs: Arc<Vfs>,
    caller: Caller,
    /// The directory of the key.
    dir: FileId,
    place: StagedPlace,
}

enum StagedPlace {
    Draft(Box<DraftFile>),
    Hidden(Box<StagedFile>),
}

/// What an object has at its beginning.
#[derive(Clone, Copy)]
enum Beginning<'a> {
    /// Nothing; it may be a hidden file of a name that is made of these ids.
    Empty(&'a UniqueIds),
    OfParts(&'a PartedFile, &'a [PartReceipt]),
}

impl StagedObject {
    /// Begins an object of this name in the directory at the end of `dirs` below `root`; missing directories are
    /// created.
    pub async fn begin(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        place: (FileId, &[Name], &Name),
        ids: &UniqueIds,
    ) -> Result<StagedObject> {
        StagedObject::begin_by(vfs, caller, place, Beginning::Empty(ids)).await
    }

    /// The same of an object whose bytes are at the origin already, in parts.
    pub async fn of_parts(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        place: (FileId, &[Name], &Name),
        file: &PartedFile,
        parts: &[PartReceipt],
    ) -> Result<StagedObject> {
        StagedObject::begin_by(vfs, caller, place, Beginning::OfParts(file, parts)).await
    }

    async fn begin_by(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        (root, dirs, name): (FileId, &[Name], &Name),
        how: Beginning<'_>,
    ) -> Result<StagedObject> {
        let mut tries = 0;
        loop {
            let dir = make_dirs(vfs, caller, root, dirs).await?;
            tries += 1;
            match StagedPlace::begin(vfs, caller, (dir, name), how).await {
                // The directory was removed with its last object.
                Err(e) if is_gone(&e) && tries < TRIES_MAX => {}
                place => {
                    let (vfs, caller) = (vfs.clone(), caller.clone());
                    return Ok(StagedObject { vfs, caller, dir, place: place? });
                }
            }
        }
    }

    /// Gives the object the key's name, after `store`; one that had it is replaced. `None`: it was published, and
    /// cannot be looked at.
    pub async fn publish(&mut self, name: &Name, how: PublishMode) -> Result<Option<Node>> {
        match &mut self.place {
            StagedPlace::Draft(draft) => {
                let over = match how {
                    PublishMode::Replace => Replacing::Anything,
                    PublishMode::IfAbsent => Replacing::Nothing,
                    PublishMode::ReplaceVersion(version) => Replacing::Version(version),
                };
                draft.publish(&self.caller, self.dir, over).await.map(|made| Some(made.node))
            }
            StagedPlace::Hidden(file) => file.publish(name, how).await,
        }
    }

    /// Whether the key's directory may have been removed and is to be made again: no file of ours was in it.
    pub fn may_lose_directory(&self) -> bool {
        matches!(self.place, StagedPlace::Draft(_))
    }

    /// The directory was removed with its last object: it is made again.
    pub async fn make_directory_again(&mut self, root: FileId, dirs: &[Name]) -> Result<()> {
        self.dir = make_dirs(&self.vfs, &self.caller, root, dirs).await?;
        Ok(())
    }

    pub async fn discard(self) {
        match self.place {
            StagedPlace::Draft(draft) => draft.discard().await,
            StagedPlace::Hidden(file) => file.discard().await,
        }
    }

    pub fn directory(&self) -> FileId {
        self.dir
    }

    /// The bytes that were given to the file system.
    pub fn length(&self) -> u64 {
        match &self.place {
            StagedPlace::Draft(draft) => draft.length(),
            StagedPlace::Hidden(file) => file.length(),
        }
    }
}

impl StagedPlace {
    async fn begin(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        (dir, name): (FileId, &Name),
        how: Beginning<'_>,
    ) -> Result<StagedPlace> {
        let ids = match how {
            Beginning::Empty(ids) => ids,
            Beginning::OfParts(file, parts) => {
                let draft = vfs.draft_of_parts(caller, (dir, name), file, parts).await?;
                return Ok(StagedPlace::Draft(Box::new(draft)));
            }
        };
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        if let Some(draft) = vfs.draft(caller, dir, name, set).await? {
            return Ok(StagedPlace::Draft(Box::new(draft)));
        }
        let temporary = name_of(format!(".forebay-put-{}", ids.next()));
        let file = StagedFile::create(vfs, caller, dir, temporary).await?;
        Ok(StagedPlace::Hidden(Box::new(file)))
    }
}

impl ByteSink for StagedObject {
    async fn append(&mut self, data: Bytes) -> Result<()> {
        match &mut self.place {
            StagedPlace::Draft(draft) => draft.append(data).await,
            StagedPlace::Hidden(file) => file.append(data).await,
        }
    }

    async fn store(&mut self) -> Result<()> {
        match &mut self.place {
            StagedPlace::Draft(draft) => draft.store().await,
            StagedPlace::Hidden(file) => file.store().await,
        }
    }
}

/// Whether a publication failed because what has the name is not what was expected.
pub fn is_refused(how: PublishMode, kind: ErrorKind) -> bool {
    match how {
        PublishMode::Replace => false,
        PublishMode::IfAbsent => kind == ErrorKind::Exists,
        PublishMode::ReplaceVersion(_) => kind == ErrorKind::VersionChanged,
    }
}
