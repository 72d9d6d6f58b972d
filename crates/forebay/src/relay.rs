//! A TCP relay that makes a near server far: each direction is delayed by half the round trip, and everything stays
//! pipelined, as on a long line. Needs no privileges.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;
use types::{Error, Result};

/// Bytes taken off a socket at a time.
const CHUNK: usize = 64 * 1024;
/// Chunks on the line in one direction. 64 MiB: at 221 ms that is 600 MB/s, more than the machine relays.
const ON_THE_LINE: usize = 1024;

pub struct Relay {
    listener: TcpListener,
    to: SocketAddr,
    one_way: Duration,
}

impl Relay {
    pub async fn bind(listen: SocketAddr, to: SocketAddr, round_trip: Duration) -> Result<Relay> {
        let listener =
            TcpListener::bind(listen).await.map_err(|e| Error::io("listen for the relay on", listen, e))?;
        Ok(Relay { listener, to, one_way: round_trip / 2 })
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| Error::io("ask for the address of", "the relay", e))
    }

    /// Relay connections until dropped.
    pub async fn run(self) {
        loop {
            match self.listener.accept().await {
                Ok((near, peer)) => {
                    let (to, one_way) = (self.to, self.one_way);
                    tokio::spawn(async move {
                        if let Err(e) = connect(near, to, one_way).await {
                            debug!(%peer, "relayed connection: {e}");
                        }
                    });
                }
                Err(e) => {
                    debug!("accept: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn connect(near: TcpStream, to: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    // A connection takes a round trip to open on a long line.
    tokio::time::sleep(one_way * 2).await;
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::join!(carry(near_read, far_write, one_way), carry(far_read, near_write, one_way));
    Ok(())
}

/// Everything that is read is written `one_way` later.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, one_way: Duration) {
    let (line, mut arriving) = mpsc::channel::<(Instant, Bytes)>(ON_THE_LINE);
    let deliver = async move {
        while let Some((due, chunk)) = arriving.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let take = async move {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK);
            match from.read_buf(&mut buffer).await {
                Ok(1..) => {}
                _ => return,
            }
            // When the line is full the sender waits, as it would with a full window.
            if line.send((Instant::now() + one_way, buffer.split().freeze())).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(take, deliver);
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo_server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_requests_under_way_share_one_round_trip() {
        let round_trip = Duration::from_millis(80);
        let listen = "127.0.0.1:0".parse().expect("valid");
        let relay = Relay::bind(listen, echo_server().await, round_trip).await.expect("bound");
        let address = relay.local_addr().expect("bound");
        tokio::spawn(relay.run());
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.set_nodelay(true).expect("set");
        stream.write_all(&[0]).await.expect("sent");
        stream.read_exact(&mut [0]).await.expect("the connection is open");
        let start = Instant::now();
        for request in 0..10 {
            stream.write_all(&[request]).await.expect("sent");
            tokio::task::yield_now().await;
        }
        let mut answers = [0; 10];
        stream.read_exact(&mut answers).await.expect("answered");
        let took = start.elapsed();
        assert_eq!(answers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(took >= round_trip, "nothing is faster than the line: {took:?}");
        assert!(took < round_trip * 5, "ten requests took ten round trips or so: {took:?}");
    }
}
