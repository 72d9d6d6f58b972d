//! Procedures on a file system: FSSTAT, FSINFO, PATHCONF.

use super::attr::{Nfstime3, PostOpAttr, decode_post_op, encode_post_op};
use super::{NfsResult, decode_result, encode_result};
use crate::xdr::{WireResult, XdrDecoder, XdrEncoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsstatOk {
    pub attr: PostOpAttr,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_available: u64,
    pub files_total: u64,
    pub files_free: u64,
    pub files_available: u64,
    /// Seconds for which the numbers are unlikely to change.
    pub invariant_seconds: u32,
}

pub fn encode_fsstat(e: &mut XdrEncoder, result: &NfsResult<FsstatOk>) {
    let ok = |e: &mut XdrEncoder, ok: &FsstatOk| {
        encode_post_op(e, &ok.attr);
        let words = [
            ok.bytes_total,
            ok.bytes_free,
            ok.bytes_available,
            ok.files_total,
            ok.files_free,
            ok.files_available,
        ];
        words.into_iter().for_each(|word| e.u64(word));
        e.u32(ok.invariant_seconds);
    };
    encode_result(e, result, ok, encode_post_op);
}

pub fn decode_fsstat(d: &mut XdrDecoder) -> WireResult<NfsResult<FsstatOk>> {
    let ok = |d: &mut XdrDecoder| {
        Ok(FsstatOk {
            attr: decode_post_op(d)?,
            bytes_total: d.u64()?,
            bytes_free: d.u64()?,
            bytes_available: d.u64()?,
            files_total: d.u64()?,
            files_free: d.u64()?,
            files_available: d.u64()?,
            invariant_seconds: d.u32()?,
        })
    };
    decode_result(d, ok, decode_post_op)
}

/// Bits of `FsinfoOk::properties`.
pub mod properties {
    pub const LINK: u32 = 0x01;
    pub const SYMLINK: u32 = 0x02;
    pub const HOMOGENEOUS: u32 = 0x08;
    pub const CAN_SET_TIME: u32 = 0x10;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsinfoOk {
    pub attr: PostOpAttr,
    pub read_max: u32,
    pub read_preferred: u32,
    pub read_multiple: u32,
    pub write_max: u32,
    pub write_preferred: u32,
    pub write_multiple: u32,
    pub readdir_preferred: u32,
    pub file_size_max: u64,
    pub time_delta: Nfstime3,
    pub properties: u32,
}

pub fn encode_fsinfo(e: &mut XdrEncoder, result: &NfsResult<FsinfoOk>) {
    let ok = |e: &mut XdrEncoder, ok: &FsinfoOk| {
        encode_post_op(e, &ok.attr);
        let words = [
            ok.read_max,
            ok.read_preferred,
            ok.read_multiple,
            ok.write_max,
            ok.write_preferred,
            ok.write_multiple,
            ok.readdir_preferred,
        ];
        words.into_iter().for_each(|word| e.u32(word));
        e.u64(ok.file_size_max);
        e.u32(ok.time_delta.seconds);
        e.u32(ok.time_delta.nanos);
        e.u32(ok.properties);
    };
    encode_result(e, result, ok, encode_post_op);
}

pub fn decode_fsinfo(d: &mut XdrDecoder) -> WireResult<NfsResult<FsinfoOk>> {
    let ok = |d: &mut XdrDecoder| {
        Ok(FsinfoOk {
            attr: decode_post_op(d)?,
            read_max: d.u32()?,
            read_preferred: d.u32()?,
            read_multiple: d.u32()?,
            write_max: d.u32()?,
            write_preferred: d.u32()?,
            write_multiple: d.u32()?,
            readdir_preferred: d.u32()?,
            file_size_max: d.u64()?,
            time_delta: Nfstime3 { seconds: d.u32()?, nanos: d.u32()? },
            properties: d.u32()?,
        })
    };
    decode_result(d, ok, decode_post_op)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathconfOk {
    pub attr: PostOpAttr,
    pub link_max: u32,
    pub name_max: u32,
    pub no_truncate: bool,
    pub chown_restricted: bool,
    pub case_insensitive: bool,
    pub case_preserving: bool,
}

pub fn encode_pathconf(e: &mut XdrEncoder, result: &NfsResult<PathconfOk>) {
    let ok = |e: &mut XdrEncoder, ok: &PathconfOk| {
        encode_post_op(e, &ok.attr);
        e.u32(ok.link_max);
        e.u32(ok.name_max);
        for flag in [ok.no_truncate, ok.chown_restricted, ok.case_insensitive, ok.case_preserving] {
            e.bool(flag);
        }
    };
    encode_result(e, result, ok, encode_post_op);
}

pub fn decode_pathconf(d: &mut XdrDecoder) -> WireResult<NfsResult<PathconfOk>> {
    let ok = |d: &mut XdrDecoder| {
        Ok(PathconfOk {
            attr: decode_post_op(d)?,
            link_max: d.u32()?,
            name_max: d.u32()?,
            no_truncate: d.bool()?,
            chown_restricted: d.bool()?,
            case_insensitive: d.bool()?,
            case_preserving: d.bool()?,
        })
    };
    decode_result(d, ok, decode_post_op)
}
