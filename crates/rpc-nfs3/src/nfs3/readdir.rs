//! READDIR and READDIRPLUS.

use bytes::Bytes;

use super::attr::{PostOpAttr, decode_post_op, encode_post_op};
use super::{FileHandle, NfsResult, decode_result};
use crate::xdr::{WireResult, XdrDecoder, XdrEncoder};

/// Entries that one reply may have: more than fit a reply of 4 MiB.
const ENTRIES_MAX: usize = 200_000;
/// Longest name in a listing. Far above what is valid (it is a slice of the record, nothing is allocated),
/// so that one absurd name of a hostile server does not hide all the others.
const ENTRY_NAME_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaddirArgs {
    pub dir: FileHandle,
    pub cookie: u64,
    pub verifier: [u8; 8],
    /// Bytes of names, cookies and ids (READDIRPLUS only; otherwise equal to `max_count`).
    pub dir_count: u32,
    /// Bytes of the whole result.
    pub max_count: u32,
}

impl ReaddirArgs {
    pub fn decode(d: &mut XdrDecoder, plus: bool) -> WireResult<ReaddirArgs> {
        let (dir, cookie, verifier, count) = (FileHandle::decode(d)?, d.u64()?, d.array()?, d.u32()?);
        let max_count = if plus { d.u32()? } else { count };
        Ok(ReaddirArgs { dir, cookie, verifier, dir_count: count, max_count })
    }

    pub fn encode(&self, e: &mut XdrEncoder, plus: bool) {
        self.dir.encode(e);
        e.u64(self.cookie);
        e.fixed(&self.verifier);
        if plus {
            e.u32(self.dir_count);
        }
        e.u32(self.max_count);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry3 {
    pub fileid: u64,
    pub name: Bytes,
    pub cookie: u64,
    /// READDIRPLUS only.
    pub attr: PostOpAttr,
    /// READDIRPLUS only.
    pub handle: Option<FileHandle>,
}

impl DirEntry3 {
    fn decode(d: &mut XdrDecoder, plus: bool) -> WireResult<DirEntry3> {
        let (fileid, name, cookie) = (d.u64()?, d.opaque(ENTRY_NAME_MAX)?, d.u64()?);
        let (attr, handle) =
            if plus { (decode_post_op(d)?, d.option(FileHandle::decode)?) } else { (None, None) };
        Ok(DirEntry3 { fileid, name, cookie, attr, handle })
    }

    /// With the "one more follows" in front.
    pub fn encode(&self, e: &mut XdrEncoder, plus: bool) {
        e.bool(true);
        e.u64(self.fileid);
        e.opaque(&self.name);
        e.u64(self.cookie);
        if plus {
            encode_post_op(e, &self.attr);
            e.option(self.handle.as_ref(), |e, handle| handle.encode(e));
        }
    }

    /// Bytes that this entry adds to READDIRPLUS's `dir_count`: id, name, cookie.
    pub fn dir_bytes(&self) -> usize {
        8 + 4 + self.name.len().next_multiple_of(4) + 8
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaddirOk {
    pub dir_attr: PostOpAttr,
    pub verifier: [u8; 8],
    pub entries: Vec<DirEntry3>,
    pub eof: bool,
}

/// The beginning of a successful result; entries and [`encode_end`] follow.
pub fn encode_begin(e: &mut XdrEncoder, dir_attr: &PostOpAttr, verifier: &[u8; 8]) {
    e.u32(0);
    encode_post_op(e, dir_attr);
    e.fixed(verifier);
}

/// Bytes that [`encode_end`] takes.
pub const END_BYTES: usize = 8;

pub fn encode_end(e: &mut XdrEncoder, eof: bool) {
    e.bool(false);
    e.bool(eof);
}

pub fn encode_readdir(e: &mut XdrEncoder, result: &NfsResult<ReaddirOk>, plus: bool) {
    match result {
        Ok(ok) => {
            encode_begin(e, &ok.dir_attr, &ok.verifier);
            ok.entries.iter().for_each(|entry| entry.encode(e, plus));
            encode_end(e, ok.eof);
        }
        Err((status, attr)) => {
            e.u32(status.0);
            encode_post_op(e, attr);
        }
    }
}

pub fn decode_readdir(d: &mut XdrDecoder, plus: bool) -> WireResult<NfsResult<ReaddirOk>> {
    let ok = |d: &mut XdrDecoder| {
        let (dir_attr, verifier) = (decode_post_op(d)?, d.array()?);
        let entries = d.chain(ENTRIES_MAX, |d| DirEntry3::decode(d, plus))?;
        Ok(ReaddirOk { dir_attr, verifier, entries, eof: d.bool()? })
    };
    decode_result(d, ok, decode_post_op)
}
