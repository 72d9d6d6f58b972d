//! The operations that are journalled: what a client was told is done, as plain data, and its bytes in the head of an
//! entry.
//!
//! Objects are named by file id, those that the origin does not have yet by one that we chose (`local_ids.rs`): an origin's
//! references may be others by the time of the flush. Times are our clock's, as they were when the operation was
//! acknowledged. Bytes: docs/design/journal-format.md.

mod decode;
mod encode;

use bytes::Bytes;
use types::{
    Attr, ErrorKind, FileId, FileKind, JunctionId, Name, NewNode, Result, SetAttr, TimeChange, Timestamp,
    Version,
};

/// Longest target of a symbolic link: PATH_MAX.
pub const TARGET_MAX: usize = 4096;

/// Attributes to set, but the size, which is an operation of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<Timestamp>,
    pub mtime: Option<Timestamp>,
}

impl Attributes {
    /// What `set` asks for at `now`; its size is left to the caller.
    pub fn resolve(set: &SetAttr, now: Timestamp) -> Attributes {
        let time = |change| match change {
            TimeChange::Keep => None,
            TimeChange::Now => Some(now),
            TimeChange::To(time) => Some(time),
        };
        let SetAttr { mode, uid, gid, atime, mtime, .. } = *set;
        Attributes { mode, uid, gid, atime: time(atime), mtime: time(mtime) }
    }

    /// As an origin takes them.
    pub fn to_set(&self, size: Option<u64>) -> SetAttr {
        let time = |time: Option<Timestamp>| time.map_or(TimeChange::Keep, TimeChange::To);
        let Attributes { mode, uid, gid, atime, mtime } = *self;
        SetAttr { mode, uid, gid, size, atime: time(atime), mtime: time(mtime) }
    }

    /// What both leave when `later` comes second.
    pub fn then(&self, later: &Attributes) -> Attributes {
        Attributes {
            mode: later.mode.or(self.mode),
            uid: later.uid.or(self.uid),
            gid: later.gid.or(self.gid),
            atime: later.atime.or(self.atime),
            mtime: later.mtime.or(self.mtime),
        }
    }

    pub fn is_nothing(&self) -> bool {
        *self == Attributes::default()
    }

    pub(crate) fn apply(&self, attr: &mut Attr) {
        attr.mode = self.mode.unwrap_or(attr.mode);
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.atime = self.atime.unwrap_or(attr.atime);
        attr.mtime = self.mtime.unwrap_or(attr.mtime);
    }
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewObject {
    File,
    Directory,
    /// 1 to [`TARGET_MAX`] bytes.
    Symlink(Bytes),
    Special(NewNode),
}

impl NewObject {
    pub fn kind(&self) -> FileKind {
        match self {
            NewObject::File => FileKind::Regular,
            NewObject::Directory => FileKind::Directory,
            NewObject::Symlink(_) => FileKind::Symlink,
            NewObject::Special(NewNode::CharDevice(..)) => FileKind::CharDevice,
            NewObject::Special(NewNode::BlockDevice(..)) => FileKind::BlockDevice,
            NewObject::Special(NewNode::Socket) => FileKind::Socket,
            NewObject::Special(NewNode::Fifo) => FileKind::Fifo,
        }
    }

    pub fn rdev(&self) -> (u32, u32) {
        match self {
            NewObject::Special(NewNode::CharDevice(major, minor) | NewNode::BlockDevice(major, minor)) => {
                (*major, *minor)
            }
            _ => (0, 0),
        }
    }
}

/// What had the new name of a rename before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedObject {
    pub object: FileId,
    /// Names that are left to what is no directory.
    pub links: u32,
    pub base: Option<Version>,
}

/// `base` is the version of the origin's object on which the change was made, to tell at the flush whether somebody else
/// changed it meanwhile; `None` where the object is not at the origin yet. What clients saw goes with it where a restart
/// needs it: by then some of the operations before may be at the origin, and this may be in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Make {
        dir: FileId,
        name: Name,
        id: FileId,
        what: NewObject,
        set: Attributes,
    },
    /// The bytes are the entry's data.
    Write {
        file: FileId,
        offset: u64,
        size_before: u64,
        base: Option<Version>,
    },
    Truncate {
        file: FileId,
        size: u64,
        size_before: u64,
        base: Option<Version>,
    },
    Set {
        object: FileId,
        set: Attributes,
        base: Option<Version>,
    },
    /// One more name for what is no directory.
    Link {
        file: FileId,
        dir: FileId,
        name: Name,
        /// That it has then.
        links: u32,
        base: Option<Version>,
    },
    Remove {
        dir: FileId,
        name: Name,
        object: FileId,
        /// That it has left.
        links: u32,
        base: Option<Version>,
    },
    Rmdir {
        dir: FileId,
        name: Name,
        object: FileId,
    },
    Rename(Rename),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    pub from_dir: FileId,
    pub from: Name,
    pub to_dir: FileId,
    pub to: Name,
    pub object: FileId,
    pub is_dir: bool,
    pub base: Option<Version>,
    pub replaced: Option<ReplacedObject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOperation {
    pub junction: JunctionId,
    pub acknowledged: Timestamp,
    /// When the object's oldest operation that is not flushed was acknowledged, this one included
    /// ([`crate::DirtyNames::since`] knows). Names the conflict copy, the same one for all of them.
    pub since: Timestamp,
    pub action: Action,
}

impl Action {
    /// In which it gives or takes names.
    pub(crate) fn dirs(&self) -> [Option<FileId>; 2] {
        match self {
            Action::Make { dir, .. }
            | Action::Link { dir, .. }
            | Action::Remove { dir, .. }
            | Action::Rmdir { dir, .. } => [Some(*dir), None],
            Action::Rename(rename) => [Some(rename.from_dir), Some(rename.to_dir)],
            Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. } => [None, None],
        }
    }
}

impl JournalOperation {
    /// In which it gives or takes names.
    pub fn dirs(&self) -> [Option<FileId>; 2] {
        self.action.dirs()
    }

    /// The directory in which it gives `object` the name of another one.
    pub fn replaces_in(&self, object: FileId) -> Option<FileId> {
        match &self.action {
            Action::Rename(rename) if rename.object == object && rename.replaced.is_some() => {
                Some(rename.to_dir)
            }
            _ => None,
        }
    }

    /// The head of its entry.
    pub fn encode(&self) -> Bytes {
        encode::encode(self)
    }

    /// `Corrupt` for bytes that no encoding gives; `NotSupported` for those of a later format.
    pub fn decode(head: &[u8]) -> Result<JournalOperation> {
        decode::decode(head)
    }

    /// What it makes, alters, or gives a name or takes one from.
    pub fn object(&self) -> FileId {
        match &self.action {
            Action::Make { id, .. } => *id,
            Action::Write { file, .. } | Action::Truncate { file, .. } | Action::Link { file, .. } => *file,
            Action::Set { object, .. } | Action::Remove { object, .. } | Action::Rmdir { object, .. } => {
                *object
            }
            Action::Rename(rename) => rename.object,
        }
    }

    pub fn base(&self) -> Option<Version> {
        match &self.action {
            Action::Make { .. } | Action::Rmdir { .. } => None,
            Action::Write { base, .. }
            | Action::Truncate { base, .. }
            | Action::Set { base, .. }
            | Action::Link { base, .. }
            | Action::Remove { base, .. } => *base,
            Action::Rename(rename) => rename.base,
        }
    }

    /// `object`, and what loses its name to it.
    pub fn objects(&self) -> impl Iterator<Item = FileId> + use<> {
        let replaced = match &self.action {
            Action::Rename(rename) => rename.replaced.map(|replaced| replaced.object),
            _ => None,
        };
        [self.object()].into_iter().chain(replaced)
    }

    /// It alters the object itself and no name.
    pub fn is_content(&self) -> bool {
        matches!(self.action, Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. })
    }
}

fn corrupt(what: &'static str) -> types::Error {
    types::Error::new(ErrorKind::Corrupt, "decode journalled operation", what)
}

#[cfg(test)]
mod tests;
