//! Procedures that make an object: CREATE, MKDIR, SYMLINK, MKNOD. Their results are the same.

use bytes::Bytes;

use super::attr::{FileType, PostOpAttr, decode_post_op, encode_post_op};
use super::file::TARGET_MAX;
use super::setattr::Sattr3;
use super::wcc::WccData;
use super::{DirOp, FileHandle, NfsResult, decode_result, encode_result};
use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder};

/// createhow3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow3 {
    /// A file that is there already is taken, and gets the size if one is given.
    Unchecked(Sattr3),
    /// `NfsStatus::EXIST` if the name is there.
    Guarded(Sattr3),
    /// As guarded, but a second call with the same createverf3 finds what the first one made.
    Exclusive([u8; 8]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateArgs {
    pub place: DirOp,
    pub how: CreateHow3,
}

impl CreateArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<CreateArgs> {
        let place = DirOp::decode(d)?;
        let how = match d.u32()? {
            0 => CreateHow3::Unchecked(Sattr3::decode(d)?),
            1 => CreateHow3::Guarded(Sattr3::decode(d)?),
            2 => CreateHow3::Exclusive(d.array()?),
            _ => return Err(WireError::BadValue),
        };
        Ok(CreateArgs { place, how })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.place.encode(e);
        let (number, attributes) = match &self.how {
            CreateHow3::Unchecked(attributes) => (0, attributes),
            CreateHow3::Guarded(attributes) => (1, attributes),
            CreateHow3::Exclusive(verifier) => {
                e.u32(2);
                return e.fixed(verifier);
            }
        };
        e.u32(number);
        attributes.encode(e);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MkdirArgs {
    pub place: DirOp,
    pub attributes: Sattr3,
}

impl MkdirArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<MkdirArgs> {
        Ok(MkdirArgs { place: DirOp::decode(d)?, attributes: Sattr3::decode(d)? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.place.encode(e);
        self.attributes.encode(e);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkArgs {
    pub place: DirOp,
    pub attributes: Sattr3,
    pub target: Bytes,
}

impl SymlinkArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<SymlinkArgs> {
        Ok(SymlinkArgs {
            place: DirOp::decode(d)?,
            attributes: Sattr3::decode(d)?,
            target: d.opaque(TARGET_MAX)?,
        })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.place.encode(e);
        self.attributes.encode(e);
        e.opaque(&self.target);
    }
}

/// mknoddata3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeData {
    CharDevice {
        attributes: Sattr3,
        /// Major and minor number.
        rdev: (u32, u32),
    },
    BlockDevice {
        attributes: Sattr3,
        rdev: (u32, u32),
    },
    Socket(Sattr3),
    Fifo(Sattr3),
    /// A type that MKNOD does not make; a server answers `NfsStatus::BADTYPE`.
    Other(FileType),
}

impl NodeData {
    fn decode(d: &mut XdrDecoder) -> WireResult<NodeData> {
        let device = |d: &mut XdrDecoder| Ok((Sattr3::decode(d)?, (d.u32()?, d.u32()?)));
        Ok(match FileType::decode(d)? {
            FileType::CharDevice => {
                device(d).map(|(attributes, rdev)| NodeData::CharDevice { attributes, rdev })?
            }
            FileType::BlockDevice => {
                device(d).map(|(attributes, rdev)| NodeData::BlockDevice { attributes, rdev })?
            }
            FileType::Socket => NodeData::Socket(Sattr3::decode(d)?),
            FileType::Fifo => NodeData::Fifo(Sattr3::decode(d)?),
            other => NodeData::Other(other),
        })
    }

    fn encode(&self, e: &mut XdrEncoder) {
        let (kind, attributes, rdev) = match self {
            NodeData::CharDevice { attributes, rdev } => (FileType::CharDevice, attributes, Some(rdev)),
            NodeData::BlockDevice { attributes, rdev } => (FileType::BlockDevice, attributes, Some(rdev)),
            NodeData::Socket(attributes) => (FileType::Socket, attributes, None),
            NodeData::Fifo(attributes) => (FileType::Fifo, attributes, None),
            NodeData::Other(kind) => return e.u32(*kind as u32),
        };
        e.u32(kind as u32);
        attributes.encode(e);
        if let Some((major, minor)) = rdev {
            e.u32(*major);
            e.u32(*minor);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MknodArgs {
    pub place: DirOp,
    pub node: NodeData,
}

impl MknodArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<MknodArgs> {
        Ok(MknodArgs { place: DirOp::decode(d)?, node: NodeData::decode(d)? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.place.encode(e);
        self.node.encode(e);
    }
}

/// The created object. Servers may leave the handle and the attributes out; a LOOKUP tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOk {
    pub object: Option<FileHandle>,
    pub attr: PostOpAttr,
    pub dir_wcc: WccData,
}

pub type CreateResult = NfsResult<CreateOk, WccData>;

/// For CREATE, MKDIR, SYMLINK and MKNOD.
pub fn encode_create(e: &mut XdrEncoder, result: &CreateResult) {
    let ok = |e: &mut XdrEncoder, ok: &CreateOk| {
        e.option(ok.object.as_ref(), |e, handle| handle.encode(e));
        encode_post_op(e, &ok.attr);
        ok.dir_wcc.encode(e);
    };
    encode_result(e, result, ok, |e, wcc| wcc.encode(e));
}

/// For CREATE, MKDIR, SYMLINK and MKNOD.
pub fn decode_create(d: &mut XdrDecoder) -> WireResult<CreateResult> {
    let ok = |d: &mut XdrDecoder| {
        Ok(CreateOk {
            object: d.option(FileHandle::decode)?,
            attr: decode_post_op(d)?,
            dir_wcc: WccData::decode(d)?,
        })
    };
    decode_result(d, ok, WccData::decode)
}
