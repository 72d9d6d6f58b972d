//! Procedures on names that are there: RENAME and LINK. REMOVE and RMDIR need nothing of their own: their
//! arguments are a `DirOp`, their result is `wcc::WccResult`.

use super::attr::{PostOpAttr, decode_post_op, encode_post_op};
use super::wcc::WccData;
use super::{DirOp, FileHandle, NfsResult, decode_result, encode_result};
use crate::xdr::{WireResult, XdrDecoder, XdrEncoder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenameArgs {
    pub from: DirOp,
    pub to: DirOp,
}

impl RenameArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<RenameArgs> {
        Ok(RenameArgs { from: DirOp::decode(d)?, to: DirOp::decode(d)? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.from.encode(e);
        self.to.encode(e);
    }
}

/// The wcc_data of both directories, in success and in failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameWcc {
    pub from: WccData,
    pub to: WccData,
}

impl RenameWcc {
    fn decode(d: &mut XdrDecoder) -> WireResult<RenameWcc> {
        Ok(RenameWcc { from: WccData::decode(d)?, to: WccData::decode(d)? })
    }

    fn encode(&self, e: &mut XdrEncoder) {
        self.from.encode(e);
        self.to.encode(e);
    }
}

pub type RenameResult = NfsResult<RenameWcc, RenameWcc>;

pub fn encode_rename(e: &mut XdrEncoder, result: &RenameResult) {
    encode_result(e, result, |e, wcc| wcc.encode(e), |e, wcc| wcc.encode(e));
}

pub fn decode_rename(d: &mut XdrDecoder) -> WireResult<RenameResult> {
    decode_result(d, RenameWcc::decode, RenameWcc::decode)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkArgs {
    pub object: FileHandle,
    pub place: DirOp,
}

impl LinkArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<LinkArgs> {
        Ok(LinkArgs { object: FileHandle::decode(d)?, place: DirOp::decode(d)? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.object.encode(e);
        self.place.encode(e);
    }
}

/// The wcc_data of the object and of the directory, in success and in failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWcc {
    pub attr: PostOpAttr,
    pub dir: WccData,
}

impl LinkWcc {
    fn decode(d: &mut XdrDecoder) -> WireResult<LinkWcc> {
        Ok(LinkWcc { attr: decode_post_op(d)?, dir: WccData::decode(d)? })
    }

    fn encode(&self, e: &mut XdrEncoder) {
        encode_post_op(e, &self.attr);
        self.dir.encode(e);
    }
}

pub type LinkResult = NfsResult<LinkWcc, LinkWcc>;

pub fn encode_link(e: &mut XdrEncoder, result: &LinkResult) {
    encode_result(e, result, |e, wcc| wcc.encode(e), |e, wcc| wcc.encode(e));
}

pub fn decode_link(d: &mut XdrDecoder) -> WireResult<LinkResult> {
    decode_result(d, LinkWcc::decode, LinkWcc::decode)
}
