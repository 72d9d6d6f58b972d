//! Names and attributes of what is written `back`: looked at, journalled, shown. Permission was asked before
//! (`change.rs`).

use ::bytes::Bytes;
use namespace::{Ask, New, Old};
use origin::exclusive;
use types::{
    CreateVerifier, Durability, Error, ErrorKind, FileId, FileKind, Name, Result, SetAttr, Timestamp,
    WeakAttr,
};
use writeback::{Action, Attributes, NewObject, Rename, ReplacedObject};

use super::Back;
use super::journal::Recorded;
use super::locks::StripeGuard;
use crate::change_results::{Altered, AttrsAround, Made};
use crate::{Node, Vfs};

/// Directories between two at most; a deeper tree has a circle in it.
const DEPTH_MAX: usize = 4096;
/// Names looked at in one go when a directory is to be empty.
const LOOK_PIECE: usize = 64;

impl Back {
    pub(super) async fn journal_make(
        &self,
        vfs: &Vfs,
        dir: FileId,
        name: &Name,
        new: &New,
        promised: Durability,
    ) -> Result<Made> {
        let (what, mut set) = match new {
            New::File { set, .. } => (NewObject::File, *set),
            New::Directory { set } => (NewObject::Directory, *set),
            New::Symlink { target, set } => (symlink(target)?, *set),
            New::Special { node, set } => (NewObject::Special(*node), *set),
            New::Link { file } => return self.journal_link(vfs, *file, (dir, name), promised).await,
        };
        let is_dir = what == NewObject::Directory;
        // Said, so that the origin does not choose otherwise later.
        set.mode = set.mode.or(match &what {
            NewObject::Symlink(_) => None,
            NewObject::Directory => Some(0o755),
            _ => Some(0o644),
        });
        let _name = self.locks.names(&[(dir, name)]).await;
        let _dir = self.locks.objects(&[dir], &[]).await;
        let parent = vfs.living_dir(dir).await?;
        vfs.demand_takes_new(&parent, new).await?;
        vfs.demand_free(dir, name).await?;
        vfs.demand_takes_name(&parent, name, is_dir).await?;
        let (id, now) = (self.ids.give(parent.junction), self.stamp());
        let attributes = Attributes::resolve(&set, now);
        let action = Action::Make { dir, name: name.clone(), id, what: what.clone(), set: attributes };
        let recorded = self.record(parent.junction, (now, action), Bytes::new(), &[dir]).await?;
        let size = set.size.filter(|size| *size > 0 && what == NewObject::File);
        let sequence = match size {
            Some(size) => self.journal_truncate(&vfs.object_known(id)?, size).await?.sequence,
            None => recorded.sequence,
        };
        self.acknowledge(parent.junction, promised, sequence).await?;
        Ok(Made { node: vfs.object_known(id)?, dir: first(&recorded) })
    }

    /// A repetition of what made it finds the same file: the verifier is in its times until somebody sets them.
    pub(super) async fn journal_create_once(
        &self,
        vfs: &Vfs,
        dir: FileId,
        name: &Name,
        (verifier, set): (CreateVerifier, SetAttr),
        promised: Durability,
    ) -> Result<Made> {
        let times = exclusive::set_of(verifier);
        let set = SetAttr { atime: times.atime, mtime: times.mtime, size: None, ..set };
        let how = types::CreateHow::Exclusive(verifier);
        match self.journal_make(vfs, dir, name, &New::File { how, set }, promised).await {
            Err(e) if e.kind() == ErrorKind::Exists => {
                let there = vfs.find(dir, name).await?;
                let node = there.filter(|node| exclusive::is_repetition(&node.attr, verifier)).ok_or(e)?;
                if promised == Durability::Always {
                    self.all_durable().await?; // whoever made it may have been promised less
                }
                Ok(Made { node, dir: AttrsAround::default() })
            }
            made => made,
        }
    }

    async fn journal_link(
        &self,
        vfs: &Vfs,
        file: FileId,
        (dir, name): (FileId, &Name),
        promised: Durability,
    ) -> Result<Made> {
        let _name = self.locks.names(&[(dir, name)]).await;
        let _objects = self.locks.objects(&[dir], &[file]).await;
        let parent = vfs.living_dir(dir).await?;
        let node = vfs.object(file, Ask::Use).await?;
        if node.attr.nlink == 0 {
            return Err(Error::new(ErrorKind::Stale, "link", file));
        }
        vfs.demand_takes_new(&parent, &New::Link { file }).await?;
        vfs.demand_free(dir, name).await?;
        vfs.demand_takes_name(&parent, name, false).await?;
        let (links, base) = (node.attr.nlink.saturating_add(1), self.base(file));
        vfs.demand_takes_links(&node, links).await?;
        let action = Action::Link { file, dir, name: name.clone(), links, base };
        let recorded = self.record(parent.junction, (self.stamp(), action), Bytes::new(), &[dir]).await?;
        self.acknowledge(parent.junction, promised, recorded.sequence).await?;
        Ok(Made { node: vfs.object_known(file)?, dir: first(&recorded) })
    }

    pub(super) async fn journal_remove(
        &self,
        vfs: &Vfs,
        dir: FileId,
        name: &Name,
        old: Old,
        promised: Durability,
    ) -> Result<AttrsAround> {
        let _name = self.locks.names(&[(dir, name)]).await;
        let parent = vfs.living_dir(dir).await?;
        vfs.demand_takes_changes(parent.junction).await?;
        let object = vfs.named(dir, name).await?.id;
        let _objects = self.locks.objects(&[dir], &[object]).await;
        let node = vfs.object(object, Ask::Use).await?;
        let name = name.clone();
        let action = match (old, node.attr.is_dir()) {
            (Old::File, true) => return Err(Error::new(ErrorKind::IsADirectory, "remove", name)),
            (Old::Directory, false) => return Err(Error::new(ErrorKind::NotADirectory, "remove", name)),
            (Old::File, false) => {
                let (links, base) = (node.attr.nlink.saturating_sub(1), self.base(object));
                Action::Remove { dir, name, object, links, base }
            }
            (Old::Directory, true) => {
                vfs.demand_empty(object).await?;
                Action::Rmdir { dir, name, object }
            }
        };
        let recorded = self.record(parent.junction, (self.stamp(), action), Bytes::new(), &[dir]).await?;
        self.acknowledge(parent.junction, promised, recorded.sequence).await?;
        Ok(first(&recorded))
    }

    pub(super) async fn journal_rename(
        &self,
        vfs: &Vfs,
        (from_dir, from): (FileId, &Name),
        (to_dir, to): (FileId, &Name),
        promised: Durability,
    ) -> Result<(AttrsAround, AttrsAround)> {
        let _names = self.locks.names(&[(from_dir, from), (to_dir, to)]).await;
        let moved = vfs.named(from_dir, from).await?;
        let _one_move = match moved.attr.is_dir() && from_dir != to_dir {
            true => Some(self.moves.lock().await),
            false => None,
        };
        let replaced = vfs.find(to_dir, to).await?;
        let (_objects, moved, replaced) =
            self.hold_to_rename(vfs, (from_dir, to_dir), &moved, replaced.as_ref()).await?;
        vfs.living_dir(from_dir).await?;
        let parent = vfs.living_dir(to_dir).await?;
        vfs.demand_takes_changes(parent.junction).await?;
        if replaced.as_ref().is_some_and(|replaced| replaced.id == moved.id) {
            return Ok((AttrsAround::default(), AttrsAround::default())); // two names of one file stay both
        }
        vfs.demand_replaceable(&moved, replaced.as_ref(), to).await?;
        if moved.attr.is_dir() && from_dir != to_dir {
            vfs.demand_outside(moved.id, to_dir).await?;
        }
        vfs.demand_takes_name(&parent, to, moved.attr.is_dir()).await?;
        let lost = replaced.map(|lost| {
            let links = if lost.attr.is_dir() { 0 } else { lost.attr.nlink.saturating_sub(1) };
            ReplacedObject { object: lost.id, links, base: self.base(lost.id) }
        });
        let action = Action::Rename(Rename {
            from_dir,
            from: from.clone(),
            to_dir,
            to: to.clone(),
            object: moved.id,
            is_dir: moved.attr.is_dir(),
            base: self.base(moved.id),
            replaced: lost,
        });
        let dirs = [from_dir, to_dir];
        let recorded = self.record(parent.junction, (self.stamp(), action), Bytes::new(), &dirs).await?;
        self.acknowledge(parent.junction, promised, recorded.sequence).await?;
        let around = |at: usize| recorded.around.get(at).copied().unwrap_or_default();
        Ok((around(0), around(1)))
    }

    /// Both objects held, and as they are then.
    async fn hold_to_rename<'a>(
        &'a self,
        vfs: &Vfs,
        (from_dir, to_dir): (FileId, FileId),
        moved: &Node,
        replaced: Option<&Node>,
    ) -> Result<(Vec<StripeGuard<'a>>, Node, Option<Node>)> {
        let alone: Vec<FileId> = [Some(moved), replaced].into_iter().flatten().map(|node| node.id).collect();
        let held = self.locks.objects(&[from_dir, to_dir], &alone).await;
        let moved = vfs.object(moved.id, Ask::Use).await?;
        let replaced = match replaced {
            Some(replaced) => Some(vfs.object(replaced.id, Ask::Use).await?),
            None => None,
        };
        Ok((held, moved, replaced))
    }

    pub(super) async fn journal_set(
        &self,
        vfs: &Vfs,
        id: FileId,
        (set, guard): (SetAttr, Option<Timestamp>),
        promised: Durability,
    ) -> Result<Altered> {
        let _object = self.locks.objects(&[], &[id]).await;
        let node = vfs.object(id, Ask::Use).await?;
        if guard.is_some_and(|guard| guard != node.attr.ctime) {
            return Err(Error::new(ErrorKind::VersionChanged, "set attributes of", id));
        }
        vfs.demand_takes_changes(node.junction).await?;
        let before: Option<WeakAttr> = Some(node.attr.weak());
        let mut sequence = None;
        if let Some(size) = set.size {
            sequence = Some(self.journal_truncate(&node, size).await?.sequence);
        }
        let now = self.stamp();
        let mut attributes = Attributes::resolve(&set, now);
        if node.attr.kind == FileKind::Symlink {
            attributes.mode = None; // a link has none of its own
        }
        // A call that sets nothing still says that it did; that has no operation.
        if !attributes.is_nothing() {
            let action = Action::Set { object: id, set: attributes, base: self.base(id) };
            sequence = Some(self.record(node.junction, (now, action), Bytes::new(), &[id]).await?.sequence);
        }
        if let Some(sequence) = sequence {
            self.acknowledge(node.junction, promised, sequence).await?;
        }
        Ok(Altered { node: vfs.object_known(id)?, before })
    }

    /// The caller holds the file.
    async fn journal_truncate(&self, node: &Node, size: u64) -> Result<Recorded> {
        match node.attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => {
                return Err(Error::new(ErrorKind::IsADirectory, "change the size of", node.id));
            }
            _ => return Err(Error::new(ErrorKind::InvalidArgument, "change the size of", node.id)),
        }
        if i64::try_from(size).is_err() {
            return Err(Error::new(ErrorKind::FileTooLarge, "change the size of", node.id));
        }
        let (file, size_before, base) = (node.id, node.attr.size, self.base(node.id));
        let action = Action::Truncate { file, size, size_before, base };
        self.record(node.junction, (self.stamp(), action), Bytes::new(), &[file]).await
    }
}

impl Vfs {
    async fn demand_replaceable(&self, moved: &Node, replaced: Option<&Node>, to: &Name) -> Result<()> {
        let Some(replaced) = replaced else { return Ok(()) };
        match (moved.attr.is_dir(), replaced.attr.is_dir()) {
            (true, false) => Err(Error::new(ErrorKind::NotADirectory, "rename over", to)),
            (false, true) => Err(Error::new(ErrorKind::IsADirectory, "rename over", to)),
            (true, true) => self.demand_empty(replaced.id).await,
            (false, false) => Ok(()),
        }
    }

    /// `dir` is not below `moved`: it would be cut off from the tree.
    async fn demand_outside(&self, moved: FileId, dir: FileId) -> Result<()> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == moved {
                return Err(Error::new(ErrorKind::InvalidArgument, "move into itself", moved));
            }
            let above = self.parent_of(at).await?.id;
            if above == at {
                return Ok(());
            }
            at = above;
        }
        Err(Error::new(ErrorKind::InvalidArgument, "move within a tree that is too deep,", moved))
    }

    async fn named(&self, dir: FileId, name: &Name) -> Result<Node> {
        self.find(dir, name).await?.ok_or_else(|| Error::new(ErrorKind::NotFound, "look up", name))
    }

    async fn demand_free(&self, dir: FileId, name: &Name) -> Result<()> {
        match self.find(dir, name).await? {
            Some(_) => Err(Error::new(ErrorKind::Exists, "make", name)),
            None => Ok(()),
        }
    }

    /// Not one that was removed meanwhile.
    async fn living_dir(&self, dir: FileId) -> Result<Node> {
        let node = self.object(dir, Ask::Use).await?;
        match node.attr.nlink {
            0 => Err(Error::new(ErrorKind::NotFound, "change names in", dir)),
            _ => Ok(node),
        }
    }

    async fn demand_empty(&self, dir: FileId) -> Result<()> {
        match self.names_after(dir, 0, LOOK_PIECE).await?.items.is_empty() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotEmpty, "remove directory", dir)),
        }
    }
}

fn symlink(target: &Bytes) -> Result<NewObject> {
    match target.len() {
        1..=writeback::TARGET_MAX => Ok(NewObject::Symlink(target.clone())),
        0 => Err(Error::new(ErrorKind::NotFound, "make a link to", "nothing")),
        long => Err(Error::new(ErrorKind::NameTooLong, "make a link to", format!("{long} bytes"))),
    }
}

fn first(recorded: &Recorded) -> AttrsAround {
    recorded.around.first().copied().unwrap_or_default()
}
