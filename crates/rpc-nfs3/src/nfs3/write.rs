//! WRITE and COMMIT.
//!
//! Both results carry the server's write verifier. It changes when the server may have lost what it had not
//! yet on stable storage: then everything written UNSTABLE since is to be written again.

use bytes::Bytes;

use super::wcc::WccData;
use super::{FileHandle, NfsResult, decode_result, encode_result};
use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder, length32};

/// writeverf3: opaque, only ever compared.
pub type WriteVerf3 = [u8; 8];

/// stable_how: what must be on stable storage before WRITE is answered, and in the answer, what is. Later
/// ones promise more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StableHow {
    /// Nothing until COMMIT.
    Unstable = 0,
    /// The data, and what of the metadata is needed to find it.
    DataSync = 1,
    FileSync = 2,
}

impl StableHow {
    fn decode(d: &mut XdrDecoder) -> WireResult<StableHow> {
        Ok(match d.u32()? {
            0 => StableHow::Unstable,
            1 => StableHow::DataSync,
            2 => StableHow::FileSync,
            _ => return Err(WireError::BadValue),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteArgs {
    pub file: FileHandle,
    pub offset: u64,
    pub stable: StableHow,
    pub data: Bytes,
}

impl WriteArgs {
    /// The data is a slice of the record; `data_max` is the most that we announce to take.
    pub fn decode(d: &mut XdrDecoder, data_max: usize) -> WireResult<WriteArgs> {
        let (file, offset, count) = (FileHandle::decode(d)?, d.u64()?, d.u32()?);
        let stable = StableHow::decode(d)?;
        let data = d.opaque(data_max)?;
        if data.len() != count as usize {
            return Err(WireError::BadValue);
        }
        Ok(WriteArgs { file, offset, stable, data })
    }

    /// Everything in front of the data: the caller sends the data and its padding after it.
    pub fn encode_head(&self, e: &mut XdrEncoder) {
        let length = length32(self.data.len());
        self.file.encode(e);
        e.u64(self.offset);
        e.u32(length);
        e.u32(self.stable as u32);
        e.u32(length);
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.encode_head(e);
        e.fixed(&self.data);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOk {
    pub wcc: WccData,
    /// Bytes written; may be less than were sent.
    pub count: u32,
    pub committed: StableHow,
    pub verifier: WriteVerf3,
}

pub type WriteResult = NfsResult<WriteOk, WccData>;

pub fn encode_write(e: &mut XdrEncoder, result: &WriteResult) {
    let ok = |e: &mut XdrEncoder, ok: &WriteOk| {
        ok.wcc.encode(e);
        e.u32(ok.count);
        e.u32(ok.committed as u32);
        e.fixed(&ok.verifier);
    };
    encode_result(e, result, ok, |e, wcc| wcc.encode(e));
}

/// `count_max` is what was sent: a server that says it wrote more is not believed.
pub fn decode_write(d: &mut XdrDecoder, count_max: usize) -> WireResult<WriteResult> {
    let ok = |d: &mut XdrDecoder| {
        let (wcc, count) = (WccData::decode(d)?, d.u32()?);
        if count as usize > count_max {
            return Err(WireError::BadValue);
        }
        Ok(WriteOk { wcc, count, committed: StableHow::decode(d)?, verifier: d.array()? })
    };
    decode_result(d, ok, WccData::decode)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitArgs {
    pub file: FileHandle,
    pub offset: u64,
    /// Bytes; 0: from `offset` to the end.
    pub count: u32,
}

impl CommitArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<CommitArgs> {
        Ok(CommitArgs { file: FileHandle::decode(d)?, offset: d.u64()?, count: d.u32()? })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.file.encode(e);
        e.u64(self.offset);
        e.u32(self.count);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOk {
    pub wcc: WccData,
    pub verifier: WriteVerf3,
}

pub type CommitResult = NfsResult<CommitOk, WccData>;

pub fn encode_commit(e: &mut XdrEncoder, result: &CommitResult) {
    let ok = |e: &mut XdrEncoder, ok: &CommitOk| {
        ok.wcc.encode(e);
        e.fixed(&ok.verifier);
    };
    encode_result(e, result, ok, |e, wcc| wcc.encode(e));
}

pub fn decode_commit(d: &mut XdrDecoder) -> WireResult<CommitResult> {
    let ok = |d: &mut XdrDecoder| Ok(CommitOk { wcc: WccData::decode(d)?, verifier: d.array()? });
    decode_result(d, ok, WccData::decode)
}
