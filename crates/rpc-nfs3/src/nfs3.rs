//! NFS version 3 (RFC 1813): numbers, types, and for each procedure the arguments and results.

pub mod attr;
pub mod create;
pub mod file;
pub mod fs;
pub mod names;
pub mod readdir;
pub mod setattr;
pub mod wcc;
pub mod write;

use bytes::Bytes;

use crate::xdr::{Decoder, Encoder, WireError, WireResult};

pub use attr::{Fattr3, Nfstime3, PostOpAttr};

pub const PROGRAM: u32 = 100_003;
pub const VERSION: u32 = 3;
pub const HANDLE_MAX: usize = 64;
/// Longest name taken from the wire. Longer than a name may be, so that it is the file system that says
/// "name too long" and not the decoder that says "garbage".
pub const NAME_MAX: usize = 1024;

pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;

    const NAMES: [&str; 22] = [
        "NULL",
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "ACCESS",
        "READLINK",
        "READ",
        "WRITE",
        "CREATE",
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "REMOVE",
        "RMDIR",
        "RENAME",
        "LINK",
        "READDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
        "COMMIT",
    ];

    pub fn name(procedure: u32) -> Option<&'static str> {
        NAMES.get(procedure as usize).copied()
    }
}

/// nfsstat3; never `OK` where it stands for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    pub const OK: Status = Status(0);
    pub const PERM: Status = Status(1);
    pub const NOENT: Status = Status(2);
    pub const IO: Status = Status(5);
    pub const ACCES: Status = Status(13);
    pub const EXIST: Status = Status(17);
    pub const XDEV: Status = Status(18);
    pub const NODEV: Status = Status(19);
    pub const NOTDIR: Status = Status(20);
    pub const ISDIR: Status = Status(21);
    pub const INVAL: Status = Status(22);
    pub const FBIG: Status = Status(27);
    pub const NOSPC: Status = Status(28);
    pub const ROFS: Status = Status(30);
    pub const MLINK: Status = Status(31);
    pub const NAMETOOLONG: Status = Status(63);
    pub const NOTEMPTY: Status = Status(66);
    pub const DQUOT: Status = Status(69);
    pub const STALE: Status = Status(70);
    pub const BADHANDLE: Status = Status(10001);
    pub const NOT_SYNC: Status = Status(10002);
    pub const BAD_COOKIE: Status = Status(10003);
    pub const NOTSUPP: Status = Status(10004);
    pub const TOOSMALL: Status = Status(10005);
    pub const SERVERFAULT: Status = Status(10006);
    pub const BADTYPE: Status = Status(10007);
    pub const JUKEBOX: Status = Status(10008);
}

/// nfs_fh3
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub Bytes);

impl FileHandle {
    pub fn decode(d: &mut Decoder) -> WireResult<FileHandle> {
        d.opaque(HANDLE_MAX).map(FileHandle)
    }

    pub fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

/// diropargs3: a name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirOp {
    pub dir: FileHandle,
    pub name: Bytes,
}

impl DirOp {
    pub fn decode(d: &mut Decoder) -> WireResult<DirOp> {
        Ok(DirOp { dir: FileHandle::decode(d)?, name: d.opaque(NAME_MAX)? })
    }

    pub fn encode(&self, e: &mut Encoder) {
        self.dir.encode(e);
        e.opaque(&self.name);
    }
}

/// A result: the values of success, or a status with the attributes that ride along with a failure.
pub type Outcome<T, F = PostOpAttr> = Result<T, (Status, F)>;

/// Status, then whichever arm it announces.
pub fn encode_outcome<T, F>(
    e: &mut Encoder,
    outcome: &Outcome<T, F>,
    ok: impl FnOnce(&mut Encoder, &T),
    failed: impl FnOnce(&mut Encoder, &F),
) {
    match outcome {
        Ok(value) => {
            e.u32(Status::OK.0);
            ok(e, value);
        }
        Err((status, rest)) => {
            e.u32(status.0);
            failed(e, rest);
        }
    }
}

pub fn decode_outcome<T, F>(
    d: &mut Decoder,
    ok: impl FnOnce(&mut Decoder) -> WireResult<T>,
    failed: impl FnOnce(&mut Decoder) -> WireResult<F>,
) -> WireResult<Outcome<T, F>> {
    match Status(d.u32()?) {
        Status::OK => ok(d).map(Ok),
        status => Ok(Err((status, failed(d)?))),
    }
}

/// The failure of a procedure that would change something, in the shape that this procedure's failures have. `after`
/// is what is known of its objects, in the order of the results: RENAME and LINK have two, the others one.
pub fn encode_mutation_failure(
    e: &mut Encoder,
    procedure: u32,
    status: Status,
    after: [PostOpAttr; 2],
) -> Result<(), WireError> {
    let [first, second] = after;
    let wcc = |after| wcc::WccData { before: None, after };
    match procedure {
        procedure::SETATTR
        | procedure::WRITE
        | procedure::CREATE
        | procedure::MKDIR
        | procedure::SYMLINK
        | procedure::MKNOD
        | procedure::REMOVE
        | procedure::RMDIR
        | procedure::COMMIT => wcc::encode_wcc_result(e, &Err((status, wcc(first)))),
        procedure::RENAME => {
            let dirs = names::RenameWcc { from: wcc(first), to: wcc(second) };
            names::encode_rename(e, &Err((status, dirs)));
        }
        procedure::LINK => {
            names::encode_link(e, &Err((status, names::LinkWcc { attr: first, dir: wcc(second) })));
        }
        _ => return Err(WireError::BadValue),
    }
    Ok(())
}
