//! Sends answers: pieces in memory in as few system calls as possible, and extents of cached files without a copy in
//! our memory (zero-copy). For every front that speaks TCP; this crate knows no protocol.
//!
//! [`write_all`] sends a list of `vfs::Piece`s: runs of
//! [`vfs::Piece::Bytes`] go out by one `sendmsg` of up to [`SLICES_MAX`] slices, a [`vfs::Piece::Extent`] by
//! `sendfile` from the file that it pins; what the kernel drops from memory while the client is slow is copied, and checked again, a
//! little at a time. [`Corked`] joins the packets of several `write_all` of one answer.
//!
//! Invariants: pieces go out in order, and each is dropped as soon as it is in the socket, which unpins its extent.
//! What the kernel holds unsent of one connection is bounded (crate `socket-options`). A client that is too slow by the caller's
//! `fair::StallPolicy` ends with `TimedOut`. After an error nobody knows how much was sent: the connection is over.
//!
//! Begin with [`write_all`].

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::fd::AsFd;

use bytes::{Buf, Bytes};
use fair::{PeerPace, StallPolicy};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;
use types::ByteRange;
use vfs::{Extent, Piece};

/// The most pieces of one system call.
pub const SLICES_MAX: usize = 64;

/// The most bytes of an extent that are copied for one connection at a time: an extent is not in the budget of answers.
const COPIED_MAX: u64 = types::BLOCK_SIZE;

/// Sends all pieces in order, as long as the other end takes them at a pace that `patience` allows; otherwise it
/// fails with `TimedOut`. After an error nobody knows how much was sent: the connection is over.
pub async fn write_all(socket: &TcpStream, mut pieces: Vec<Piece>, patience: StallPolicy<'_>) -> Result<()> {
    let mut first = 0;
    let mut pace = PeerPace::default();
    while let Some(piece) = pieces.get_mut(first) {
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
    extent: &mut Extent,
) -> Result<()> {
    let mut offset = extent.offset();
    let end = offset + extent.length();
    let mut is_dropped = false;
    while offset < end && !is_dropped {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = patiently(patience, pace, socket, || {
            // Asked when the socket takes something: that may be long after it took the first part.
            is_dropped = !extent.is_in_memory(offset);
            if is_dropped {
                return Err(ErrorKind::NotFound.into());
            }
            let sent = rustix::fs::sendfile(socket, extent.as_fd(), Some(&mut offset), left)?;
            Ok(sent as u64)
        });
        let sent = sent.await;
        if !is_dropped {
            sent?;
        }
    }
    // From the disk, checked: all that is left, since more of it may be there than in memory.
    while offset < end {
        let range = ByteRange::new(offset, (end - offset).min(COPIED_MAX));
        offset = range.end();
        send_copy(patience, pace, socket, extent, (range, offset < end)).await?;
    }
    Ok(())
}

/// `more`: what follows belongs into the same packet.
async fn send_copy(
    patience: StallPolicy<'_>,
    pace: &mut PeerPace,
    socket: &TcpStream,
    extent: &Extent,
    (range, more): (ByteRange, bool),
) -> Result<()> {
    let read = tokio::task::spawn_blocking(extent.checked_read(range));
    let mut bytes = read.await.map_err(Error::other)??;
    while !bytes.is_empty() {
        let sent = patiently(patience, pace, socket, || send(socket, &[IoSlice::new(&bytes)], more)).await?;
        bytes.advance(usize::try_from(sent).unwrap_or(usize::MAX)); // at most its length
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
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use cache::{Cache, CacheKey, Lend, Source};
    use rustix::fs::Advice;
    use socket2::{Domain, Socket, Type};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use types::{FileId, Version};

    use super::*;

    const LENGTH: u64 = 4 << 20;

    fn byte(at: u64) -> u8 {
        (at / 4096 + at) as u8
    }

    struct Numbered;

    #[async_trait]
    impl Source for Numbered {
        async fn read(&self, _key: &CacheKey, range: ByteRange) -> types::Result<Bytes> {
            Ok((range.offset..range.end()).map(byte).collect::<Vec<u8>>().into())
        }

        fn read_max(&self) -> u32 {
            1 << 20
        }
    }

    fn data_file(dir: &Path) -> Option<PathBuf> {
        std::fs::read_dir(dir).expect("a directory").find_map(|entry| {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => data_file(&path),
                false => path.extension().is_some_and(|ending| ending == "data").then_some(path),
            }
        })
    }

    /// What a client gets of a cached file that begins to be sent, and of which the kernel then drops from memory what is not in the
    /// socket, after `change` changed the file on the disk.
    async fn sent_after(change: impl FnOnce(&File)) -> (Result<()>, Vec<u8>) {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::open(cache::Config { dir: dir.path().to_owned(), ..cache::Config::default() });
        let cache = cache.expect("opened");
        let key = CacheKey { file: FileId([1; 16]), version: Version([1; 16]), size: LENGTH };
        let source: Arc<dyn Source> = Arc::new(Numbered);
        let read = async || {
            let whole = ByteRange::new(0, LENGTH);
            cache.read(&key, whole, &source, Lend::From(64 << 10)).await.expect("read")
        };
        read().await;
        let pieces = read().await;
        assert!(pieces.iter().all(|piece| matches!(piece, Piece::Extent(_))), "{pieces:?}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut client = TcpStream::from_std(client.into()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        socket_options::for_client(&stream);
        let sending = tokio::spawn(async move {
            let patience = StallPolicy { stall: Duration::from_secs(60), share: None };
            write_all(&stream, pieces, patience).await
        });
        // The socket is full.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let data = File::options().read(true).write(true).open(data_file(dir.path()).expect("cached"));
        let data = data.expect("opened");
        change(&data);
        data.sync_all().expect("on the disk");
        rustix::fs::fadvise(&data, 0, None, Advice::DontNeed).expect("dropped");
        let mut got = Vec::new();
        let _ = client.read_to_end(&mut got).await; // it may be reset
        (sending.await.expect("no panic"), got)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_the_kernel_drops_while_a_client_is_slow_is_read_and_checked() {
        let right: Vec<u8> = (0..LENGTH).map(byte).collect();
        let (sent, got) = sent_after(|_| {}).await;
        sent.expect("all of it");
        assert!(got == right);
        let (sent, got) =
            sent_after(|data| data.write_all_at(&[0; 70_000], LENGTH - 70_000).expect("written")).await;
        assert_eq!(sent.expect_err("bad on the disk").kind(), ErrorKind::InvalidData);
        assert!(got.len() < right.len() && right.starts_with(&got), "{} bytes", got.len());
    }
}
