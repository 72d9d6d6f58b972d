//! WRITE, COMMIT

use bytes::Bytes;
use rpc_nfs3::nfs3::NfsStatus;
use rpc_nfs3::nfs3::write::{self, CommitArgs, CommitOk, StableHow, WriteArgs, WriteOk};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{ByteRange, Stability};

use super::ProcedureResult;
use crate::WRITE_MAX;
use crate::attr::{OFFSET_END, wcc};
use crate::call::{CallFailure, NfsCall, ReplyPayload};

/// Data smaller than this is copied: the buffer that it arrived in may be many times larger, and written data may be
/// kept for long.
const COPIED_BELOW: usize = 16 << 10;

pub async fn write(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let WriteArgs { file, offset, stable, data } = WriteArgs::decode(d, WRITE_MAX as usize)?;
    let (id, caller) = call.open_to_change(&file).await?;
    let count = data.len() as u32; // at most WRITE_MAX
    if offset >= OFFSET_END || OFFSET_END - offset <= u64::from(count) {
        return Err(CallFailure::Status(NfsStatus::FBIG));
    }
    let data = if data.len() < COPIED_BELOW { Bytes::copy_from_slice(&data) } else { data };
    let stability = match stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let written = call.shared.vfs.write(&caller, id, offset, data, stability).await?;
    call.shared.metrics.written_bytes.inc_by(u64::from(count));
    let committed = match written.stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    };
    let wcc = wcc(written.before, Some(&written.node.attr));
    write::encode_write(e, &Ok(WriteOk { wcc, count, committed, verifier: written.verifier }));
    Ok(ReplyPayload::default())
}

pub async fn commit(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let CommitArgs { file, offset, count } = CommitArgs::decode(d)?;
    let (id, caller) = call.open_to_change(&file).await?;
    // A range where no file has bytes commits the whole file, as Linux's server does.
    let whole = ByteRange::new(0, 0);
    let range = if offset < OFFSET_END { ByteRange::new(offset, count.into()) } else { whole };
    let stored = call.shared.vfs.commit(&caller, id, range).await?;
    let wcc = wcc(stored.before, Some(&stored.node.attr));
    write::encode_commit(e, &Ok(CommitOk { wcc, verifier: stored.verifier }));
    Ok(ReplyPayload::default())
}
