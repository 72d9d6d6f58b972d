//! Where a server's NFS and MOUNT listen: the relay stands in front of addresses, so they have to be known.

use std::net::SocketAddr;
use std::time::Duration;

use origin_nfs::Config;
use rpc_nfs3::portmap::{self, Mapping};
use rpc_nfs3::record::{RecordReader, mark};
use rpc_nfs3::rpc::{CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder, mount, nfs3};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use types::{Error, ErrorKind, Result};

/// The longest wait for the answer to a call without work.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest reply to such a call.
const REPLY_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub nfs: SocketAddr,
    pub mount: SocketAddr,
}

impl Ports {
    /// As the client itself finds them: those of the URL, otherwise the portmapper's.
    pub async fn of(config: &Config) -> Result<Ports> {
        let at = |port| address(&config.host, port);
        let nfs = match (config.port, config.mount_port) {
            (Some(port), _) => port,
            (None, Some(_)) => 2049,
            (None, None) => ask(at(portmap::PORT).await?, nfs3::PROGRAM).await?,
        };
        let mount = match config.mount_port {
            Some(port) => port,
            // Servers that need no portmapper answer MOUNT on the NFS port.
            None if config.port.is_some() => match at(portmap::PORT).await {
                Ok(portmapper) => ask(portmapper, mount::PROGRAM).await.unwrap_or(nfs),
                Err(_) => nfs,
            },
            None => ask(at(portmap::PORT).await?, mount::PROGRAM).await?,
        };
        Ok(Ports { nfs: at(nfs).await?, mount: at(mount).await? })
    }
}

/// The first address of the host that TCP can reach, or the first if none answers.
async fn address(host: &str, port: u16) -> Result<SocketAddr> {
    let unknown = |e| Error::new(ErrorKind::Unavailable, "find host", host).with_source(e);
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(unknown)?.collect();
    if let [first, _, ..] = found.as_slice() {
        for address in &found {
            let answer = tokio::time::timeout(Duration::from_secs(3), TcpStream::connect(address)).await;
            if matches!(answer, Ok(Ok(_))) {
                return Ok(*address);
            }
        }
        return Ok(*first);
    }
    let none = || Error::new(ErrorKind::Unavailable, "find host", format!("{host}: it has no address"));
    found.first().copied().ok_or_else(none)
}

async fn ask(portmapper: SocketAddr, program: u32) -> Result<u16> {
    let failed = |e| Error::io("ask the portmapper at", portmapper, e);
    let talk = async {
        let mut stream = TcpStream::connect(portmapper).await?;
        let target = (portmap::PROGRAM, portmap::VERSION, portmap::GETPORT);
        let mut results =
            call(&mut stream, target, |e| Mapping { program, version: 3, port: 0 }.encode(e)).await?;
        results.u32().map_err(std::io::Error::other)
    };
    let port =
        tokio::time::timeout(PATIENCE, talk).await.unwrap_or_else(|e| Err(e.into())).map_err(failed)?;
    match u16::try_from(port) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Error::new(
            ErrorKind::Unavailable,
            "ask the portmapper at",
            format!("{portmapper}: program {program} over TCP is not there; give the ports in the URL"),
        )),
    }
}

/// One call without credentials, and its results.
pub async fn call(
    stream: &mut TcpStream,
    (program, version, procedure): (u32, u32, u32),
    arguments: impl FnOnce(&mut XdrEncoder),
) -> std::io::Result<XdrDecoder> {
    const XID: u32 = 0x7072_6f62;
    let mut e = XdrEncoder::default();
    let credentials = Credentials::None;
    CallHeader { xid: XID, rpc_version: RPC_VERSION, program, version, procedure, credentials }
        .encode(&mut e);
    arguments(&mut e);
    let message = e.finish();
    let talk = async {
        stream.write_all(&[&mark(message.len())[..], &message].concat()).await?;
        let garbage = || std::io::Error::new(std::io::ErrorKind::InvalidData, "the answer is no RPC reply");
        let record = RecordReader::new(stream, REPLY_MAX).record().await.map_err(|_| garbage())?;
        let mut d = XdrDecoder::new(record);
        let header = ReplyHeader::decode(&mut d).map_err(|_| garbage())?;
        if header.xid != XID || header.status != ReplyStatus::Success {
            return Err(std::io::Error::other(format!("the server answers {:?}", header.status)));
        }
        Ok(d)
    };
    tokio::time::timeout(PATIENCE, talk).await.unwrap_or_else(|e| Err(e.into()))
}
