//! The changes of the trait, on the tree in memory.

use std::collections::BTreeMap;

use types::{CreateHow, Error, ErrorKind, FileKind, Name, NewNode, Result, SetAttr};

use super::contents::NodeBody;
use super::id_in;
use super::tree::State;
use crate::change::check_target;
use crate::{Around, Before, Change, Changed, Object, exclusive};

impl State {
    pub fn apply(&mut self, change: &Change) -> Result<Changed> {
        let (object, dir, to_dir) = match change {
            Change::Set { object, .. } | Change::SetXattr { object, .. } => {
                (Some(id_in(object)?), None, None)
            }
            Change::Rename { from_dir, to_dir, .. } => (None, Some(id_in(from_dir)?), Some(id_in(to_dir)?)),
            other => (None, Some(id_in(other.place())?), None),
        };
        let before = [object, dir, to_dir].map(|id| self.before(id));
        let object = self.carry_out(change)?;
        let [object_before, dir_before, to_dir_before] = before;
        let dir = Around { before: dir_before, after: self.after(dir) };
        let to_dir = Around { before: to_dir_before, after: self.after(to_dir) };
        Ok(Changed { object, before: object_before, dir, to_dir, ..Changed::default() })
    }

    fn after(&mut self, id: Option<u64>) -> Option<Object> {
        self.object(id?).ok()
    }

    fn before(&mut self, id: Option<u64>) -> Option<Before> {
        self.after(id).as_ref().map(Before::from)
    }

    fn carry_out(&mut self, change: &Change) -> Result<Option<Object>> {
        let altered = match change {
            Change::Create { dir, name, how, set } => self.create(id_in(dir)?, name, *how, set)?,
            Change::Mkdir { dir, name, set } => {
                self.made(id_in(dir)?, name, FileKind::Directory, NodeBody::Dir(BTreeMap::new()), set)?
            }
            Change::Symlink { dir, name, target, set } => {
                check_target(target)?;
                self.made(id_in(dir)?, name, FileKind::Symlink, NodeBody::Link(target.clone()), set)?
            }
            Change::Mknod { dir, name, node, set } => self.mknod(id_in(dir)?, name, *node, set)?,
            Change::Link { file, dir, name } => {
                let id = id_in(file)?;
                self.link(id, id_in(dir)?, name)?;
                id
            }
            Change::Remove { dir, name } => return self.remove(id_in(dir)?, name).map(|()| None),
            Change::Rmdir { dir, name } => return self.rmdir(id_in(dir)?, name).map(|()| None),
            Change::Rename { from_dir, from, to_dir, to, identity: _ } => {
                self.rename(id_in(from_dir)?, from, id_in(to_dir)?, to)?
            }
            Change::Set { object, set, guard } => {
                let id = id_in(object)?;
                if guard.is_some_and(|guard| self.inode(id).is_ok_and(|inode| inode.attr.ctime != guard)) {
                    return Err(Error::new(ErrorKind::VersionChanged, "set attributes of", id));
                }
                self.set(id, set)?;
                id
            }
            Change::SetXattr { object, name, set } => {
                let id = id_in(object)?;
                self.set_xattr(id, name, set)?;
                id
            }
            Change::Publish { .. } => {
                return Err(Error::new(ErrorKind::NotSupported, "publish a draft in", "memory"));
            }
        };
        self.object(altered).map(Some)
    }

    fn made(&mut self, dir: u64, name: &Name, kind: FileKind, body: NodeBody, set: &SetAttr) -> Result<u64> {
        let id = self.make(dir, name, kind, body)?;
        let set = if kind == FileKind::Regular { *set } else { SetAttr { size: None, ..*set } };
        if set != SetAttr::default()
            && let Err(error) = self.set(id, &set)
        {
            self.take_away(dir, name)?;
            return Err(error);
        }
        Ok(id)
    }

    fn create(&mut self, dir: u64, name: &Name, how: CreateHow, set: &SetAttr) -> Result<u64> {
        let Some(id) = self.entries(dir)?.get(name).copied() else {
            let set = match how {
                CreateHow::Exclusive(verifier) if *set == SetAttr::default() => exclusive::set_of(verifier),
                _ => *set,
            };
            return self.made(dir, name, FileKind::Regular, NodeBody::Bytes(Vec::new()), &set);
        };
        let attr = self.inode(id)?.attr;
        match how {
            CreateHow::Unchecked if attr.is_file() => {
                if set.size.is_some() {
                    self.set(id, &SetAttr { size: set.size, ..SetAttr::default() })?;
                }
                Ok(id)
            }
            CreateHow::Exclusive(verifier) if exclusive::is_repetition(&attr, verifier) => {
                if *set != SetAttr::default() {
                    self.set(id, &set.with_times())?;
                }
                Ok(id)
            }
            _ => Err(Error::new(ErrorKind::Exists, "create", name)),
        }
    }

    fn mknod(&mut self, dir: u64, name: &Name, node: NewNode, set: &SetAttr) -> Result<u64> {
        let (kind, rdev) = match node {
            NewNode::CharDevice(major, minor) => (FileKind::CharDevice, (major, minor)),
            NewNode::BlockDevice(major, minor) => (FileKind::BlockDevice, (major, minor)),
            NewNode::Socket => (FileKind::Socket, (0, 0)),
            NewNode::Fifo => (FileKind::Fifo, (0, 0)),
        };
        let id = self.made(dir, name, kind, NodeBody::Special, set)?;
        self.inode(id)?.attr.rdev = rdev;
        Ok(id)
    }
}
