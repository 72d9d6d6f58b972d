//! NFS version 3 (RFC 1813): the numbers of procedures and statuses, the types that procedures share, and in the
//! files below for each procedure its arguments (`...Args`), its success (`...Ok`) and their encoders and decoders.
//!
//! - here: [`NfsStatus`], [`FileHandle`], [`DirOp`], [`NfsResult`] and the shape of failures
//! - `attr.rs`, `setattr.rs`, `wcc.rs`: attributes as they are read, as they are set, and around a change
//! - `file.rs`: GETATTR, LOOKUP, ACCESS, READLINK, READ
//! - `write.rs`: WRITE, COMMIT; `create.rs`: CREATE, MKDIR, SYMLINK, MKNOD; `names.rs`: RENAME, LINK
//! - `readdir.rs`: READDIR, READDIRPLUS; `fs.rs`: FSSTAT, FSINFO, PATHCONF
//!
//! A result is a status and then one of two arms ([`encode_result`], [`decode_result`]); the arm of a failure
//! carries attributes, too, in the shape of its procedure ([`encode_mutation_failure`]). REMOVE and RMDIR need
//! nothing of their own: their arguments are a [`DirOp`], their result is `wcc::WccResult`. Begin with `file.rs`.

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

use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder};

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
pub struct NfsStatus(pub u32);

impl NfsStatus {
    pub const OK: NfsStatus = NfsStatus(0);
    pub const PERM: NfsStatus = NfsStatus(1);
    pub const NOENT: NfsStatus = NfsStatus(2);
    pub const IO: NfsStatus = NfsStatus(5);
    pub const ACCES: NfsStatus = NfsStatus(13);
    pub const EXIST: NfsStatus = NfsStatus(17);
    pub const XDEV: NfsStatus = NfsStatus(18);
    pub const NODEV: NfsStatus = NfsStatus(19);
    pub const NOTDIR: NfsStatus = NfsStatus(20);
    pub const ISDIR: NfsStatus = NfsStatus(21);
    pub const INVAL: NfsStatus = NfsStatus(22);
    pub const FBIG: NfsStatus = NfsStatus(27);
    pub const NOSPC: NfsStatus = NfsStatus(28);
    pub const ROFS: NfsStatus = NfsStatus(30);
    pub const MLINK: NfsStatus = NfsStatus(31);
    pub const NAMETOOLONG: NfsStatus = NfsStatus(63);
    pub const NOTEMPTY: NfsStatus = NfsStatus(66);
    pub const DQUOT: NfsStatus = NfsStatus(69);
    pub const STALE: NfsStatus = NfsStatus(70);
    pub const BADHANDLE: NfsStatus = NfsStatus(10001);
    pub const NOT_SYNC: NfsStatus = NfsStatus(10002);
    pub const BAD_COOKIE: NfsStatus = NfsStatus(10003);
    pub const NOTSUPP: NfsStatus = NfsStatus(10004);
    pub const TOOSMALL: NfsStatus = NfsStatus(10005);
    pub const SERVERFAULT: NfsStatus = NfsStatus(10006);
    pub const BADTYPE: NfsStatus = NfsStatus(10007);
    pub const JUKEBOX: NfsStatus = NfsStatus(10008);
}

/// nfs_fh3
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub Bytes);

impl FileHandle {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<FileHandle> {
        d.opaque(HANDLE_MAX).map(FileHandle)
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
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
    pub fn decode(d: &mut XdrDecoder) -> WireResult<DirOp> {
        Ok(DirOp { dir: FileHandle::decode(d)?, name: d.opaque(NAME_MAX)? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.dir.encode(e);
        e.opaque(&self.name);
    }
}

/// A result: the values of success, or a status with the attributes that ride along with a failure.
pub type NfsResult<T, F = PostOpAttr> = Result<T, (NfsStatus, F)>;

/// Status, then whichever arm it announces.
pub fn encode_result<T, F>(
    e: &mut XdrEncoder,
    outcome: &NfsResult<T, F>,
    ok: impl FnOnce(&mut XdrEncoder, &T),
    failed: impl FnOnce(&mut XdrEncoder, &F),
) {
    match outcome {
        Ok(value) => {
            e.u32(NfsStatus::OK.0);
            ok(e, value);
        }
        Err((status, rest)) => {
            e.u32(status.0);
            failed(e, rest);
        }
    }
}

pub fn decode_result<T, F>(
    d: &mut XdrDecoder,
    ok: impl FnOnce(&mut XdrDecoder) -> WireResult<T>,
    failed: impl FnOnce(&mut XdrDecoder) -> WireResult<F>,
) -> WireResult<NfsResult<T, F>> {
    match NfsStatus(d.u32()?) {
        NfsStatus::OK => ok(d).map(Ok),
        status => Ok(Err((status, failed(d)?))),
    }
}

/// The failure of a procedure that would change something, in the shape that this procedure's failures have. `after`
/// is what is known of its objects, in the order of the results: RENAME and LINK have two, the others one.
pub fn encode_mutation_failure(
    e: &mut XdrEncoder,
    procedure: u32,
    status: NfsStatus,
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
