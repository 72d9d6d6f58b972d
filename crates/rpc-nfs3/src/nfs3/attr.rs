//! fattr3 and its optional form.

use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nfstime3 {
    /// Seconds since 1970. Unsigned on the wire; times before 1970 are sent as their low 32 bits.
    pub seconds: u32,
    pub nanos: u32,
}

/// ftype3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    Regular = 1,
    Directory = 2,
    BlockDevice = 3,
    CharDevice = 4,
    Link = 5,
    Socket = 6,
    Fifo = 7,
}

impl FileType {
    pub(super) fn decode(d: &mut XdrDecoder) -> WireResult<FileType> {
        Ok(match d.u32()? {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::BlockDevice,
            4 => FileType::CharDevice,
            5 => FileType::Link,
            6 => FileType::Socket,
            7 => FileType::Fifo,
            _ => return Err(WireError::BadValue),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fattr3 {
    pub kind: FileType,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub rdev: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Nfstime3,
    pub mtime: Nfstime3,
    pub ctime: Nfstime3,
}

/// Attributes as they were after the operation, if the server could tell.
pub type PostOpAttr = Option<Fattr3>;

impl Nfstime3 {
    pub(super) fn decode(d: &mut XdrDecoder) -> WireResult<Nfstime3> {
        Ok(Nfstime3 { seconds: d.u32()?, nanos: d.u32()? })
    }

    pub(super) fn encode(self, e: &mut XdrEncoder) {
        e.u32(self.seconds);
        e.u32(self.nanos);
    }
}

impl Fattr3 {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<Fattr3> {
        Ok(Fattr3 {
            kind: FileType::decode(d)?,
            mode: d.u32()?,
            nlink: d.u32()?,
            uid: d.u32()?,
            gid: d.u32()?,
            size: d.u64()?,
            used: d.u64()?,
            rdev: (d.u32()?, d.u32()?),
            fsid: d.u64()?,
            fileid: d.u64()?,
            atime: Nfstime3::decode(d)?,
            mtime: Nfstime3::decode(d)?,
            ctime: Nfstime3::decode(d)?,
        })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        for word in [self.kind as u32, self.mode, self.nlink, self.uid, self.gid] {
            e.u32(word);
        }
        e.u64(self.size);
        e.u64(self.used);
        e.u32(self.rdev.0);
        e.u32(self.rdev.1);
        e.u64(self.fsid);
        e.u64(self.fileid);
        for time in [self.atime, self.mtime, self.ctime] {
            time.encode(e);
        }
    }
}

pub fn decode_post_op(d: &mut XdrDecoder) -> WireResult<PostOpAttr> {
    d.option(Fattr3::decode)
}

pub fn encode_post_op(e: &mut XdrEncoder, attr: &PostOpAttr) {
    e.option(attr.as_ref(), |e, attr| attr.encode(e));
}
