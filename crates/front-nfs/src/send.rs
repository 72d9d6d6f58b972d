//! Answers on their way out: all that is ready together.

use std::sync::Arc;

use bytes::Bytes;
use rpc_nfs3::record;
use send::SLICES_MAX;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use vfs::Piece;

use crate::Shared;
use crate::connection::Reply;

pub async fn write_replies(shared: Arc<Shared>, socket: OwnedWriteHalf, mut replies: mpsc::Receiver<Reply>) {
    let mut batch = Vec::new();
    while replies.recv_many(&mut batch, SLICES_MAX).await > 0 {
        let mut pieces = Vec::with_capacity(batch.len() * 3);
        let mut room = Vec::new();
        for reply in batch.drain(..) {
            let length = reply.head.len() as u64 + reply.body.iter().map(Piece::length).sum::<u64>();
            let mark = record::mark(usize::try_from(length).unwrap_or(usize::MAX));
            pieces.push(Piece::Bytes(Bytes::copy_from_slice(&mark)));
            pieces.push(Piece::Bytes(reply.head));
            pieces.extend(reply.body);
            room.push((reply.room, reply.place));
        }
        if send::write_all(socket.as_ref(), pieces, shared.config.stall_timeout).await.is_err() {
            return; // the connection ends with us: half an answer cannot be taken back
        }
    }
    let mut socket = socket;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut socket).await;
}
