//! The options of TCP connections over which cached bytes go, to clients and between nodes: no delay, an end for those whose other end
//! is gone without a word, a bound on what the kernel holds unsent, and the congestion control (`congestion.rs`).

mod congestion;

use std::io::Result;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The most unsent bytes that the kernel holds of one connection; they are in no budget any more. Without a bound a client that reads
/// nothing makes it keep megabytes for each of its connections, and where TCP as a whole is short of memory all connections are
/// slow. Bytes in flight are not counted: a long line is filled as before.
const UNSENT_MAX: u32 = 512 << 10;

/// Sets the options of a connection that a client made.
pub fn for_client(stream: &TcpStream) {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    note(set(stream, &keepalive));
    note(congestion::suit_the_way(stream));
}

/// Sets the options of a connection between two nodes. One whose other end is gone without a word ends after `dead_after`, whether
/// bytes are in flight or an answer is waited for. So does one whose other end takes nothing for that long. A node that is there and
/// does not answer is not ended by it: its kernel is well.
pub fn for_node(stream: &TcpStream, dead_after: Duration) {
    let probe = (dead_after / 3).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(2);
    note(set(stream, &keepalive));
    note(SockRef::from(stream).set_tcp_user_timeout(Some(dead_after)));
    note(congestion::suit_the_way(stream));
}

fn set(stream: &TcpStream, keepalive: &TcpKeepalive) -> Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(keepalive)?;
    socket.set_tcp_notsent_lowat(UNSENT_MAX)
}

/// A connection works without them.
fn note(set: Result<()>) {
    if let Err(e) = set {
        tracing::debug!("set socket options: {e}");
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
            for_client(&stream);
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
