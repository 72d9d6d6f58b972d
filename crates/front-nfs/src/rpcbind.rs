//! Registration with the local rpcbind, for clients that ask port 111 first.

use std::net::SocketAddr;
use std::time::Duration;

use rpc_nfs3::portmap::{self, Mapping};
use rpc_nfs3::record::{self, RecordReader};
use rpc_nfs3::rpc::{CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder, mount, nfs3};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use types::{Error, ErrorKind, Result};

const DEADLINE: Duration = Duration::from_secs(3);
const REPLY_BYTES_MAX: usize = 4096;

/// Our entries at rpcbind; `remove` unregisters them.
pub struct Registration {
    port: u16,
}

impl Registration {
    /// Registers NFS and MOUNT at `port`. Entries that a server left behind are replaced.
    pub async fn create(port: u16) -> Result<Registration> {
        for program in [(nfs3::PROGRAM, nfs3::VERSION), (mount::PROGRAM, mount::VERSION)] {
            let _ = call(portmap::UNSET, program, 0).await;
            if !call(portmap::SET, program, port).await? {
                let message = "rpcbind refused; another NFS server is registered, or we are not root";
                return Err(Error::new(ErrorKind::AccessDenied, "register with rpcbind", message));
            }
        }
        Ok(Registration { port })
    }

    pub async fn remove(self) {
        for program in [(nfs3::PROGRAM, nfs3::VERSION), (mount::PROGRAM, mount::VERSION)] {
            if let Err(e) = call(portmap::UNSET, program, self.port).await {
                tracing::warn!("{e}");
            }
        }
    }
}

async fn call(procedure: u32, (program, version): (u32, u32), port: u16) -> Result<bool> {
    let answer =
        tokio::time::timeout(DEADLINE, exchange(procedure, Mapping { program, version, port: port.into() }));
    match answer.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(e)) => Err(Error::io("register with rpcbind", "at 127.0.0.1:111 (is it running?)", e)),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "register with rpcbind", "it does not answer")),
    }
}

async fn exchange(procedure: u32, mapping: Mapping) -> std::io::Result<bool> {
    let mut stream = connect().await?;
    let (program, version) = (portmap::PROGRAM, portmap::VERSION);
    let credentials = Credentials::None;
    let header = CallHeader { xid: 1, rpc_version: RPC_VERSION, program, version, procedure, credentials };
    let mut e = XdrEncoder::default();
    header.encode(&mut e);
    mapping.encode(&mut e);
    let message = e.finish();
    stream.write_all(&[&record::mark(message.len()), message.as_ref()].concat()).await?;
    let mut replies = RecordReader::new(stream, REPLY_BYTES_MAX);
    let reply = replies.record().await.map_err(|e| std::io::Error::other(format!("{e:?}")))?;
    let mut d = XdrDecoder::new(reply);
    let header = ReplyHeader::decode(&mut d).map_err(std::io::Error::other)?;
    Ok(header.status == ReplyStatus::Success && d.bool().map_err(std::io::Error::other)?)
}

/// Connects from a privileged port: rpcbind believes no other.
async fn connect() -> std::io::Result<TcpStream> {
    let rpcbind = SocketAddr::from(([127, 0, 0, 1], portmap::PORT));
    for port in (600..1024).rev() {
        let socket = TcpSocket::new_v4()?;
        match socket.bind(SocketAddr::from(([127, 0, 0, 1], port))) {
            Ok(()) => return socket.connect(rpcbind).await,
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(_) => break,
        }
    }
    TcpStream::connect(rpcbind).await
}
