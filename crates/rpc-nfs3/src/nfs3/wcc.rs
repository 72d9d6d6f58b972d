//! wcc_data: what an object looked like just before and just after a change, so that a client can tell its
//! own change from somebody else's. Every result of a procedure that changes something carries it.

use super::attr::{Nfstime3, PostOpAttr, decode_post_op, encode_post_op};
use super::{NfsResult, decode_result, encode_result};
use crate::xdr::{WireResult, XdrDecoder, XdrEncoder};

/// wcc_attr
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WccAttr {
    pub size: u64,
    pub mtime: Nfstime3,
    pub ctime: Nfstime3,
}

impl WccAttr {
    fn decode(d: &mut XdrDecoder) -> WireResult<WccAttr> {
        Ok(WccAttr { size: d.u64()?, mtime: Nfstime3::decode(d)?, ctime: Nfstime3::decode(d)? })
    }

    fn encode(self, e: &mut XdrEncoder) {
        e.u64(self.size);
        self.mtime.encode(e);
        self.ctime.encode(e);
    }
}

/// wcc_data; each half is there if the server could tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WccData {
    pub before: Option<WccAttr>,
    pub after: PostOpAttr,
}

impl WccData {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<WccData> {
        Ok(WccData { before: d.option(WccAttr::decode)?, after: decode_post_op(d)? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        e.option(self.before, |e, before| before.encode(e));
        encode_post_op(e, &self.after);
    }
}

/// The result of SETATTR, REMOVE and RMDIR, which tell the same whether they did it or not: what became of
/// the object (SETATTR) or of the directory.
pub type WccResult = NfsResult<WccData, WccData>;

pub fn encode_wcc_result(e: &mut XdrEncoder, result: &WccResult) {
    encode_result(e, result, |e, wcc| wcc.encode(e), |e, wcc| wcc.encode(e));
}

pub fn decode_wcc_result(d: &mut XdrDecoder) -> WireResult<WccResult> {
    decode_result(d, WccData::decode, WccData::decode)
}
