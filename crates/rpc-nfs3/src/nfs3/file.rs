//! Procedures on one object: GETATTR, LOOKUP, ACCESS, READLINK, READ.

use bytes::Bytes;

use super::attr::{Fattr3, PostOpAttr, decode_post_op, encode_post_op};
use super::{FileHandle, NfsResult, decode_result, encode_result};
use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder, length32};

/// Longest link target (PATH_MAX).
pub const TARGET_MAX: usize = 4096;

/// Bits of ACCESS.
pub mod access {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
}

pub type GetattrResult = NfsResult<Fattr3, ()>;

pub fn encode_getattr(e: &mut XdrEncoder, result: &GetattrResult) {
    encode_result(e, result, |e, attr| attr.encode(e), |_, ()| {});
}

pub fn decode_getattr(d: &mut XdrDecoder) -> WireResult<GetattrResult> {
    decode_result(d, Fattr3::decode, |_| Ok(()))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupOk {
    pub object: FileHandle,
    pub attr: PostOpAttr,
    pub dir_attr: PostOpAttr,
}

pub fn encode_lookup(e: &mut XdrEncoder, result: &NfsResult<LookupOk>) {
    let ok = |e: &mut XdrEncoder, ok: &LookupOk| {
        ok.object.encode(e);
        encode_post_op(e, &ok.attr);
        encode_post_op(e, &ok.dir_attr);
    };
    encode_result(e, result, ok, encode_post_op);
}

pub fn decode_lookup(d: &mut XdrDecoder) -> WireResult<NfsResult<LookupOk>> {
    let ok = |d: &mut XdrDecoder| {
        Ok(LookupOk {
            object: FileHandle::decode(d)?,
            attr: decode_post_op(d)?,
            dir_attr: decode_post_op(d)?,
        })
    };
    decode_result(d, ok, decode_post_op)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessArgs {
    pub object: FileHandle,
    pub wanted: u32,
}

impl AccessArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<AccessArgs> {
        Ok(AccessArgs { object: FileHandle::decode(d)?, wanted: d.u32()? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.object.encode(e);
        e.u32(self.wanted);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessOk {
    pub attr: PostOpAttr,
    pub granted: u32,
}

pub fn encode_access(e: &mut XdrEncoder, result: &NfsResult<AccessOk>) {
    let ok = |e: &mut XdrEncoder, ok: &AccessOk| {
        encode_post_op(e, &ok.attr);
        e.u32(ok.granted);
    };
    encode_result(e, result, ok, encode_post_op);
}

pub fn decode_access(d: &mut XdrDecoder) -> WireResult<NfsResult<AccessOk>> {
    decode_result(d, |d| Ok(AccessOk { attr: decode_post_op(d)?, granted: d.u32()? }), decode_post_op)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadlinkOk {
    pub attr: PostOpAttr,
    pub target: Bytes,
}

pub fn encode_readlink(e: &mut XdrEncoder, result: &NfsResult<ReadlinkOk>) {
    let ok = |e: &mut XdrEncoder, ok: &ReadlinkOk| {
        encode_post_op(e, &ok.attr);
        e.opaque(&ok.target);
    };
    encode_result(e, result, ok, encode_post_op);
}

pub fn decode_readlink(d: &mut XdrDecoder) -> WireResult<NfsResult<ReadlinkOk>> {
    let ok = |d: &mut XdrDecoder| Ok(ReadlinkOk { attr: decode_post_op(d)?, target: d.opaque(TARGET_MAX)? });
    decode_result(d, ok, decode_post_op)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadArgs {
    pub file: FileHandle,
    pub offset: u64,
    pub count: u32,
}

impl ReadArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<ReadArgs> {
        Ok(ReadArgs { file: FileHandle::decode(d)?, offset: d.u64()?, count: d.u32()? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.file.encode(e);
        e.u64(self.offset);
        e.u32(self.count);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk {
    pub attr: PostOpAttr,
    pub eof: bool,
    pub data: Bytes,
}

/// Everything of a successful READ in front of the data: the caller sends `length` bytes and their padding
/// after it.
pub fn encode_read_head(e: &mut XdrEncoder, attr: &PostOpAttr, length: usize, eof: bool) {
    e.u32(0);
    encode_post_op(e, attr);
    e.u32(length32(length));
    e.bool(eof);
    e.u32(length32(length));
}

pub fn encode_read(e: &mut XdrEncoder, result: &NfsResult<ReadOk>) {
    match result {
        Ok(ok) => {
            encode_read_head(e, &ok.attr, ok.data.len(), ok.eof);
            e.fixed(&ok.data);
        }
        Err((status, attr)) => {
            e.u32(status.0);
            encode_post_op(e, attr);
        }
    }
}

/// The data is a slice of the record; `count_max` is what was asked for.
pub fn decode_read(d: &mut XdrDecoder, count_max: usize) -> WireResult<NfsResult<ReadOk>> {
    let ok = |d: &mut XdrDecoder| {
        let (attr, count, eof) = (decode_post_op(d)?, d.u32()?, d.bool()?);
        let data = d.opaque(count_max)?;
        if data.len() != count as usize {
            return Err(WireError::BadValue);
        }
        Ok(ReadOk { attr, eof, data })
    };
    decode_result(d, ok, decode_post_op)
}
