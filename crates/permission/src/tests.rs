use types::{Attr, Caller, ErrorKind, FileKind, Result, SetAttr, TimeChange, Timestamp};

use super::*;

/// Owner 10, group 20.
fn attr(kind: FileKind, mode: u32) -> Attr {
    let time = Timestamp::default();
    let (uid, gid) = (10, 20);
    let (nlink, size, used, rdev, fsid, fileid) = (1, 0, 0, (0, 0), 0, 1);
    let (atime, mtime, ctime) = (time, time, time);
    Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
}

fn file(mode: u32) -> Attr {
    attr(FileKind::Regular, mode)
}

fn dir(mode: u32) -> Attr {
    attr(FileKind::Directory, mode)
}

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec(), ..Caller::root() }
}

fn trusted(uid: u32) -> Caller {
    Caller { trusted: true, ..caller(uid, uid, &[]) }
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

const DENIED: Option<ErrorKind> = Some(ErrorKind::AccessDenied);
const NOT_PERMITTED: Option<ErrorKind> = Some(ErrorKind::NotPermitted);
const CHANGE: Access = Access(4 | 8);

#[test]
fn the_first_class_that_matches_decides_even_if_a_later_one_allows_more() {
    let file = file(0o047);
    for (writable, write) in [(false, Access(0)), (true, CHANGE)] {
        assert_eq!(granted(&caller(10, 1, &[]), &file, writable), Access(0));
        assert_eq!(granted(&caller(11, 20, &[]), &file, writable), Access::READ);
        assert_eq!(granted(&caller(11, 1, &[5, 20]), &file, writable), Access::READ);
        let others = Access::READ | Access::EXECUTE | write;
        assert_eq!(granted(&caller(11, 1, &[]), &file, writable), others);
    }
}

#[test]
fn root_and_the_trusted_read_and_write_all_but_root_executes_only_programs() {
    let root = Caller::root();
    assert_eq!(granted(&root, &file(0), false), Access::READ);
    assert_eq!(granted(&root, &file(0), true), Access::READ | CHANGE);
    assert_eq!(granted(&root, &file(0o001), false), Access::READ | Access::EXECUTE);
    let all = Access::READ | Access::LOOKUP | CHANGE | Access::DELETE;
    assert_eq!(granted(&root, &dir(0), false), Access::READ | Access::LOOKUP);
    assert_eq!(granted(&root, &dir(0), true), all);
    assert_eq!(granted(&trusted(99), &dir(0), true), all);
    assert_eq!(granted(&trusted(99), &file(0), true), Access::READ | Access::EXECUTE | CHANGE);
}

#[test]
fn names_are_changed_by_who_may_write_and_search_the_directory_and_never_in_a_read_only_tree() {
    let names = CHANGE | Access::DELETE;
    for (mode, allowed) in [(0o700, true), (0o300, true), (0o200, false), (0o100, false), (0o577, false)] {
        let owner = caller(10, 20, &[]);
        assert_eq!(granted(&owner, &dir(mode), true) & names == names, allowed, "{mode:o}");
        assert_eq!(granted(&owner, &dir(mode), false) & names, Access(0), "{mode:o}");
        assert_eq!(kind(demand_names(&owner, &dir(mode), "make")), DENIED.filter(|_| !allowed), "{mode:o}");
    }
    assert_eq!(granted(&caller(10, 20, &[]), &file(0o777), false) & names, Access(0));
}

#[test]
fn bytes_are_the_owners_whatever_the_mode() {
    let table = [
        // caller, mode, reads, writes
        (caller(10, 1, &[]), 0, true, true),
        (caller(99, 1, &[]), 0o001, true, false),
        (caller(99, 1, &[]), 0o002, false, true),
        (caller(99, 1, &[20]), 0o707, false, false),
        (Caller::root(), 0, true, true),
        (trusted(99), 0, true, true),
    ];
    for (caller, mode, reads, writes) in table {
        assert_eq!(may_read_bytes(&caller, &file(mode)), reads, "{caller:?} {mode:o}");
        assert_eq!(may_write_bytes(&caller, &file(mode)), writes, "{caller:?} {mode:o}");
    }
}

#[test]
fn in_a_sticky_directory_only_owners_take_names_out() {
    let victim = Attr { uid: 30, ..file(0o666) };
    let table = [
        (caller(10, 1, &[]), 0o1777, None),
        (caller(30, 1, &[]), 0o1777, None),
        (caller(40, 30, &[]), 0o1777, NOT_PERMITTED),
        (caller(40, 30, &[]), 0o0777, None),
        (Caller::root(), 0o1777, None),
        (trusted(40), 0o1777, None),
    ];
    for (caller, mode, expected) in table {
        assert_eq!(kind(demand_unname(&caller, &dir(mode), &victim, "remove")), expected, "{caller:?}");
    }
}

#[test]
fn a_directory_is_moved_by_who_may_write_it() {
    assert_eq!(kind(demand_move(&caller(10, 1, &[]), &dir(0o500), "rename")), DENIED);
    assert_eq!(kind(demand_move(&caller(10, 1, &[]), &dir(0o700), "rename")), None);
    assert_eq!(kind(demand_move(&caller(11, 1, &[]), &file(0), "rename")), None);
}

#[test]
fn attributes_are_set_by_those_who_may() {
    let none = SetAttr::default();
    let (chmod, size) = (SetAttr { mode: Some(0o600), ..none }, SetAttr { size: Some(0), ..none });
    let chown = |uid| SetAttr { uid: Some(uid), ..none };
    let chgrp = |gid| SetAttr { gid: Some(gid), ..none };
    let touch = SetAttr { atime: TimeChange::Now, mtime: TimeChange::Now, ..none };
    let times = SetAttr { mtime: TimeChange::To(Timestamp::default()), ..none };
    let (owner, writer, stranger) = (caller(10, 1, &[20, 21]), caller(11, 20, &[]), caller(12, 1, &[]));
    let table = [
        // set, owner, may write, may not
        (none, None, None, None),
        (chmod, None, NOT_PERMITTED, NOT_PERMITTED),
        (chown(11), NOT_PERMITTED, NOT_PERMITTED, NOT_PERMITTED),
        (chown(10), None, NOT_PERMITTED, NOT_PERMITTED),
        (chgrp(20), None, NOT_PERMITTED, NOT_PERMITTED),
        (chgrp(21), None, NOT_PERMITTED, NOT_PERMITTED),
        (chgrp(22), NOT_PERMITTED, NOT_PERMITTED, NOT_PERMITTED),
        (size, None, None, DENIED),
        (touch, None, None, DENIED),
        (times, None, NOT_PERMITTED, NOT_PERMITTED),
    ];
    for (set, by_owner, by_writer, by_stranger) in table {
        // Not even the owner may write by the mode.
        let file = file(0o460);
        assert_eq!(kind(set_attributes(&owner, &file, &set)), by_owner, "{set:?}");
        assert_eq!(kind(set_attributes(&writer, &file, &set)), by_writer, "{set:?}");
        assert_eq!(kind(set_attributes(&stranger, &file, &set)), by_stranger, "{set:?}");
        assert_eq!(kind(set_attributes(&Caller::root(), &file, &set)), None, "{set:?}");
        assert_eq!(set_attributes(&trusted(12), &file, &set).ok(), Some(set));
    }
}

#[test]
fn setuid_and_setgid_end_when_owner_or_bytes_change() {
    let none = SetAttr::default();
    let owner = caller(10, 20, &[21]);
    let outsider = caller(10, 1, &[]);
    let (size, chgrp) = (SetAttr { size: Some(1), ..none }, SetAttr { gid: Some(21), ..none });
    let chown = SetAttr { uid: Some(10), ..none };
    let mode = |mode| SetAttr { mode: Some(mode), ..none };
    let root = Caller::root();
    let table = [
        // caller, mode before, set, mode set
        (&owner, file(0o6755), size, Some(0o0755)),
        (&owner, file(0o2745), size, None),
        (&owner, file(0o0755), size, None),
        (&root, file(0o6755), size, None),
        (&owner, file(0o6755), chgrp, Some(0o0755)),
        (&root, file(0o6745), chown, Some(0o2745)),
        (&root, dir(0o6755), chown, None),
        (&root, file(0o755), SetAttr { mode: Some(0o4755), ..chown }, Some(0o0755)),
        (&owner, file(0o755), mode(0o6755), Some(0o6755)),
        (&outsider, file(0o755), mode(0o6755), Some(0o4755)),
        (&outsider, dir(0o755), mode(0o2755), Some(0o0755)),
        (&root, file(0o755), mode(0o2755), Some(0o2755)),
    ];
    for (caller, attr, set, expected) in table {
        let given = set_attributes(caller, &attr, &set).expect("may");
        assert_eq!(given.mode, expected, "{caller:?} {:o} {set:?}", attr.mode);
    }
}

#[test]
fn who_writes_ends_setuid_and_setgid_unless_he_is_privileged() {
    let (owner, stranger, root) = (caller(10, 20, &[]), caller(12, 1, &[]), Caller::root());
    let table = [
        (&owner, file(0o6777), Some(0o0777)),
        (&stranger, file(0o6777), Some(0o0777)),
        (&stranger, file(0o6767), Some(0o2767)),
        (&stranger, file(0o2767), None),
        (&stranger, file(0o1777), None),
        (&root, file(0o6777), None),
        (&trusted(12), file(0o6777), None),
        (&stranger, dir(0o6777), None),
    ];
    for (caller, attr, expected) in table {
        assert_eq!(mode_after_write(caller, &attr), expected, "{caller:?} {:o}", attr.mode);
    }
}

#[test]
fn what_is_made_is_the_callers_and_its_group_that_of_a_setgid_directory() {
    let none = SetAttr::default();
    let user = caller(11, 12, &[13]);
    let mode = |mode| SetAttr { mode: Some(mode), ..none };
    let made = |caller: &Caller, dir: &Attr, is_dir, set: SetAttr| {
        new_attributes(caller, dir, is_dir, &set)
            .map(|set| (set.uid, set.gid, set.mode))
            .map_err(|e| e.kind())
    };
    let (plain, setgid) = (dir(0o777), dir(0o2777));
    assert_eq!(made(&user, &plain, false, mode(0o644)), Ok((Some(11), Some(12), Some(0o644))));
    assert_eq!(made(&user, &setgid, false, none), Ok((Some(11), Some(20), None)));
    assert_eq!(made(&user, &setgid, true, mode(0o755)), Ok((Some(11), Some(20), Some(0o2755))));
    assert_eq!(made(&user, &setgid, false, mode(0o2755)), Ok((Some(11), Some(20), Some(0o0755))));
    assert_eq!(made(&user, &plain, false, SetAttr { gid: Some(13), ..none }), Ok((Some(11), Some(13), None)));
    let (uid, gid) = (SetAttr { uid: Some(10), ..none }, SetAttr { gid: Some(20), ..none });
    assert_eq!(made(&user, &plain, false, uid), Err(ErrorKind::NotPermitted));
    assert_eq!(made(&user, &plain, false, gid), Err(ErrorKind::NotPermitted));
    assert_eq!(made(&Caller::root(), &plain, false, uid), Ok((Some(10), Some(0), None)));
    assert_eq!(made(&trusted(11), &plain, false, gid), Ok((Some(11), Some(20), None)));
}
