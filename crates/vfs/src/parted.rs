//! Files that come in parts, where the origin keeps the parts of one until it is assembled: they are stored as they come,
//! and nothing of them is kept here. What the origin tells of the file and its parts is for the caller to keep.

use std::sync::Arc;

use bytes::Bytes;
use namespace::{Found, KnownNode};
use origin::{Origin, PartReceipt, PartSource, PartedFile, Reference};
use types::{Caller, Error, ErrorKind, FileId, Name, Result, SetAttr};

use crate::Vfs;
use crate::through::DraftFile;

impl Vfs {
    /// Begins a file in parts that is to have this path below `dir`; the directories of the path need not be there.
    /// `None`: there are none in this junction.
    pub async fn begin_parts(
        &self,
        caller: &Caller,
        dir: FileId,
        path: &[Name],
        set: SetAttr,
    ) -> Result<Option<PartedFile>> {
        let parent = self.dir_to_change(caller, dir, "create a file").await?;
        let set = permission::new_attributes(caller, &parent.attr, false, &set)?;
        self.writer(parent.junction).begin_parts(self, &parent, path, set).await
    }

    /// Stores a part of a file that was begun in the junction of `dir`. Returns its receipt; it is durable then.
    /// `NotFound`: the file was given up.
    pub async fn store_part(
        &self,
        dir: FileId,
        file: &PartedFile,
        number: u32,
        bytes: Bytes,
    ) -> Result<String> {
        let (origin, _) = self.origin_there(dir)?;
        origin.store_part(file, number, &PartSource::Given(bytes)).await
    }

    /// The same of all bytes of another file in the junction, which is committed: they are copied at the origin.
    pub async fn copy_part(&self, file: &PartedFile, number: u32, of: FileId) -> Result<String> {
        let (origin, of) = self.origin_there(of)?;
        origin.store_part(file, number, &PartSource::Of(of)).await
    }

    /// A draft that has the bytes of these parts, and is to be published as `name` in `dir`. Given up, it leaves the parts
    /// as they are.
    pub async fn draft_of_parts(
        self: &Arc<Self>,
        caller: &Caller,
        (dir, name): (FileId, &Name),
        file: &PartedFile,
        parts: &[PartReceipt],
    ) -> Result<DraftFile> {
        let parent = self.dir_to_change(caller, dir, "create a file").await?;
        self.writer(parent.junction).draft_of_parts(self, (&parent, name), file, parts).await
    }

    /// Gives up a file in parts that was begun in the junction of `dir`.
    pub async fn drop_parts(&self, dir: FileId, file: &PartedFile) -> Result<()> {
        self.origin_there(dir)?.0.drop_parts(file).await
    }

    fn origin_there(&self, id: FileId) -> Result<(Arc<dyn Origin>, Reference)> {
        let known: Arc<KnownNode> = match self.namespace.getattr_known(id)? {
            Found::Node(known) => known,
            _ => return Err(Error::new(ErrorKind::ReadOnly, "store a part in", id)),
        };
        self.namespace.origin_of(&known)
    }
}
