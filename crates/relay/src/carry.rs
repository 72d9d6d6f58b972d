//! One direction of one connection: what is read leaves when the line has room for it, and is written half a round trip
//! after that. Reading goes on meanwhile, so everything stays pipelined.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::bucket::TokenBucket;
use crate::jitter::Jitter;
use crate::line::{CHUNK, RelayLine};
use crate::window::DeliveryWindow;

/// Chunks on the line in one direction, whatever their size: a million one-byte messages are memory too.
const CHUNKS: usize = 4096;
/// We are taken to be this late at most for what was there already: the longest burst beyond the rate.
const LATE_MAX: Duration = Duration::from_millis(10);

/// Which way, and what is shared with the other connections going that way.
pub struct Direction<'a> {
    pub line: &'a RelayLine,
    pub shared: Option<&'a TokenBucket>,
    pub own: Option<TokenBucket>,
    pub bytes: &'a AtomicU64,
    pub window: DeliveryWindow,
    pub jitter: Jitter,
    /// Nothing is taken before: the connection is still being opened, as seen from this end.
    pub begin: Instant,
}

struct Chunk {
    due: Instant,
    what: Arriving,
}

/// What comes out at the other end.
enum Arriving {
    Bytes(Bytes),
    End,
    /// The sender's connection broke: that travels like everything else.
    Broken(io::Error),
}

impl Direction<'_> {
    /// Until the end of the stream has been passed on, or something broke. `moved` is told of all that is delivered.
    pub async fn carry(mut self, from: &TcpStream, to: &TcpStream, moved: impl Fn(u64)) -> io::Result<()> {
        let (send, arriving) = mpsc::channel(CHUNKS);
        let clock = Arc::clone(&self.line.clock);
        clock.sleep_until(self.begin).await;
        let jitter = std::mem::take(&mut self.jitter);
        // When the receiver is gone there is nothing left to take.
        let taking = async {
            self.take(from, send, jitter).await;
            Ok(())
        };
        tokio::try_join!(taking, self.deliver(arriving, to, moved)).map(drop)
    }

    async fn take(&self, from: &TcpStream, line: mpsc::Sender<Chunk>, mut jitter: Jitter) {
        let chunk_max = [self.shared, self.own.as_ref()].into_iter().flatten().map(|b| b.chunk(CHUNK)).min();
        let mut last = Instant::now();
        let mut waited = false;
        loop {
            let room = self.window.room(&self.line.clock).await;
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(chunk_max.unwrap_or(CHUNK));
            let what = match self.read(from, room) {
                Ok(None) => match from.readable().await {
                    Ok(()) => {
                        waited = true;
                        continue;
                    }
                    Err(e) => Arriving::Broken(e),
                },
                Ok(Some(bytes)) if bytes.is_empty() => Arriving::End,
                Ok(Some(bytes)) => Arriving::Bytes(bytes),
                Err(e) => Arriving::Broken(e),
            };
            let length = if let Arriving::Bytes(bytes) = &what { bytes.len() } else { 0 };
            let left = self.leave(length, std::mem::take(&mut waited)).await;
            // A stream keeps its order: what is delayed less waits for what is before it.
            last = last.max(jitter.vary(left, self.line.one_way));
            if line.send(Chunk { due: last, what }).await.is_err() || length == 0 {
                return;
            }
        }
    }

    /// `None`: nothing is there yet.
    fn read(&self, from: &TcpStream, most: usize) -> io::Result<Option<Bytes>> {
        let mut buffer = self.line.scratch();
        let most = most.min(buffer.len());
        match from.try_read(&mut buffer[..most]) {
            // A copy, so that a small message on the line holds as much memory as it has bytes.
            Ok(n) => {
                self.window.enter(n as u64);
                Ok(Some(Bytes::copy_from_slice(&buffer[..n])))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// When the last of `bytes` has left this end. What was there without being waited for was there a little earlier,
    /// too, however late we come for it: without that, a busy machine would make the line narrower.
    async fn leave(&self, bytes: usize, waited: bool) -> Instant {
        let now = Instant::now();
        let shaped = self.own.is_some() || self.shared.is_some();
        let mut ready = if waited || !shaped { now } else { now.checked_sub(LATE_MAX).unwrap_or(now) };
        for bucket in [self.own.as_ref(), self.shared].into_iter().flatten() {
            ready = bucket.pass(&self.line.clock, bytes, ready).await;
        }
        ready
    }

    async fn deliver(
        &self,
        mut arriving: mpsc::Receiver<Chunk>,
        to: &TcpStream,
        moved: impl Fn(u64),
    ) -> io::Result<()> {
        while let Some(Chunk { due, what }) = arriving.recv().await {
            self.line.clock.sleep_until(due).await;
            let bytes = match what {
                Arriving::Bytes(bytes) => bytes,
                Arriving::End => {
                    rustix::net::shutdown(to, rustix::net::Shutdown::Write)?;
                    return Ok(());
                }
                Arriving::Broken(e) => return Err(e),
            };
            let length = bytes.len() as u64;
            write_all(to, &bytes).await?;
            self.window.leave(length, Instant::now() + self.line.one_way);
            self.bytes.fetch_add(length, Ordering::Relaxed);
            moved(length);
        }
        Ok(())
    }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
