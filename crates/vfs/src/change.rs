//! Changes of names and attributes: may the caller, then the origin, then what is known here.

use bytes::Bytes;
use types::{
    Attr, Caller, CreateHow, Error, ErrorKind, FileId, Name, NewNode, Result, SetAttr, Timestamp, WeakAttr,
};

use crate::{Node, Vfs};

/// An object just before and just after a change, as far as both are known: a client that knew it as it was before
/// may take over what it is now, and need not forget what else it knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    pub before: Option<WeakAttr>,
    pub after: Option<Attr>,
}

/// What was made or named, and the directory it was made in.
#[derive(Clone, Debug)]
pub struct Made {
    pub node: Node,
    pub dir: Around,
}

/// An object whose attributes were set.
#[derive(Clone, Debug)]
pub struct Altered {
    pub node: Node,
    pub before: Option<WeakAttr>,
}

/// What is made belongs to the caller, unless `set` says otherwise and the caller may; its group is the caller's, or
/// that of a directory with setgid. Each needs the right to write and search the directory.
impl Vfs {
    /// A regular file.
    pub async fn create(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        how: CreateHow,
        set: SetAttr,
    ) -> Result<Made> {
        let _ = (caller, name, how, set);
        Err(read_only(dir))
    }

    pub async fn mkdir(&self, caller: &Caller, dir: FileId, name: &Name, set: SetAttr) -> Result<Made> {
        let _ = (caller, name, set);
        Err(read_only(dir))
    }

    pub async fn symlink(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        target: Bytes,
        set: SetAttr,
    ) -> Result<Made> {
        let _ = (caller, name, target, set);
        Err(read_only(dir))
    }

    pub async fn mknod(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        node: NewNode,
        set: SetAttr,
    ) -> Result<Made> {
        let _ = (caller, name, node, set);
        Err(read_only(dir))
    }

    /// One more name for `file`, which is no directory.
    pub async fn link(&self, caller: &Caller, file: FileId, dir: FileId, name: &Name) -> Result<Made> {
        let _ = (caller, file, name);
        Err(read_only(dir))
    }

    /// Removes a name that is no directory.
    pub async fn remove(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<Around> {
        let _ = (caller, name);
        Err(read_only(dir))
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<Around> {
        let _ = (caller, name);
        Err(read_only(dir))
    }

    /// Returns the old directory and the new one. What has the new name is replaced; `CrossDevice` between junctions.
    pub async fn rename(
        &self,
        caller: &Caller,
        from_dir: FileId,
        from: &Name,
        to_dir: FileId,
        to: &Name,
    ) -> Result<(Around, Around)> {
        let _ = (caller, from, to_dir, to);
        Err(read_only(from_dir))
    }

    /// With `guard` only if that is the object's ctime; `VersionChanged` otherwise.
    pub async fn setattr(
        &self,
        caller: &Caller,
        id: FileId,
        set: SetAttr,
        guard: Option<Timestamp>,
    ) -> Result<Altered> {
        let _ = (caller, set, guard);
        Err(read_only(id))
    }
}

pub(crate) fn read_only(id: FileId) -> Error {
    Error::new(ErrorKind::ReadOnly, "change", id)
}
