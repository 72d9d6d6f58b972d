//! Answers on their way out: all that is ready in as few system calls as possible, and the bytes of cached files
//! without a copy in our memory.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use rpc_nfs3::record;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;
use vfs::{Extent, Piece};

use crate::Shared;
use crate::connection::Reply;

/// Pieces handed to one system call.
const SLICES_MAX: usize = 64;

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
        if write_all(&shared, socket.as_ref(), pieces).await.is_err() {
            return; // the connection ends with us: half an answer cannot be taken back
        }
    }
    let mut socket = socket;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut socket).await;
}

async fn write_all(shared: &Shared, socket: &TcpStream, mut pieces: Vec<Piece>) -> Result<()> {
    let mut first = 0;
    while let Some(piece) = pieces.get(first) {
        let written = match piece {
            Piece::Bytes(_) => {
                let (slices, more) = slices(&pieces[first..]);
                patiently(shared, socket, || send(socket, &slices, more)).await?
            }
            Piece::Extent(extent) => {
                send_extent(shared, socket, extent).await?;
                extent.length()
            }
        };
        first = advance(&mut pieces, first, written);
    }
    Ok(())
}

/// What can be sent from memory in one call, and whether more follows behind it.
fn slices(pieces: &[Piece]) -> (Vec<IoSlice<'_>>, bool) {
    let in_memory = pieces.iter().map_while(|piece| match piece {
        Piece::Bytes(bytes) => Some(IoSlice::new(bytes)),
        Piece::Extent(_) => None,
    });
    let slices: Vec<_> = in_memory.take(SLICES_MAX).collect();
    let more = slices.len() < pieces.len();
    (slices, more)
}

/// Forget what is written. Returns the first piece that is not.
fn advance(pieces: &mut [Piece], mut first: usize, mut written: u64) -> usize {
    while let Some(piece) = pieces.get_mut(first) {
        let length = piece.length();
        if written < length {
            if let Piece::Bytes(bytes) = piece {
                bytes.advance(written as usize); // less than its length
            }
            break;
        }
        written -= length;
        *piece = Piece::Bytes(Bytes::new()); // gone: free what it holds while the rest is sent
        first += 1;
    }
    first
}

/// One call that does not wait; `more`: what follows belongs into the same packet.
fn send(socket: &TcpStream, slices: &[IoSlice<'_>], more: bool) -> Result<u64> {
    let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
    let sent = rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?;
    Ok(sent as u64)
}

async fn send_extent(shared: &Shared, socket: &TcpStream, extent: &Extent) -> Result<()> {
    let mut offset = extent.offset();
    let end = offset + extent.length();
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = patiently(shared, socket, || {
            let sent = rustix::fs::sendfile(socket, extent.as_fd(), Some(&mut offset), left)?;
            Ok(sent as u64)
        });
        sent.await?;
    }
    Ok(())
}

/// `once`, as soon as the socket takes something; not for ever. What takes nothing although it could is at its end.
async fn patiently(
    shared: &Shared,
    socket: &TcpStream,
    mut once: impl FnMut() -> Result<u64>,
) -> Result<u64> {
    let interrupted = |e: &Error| e.raw_os_error() == Some(Errno::INTR.raw_os_error());
    let try_once = || loop {
        match once() {
            Err(e) if interrupted(&e) => {}
            outcome => return outcome,
        }
    };
    let outcome = timeout(shared.config.stall_timeout, socket.async_io(Interest::WRITABLE, try_once)).await;
    match outcome.map_err(|_| Error::from(ErrorKind::TimedOut))?? {
        0 => Err(ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}
