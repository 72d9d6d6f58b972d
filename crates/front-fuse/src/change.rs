//! Requests that change names and attributes.
//!
//! The kernel has checked permission, by the modes that it was given, and has applied the umask; so the request is
//! carried out as it is, and what it creates belongs to the calling user.

use std::collections::HashSet;

use bytes::Bytes;
use fuser::RenameFlags;
use types::{
    Caller, CreateHow, Durability, Error, ErrorKind, FileId, Name, NewNode, Result, SetAttr, WeakAttr,
};
use vfs::{Node, WritePolicy};

use crate::FuseState;
use crate::asker::Asker;
use crate::inodes::Superseded;
use crate::ops::{FuseEntry, unknown};
use crate::orphans::Orphan;

/// What MKNOD creates.
pub enum NodeKind {
    File,
    Special(NewNode),
}

impl FuseState {
    /// Creates a file exclusively, whatever the open flags say: the kernel checks no permission to open a file that
    /// it creates, so one that appeared meanwhile must not be opened this way.
    pub async fn make_file(
        &self,
        asker: &Asker,
        dir: u64,
        name: Bytes,
        mode: u32,
    ) -> Result<(FuseEntry, Node)> {
        let (id, name) = (self.file(dir)?, Name::new(name)?);
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let make = || self.vfs.create(&asker.caller, id, &name, CreateHow::Guarded, set);
        let made = self.changing_names_in(asker, (dir, &name, None), self.retry_change(make)).await?;
        Ok((self.entry(asker.thread, (dir, id, &name), made.node.clone()), made.node))
    }

    pub async fn mknod(
        &self,
        asker: &Asker,
        dir: u64,
        name: Bytes,
        kind: NodeKind,
        mode: u32,
    ) -> Result<FuseEntry> {
        let NodeKind::Special(node) = kind else {
            return self.make_file(asker, dir, name, mode).await.map(|(entry, _)| entry);
        };
        let (id, name) = (self.file(dir)?, Name::new(name)?);
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let make = || self.vfs.mknod(&asker.caller, id, &name, node, set);
        let made = self.changing_names_in(asker, (dir, &name, None), self.retry_change(make)).await?;
        Ok(self.entry(asker.thread, (dir, id, &name), made.node))
    }

    pub async fn mkdir(&self, asker: &Asker, dir: u64, name: Bytes, mode: u32) -> Result<FuseEntry> {
        let (id, name) = (self.file(dir)?, Name::new(name)?);
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let make = || self.vfs.mkdir(&asker.caller, id, &name, set);
        let made = self.changing_names_in(asker, (dir, &name, None), self.retry_change(make)).await?;
        Ok(self.entry(asker.thread, (dir, id, &name), made.node))
    }

    pub async fn symlink(&self, asker: &Asker, dir: u64, name: Bytes, target: Bytes) -> Result<FuseEntry> {
        let (id, name) = (self.file(dir)?, Name::new(name)?);
        let make = || self.vfs.symlink(&asker.caller, id, &name, target.clone(), SetAttr::default());
        let made = self.changing_names_in(asker, (dir, &name, None), self.retry_change(make)).await?;
        Ok(self.entry(asker.thread, (dir, id, &name), made.node))
    }

    pub async fn link(&self, asker: &Asker, number: u64, dir: u64, name: Bytes) -> Result<FuseEntry> {
        let (file, id, name) = (self.file(number)?, self.file(dir)?, Name::new(name)?);
        let make = || self.vfs.link(&asker.caller, file, id, &name);
        let made = self.changing_names(&[(dir, &name, None)], self.retry_change(make)).await?;
        self.attributes_changed(&made.node);
        Ok(self.entry(asker.thread, (dir, id, &name), made.node))
    }

    /// Carries out a change of names, each with the file that it names. The kernel holds their directories meanwhile
    /// and then knows the result, so it is sent no invalidations for them.
    async fn changing_names<T>(
        &self,
        names: &[(u64, &Name, Option<FileId>)],
        change: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let bytes = |name: &Name| Bytes::copy_from_slice(name.as_bytes());
        let mut left = Vec::new();
        for (dir, name, file) in names {
            let (mut inodes, name) = (self.inodes(), bytes(name));
            inodes.clear_negative(*dir, &name);
            left.extend(
                file.filter(|file| inodes.forget_place(*file, *dir, &name)).map(|file| (file, *dir, name)),
            );
        }
        let changed = change.await;
        if changed.is_err() {
            left.iter().for_each(|(file, dir, name)| self.inodes().renamed(*file, *dir, name));
            names
                .iter()
                .for_each(|(dir, name, _)| self.invalidations.names(*dir, HashSet::from([bytes(name)])));
        }
        changed
    }

    /// The same for one name, where all that the kernel has of the objects that change follows from the answer. Of the
    /// directory it drops what it has.
    async fn changing_names_in<T>(
        &self,
        asker: &Asker,
        named: (u64, &Name, Option<FileId>),
        change: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let changed = self.changing_names(&[named], vfs::made_by(self.mark.clone(), change)).await;
        if self.inodes().names_changed(named.0, asker.thread) {
            self.invalidations.object(named.0, None);
        }
        changed
    }

    /// A change of attributes only: opens keep their version.
    fn attributes_changed(&self, node: &Node) {
        let stale = self.inodes().attributes_changed(node.id, node);
        self.invalidate_pages(stale, node.id);
    }

    /// Records our own change of a file, from `before` to `node`.
    pub fn changed(&self, before: Option<WeakAttr>, node: &Node) {
        let stale = self.inodes().changed(node.id, before, node);
        self.invalidate_pages(stale, node.id);
    }

    fn invalidate_pages(&self, stale: bool, file: FileId) {
        if stale {
            let number = self.inodes().number_of(file);
            self.invalidations.pages(number);
        }
    }

    pub async fn unlink(&self, asker: &Asker, dir: u64, name: Bytes) -> Result<()> {
        let (id, name) = (self.file(dir)?, Name::new(name)?);
        let named = (dir, &name, self.known_child(id, &name).map(|node| node.id));
        let Some(victim) = self.open_victim(dir, id, &name).await? else {
            let remove = || self.vfs.remove(&asker.caller, id, &name);
            return self.changing_names_in(asker, named, self.retry_change(remove)).await.map(drop);
        };
        let hidden = self.orphans.new_name();
        let hide = || self.vfs.rename(&asker.caller, id, &name, id, &hidden);
        self.changing_names(&[named], self.retry_change(hide)).await?;
        self.orphaned(victim.id, Orphan { dir: id, name: hidden });
        Ok(())
    }

    /// The file of this name, if it is open here and this is its last name.
    async fn open_victim(&self, dir: u64, id: FileId, name: &Name) -> Result<Option<Node>> {
        if !self.inodes().may_be_open_in(dir) {
            return Ok(None);
        }
        let node = match self.retry_read(|| self.vfs.lookup(&self.kernel, id, name)).await {
            Ok(node) => node,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let wanted = node.attr.is_file() && node.attr.nlink <= 1 && self.inodes().is_open(node.id);
        Ok(wanted.then_some(node))
    }

    /// The file has its hidden name now; it is removed at once if it was closed meanwhile.
    fn orphaned(&self, file: FileId, orphan: Orphan) {
        self.orphans.add(file, orphan);
        let dropped = self.inodes().orphaned(file);
        drop(dropped);
        if !self.inodes().is_open(file) {
            self.remove_orphan(file);
        }
    }

    /// Removes an orphan after the last close, in a task of its own: only a removal of the directory waits for it.
    pub fn remove_orphan(&self, file: FileId) {
        let Some(orphan) = self.orphans.begin_removal(file) else { return };
        let Some(shared) = self.me.upgrade() else { return };
        self.runtime.spawn(async move { shared.remove_now(file, orphan).await });
    }

    pub async fn remove_now(&self, file: FileId, orphan: Orphan) {
        let caller = trusted_root();
        let removing = || self.vfs.remove(&caller, orphan.dir, &orphan.name);
        match self.retry_change(removing).await {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!("the hidden name {} of a removed file stays: {e}", orphan.name);
            }
            _ => {}
        }
        self.orphans.end_removal(file);
    }

    pub async fn rmdir(&self, asker: &Asker, dir: u64, name: Bytes) -> Result<()> {
        let (id, name) = (self.file(dir)?, Name::new(name)?);
        let victim = self.known_child(id, &name);
        let named = (dir, &name, victim.as_ref().map(|victim| victim.id));
        let remove = || self.vfs.rmdir(&asker.caller, id, &name);
        let remove = || self.changing_names_in(asker, named, self.retry_change(remove));
        self.when_empty((id, &name), remove).await?;
        self.directory_removed(victim);
        Ok(())
    }

    /// Makes a change for which the directory of this name must be empty. It may hold an orphan that was closed a moment ago; then
    /// the change is made again without it.
    async fn when_empty<T, F: Future<Output = Result<T>>>(
        &self,
        (dir, name): (FileId, &Name),
        change: impl Fn() -> F,
    ) -> Result<T> {
        match change().await {
            Err(e) if e.kind() == ErrorKind::NotEmpty => {
                let inside = self.retry_read(|| self.vfs.lookup(&self.kernel, dir, name)).await?;
                let waited = self.orphans.wait_until_removed_from(inside.id);
                let _ = tokio::time::timeout(self.config.deadline, waited).await; // it is tried anyway
                change().await
            }
            done => done,
        }
    }

    /// What has this name, as far as the cache knows: the kernel has just looked it up.
    fn known_child(&self, dir: FileId, name: &Name) -> Option<Node> {
        self.vfs.known_child(dir, name).ok().flatten()
    }

    fn directory_removed(&self, victim: Option<Node>) {
        if let Some(directory) = victim.filter(|node| node.attr.is_dir()) {
            self.inodes().directory_removed(directory);
        }
    }

    pub async fn rename(
        &self,
        caller: &Caller,
        (from_dir, from): (u64, Bytes),
        (to_dir, to): (u64, Bytes),
        flags: RenameFlags,
    ) -> Result<()> {
        let (from_id, from) = (self.file(from_dir)?, Name::new(from)?);
        let (to_id, shown) = (self.file(to_dir)?, to.clone());
        let to = Name::new(to)?;
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return Err(Error::new(ErrorKind::InvalidArgument, "rename with flags", flags));
        }
        let moved = self.retry_read(|| self.vfs.lookup(&self.kernel, from_id, &from)).await?;
        let replaced = self.known_child(to_id, &to).filter(|replaced| replaced.id != moved.id);
        let named =
            [(from_dir, &from, Some(moved.id)), (to_dir, &to, replaced.as_ref().map(|replaced| replaced.id))];
        if flags.contains(RenameFlags::RENAME_NOREPLACE) {
            let rename = self.rename_to_a_free_name(caller, &moved, (from_id, &from), (to_id, &to));
            self.changing_names(&named, rename).await?;
        } else {
            let rename = self.rename_over(caller, &moved, (from_id, &from), (to_dir, to_id, &to));
            self.changing_names(&named, rename).await?;
        }
        self.directory_removed(replaced);
        self.inodes().renamed(moved.id, to_dir, &shown);
        let open = self.inodes().is_open(moved.id);
        if open && let Ok(node) = self.vfs.getattr_in_use(moved.id).await {
            self.attributes_changed(&node); // a rename may show in its ctime
        }
        Ok(())
    }

    /// Renames over an existing name, atomically; if the replaced file is open here it keeps a hidden name.
    async fn rename_over(
        &self,
        caller: &Caller,
        moved: &Node,
        (from_id, from): (FileId, &Name),
        (to_dir, to_id, to): (u64, FileId, &Name),
    ) -> Result<()> {
        let victim = self.open_victim(to_dir, to_id, to).await?;
        let victim = victim.filter(|victim| victim.id != moved.id && !moved.attr.is_dir());
        let mut orphan = None;
        if let Some(victim) = &victim {
            let name = self.orphans.new_name();
            self.give_hidden_name(caller, victim, (to_id, to), &name).await?;
            orphan = Some(Orphan { dir: to_id, name });
        }
        let rename = || self.vfs.rename(caller, from_id, from, to_id, to);
        let renamed = self.when_empty((to_id, to), || self.retry_change(rename)).await;
        if let (Some(victim), Some(orphan)) = (victim, orphan) {
            match &renamed {
                // The outcome is unknown: the hidden name is the one that certainly leads to the file.
                Err(e) if e.kind() != ErrorKind::OutcomeUnknown => {
                    let remove = || self.vfs.remove(caller, orphan.dir, &orphan.name);
                    self.retry_change(remove).await?;
                }
                _ => self.orphaned(victim.id, orphan),
            }
        }
        renamed.map(drop)
    }

    /// Links the hidden name, so that the name to be replaced never is absent. At an origin without hard links it is
    /// absent for a moment.
    async fn give_hidden_name(
        &self,
        caller: &Caller,
        file: &Node,
        (dir, name): (FileId, &Name),
        hidden: &Name,
    ) -> Result<()> {
        match self.retry_change(|| self.vfs.link(caller, file.id, dir, hidden)).await {
            Err(e) if has_no_links(&e) => {
                self.retry_change(|| self.vfs.rename(caller, dir, name, dir, hidden)).await.map(drop)
            }
            linked => linked.map(drop),
        }
    }

    /// RENAME_NOREPLACE. With a hard link the origin itself refuses an existing name. A directory cannot be linked:
    /// there we look first, and an empty directory that is created in between is replaced.
    async fn rename_to_a_free_name(
        &self,
        caller: &Caller,
        moved: &Node,
        (from_id, from): (FileId, &Name),
        (to_id, to): (FileId, &Name),
    ) -> Result<()> {
        if !moved.attr.is_dir() {
            match self.retry_change(|| self.vfs.link(caller, moved.id, to_id, to)).await {
                Err(e) if has_no_links(&e) => {}
                Err(e) => return Err(e),
                Ok(_) => {
                    let removed = self.retry_change(|| self.vfs.remove(caller, from_id, from)).await;
                    if removed.is_err() {
                        let _ = self.vfs.remove(caller, to_id, to).await; // the first error is the one to tell
                    }
                    return removed.map(drop);
                }
            }
        }
        match self.retry_read(|| self.vfs.lookup(&self.kernel, to_id, to)).await {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Ok(_) => return Err(Error::new(ErrorKind::Exists, "rename to", to)),
            Err(e) => return Err(e),
        }
        self.retry_change(|| self.vfs.rename(caller, from_id, from, to_id, to)).await.map(drop)
    }

    pub async fn setattr(&self, asker: &Asker, number: u64, set: SetAttr) -> Result<FuseEntry> {
        if set == SetAttr::default() {
            return self.getattr(asker.thread, number).await;
        }
        let id = self.file(number)?;
        if set.size.is_some() {
            self.follow_changes(number)?;
        }
        let set = self.set_without_privilege(asker, id, set).await?;
        let change = self.retry_change(|| self.vfs.setattr(&asker.caller, id, set, None));
        let altered = self.changing_object(number, change).await?;
        self.changed(altered.before, &altered.node);
        Ok(self.attributes(asker.thread, number, altered.node))
    }

    /// Carries out a change of an object of which the kernel learns by the answer: it takes no older answer after that.
    pub async fn changing_object<T>(
        &self,
        number: u64,
        change: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let changed = vfs::made_by(self.mark.clone(), change).await;
        if changed.is_err() {
            self.invalidations.object(number, None); // some of it may have been made
        }
        changed
    }

    /// Makes the opens of this number follow the file, before its bytes are changed.
    pub fn follow_changes(&self, number: u64) -> Result<()> {
        let dropped = self.inodes().will_change(number);
        match dropped {
            // Dropped outside the lock: the last close of an evicted file frees its blocks.
            Ok(dropped) => drop(dropped),
            Err(Superseded) => return Err(unknown(number)),
        }
        Ok(())
    }

    /// Fails early for a file in a read-only junction.
    pub fn require_writable(&self, node: &Node) -> Result<()> {
        match self.vfs.write_policy(node.junction) {
            WritePolicy::ReadOnly => Err(Error::new(ErrorKind::ReadOnly, "open to write", node.id)),
            _ => Ok(()),
        }
    }
}

fn has_no_links(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotSupported | ErrorKind::NotPermitted | ErrorKind::TooManyLinks)
}

/// What is done for this mount and by no program of it.
pub fn trusted_root() -> Caller {
    Caller { trusted: true, durability: Durability::Fsync, ..Caller::root() }
}

/// What MKNOD's mode and device number mean; `None` for what it cannot create.
pub fn node_kind(mode: u32, rdev: (u32, u32)) -> Option<NodeKind> {
    let (major, minor) = rdev;
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => Some(NodeKind::File),
        rustix::fs::FileType::CharacterDevice => Some(NodeKind::Special(NewNode::CharDevice(major, minor))),
        rustix::fs::FileType::BlockDevice => Some(NodeKind::Special(NewNode::BlockDevice(major, minor))),
        rustix::fs::FileType::Socket => Some(NodeKind::Special(NewNode::Socket)),
        rustix::fs::FileType::Fifo => Some(NodeKind::Special(NewNode::Fifo)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_says_what_is_to_be_made() {
        let of = |mode| node_kind(mode, (8, 1));
        assert!(matches!(of(0o100644), Some(NodeKind::File)));
        assert!(matches!(of(0o20644), Some(NodeKind::Special(NewNode::CharDevice(8, 1)))));
        assert!(matches!(of(0o60644), Some(NodeKind::Special(NewNode::BlockDevice(8, 1)))));
        assert!(matches!(of(0o140644), Some(NodeKind::Special(NewNode::Socket))));
        assert!(matches!(of(0o10644), Some(NodeKind::Special(NewNode::Fifo))));
        assert!(of(0o40755).is_none() && of(0o120777).is_none());
    }
}
