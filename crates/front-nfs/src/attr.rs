//! Attributes as NFSv3 shows them.

use rpc_nfs3::nfs3::attr::FileType;
use rpc_nfs3::nfs3::{Fattr3, Nfstime3};
use types::{Attr, FileKind, Timestamp};

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

/// NFSv3 has 32 bits of seconds; Linux reads them as signed, others as unsigned. The low 32 bits are what the origin
/// itself would have sent.
fn time(t: Timestamp) -> Nfstime3 {
    Nfstime3 { seconds: t.seconds as u32, nanos: t.nanos }
}
