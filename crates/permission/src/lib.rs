//! May this caller do that? Mode bits and ids, decided here for every front end, without asking the origin. The rules
//! are those of a Linux NFS server, which are POSIX's but for one: an owner reads and writes a file whatever its mode.
//! Changes of attributes are in `attributes.rs`.

mod attributes;

use types::{Attr, Caller, Error, ErrorKind, Result};

pub use attributes::{
    demand_device, demand_set_xattr, mode_after_write, new_attributes, set_attributes, without_privilege,
};

/// What a caller wants to do, or may do. Bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    pub const READ: Access = Access(1);
    /// Look a name up in a directory.
    pub const LOOKUP: Access = Access(2);
    pub const MODIFY: Access = Access(4);
    pub const EXTEND: Access = Access(8);
    pub const DELETE: Access = Access(16);
    pub const EXECUTE: Access = Access(32);

    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Access {
    type Output = Access;

    fn bitand(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }
}

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const STICKY: u32 = 0o1000;

/// What the caller may do by the mode bits: those of the owner, else those of the group, else those of the others.
/// Root may read, write and search everything, but executes only what somebody may execute.
fn permitted(caller: &Caller, attr: &Attr) -> u32 {
    if caller.trusted {
        return READ | WRITE | EXECUTE;
    }
    if caller.uid == 0 {
        let executable = attr.is_dir() || attr.mode & 0o111 != 0;
        return READ | WRITE | if executable { EXECUTE } else { 0 };
    }
    let shift = if caller.uid == attr.uid {
        6
    } else if caller.in_group(attr.gid) {
        3
    } else {
        0
    };
    (attr.mode >> shift) & 7
}

/// The owner, or whoever is above owners.
fn is_owner(caller: &Caller, attr: &Attr) -> bool {
    caller.trusted || caller.uid == 0 || caller.uid == attr.uid
}

/// All that the caller may do with an object; in a tree that is `writable`, or only read.
pub fn granted(caller: &Caller, attr: &Attr, writable: bool) -> Access {
    let bits = permitted(caller, attr);
    let mut access = Access(0);
    if bits & READ != 0 {
        access = access | Access::READ;
    }
    if bits & EXECUTE != 0 {
        access = access | if attr.is_dir() { Access::LOOKUP } else { Access::EXECUTE };
    }
    if writable && attr.is_dir() && may_change_names(caller, attr) {
        access = access | Access::MODIFY | Access::EXTEND | Access::DELETE;
    }
    if writable && !attr.is_dir() && bits & WRITE != 0 {
        access = access | Access::MODIFY | Access::EXTEND;
    }
    access
}

pub fn may_search(caller: &Caller, dir: &Attr) -> bool {
    permitted(caller, dir) & EXECUTE != 0
}

pub fn may_list(caller: &Caller, dir: &Attr) -> bool {
    permitted(caller, dir) & READ != 0
}

/// Reading bytes: who may by the mode, the owner always (an open file stays readable after chmod), and whoever may
/// execute (a program must be paged in).
pub fn may_read_bytes(caller: &Caller, attr: &Attr) -> bool {
    permitted(caller, attr) & (READ | EXECUTE) != 0 || is_owner(caller, attr)
}

/// Writing bytes: who may by the mode, and the owner always (an open file stays writable after chmod).
pub fn may_write_bytes(caller: &Caller, attr: &Attr) -> bool {
    permitted(caller, attr) & WRITE != 0 || is_owner(caller, attr)
}

fn may_change_names(caller: &Caller, dir: &Attr) -> bool {
    permitted(caller, dir) & (WRITE | EXECUTE) == WRITE | EXECUTE
}

/// To put a name into `dir`, or take one out of it.
pub fn demand_names(caller: &Caller, dir: &Attr, operation: &'static str) -> Result<()> {
    demand(may_change_names(caller, dir), operation, caller)
}

/// Is it not enough to be allowed to change names in `dir`, because only owners may take theirs out of it?
pub fn is_guarded(caller: &Caller, dir: &Attr) -> bool {
    dir.mode & STICKY != 0 && !is_owner(caller, dir)
}

/// To take the name of `victim` out of `dir`, besides `demand_names`.
pub fn demand_unname(caller: &Caller, dir: &Attr, victim: &Attr, operation: &'static str) -> Result<()> {
    permit(!is_guarded(caller, dir) || is_owner(caller, victim), operation, caller)
}

/// A directory that gets another parent has its `..` changed.
pub fn demand_move(caller: &Caller, moved: &Attr, operation: &'static str) -> Result<()> {
    demand(!moved.is_dir() || permitted(caller, moved) & WRITE != 0, operation, caller)
}

/// The mode bits say who may.
pub fn demand(allowed: bool, operation: &'static str, caller: &Caller) -> Result<()> {
    refuse_unless(allowed, ErrorKind::AccessDenied, operation, caller)
}

/// Only owners or the privileged may, whatever the mode bits say.
fn permit(allowed: bool, operation: &'static str, caller: &Caller) -> Result<()> {
    refuse_unless(allowed, ErrorKind::NotPermitted, operation, caller)
}

fn refuse_unless(allowed: bool, kind: ErrorKind, operation: &'static str, caller: &Caller) -> Result<()> {
    if allowed {
        return Ok(());
    }
    Err(Error::new(kind, operation, format!("for uid {}", caller.uid)))
}

#[cfg(test)]
mod tests;
