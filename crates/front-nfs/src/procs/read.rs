//! READ: room for the answer first, then the bytes; they go out as they are, without being copied together, or from
//! the cached file itself.

use std::sync::Arc;

use bytes::Bytes;
use rpc_nfs3::nfs3::Status;
use rpc_nfs3::nfs3::file::{self, ReadArgs};
use rpc_nfs3::xdr::padding;
use rpc_nfs3::{Decoder, Encoder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use vfs::Piece;

use super::Done;
use crate::READ_MAX;
use crate::attr::fattr3;
use crate::dispatch::{Call, Failure, Payload};

/// Offsets from here on are no offsets of files (they are signed in POSIX).
const OFFSET_END: u64 = 1 << 63;

pub async fn run(call: &Call<'_>, d: &mut Decoder, e: &mut Encoder) -> Done {
    let arguments = ReadArgs::decode(d)?;
    let (id, caller) = call.open(&arguments.file)?;
    if arguments.offset >= OFFSET_END {
        return Err(Failure::Status(Status::INVAL));
    }
    let count = arguments.count.min(READ_MAX);
    let permits =
        vec![room(&call.peer.reply_share, count).await, room(&call.shared.reply_budget, count).await];
    let lend = call.shared.config.lend;
    let read = call.shared.vfs.read(&caller, id, arguments.offset, count, lend).await?;
    let length = read.data.iter().map(Piece::length).sum::<u64>();
    call.shared.metrics.read_bytes.inc_by(length);
    let lent = read.data.iter().filter(|piece| matches!(piece, Piece::Extent(_)));
    call.shared.metrics.lent_bytes.inc_by(lent.map(Piece::length).sum());
    let length = usize::try_from(length).unwrap_or(usize::MAX); // at most READ_MAX
    file::encode_read_head(e, &Some(fattr3(&read.node.attr)), length, read.eof);
    let mut body = read.data;
    if padding(length) > 0 {
        body.push(Piece::Bytes(Bytes::from_static(&[0; 3]).slice(..padding(length))));
    }
    Ok(Payload { body, permits })
}

/// Room for `bytes` in a budget counted in KiB.
async fn room(budget: &Arc<Semaphore>, bytes: u32) -> OwnedSemaphorePermit {
    budget.clone().acquire_many_owned(bytes.div_ceil(1024)).await.expect("budgets are never closed")
}
