//! Attributes as NFSv3 encodes and sets them.

use rpc_nfs3::nfs3::attr::FileType;
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime};
use rpc_nfs3::nfs3::wcc::{WccAttr, WccData};
use rpc_nfs3::nfs3::{Fattr3, NfsStatus, Nfstime3};
use types::{Attr, FileKind, SetAttr, TimeChange, Timestamp, WeakAttr};
use vfs::AttrsAround;

/// Offsets and sizes from here on belong to no file: they are signed in POSIX.
pub const OFFSET_END: u64 = 1 << 63;
/// Permission bits, setuid, setgid and sticky. Clients may send the file type above them.
const MODE_BITS: u32 = 0o7777;

pub fn fattr3(attr: &Attr) -> Fattr3 {
    Fattr3 {
        kind: match attr.kind {
            FileKind::Regular => FileType::Regular,
            FileKind::Directory => FileType::Directory,
            FileKind::Symlink => FileType::Link,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharDevice => FileType::CharDevice,
            FileKind::Socket => FileType::Socket,
            FileKind::Fifo => FileType::Fifo,
        },
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: attr.rdev,
        fsid: attr.fsid,
        fileid: attr.fileid,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
    }
}

/// NFSv3 has 32 bits of seconds, which Linux reads as signed, others as unsigned. The low 32 bits are what the
/// origin itself would have sent.
fn time(t: Timestamp) -> Nfstime3 {
    Nfstime3 { seconds: t.seconds as u32, nanos: t.nanos }
}

pub fn timestamp(time: Nfstime3) -> Result<Timestamp, NfsStatus> {
    if time.nanos >= 1_000_000_000 {
        return Err(NfsStatus::INVAL);
    }
    Ok(Timestamp { seconds: i64::from(time.seconds), nanos: time.nanos })
}

pub fn set_attr(sattr: &Sattr3) -> Result<SetAttr, NfsStatus> {
    if sattr.size.is_some_and(|size| size >= OFFSET_END) {
        return Err(NfsStatus::FBIG);
    }
    Ok(SetAttr {
        mode: sattr.mode.map(|mode| mode & MODE_BITS),
        uid: sattr.uid,
        gid: sattr.gid,
        size: sattr.size,
        atime: time_change(sattr.atime)?,
        mtime: time_change(sattr.mtime)?,
    })
}

fn time_change(set: SetTime) -> Result<TimeChange, NfsStatus> {
    Ok(match set {
        SetTime::Keep => TimeChange::Keep,
        SetTime::ServerTime => TimeChange::Now,
        SetTime::To(time) => TimeChange::To(timestamp(time)?),
    })
}

/// The wcc_data of a change: attributes just before and after it, as far as both are known.
pub fn wcc(before: Option<WeakAttr>, after: Option<&Attr>) -> WccData {
    let weak = |weak: WeakAttr| WccAttr { size: weak.size, mtime: time(weak.mtime), ctime: time(weak.ctime) };
    WccData { before: before.map(weak), after: after.map(fattr3) }
}

pub fn wcc_of(around: &AttrsAround) -> WccData {
    wcc(around.before, around.after.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_set_is_refused_and_bits_that_are_no_mode_are_passed_over() {
        let at = |nanos| SetTime::To(Nfstime3 { seconds: u32::MAX, nanos });
        let sattr = Sattr3 { mode: Some(0o100_644), atime: at(999_999_999), ..Sattr3::default() };
        let set = set_attr(&sattr).expect("can be set");
        assert_eq!(set.mode, Some(0o644));
        let late = Timestamp { seconds: i64::from(u32::MAX), nanos: 999_999_999 };
        assert_eq!((set.atime, set.mtime), (TimeChange::To(late), TimeChange::Keep));
        assert_eq!(set_attr(&Sattr3 { mtime: at(1_000_000_000), ..sattr }), Err(NfsStatus::INVAL));
        let sized = |size| set_attr(&Sattr3 { size: Some(size), ..sattr });
        assert_eq!(sized((1 << 63) - 1).map(|set| set.size), Ok(Some((1 << 63) - 1)));
        assert_eq!(sized(1 << 63), Err(NfsStatus::FBIG));
        assert_eq!(sized(u64::MAX), Err(NfsStatus::FBIG));
    }
}
