//! Sends answers: pieces in memory in as few system calls as possible, and extents of cached files without a copy in
//! our memory (zero-copy). For every front that speaks TCP; this crate knows no protocol.
//!
//! [`prepare`] sets a new connection's socket options. [`write_all`] sends a list of `vfs::Piece`s: runs of
//! [`vfs::Piece::Bytes`] go out by one `sendmsg` of up to [`SLICES_MAX`] slices, a [`vfs::Piece::Extent`] by
//! `sendfile` from the file that it pins. [`Corked`] joins the packets of several `write_all` of one answer.
//!
//! Invariants: pieces go out in order, and each is dropped as soon as it is in the socket, which unpins its extent.
//! What the kernel holds unsent of one connection is bounded. A client that is too slow by the caller's
//! `fair::StallPolicy` ends with `TimedOut`. After an error nobody knows how much was sent: the connection is over.
//!
//! Begin with [`write_all`].

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fair::{PeerPace, StallPolicy};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;
use vfs::{Extent, Piece};

/// The most pieces of one system call.
pub const SLICES_MAX: usize = 64;

/// The most unsent bytes that the kernel holds of one connection. Without a bound a client that reads nothing makes
/// it keep megabytes for each of its connections, and where TCP as a whole is short of memory all connections are
/// slow. Bytes in flight are not counted: a long line is filled as before.
const UNSENT_MAX: u32 = 512 << 10;

/// Sets the options of an accepted connection.
pub fn prepare(stream: &TcpStream) {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    let socket = SockRef::from(stream);
    let set = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    if let Err(e) = set.and_then(|()| socket.set_tcp_notsent_lowat(UNSENT_MAX)) {
        tracing::debug!("set socket options: {e}");
    }
}

/// Sends all pieces in order, as long as the other end takes them at a pace that `patience` allows; otherwise it
/// fails with `TimedOut`. After an error nobody knows how much was sent: the connection is over.
pub async fn write_all(socket: &TcpStream, mut pieces: Vec<Piece>, patience: StallPolicy<'_>) -> Result<()> {
    let mut first = 0;
    let mut pace = PeerPace::default();
    while let Some(piece) = pieces.get(first) {
        let written = match piece {
            Piece::Bytes(_) => {
                let (slices, more) = slices(&pieces[first..]);
                patiently(patience, &mut pace, socket, || send(socket, &slices, more)).await?
            }
            Piece::Extent(extent) => {
                send_extent(patience, &mut pace, socket, extent).await?;
                extent.length()
            }
        };
        first = advance(&mut pieces, first, written);
    }
    Ok(())
}

/// While it lives, only full packets go out, and the rest waits for more (200 ms at most, says tcp(7)) until it is
/// dropped. For an answer of several `write_all`: the end of each would be a packet of its own.
pub struct Corked<'a>(&'a TcpStream);

impl Corked<'_> {
    pub fn new(socket: &TcpStream) -> Corked<'_> {
        // Without it the same bytes go out in more packets.
        let _ = rustix::net::sockopt::set_tcp_cork(socket, true);
        Corked(socket)
    }
}

impl Drop for Corked<'_> {
    fn drop(&mut self) {
        let _ = rustix::net::sockopt::set_tcp_cork(self.0, false);
    }
}

/// The slices that one call can send from memory, and whether more follows.
fn slices(pieces: &[Piece]) -> (Vec<IoSlice<'_>>, bool) {
    let in_memory = pieces.iter().map_while(|piece| match piece {
        Piece::Bytes(bytes) => Some(IoSlice::new(bytes)),
        Piece::Extent(_) => None,
    });
    let slices: Vec<_> = in_memory.take(SLICES_MAX).collect();
    let more = slices.len() < pieces.len();
    (slices, more)
}

/// Drops what is written. Returns the index of the first piece that is not.
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

/// One non-blocking call; `more`: what follows belongs into the same packet.
fn send(socket: &TcpStream, slices: &[IoSlice<'_>], more: bool) -> Result<u64> {
    let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
    let sent = rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?;
    Ok(sent as u64)
}

async fn send_extent(
    patience: StallPolicy<'_>,
    pace: &mut PeerPace,
    socket: &TcpStream,
    extent: &Extent,
) -> Result<()> {
    let mut offset = extent.offset();
    let end = offset + extent.length();
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = patiently(patience, pace, socket, || {
            let sent = rustix::fs::sendfile(socket, extent.as_fd(), Some(&mut offset), left)?;
            Ok(sent as u64)
        });
        sent.await?;
    }
    Ok(())
}

/// Calls `once` as soon as the socket takes something, within the limits of `patience`. A call that takes nothing
/// although it could means the end of the file.
async fn patiently(
    patience: StallPolicy<'_>,
    pace: &mut PeerPace,
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
    let outcome = patience.wait(pace, socket.async_io(Interest::WRITABLE, try_once)).await;
    match outcome.ok_or_else(|| Error::from(ErrorKind::TimedOut))?? {
        0 => Err(ErrorKind::WriteZero.into()),
        written => {
            pace.progressed(written);
            Ok(written)
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    use super::*;

    /// The bytes that the kernel takes of a connection whose other end reads nothing.
    async fn taken(prepared: bool) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        if prepared {
            prepare(&stream);
        }
        let (bytes, mut taken) = (vec![0; 64 << 10], 0);
        while let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(200), stream.writable()).await {
            taken += stream.try_write(&bytes).unwrap_or(0);
        }
        taken
    }

    #[tokio::test]
    async fn the_kernel_keeps_less_than_a_mebibyte_for_who_reads_nothing() {
        let most = (1 << 20) + (64 << 10);
        assert!(taken(false).await > most, "it would keep more");
        let taken = taken(true).await;
        assert!(taken > 64 << 10 && taken < most, "{taken}");
    }
}
