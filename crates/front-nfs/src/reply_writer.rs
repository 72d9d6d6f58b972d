//! Sends replies: all that are ready go out together.

use std::sync::Arc;

use bytes::Bytes;
use fair::{Offence, StallPolicy};
use rpc_nfs3::record;
use send::SLICES_MAX;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use vfs::Piece;

use crate::message::{NfsPeer, NfsReply};
use crate::{FRONT, NfsState};

pub async fn write_replies(
    shared: Arc<NfsState>,
    peer: NfsPeer,
    socket: OwnedWriteHalf,
    mut replies: mpsc::Receiver<NfsReply>,
) {
    let mut batch = Vec::new();
    while replies.recv_many(&mut batch, SLICES_MAX).await > 0 {
        let mut pieces = Vec::with_capacity(batch.len() * 3);
        let mut permits = Vec::new();
        for reply in batch.drain(..) {
            let length = reply.head.len() as u64 + reply.body.iter().map(Piece::length).sum::<u64>();
            let mark = record::mark(usize::try_from(length).unwrap_or(usize::MAX));
            pieces.push(Piece::Bytes(Bytes::copy_from_slice(&mark)));
            pieces.push(Piece::Bytes(reply.head));
            pieces.extend(reply.body);
            permits.push((reply.permit, reply.call_permit));
        }
        let holds = permits.iter().any(|(permit, _)| !permit.is_empty());
        let patience =
            StallPolicy { stall: shared.config.stall_timeout, share: holds.then_some(&peer.replies) };
        if let Err(e) = send::write_all(socket.as_ref(), pieces, patience).await {
            if e.kind() == std::io::ErrorKind::TimedOut {
                shared.config.shared_budgets.offenders.record(FRONT, peer.address.ip(), Offence::SlowReader);
                peer.replies.put_on_probation();
            }
            return; // the connection ends with us: half an answer cannot be taken back
        }
    }
    let mut socket = socket;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut socket).await;
}
