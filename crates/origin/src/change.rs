//! What can be changed at an origin, as plain data: a call of [`crate::Origin::change`] carries one, and so may a
//! record of what is still to be done there.

use bytes::Bytes;
use types::{
    CreateHow, Error, ErrorKind, Name, NewNode, Result, SetAttr, SetXattr, Stability, Timestamp, Version,
    WeakAttr, WriteVerifier, XattrName,
};

use crate::{Identity, Object, Reference};

/// One change of names or attributes. It is on the origin's stable storage when it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A regular file.
    Create {
        dir: Reference,
        name: Name,
        how: CreateHow,
        set: SetAttr,
    },
    Mkdir {
        dir: Reference,
        name: Name,
        set: SetAttr,
    },
    /// `target` is 1 to 4096 bytes.
    Symlink {
        dir: Reference,
        name: Name,
        target: Bytes,
        set: SetAttr,
    },
    Mknod {
        dir: Reference,
        name: Name,
        node: NewNode,
        set: SetAttr,
    },
    /// One more name for a file that is no directory.
    Link {
        file: Reference,
        dir: Reference,
        name: Name,
    },
    /// Removes a name that is no directory; the object goes with its last name.
    Remove {
        dir: Reference,
        name: Name,
    },
    /// Removes an empty directory.
    Rmdir {
        dir: Reference,
        name: Name,
    },
    /// What has the new name already is replaced, if both are directories (that one empty) or neither is.
    Rename {
        from_dir: Reference,
        from: Name,
        to_dir: Reference,
        to: Name,
        /// Of what has the old name. Only with it can be told later whether a rename whose answer was lost was made.
        identity: Option<Identity>,
    },
    /// With `guard` only if that is still the object's ctime; `VersionChanged` otherwise. An origin may look at its
    /// whole seconds only (Linux's NFS server did up to 6.1), and may look before it sets, not in one.
    Set {
        object: Reference,
        set: SetAttr,
        guard: Option<Timestamp>,
    },
    /// Of an origin that has them.
    SetXattr {
        object: Reference,
        name: XattrName,
        set: SetXattr,
    },
    /// Makes what was written to a draft ([`crate::Origin::draft`]) the file of this name, all of it at once. That is
    /// the name that the draft was begun for; `Busy` if its directory has another place since. A draft that has its
    /// name already answers with the file that it became. After `Exists` and `VersionChanged` nothing is left of it: an
    /// origin may say the latter, too, if a change by others took from it what was written.
    Publish {
        draft: Reference,
        dir: Reference,
        name: Name,
        over: Replacing,
    },
}

/// What a published draft may replace. The origin decides that in one with the change, also against others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacing {
    /// Whatever has the name, but for a directory.
    Anything,
    /// Nothing: `Exists` if the name is taken.
    Nothing,
    /// The file that has the name, in this version; `VersionChanged` otherwise.
    Version(Version),
}

impl Change {
    /// Its name among an origin's calls.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::Create { .. } => "create",
            Change::Mkdir { .. } => "mkdir",
            Change::Symlink { .. } => "symlink",
            Change::Mknod { .. } => "mknod",
            Change::Link { .. } => "link",
            Change::Remove { .. } => "remove",
            Change::Rmdir { .. } => "rmdir",
            Change::Rename { .. } => "rename",
            Change::Set { .. } => "set",
            Change::SetXattr { .. } => "set_xattr",
            Change::Publish { .. } => "publish",
        }
    }

    /// Where it is made: the directory (of a rename, the old one), or the object whose attributes are set.
    pub fn place(&self) -> &Reference {
        match self {
            Change::Create { dir, .. }
            | Change::Mkdir { dir, .. }
            | Change::Symlink { dir, .. }
            | Change::Mknod { dir, .. }
            | Change::Link { dir, .. }
            | Change::Remove { dir, .. }
            | Change::Rmdir { dir, .. }
            | Change::Rename { from_dir: dir, .. }
            | Change::Publish { dir, .. }
            | Change::Set { object: dir, .. }
            | Change::SetXattr { object: dir, .. } => dir,
        }
    }

    /// Whether it leaves the same when it is carried out twice, and its answer says the same. Others must not be sent
    /// again once they may have arrived.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Change::Create { how, set, .. } => match how {
                CreateHow::Unchecked => true,
                // Attributes put an end to the verifier.
                CreateHow::Exclusive(_) => *set == SetAttr::default(),
                CreateHow::Guarded => false,
            },
            Change::Set { guard, .. } => guard.is_none(),
            Change::SetXattr { set, .. } => matches!(set, SetXattr::To(_)),
            Change::Publish { .. } => true,
            _ => false,
        }
    }
}

/// What an object was, as far as it takes to see whether that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    pub attr: WeakAttr,
    pub version: Version,
}

impl Before {
    /// Of origins whose versions are made of these attributes.
    pub fn from_weak(attr: WeakAttr) -> Before {
        Before { attr, version: Version::from_times(attr.size, attr.mtime, attr.ctime) }
    }
}

impl From<&Object> for Before {
    fn from(object: &Object) -> Before {
        Before { attr: object.attr.weak(), version: object.version }
    }
}

/// An object just before and just after a change, as far as the origin tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    pub before: Option<Before>,
    pub after: Option<Object>,
}

/// Of an object that has another version by a rename, and the same bytes: it was copied, and then removed where it was, or
/// the origin counts its renames as changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Where it is now.
    pub reference: Reference,
    pub before: Version,
    pub after: Version,
}

/// A change that was made. What is told of "before" and "after" are the two sides of this change, so that one's own can
/// be told from another's; where an origin has to look twice (`posix`), what others do in between hides in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// What was made, named or altered, as it is after it. Always there for what was made; `None` where nothing is
    /// left, and where the origin would have to be asked once more.
    pub object: Option<Object>,
    /// Of an object whose attributes, or extended ones, were set.
    pub before: Option<Before>,
    /// The directory; of a rename, the old one.
    pub dir: Around,
    /// Of a rename, the new directory, which may be the same.
    pub to_dir: Around,
    /// Of a rename that is a copy, or counts as a change: what has another version by that, with the same bytes.
    pub copied: Vec<Copied>,
    /// It may have been carried out more than once, the last time after changes that others made meanwhile. Nothing is
    /// said of "before" then.
    pub resent: bool,
}

impl Changed {
    /// It may have been carried out before: what was told of "before" may be our own doing.
    pub fn perhaps_again(mut self) -> Changed {
        self.resent = true;
        (self.before, self.dir.before, self.to_dir.before) = (None, None, None);
        self
    }

    /// What a change that makes something made.
    pub fn made(self) -> Result<Object> {
        self.object
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "take what was made", "an answer without it"))
    }
}

/// Bytes that were written: all that were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The least that the origin promises of any of them; at least what was asked for.
    pub stability: Stability,
    /// Of all these bytes. Compare it with that of the commit if `stability` is `Unstable`.
    pub verifier: WriteVerifier,
    /// The file just before and just after, as far as the origin tells, so that the writer can tell its own change
    /// from another's. `before` is `None`, too, if others changed the file while it was written in several pieces.
    pub before: Option<Version>,
    pub after: Option<Object>,
    /// It may have been carried out more than once: `before` is then perhaps our own doing.
    pub resent: bool,
}

/// What a commit tells. What was written with `verifier` is on stable storage; the rest is to be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub verifier: WriteVerifier,
    pub before: Option<Version>,
    pub after: Option<Object>,
    pub resent: bool,
}

/// The end of a write; fails for one that no file can hold.
pub fn end_of_write(offset: u64, length: usize) -> Result<u64> {
    offset.checked_add(length as u64).filter(|end| i64::try_from(*end).is_ok()).ok_or_else(|| {
        let context = format!("{length} bytes do not fit behind offset {offset}");
        Error::new(ErrorKind::InvalidArgument, "write", context)
    })
}

/// Longest target of a symbolic link: PATH_MAX.
const TARGET_MAX: usize = 4096;

/// Fails for what no symbolic link can lead to.
pub fn check_target(target: &[u8]) -> Result<()> {
    if (1..=TARGET_MAX).contains(&target.len()) {
        return Ok(());
    }
    let context = format!("whose target has {} bytes and not 1 to {TARGET_MAX}", target.len());
    Err(Error::new(ErrorKind::InvalidArgument, "make a link", context))
}
