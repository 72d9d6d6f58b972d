//! Procedures on names that are there: RENAME and LINK. REMOVE and RMDIR need nothing of their own: their
//! arguments are a `DirOp`, their result is `wcc::WccResult`.

use super::attr::{PostOpAttr, decode_post_op, encode_post_op};
use super::wcc::WccData;
use super::{DirOp, FileHandle, Outcome, decode_outcome, encode_outcome};
use crate::xdr::{Decoder, Encoder, WireResult};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenameArgs {
    pub from: DirOp,
    pub to: DirOp,
}

impl RenameArgs {
    pub fn decode(d: &mut Decoder) -> WireResult<RenameArgs> {
        Ok(RenameArgs { from: DirOp::decode(d)?, to: DirOp::decode(d)? })
    }

    pub fn encode(&self, e: &mut Encoder) {
        self.from.encode(e);
        self.to.encode(e);
    }
}

/// What became of both directories, in success and in failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameWcc {
    pub from: WccData,
    pub to: WccData,
}

impl RenameWcc {
    fn decode(d: &mut Decoder) -> WireResult<RenameWcc> {
        Ok(RenameWcc { from: WccData::decode(d)?, to: WccData::decode(d)? })
    }

    fn encode(&self, e: &mut Encoder) {
        self.from.encode(e);
        self.to.encode(e);
    }
}

pub type RenameResult = Outcome<RenameWcc, RenameWcc>;

pub fn encode_rename(e: &mut Encoder, result: &RenameResult) {
    encode_outcome(e, result, |e, wcc| wcc.encode(e), |e, wcc| wcc.encode(e));
}

pub fn decode_rename(d: &mut Decoder) -> WireResult<RenameResult> {
    decode_outcome(d, RenameWcc::decode, RenameWcc::decode)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkArgs {
    pub object: FileHandle,
    pub place: DirOp,
}

impl LinkArgs {
    pub fn decode(d: &mut Decoder) -> WireResult<LinkArgs> {
        Ok(LinkArgs { object: FileHandle::decode(d)?, place: DirOp::decode(d)? })
    }

    pub fn encode(&self, e: &mut Encoder) {
        self.object.encode(e);
        self.place.encode(e);
    }
}

/// What became of the object and of the directory, in success and in failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWcc {
    pub attr: PostOpAttr,
    pub dir: WccData,
}

impl LinkWcc {
    fn decode(d: &mut Decoder) -> WireResult<LinkWcc> {
        Ok(LinkWcc { attr: decode_post_op(d)?, dir: WccData::decode(d)? })
    }

    fn encode(&self, e: &mut Encoder) {
        encode_post_op(e, &self.attr);
        self.dir.encode(e);
    }
}

pub type LinkResult = Outcome<LinkWcc, LinkWcc>;

pub fn encode_link(e: &mut Encoder, result: &LinkResult) {
    encode_outcome(e, result, |e, wcc| wcc.encode(e), |e, wcc| wcc.encode(e));
}

pub fn decode_link(d: &mut Decoder) -> WireResult<LinkResult> {
    decode_outcome(d, LinkWcc::decode, LinkWcc::decode)
}
