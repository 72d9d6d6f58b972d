//! What one operation does to one object's attributes.

use bytes::Bytes;
use types::{Attr, FileKind, Timestamp};

use crate::operation::{Attributes, NewObject};

/// An object that the origin does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// As it was made. Without numbers of the file system: these are ours to give.
    pub attr: Attr,
    /// Of a symbolic link.
    pub target: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alteration {
    pub set: Attributes,
    /// Names that are left, of what is no directory.
    pub links: Option<u32>,
    /// More or less than before.
    pub links_by: i32,
    /// More or less, of a directory. After a crash the origin may show some of them already.
    pub subdirs: i32,
    pub ctime: Option<Timestamp>,
    /// It concerns the bytes of a file, or the names in a directory.
    pub bytes: bool,
}

impl Alteration {
    pub fn written(now: Timestamp) -> Alteration {
        let set = Attributes { mtime: Some(now), ..Attributes::default() };
        Alteration { set, bytes: true, ..Alteration::set(set, now) }
    }

    pub fn set(set: Attributes, now: Timestamp) -> Alteration {
        Alteration { set, ctime: Some(now), ..Alteration::default() }
    }

    /// `links` are left, which are so many more than before, or less.
    pub fn links(links: u32, by: i32, now: Timestamp) -> Alteration {
        Alteration { links: Some(links), links_by: by, ctime: Some(now), ..Alteration::default() }
    }

    /// After it only this is left of an earlier one, but for what is counted.
    pub fn covers(&self, earlier: &Alteration) -> bool {
        earlier.set.then(&self.set) == self.set
            && earlier.links.is_none_or(|_| self.links.is_some())
            && earlier.ctime.is_none_or(|_| self.ctime.is_some())
            && (self.bytes || !earlier.bytes)
    }

    /// A later one, or another of the same operation: a rename within one directory alters it twice.
    pub fn join(&mut self, other: &Alteration) {
        self.set = self.set.then(&other.set);
        self.links = other.links.or(self.links);
        self.links_by += other.links_by;
        self.subdirs += other.subdirs;
        self.ctime = other.ctime.or(self.ctime);
        self.bytes |= other.bytes;
    }

    pub fn apply(&self, attr: &mut Attr) {
        self.set.apply(attr);
        let links = self.links.unwrap_or(attr.nlink);
        // While a removal is flushed it may be counted on both sides: no links at all would say that the directory is gone.
        attr.nlink = links.saturating_add_signed(self.subdirs).max(links.min(2));
        attr.ctime = self.ctime.unwrap_or(attr.ctime);
    }
}

pub fn made(what: &NewObject, set: &Attributes, now: Timestamp) -> Local {
    let (kind, target) = match what {
        NewObject::Symlink(target) => (FileKind::Symlink, Some(target.clone())),
        what => (what.kind(), None),
    };
    // What ext4 shows for a new directory.
    let size = if kind == FileKind::Directory { 4096 } else { target.as_ref().map_or(0, Bytes::len) as u64 };
    let mode = match kind {
        FileKind::Directory => 0o755,
        FileKind::Symlink => 0o777,
        _ => 0o644,
    };
    let nlink = if kind == FileKind::Directory { 2 } else { 1 };
    let (uid, gid, used, rdev, fsid, fileid) = (0, 0, 0, what.rdev(), 0, 0);
    let (atime, mtime, ctime) = (now, now, now);
    let mut attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
    set.apply(&mut attr);
    Local { attr, target }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_whose_removed_subdirectories_are_counted_twice_is_not_gone() {
        let now = Timestamp { seconds: 1, nanos: 0 };
        let directory = || made(&NewObject::Directory, &Attributes::default(), now).attr;
        let removed = Alteration { subdirs: -3, ..Alteration::written(now) };
        for (before, after) in [(2, 2), (4, 2), (6, 3), (1, 1), (0, 0)] {
            let mut attr = Attr { nlink: before, ..directory() };
            removed.apply(&mut attr);
            assert_eq!(attr.nlink, after, "of {before}");
        }
        let mut attr = directory();
        Alteration::links(0, -1, now).apply(&mut attr);
        assert_eq!(attr.nlink, 0, "it is gone");
    }
}
