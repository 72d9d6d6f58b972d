//! Calls that do no work at a server: handshakes, and NULL by RPC without a client.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rpc_nfs3::record::{RecordReader, mark};
use rpc_nfs3::rpc::{CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder, nfs3};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use types::{Error, Result};

/// The times of one operation, in seconds.
pub type Seconds = Vec<f64>;

/// The longest wait for a connection, for which a lost SYN is sent again after 1 s and after 3 s, and for the answer to a
/// call without work.
const PATIENCE: Duration = Duration::from_secs(10);
const REPLY_MAX: usize = 4096;
/// Handshakes that the round trip of the path is taken from.
pub const HANDSHAKES: usize = 11;

/// Seconds from asking for a connection to the answer of a first NULL call on it, and seconds of a second call.
pub async fn null_on_a_new_connection(nfs: SocketAddr) -> Result<(f64, f64)> {
    let talk = async {
        let start = Instant::now();
        let mut stream = connect(nfs).await?;
        null(&mut stream).await?;
        let first = start.elapsed().as_secs_f64();
        let start = Instant::now();
        null(&mut stream).await?;
        Ok((first, start.elapsed().as_secs_f64()))
    };
    talk.await.map_err(|e| Error::io("call NULL at", nfs, e))
}

async fn null(stream: &mut TcpStream) -> io::Result<()> {
    const XID: u32 = 0x7072_6f62;
    let mut e = XdrEncoder::default();
    let (program, version, procedure) = (nfs3::PROGRAM, nfs3::VERSION, nfs3::procedure::NULL);
    let (rpc_version, credentials) = (RPC_VERSION, Credentials::None);
    CallHeader { xid: XID, rpc_version, program, version, procedure, credentials }.encode(&mut e);
    let message = e.finish();
    let talk = async {
        stream.write_all(&[&mark(message.len())[..], &message].concat()).await?;
        let garbage = || io::Error::new(io::ErrorKind::InvalidData, "the answer is no RPC reply");
        let record = RecordReader::new(stream, REPLY_MAX).record().await.map_err(|_| garbage())?;
        let header = ReplyHeader::decode(&mut XdrDecoder::new(record)).map_err(|_| garbage())?;
        if header.xid != XID || header.status != ReplyStatus::Success {
            return Err(io::Error::other(format!("the server answers {:?}", header.status)));
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, talk).await.unwrap_or_else(|e| Err(e.into()))
}

/// Seconds that the handshake takes: the round trip of the real path, without any server in it.
pub async fn handshake(address: SocketAddr) -> Result<f64> {
    let start = Instant::now();
    connect(address).await.map_err(|e| Error::io("connect to", address, e))?;
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

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(address));
    let stream = connecting.await.unwrap_or_else(|e| Err(e.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
