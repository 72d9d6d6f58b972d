//! Who may set which attributes, and what is set then: the rules of chmod, chown, utimes and truncate, and whose a new
//! object is.

use types::{Attr, Caller, Result, SetAttr, TimeChange};

use super::{demand, is_guarded, is_owner, may_write_bytes, permit};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

/// What a caller who asks for `set` of an object gets: a program must not run as somebody whom its new owner or the
/// writer of its bytes chose.
pub fn set_attributes(caller: &Caller, attr: &Attr, set: &SetAttr) -> Result<SetAttr> {
    if caller.trusted {
        return Ok(*set);
    }
    let root = caller.uid == 0;
    let owner = is_owner(caller, attr);
    if set.mode.is_some() {
        permit(owner, "change the mode", caller)?;
    }
    if let Some(uid) = set.uid {
        permit(root || owner && uid == attr.uid, "change the owner", caller)?;
    }
    if let Some(gid) = set.gid {
        let own_group = gid == attr.gid || caller.in_group(gid);
        permit(root || owner && own_group, "change the group", caller)?;
    }
    if set.size.is_some() {
        demand(may_write_bytes(caller, attr), "change the size", caller)?;
    }
    for time in [set.atime, set.mtime] {
        match time {
            TimeChange::Keep => {}
            TimeChange::Now => demand(may_write_bytes(caller, attr), "touch", caller)?,
            TimeChange::To(_) => permit(owner, "set a time", caller)?,
        }
    }
    Ok(SetAttr { mode: mode_after(caller, attr, set), ..*set })
}

/// `None`: as it is.
fn mode_after(caller: &Caller, attr: &Attr, set: &SetAttr) -> Option<u32> {
    let root = caller.uid == 0;
    let member = root || caller.in_group(set.gid.unwrap_or(attr.gid));
    let asked = set.mode.map(|mode| if member { mode } else { mode & !SETGID });
    let given = !attr.is_dir() && (set.uid.is_some() || set.gid.is_some());
    let written = set.size.is_some() && !root;
    let mode = match asked {
        Some(mode) if given => without_privilege(mode),
        None if given || written => without_privilege(attr.mode),
        Some(mode) => mode,
        None => return None,
    };
    (asked.is_some() || mode != attr.mode).then_some(mode)
}

/// The mode that a file has when this caller has written to it, if that is not the one it has: who changes the bytes of
/// a program may not choose what its owner's rights are used for. `None` for the trusted: their kernel sees to it.
pub fn mode_after_write(caller: &Caller, attr: &Attr) -> Option<u32> {
    let privileged = caller.trusted || caller.uid == 0;
    let mode = without_privilege(attr.mode);
    (!privileged && attr.is_file() && mode != attr.mode).then_some(mode)
}

/// A mode without setuid and setgid. Setgid without the right to execute is no privilege: it once meant locks.
pub fn without_privilege(mode: u32) -> u32 {
    mode & !if mode & GROUP_EXECUTES == 0 { SETUID } else { SETUID | SETGID }
}

/// What an object that the caller makes in `dir` has: it is the caller's, unless `set` says otherwise and the caller
/// may give it away.
pub fn new_attributes(caller: &Caller, dir: &Attr, is_dir: bool, set: &SetAttr) -> Result<SetAttr> {
    let privileged = caller.trusted || caller.uid == 0;
    let inherits = dir.mode & SETGID != 0;
    let gid = set.gid.unwrap_or(if inherits { dir.gid } else { caller.gid });
    let uid = set.uid.unwrap_or(caller.uid);
    permit(privileged || uid == caller.uid, "make what is another's,", caller)?;
    let own_group = caller.in_group(gid) || inherits && gid == dir.gid;
    permit(privileged || own_group, "make what is another group's,", caller)?;
    let member = privileged || caller.in_group(gid);
    let mode = set.mode.map(|mode| match is_dir {
        true if inherits => mode | SETGID,
        false if !member => mode & !SETGID,
        _ => mode,
    });
    Ok(SetAttr { mode, uid: Some(uid), gid: Some(gid), ..*set })
}

/// A device is a way past every mode bit.
pub fn demand_device(caller: &Caller) -> Result<()> {
    permit(caller.trusted || caller.uid == 0, "make a device", caller)
}

/// To set or remove an attribute of users: as to write, and in a directory where only owners take theirs away, as its
/// owner. Other objects have none: their modes say who may use a device, not who may write to it.
pub fn demand_set_xattr(caller: &Caller, attr: &Attr) -> Result<()> {
    const WHAT: &str = "set an extended attribute";
    permit(attr.is_file() || attr.is_dir(), WHAT, caller)?;
    permit(!attr.is_dir() || !is_guarded(caller, attr), WHAT, caller)?;
    demand(may_write_bytes(caller, attr), WHAT, caller)
}
