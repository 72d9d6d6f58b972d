//! May this caller do that? Mode bits and ids, decided here for every front end, without asking the origin.

use types::{Attr, Caller, Error, ErrorKind, Result};

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

/// The three permission bits (read 4, write 2, execute 1) that apply to this caller: those of the owner, else
/// those of the group, else those of the others.
fn class_bits(caller: &Caller, attr: &Attr) -> u32 {
    let shift = if caller.uid == attr.uid {
        6
    } else if caller.in_group(attr.gid) {
        3
    } else {
        0
    };
    (attr.mode >> shift) & 7
}

/// All that the caller may do with an object of a read-only tree.
pub fn granted(caller: &Caller, attr: &Attr) -> Access {
    let mut bits = class_bits(caller, attr);
    if caller.uid == 0 {
        // Root reads and searches everything, but executes only what somebody may execute.
        let executable = attr.is_dir() || attr.mode & 0o111 != 0;
        bits |= 4 | u32::from(executable);
    }
    let mut access = Access(0);
    if bits & 4 != 0 {
        access = access | Access::READ;
    }
    if bits & 1 != 0 {
        access = access | if attr.is_dir() { Access::LOOKUP } else { Access::EXECUTE };
    }
    access
}

/// Reading bytes: as `granted`, and as NFS servers do: the owner always (an open file stays readable after
/// chmod), and whoever may execute (a program must be paged in).
pub fn may_read_bytes(caller: &Caller, attr: &Attr) -> bool {
    let access = granted(caller, attr);
    access.contains(Access::READ) || access.contains(Access::EXECUTE) || caller.uid == attr.uid
}

pub fn demand(allowed: bool, operation: &'static str, caller: &Caller) -> Result<()> {
    if allowed {
        return Ok(());
    }
    Err(Error::new(ErrorKind::AccessDenied, operation, format!("for uid {}", caller.uid)))
}

#[cfg(test)]
mod tests {
    use types::{FileKind, Timestamp};

    use super::*;

    fn attr(kind: FileKind, mode: u32) -> Attr {
        let time = Timestamp::default();
        let (uid, gid) = (10, 20);
        let (nlink, size, used, rdev, fsid, fileid) = (1, 0, 0, (0, 0), 0, 1);
        Attr {
            kind,
            mode,
            nlink,
            uid,
            gid,
            size,
            used,
            rdev,
            fsid,
            fileid,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec(), trusted: false }
    }

    #[test]
    fn the_first_class_that_matches_decides_even_if_a_later_one_allows_more() {
        let file = attr(FileKind::Regular, 0o047);
        assert_eq!(granted(&caller(10, 1, &[]), &file), Access(0));
        assert_eq!(granted(&caller(11, 20, &[]), &file), Access::READ);
        assert_eq!(granted(&caller(11, 1, &[5, 20]), &file), Access::READ);
        assert_eq!(granted(&caller(11, 1, &[]), &file), Access::READ | Access::EXECUTE);
    }

    #[test]
    fn root_reads_all_but_executes_only_programs() {
        let root = Caller::root();
        assert_eq!(granted(&root, &attr(FileKind::Regular, 0)), Access::READ);
        assert_eq!(granted(&root, &attr(FileKind::Regular, 0o001)), Access::READ | Access::EXECUTE);
        assert_eq!(granted(&root, &attr(FileKind::Directory, 0)), Access::READ | Access::LOOKUP);
    }

    #[test]
    fn nobody_may_modify_and_the_owner_reads_on_after_chmod() {
        let all = granted(&caller(10, 20, &[]), &attr(FileKind::Regular, 0o777));
        assert_eq!(all & (Access::MODIFY | Access::EXTEND | Access::DELETE), Access(0));
        assert!(may_read_bytes(&caller(10, 1, &[]), &attr(FileKind::Regular, 0)));
        assert!(may_read_bytes(&caller(99, 1, &[]), &attr(FileKind::Regular, 0o001)));
        assert!(!may_read_bytes(&caller(99, 1, &[]), &attr(FileKind::Regular, 0o770)));
    }
}
