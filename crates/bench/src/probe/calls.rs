//! Calls that do no work at a server: handshakes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use types::{Error, Result};

/// The times of one operation, in seconds.
pub type Seconds = Vec<f64>;

/// The longest wait for a connection, for which a lost SYN is sent again after 1 s and after 3 s, and for the answer to a
/// call without work.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes that the round trip of the path is taken from.
pub const HANDSHAKES: usize = 11;

/// Seconds that the handshake takes: the round trip of the real path, without any server in it.
pub async fn handshake(address: SocketAddr) -> Result<f64> {
    let start = Instant::now();
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(address));
    let connected = connecting.await.unwrap_or_else(|e| Err(e.into()));
    connected.map_err(|e| Error::io("connect to", address, e))?;
    Ok(start.elapsed().as_secs_f64())
}

/// The handshakes that are answered there, if any is.
pub async fn answered_handshakes(address: SocketAddr) -> Option<(SocketAddr, Seconds)> {
    let mut times = Vec::new();
    for _ in 0..HANDSHAKES {
        times.extend(handshake(address).await.ok());
    }
    (!times.is_empty()).then_some((address, times))
}
