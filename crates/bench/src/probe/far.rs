//! The target moved away by a relay: one line to NFS, one to MOUNT, and a client at its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use origin_nfs::{Config, NfsOrigin};
use relay::Relay;
use rpc_nfs3::nfs3;
use tokio::net::TcpStream;
use types::{Error, Result};

use super::ports::{Ports, call};

/// The longest wait for a connection: a lost SYN is sent again after 1 s and after 3 s.
const CONNECT: Duration = Duration::from_secs(10);

/// A server as seen over one line.
pub struct View {
    pub client: Arc<NfsOrigin>,
    /// Where NFS is served, the relay's address if there is one.
    pub nfs: SocketAddr,
}

pub struct FarNfs {
    pub view: View,
    /// What the client was given: more of them can be made.
    config: Config,
    /// End with it.
    _relays: Vec<Relay>,
}

impl FarNfs {
    /// The server itself, without a relay: the difference is what a relay costs.
    pub async fn direct(config: &Config, ports: Ports) -> Result<FarNfs> {
        FarNfs::connect(pinned(config, ports), ports.nfs, Vec::new()).await
    }

    /// With `added` on each round trip.
    pub async fn relayed(config: &Config, ports: Ports, added: Duration) -> Result<FarNfs> {
        let line = relay::Config { rtt: added, ..relay::Config::default() };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let nfs = Relay::bind(any, ports.nfs, line.clone())?;
        let near_nfs = nfs.local_addr();
        if ports.mount == ports.nfs {
            let ports = Ports { nfs: near_nfs, mount: near_nfs };
            return FarNfs::connect(pinned(config, ports), near_nfs, vec![nfs]).await;
        }
        let mount = Relay::bind(any, ports.mount, line)?;
        let ports = Ports { nfs: near_nfs, mount: mount.local_addr() };
        FarNfs::connect(pinned(config, ports), near_nfs, vec![nfs, mount]).await
    }

    async fn connect(config: Config, nfs: SocketAddr, relays: Vec<Relay>) -> Result<FarNfs> {
        let client = NfsOrigin::connect(config.clone()).await?;
        Ok(FarNfs { view: View { client, nfs }, config, _relays: relays })
    }

    /// Another client on a connection of its own.
    pub async fn another(&self) -> Result<Arc<NfsOrigin>> {
        NfsOrigin::connect(self.config.clone()).await
    }
}

/// One connection, so that one operation is on one line, to exactly these ports.
fn pinned(config: &Config, ports: Ports) -> Config {
    Config {
        host: ports.nfs.ip().to_string(),
        port: Some(ports.nfs.port()),
        mount_port: Some(ports.mount.port()),
        nconnect: 1,
        ..config.clone()
    }
}

/// Seconds from asking for a connection to the answer of a first NULL call on it, and seconds of a second call.
pub async fn null_on_a_new_connection(nfs: SocketAddr) -> Result<(f64, f64)> {
    let null = (nfs3::PROGRAM, nfs3::VERSION, nfs3::procedure::NULL);
    let talk = async {
        let start = Instant::now();
        let mut stream = connect(nfs).await?;
        call(&mut stream, null, |_| {}).await?;
        let first = start.elapsed().as_secs_f64();
        let start = Instant::now();
        call(&mut stream, null, |_| {}).await?;
        Ok((first, start.elapsed().as_secs_f64()))
    };
    talk.await.map_err(|e| Error::io("call NULL at", nfs, e))
}

/// Seconds that the handshake takes: the round trip of the real path, without any server in it.
pub async fn handshake(address: SocketAddr) -> Result<f64> {
    let start = Instant::now();
    connect(address).await.map_err(|e| Error::io("connect to", address, e))?;
    Ok(start.elapsed().as_secs_f64())
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream =
        tokio::time::timeout(CONNECT, TcpStream::connect(address)).await.unwrap_or_else(|e| Err(e.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
