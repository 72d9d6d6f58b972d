//! Changes of names and attributes: may the caller; then the junction's writer makes them.

use std::sync::Arc;

use bytes::Bytes;
use fetch::key_of;
use namespace::{Ask, Found, New, Old};
use types::{
    Caller, CreateHow, CreateVerifier, Error, ErrorKind, FileId, JunctionId, Name, NewNode, Result, SetAttr,
    Timestamp,
};

use crate::change_results::{Altered, AttrsAround, Made};
use crate::through::DraftFile;
use crate::{Node, Vfs};

/// What is made belongs to the caller, unless `set` says otherwise and the caller may; its group is the caller's, or
/// that of a directory with setgid. Each needs the right to write and search the directory.
impl Vfs {
    /// A regular file. One that is there already and is taken (`Unchecked`) is cut only if the caller may write it.
    pub async fn create(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        how: CreateHow,
        set: SetAttr,
    ) -> Result<Made> {
        match how {
            CreateHow::Unchecked => self.create_or_take(caller, dir, name, set).await,
            CreateHow::Guarded => self.create_new(caller, dir, name, set).await,
            CreateHow::Exclusive(verifier) => self.create_once(caller, dir, name, verifier, set).await,
        }
    }

    /// A regular file that nobody sees before it is complete and published. `None`: there are none in this junction, and
    /// whoever wants one makes a file under another name and renames it.
    pub async fn draft(
        self: &Arc<Self>,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        set: SetAttr,
    ) -> Result<Option<DraftFile>> {
        let parent = self.dir_to_change(caller, dir, "create a file").await?;
        let set = permission::new_attributes(caller, &parent.attr, false, &set)?;
        self.writer(parent.junction).draft(self, &parent, name, set).await
    }

    pub async fn mkdir(&self, caller: &Caller, dir: FileId, name: &Name, set: SetAttr) -> Result<Made> {
        let parent = self.dir_to_change(caller, dir, "make a directory").await?;
        let set = permission::new_attributes(caller, &parent.attr, true, &set)?;
        self.make(caller, &parent, name, &New::Directory { set }).await
    }

    pub async fn symlink(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        target: Bytes,
        set: SetAttr,
    ) -> Result<Made> {
        let parent = self.dir_to_change(caller, dir, "make a link").await?;
        let set = permission::new_attributes(caller, &parent.attr, false, &set)?;
        self.make(caller, &parent, name, &New::Symlink { target, set }).await
    }

    /// Devices are for the privileged to make.
    pub async fn mknod(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        node: NewNode,
        set: SetAttr,
    ) -> Result<Made> {
        let parent = self.dir_to_change(caller, dir, "make a special file").await?;
        if matches!(node, NewNode::CharDevice(..) | NewNode::BlockDevice(..)) {
            permission::demand_device(caller)?;
        }
        let set = permission::new_attributes(caller, &parent.attr, false, &set)?;
        self.make(caller, &parent, name, &New::Special { node, set }).await
    }

    /// One more name for `file`, which is no directory.
    pub async fn link(&self, caller: &Caller, file: FileId, dir: FileId, name: &Name) -> Result<Made> {
        let parent = self.dir_to_change(caller, dir, "link").await?;
        let node = self.object(file, Ask::Use).await?;
        same_junction(&node, &parent)?;
        if node.attr.is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, "link", file));
        }
        self.make(caller, &parent, name, &New::Link { file }).await
    }

    /// Removes a name that is no directory.
    pub async fn remove(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<AttrsAround> {
        self.unname(caller, dir, name, Old::File).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<AttrsAround> {
        self.unname(caller, dir, name, Old::Directory).await
    }

    /// Returns the old directory and the new one. What has the new name is replaced; `CrossDevice` between junctions.
    pub async fn rename(
        &self,
        caller: &Caller,
        from_dir: FileId,
        from: &Name,
        to_dir: FileId,
        to: &Name,
    ) -> Result<(AttrsAround, AttrsAround)> {
        const WHAT: &str = "rename";
        let old = self.object(from_dir, Ask::Use).await?;
        let new = self.object(to_dir, Ask::Use).await?;
        same_junction(&old, &new)?;
        let old = self.dir_to_change(caller, from_dir, WHAT).await?;
        self.dir_to_change(caller, to_dir, WHAT).await?;
        self.demand_unname(caller, &old, from, WHAT).await?;
        let new = self.dir_to_replace_in(caller, to_dir, to).await?;
        if from_dir != to_dir
            && let Some(moved) = self.known_child(from_dir, from)?
        {
            permission::demand_move(caller, &moved.attr, WHAT)?;
        }
        self.writer(new.junction).rename(self, (from_dir, from), (to_dir, to), caller.durability).await
    }

    /// With `guard` only if that is the object's ctime; `VersionChanged` otherwise.
    pub async fn setattr(
        &self,
        caller: &Caller,
        id: FileId,
        set: SetAttr,
        guard: Option<Timestamp>,
    ) -> Result<Altered> {
        let node = self.object(id, Ask::Use).await?;
        let writer = self.writer_to_change(&node).await?;
        let asked = permission::set_attributes(caller, &node.attr, &set)?;
        if let Some(size) = set.size.filter(|_| node.attr.is_file()) {
            self.demand_takes_size(&node, size).await?;
        }
        writer.set(self, &node, (asked, guard), caller.durability).await
    }

    /// An object whose attributes `namespace` changed: if nobody else had changed it, bytes up to the smaller of its sizes
    /// are the same, those between are zeros, and the cache keeps what it has.
    pub(crate) async fn keep_cached(&self, altered: &namespace::AlteredObject) {
        let Ok(new) = key_of(&altered.found) else { return }; // no file
        if let Some(Ok(old)) = altered.known.clone().map(|known| key_of(&Found::Node(known)))
            && old != new
        {
            self.cache.rebase(old, new, Vec::new(), Vec::new()).await;
        }
    }

    pub(crate) fn altered(&self, altered: &namespace::AlteredObject) -> Altered {
        Altered { node: self.node(&altered.found), before: altered.before.map(|before| before.attr) }
    }

    async fn create_new(&self, caller: &Caller, dir: FileId, name: &Name, set: SetAttr) -> Result<Made> {
        let parent = self.dir_to_change(caller, dir, "create a file").await?;
        let set = permission::new_attributes(caller, &parent.attr, false, &set)?;
        self.make(caller, &parent, name, &New::File { how: CreateHow::Guarded, set }).await
    }

    /// The origin would cut whatever is there without asking whether this caller may: so it is asked for a new file
    /// only, and what is there is taken by its attributes.
    async fn create_or_take(&self, caller: &Caller, dir: FileId, name: &Name, set: SetAttr) -> Result<Made> {
        self.changeable_dir(dir).await?;
        if self.known_child(dir, name)?.is_some()
            && let Some(taken) = self.take(caller, dir, name, &set).await?
        {
            return Ok(taken);
        }
        match self.create_new(caller, dir, name, set).await {
            Err(e) if e.kind() == ErrorKind::Exists => self.take(caller, dir, name, &set).await?.ok_or(e),
            other => other,
        }
    }

    /// `None`: there is no such name.
    async fn take(&self, caller: &Caller, dir: FileId, name: &Name, set: &SetAttr) -> Result<Option<Made>> {
        let mut node = match self.lookup(caller, dir, name).await {
            Ok(node) => node,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        if !node.attr.is_file() {
            return Err(Error::new(ErrorKind::Exists, "create a file", name));
        }
        if set.size.is_some() {
            let cut = SetAttr { size: set.size, ..SetAttr::default() };
            node = self.setattr(caller, node.id, cut, None).await?.node;
        }
        let dir = self.object(dir, Ask::Use).await?.attr;
        Ok(Some(Made { node, dir: AttrsAround { before: Some(dir.weak()), after: Some(dir) } }))
    }

    async fn create_once(
        &self,
        caller: &Caller,
        dir: FileId,
        name: &Name,
        verifier: CreateVerifier,
        set: SetAttr,
    ) -> Result<Made> {
        let parent = self.dir_to_change(caller, dir, "create a file").await?;
        let new = permission::new_attributes(caller, &parent.attr, false, &set)?;
        let are_given = set != SetAttr::default();
        let writer = self.writer(parent.junction);
        writer.create_once(self, &parent, name, verifier, (new, are_given), caller.durability).await
    }

    async fn make(&self, caller: &Caller, parent: &Node, name: &Name, new: &New) -> Result<Made> {
        self.writer(parent.junction).make(self, parent, name, new, caller.durability).await
    }

    async fn unname(&self, caller: &Caller, dir: FileId, name: &Name, old: Old) -> Result<AttrsAround> {
        const WHAT: &str = "remove";
        let parent = self.dir_to_change(caller, dir, WHAT).await?;
        self.demand_unname(caller, &parent, name, WHAT).await?;
        self.writer(parent.junction).remove(self, &parent, name, old, caller.durability).await
    }

    async fn demand_unname(
        &self,
        caller: &Caller,
        dir: &Node,
        name: &Name,
        operation: &'static str,
    ) -> Result<()> {
        if !permission::is_guarded(caller, &dir.attr) {
            return Ok(());
        }
        let victim = self.find(dir.id, name).await?;
        let victim = victim.ok_or_else(|| Error::new(ErrorKind::NotFound, operation, name))?;
        permission::demand_unname(caller, &dir.attr, &victim.attr, operation)
    }

    /// The directory, if names in it can be changed by anybody. Directories above the junctions are fixed, and so are
    /// the names of the junctions in them.
    async fn changeable_dir(&self, dir: FileId) -> Result<Node> {
        let node = self.object(dir, Ask::Use).await?;
        self.writer_to_change(&node).await?;
        if !node.attr.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "change names in", dir));
        }
        Ok(node)
    }

    /// The directory, if this caller may put something there under this name, in place of what has it.
    pub(crate) async fn dir_to_replace_in(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<Node> {
        const WHAT: &str = "rename";
        let parent = self.dir_to_change(caller, dir, WHAT).await?;
        if permission::is_guarded(caller, &parent.attr)
            && let Some(there) = self.find(dir, name).await?
        {
            permission::demand_unname(caller, &parent.attr, &there.attr, WHAT)?;
        }
        Ok(parent)
    }

    pub(crate) async fn dir_to_change(
        &self,
        caller: &Caller,
        dir: FileId,
        operation: &'static str,
    ) -> Result<Node> {
        let node = self.changeable_dir(dir).await?;
        permission::demand_names(caller, &node.attr, operation)?;
        Ok(node)
    }
}

/// Above the junctions it is not another device, but nobody's to change.
fn same_junction(one: &Node, other: &Node) -> Result<()> {
    let (here, there) = (one.junction, other.junction);
    if here == there || [here, there].contains(&JunctionId::VIRTUAL) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::CrossDevice, "move or link between junctions", one.id))
}
