//! READ: the memory permit first, then the bytes; they are sent as they are, without being copied together, or from
//! the cached file itself.

use bytes::Bytes;
use rpc_nfs3::nfs3::NfsStatus;
use rpc_nfs3::nfs3::file::{self, ReadArgs};
use rpc_nfs3::xdr::padding;
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use vfs::Piece;

use super::ProcedureResult;
use crate::READ_MAX;
use crate::attr::{OFFSET_END, fattr3};
use crate::call::{CallFailure, NfsCall, ReplyPayload};

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = ReadArgs::decode(d)?;
    let (id, caller) = call.open(&arguments.file).await?;
    if arguments.offset >= OFFSET_END {
        return Err(CallFailure::Status(NfsStatus::INVAL));
    }
    let count = arguments.count.min(READ_MAX);
    let mut permit = call.peer.replies.acquire(count as usize).await;
    let lend = call.shared.config.lend;
    let offset = arguments.offset;
    let read = match call.reads_by_the_map() {
        true => call.shared.vfs.read_alone(&caller, id, offset, count, lend).await?,
        false => call.shared.vfs.read(&caller, id, offset, count, lend).await?,
    };
    let length = read.data.iter().map(Piece::length).sum::<u64>();
    call.shared.metrics.read_bytes.inc_by(length);
    let lent = read.data.iter().filter(|piece| matches!(piece, Piece::Extent(_)));
    let lent = lent.map(Piece::length).sum::<u64>();
    call.shared.metrics.lent_bytes.inc_by(lent);
    let length = usize::try_from(length).unwrap_or(usize::MAX); // at most READ_MAX
    permit.shrink_to(length - usize::try_from(lent).unwrap_or(length)); // what is lent is not in our memory
    file::encode_read_head(e, &Some(fattr3(&read.node.attr)), length, read.eof);
    let mut body = read.data;
    if padding(length) > 0 {
        body.push(Piece::Bytes(Bytes::from_static(&[0; 3]).slice(..padding(length))));
    }
    Ok(ReplyPayload { body, permit })
}
