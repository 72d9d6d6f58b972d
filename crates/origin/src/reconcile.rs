//! A change whose outcome nobody knows: what is to be looked at afterwards, and what that proves.
//!
//! `judge` is the rule, pure; `look` asks what it wants to know. What is not proven stays unknown: a change that has
//! not shown yet may still be on its way. What is seen was made; that the origin has stored it already, as its answer
//! would have said, nobody can see.

use bytes::Bytes;
use types::{Attr, CreateHow, ErrorKind, FileKind, Name, NewNode, Result, SetAttr, Timestamp};

use crate::{Change, DirCursor, Identity, Object, Origin, Reference, exclusive};

/// What is at the place where the change's trace would be.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceSeen {
    Absent,
    Found {
        object: Box<Object>,
        /// A directory without names.
        empty: bool,
        /// Of a symbolic link.
        target: Option<Bytes>,
        /// Of the file that was to be linked.
        linked: Option<Identity>,
    },
    /// There is no such place.
    Nowhere,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// With what is there now.
    Done(Option<Object>),
    /// Nothing is lost by asking for it once more.
    Again,
    Unknown,
}

/// `heard` is the latest time of the origin's own clock that was heard before the change was asked for first.
pub fn judge(change: &Change, heard: Option<Timestamp>, seen: TraceSeen) -> Reconciled {
    if change.is_repeatable() {
        return Reconciled::Again;
    }
    let (object, empty, target, linked) = match seen {
        TraceSeen::Found { object, empty, target, linked } => (*object, empty, target, linked),
        TraceSeen::Absent => return judge_absence(change),
        TraceSeen::Nowhere => return Reconciled::Unknown,
    };
    let attr = &object.attr;
    let done = match change {
        Change::Create { how: CreateHow::Exclusive(verifier), set, .. } => {
            if exclusive::is_repetition(attr, *verifier) {
                return Reconciled::Again;
            }
            is_new_file(attr, heard, set)
        }
        Change::Create { set, .. } => is_new_file(attr, heard, set),
        Change::Mkdir { set, .. } => attr.is_dir() && empty && fits(attr, set),
        Change::Symlink { target: wanted, .. } => target.as_ref() == Some(wanted),
        Change::Mknod { node, set, .. } => is_node(attr, *node) && fits(attr, set),
        Change::Link { .. } => linked.as_ref() == Some(&object.identity),
        Change::Rename { identity, .. } => identity.as_ref() == Some(&object.identity),
        Change::Remove { .. }
        | Change::Rmdir { .. }
        | Change::Set { .. }
        | Change::SetXattr { .. }
        | Change::Publish { .. } => false,
    };
    if done { Reconciled::Done(Some(object)) } else { Reconciled::Unknown }
}

fn judge_absence(change: &Change) -> Reconciled {
    match change {
        Change::Remove { .. } | Change::Rmdir { .. } => Reconciled::Done(None),
        Change::Create { how: CreateHow::Exclusive(_), .. } => Reconciled::Again,
        _ => Reconciled::Unknown,
    }
}

/// Without bytes, and not from before we asked.
fn is_new_file(attr: &Attr, heard: Option<Timestamp>, set: &SetAttr) -> bool {
    let empty = attr.is_file() && attr.size == set.size.unwrap_or(0) && attr.nlink == 1;
    empty && heard.is_some_and(|heard| attr.ctime >= heard) && fits(attr, set)
}

fn is_node(attr: &Attr, node: NewNode) -> bool {
    match node {
        NewNode::CharDevice(major, minor) => (attr.kind, attr.rdev) == (FileKind::CharDevice, (major, minor)),
        NewNode::BlockDevice(major, minor) => {
            (attr.kind, attr.rdev) == (FileKind::BlockDevice, (major, minor))
        }
        NewNode::Socket => attr.kind == FileKind::Socket,
        NewNode::Fifo => attr.kind == FileKind::Fifo,
    }
}

/// Mode and owner are those that were asked for. Setgid aside: a directory may have it from the one it is in.
fn fits(attr: &Attr, set: &SetAttr) -> bool {
    let mode = set.mode.is_none_or(|mode| (mode ^ attr.mode) & 0o5777 == 0);
    mode && set.uid.is_none_or(|uid| uid == attr.uid) && set.gid.is_none_or(|gid| gid == attr.gid)
}

/// Asks what `judge` wants to know of the change.
pub async fn look(origin: &dyn Origin, change: &Change) -> Result<TraceSeen> {
    let Some((dir, name)) = trace(change) else { return Ok(TraceSeen::Nowhere) };
    let object = match origin.lookup(dir, name).await {
        Ok(object) => object,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(TraceSeen::Absent),
        Err(error) => return Err(error),
    };
    let (mut empty, mut target, mut linked) = (false, None, None);
    match change {
        Change::Mkdir { .. } if object.attr.is_dir() => {
            let page = origin.readdir(&object.reference, DirCursor::default()).await?;
            empty = page.entries.is_empty() && page.next.is_none();
        }
        Change::Symlink { .. } if object.attr.kind == FileKind::Symlink => {
            target = Some(origin.readlink(&object.reference).await?);
        }
        Change::Link { file, .. } => linked = Some(origin.getattr(file).await?.identity),
        _ => {}
    }
    Ok(TraceSeen::Found { object: Box::new(object), empty, target, linked })
}

/// The name that tells whether the change was made.
fn trace(change: &Change) -> Option<(&Reference, &Name)> {
    match change {
        Change::Create { dir, name, .. }
        | Change::Mkdir { dir, name, .. }
        | Change::Symlink { dir, name, .. }
        | Change::Mknod { dir, name, .. }
        | Change::Link { dir, name, .. }
        | Change::Remove { dir, name }
        | Change::Rmdir { dir, name }
        | Change::Rename { to_dir: dir, to: name, .. } => Some((dir, name)),
        Change::Set { .. } | Change::SetXattr { .. } | Change::Publish { .. } => None,
    }
}

#[cfg(test)]
mod tests;
