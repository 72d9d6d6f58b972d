//! The target moved away by a relay: one line to NFS, one to MOUNT, whose addresses have to be known for it, and a client at its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use origin_nfs::{Config, NfsOrigin};
use relay::Relay;
use tokio::net::TcpStream;
use types::{Error, ErrorKind, Result};

/// A server as seen over one line.
pub struct FarNfs {
    pub client: Arc<NfsOrigin>,
    /// Where NFS is served, the relay's address if there is one.
    pub nfs: SocketAddr,
    /// What the client was given: more of them can be made.
    config: Config,
    /// End with it.
    _relays: Vec<Relay>,
}

impl FarNfs {
    /// The server itself, without a relay: the difference is what a relay costs.
    pub async fn direct(config: &Config, ports: Ports) -> Result<FarNfs> {
        FarNfs::connect(config, ports, Vec::new()).await
    }

    /// With `added` on each round trip.
    pub async fn relayed(config: &Config, ports: Ports, added: Duration) -> Result<FarNfs> {
        let (relays, near) = ports.relayed(relay::Config { rtt: added, ..relay::Config::default() })?;
        FarNfs::connect(config, near, relays).await
    }

    /// One connection, so that one operation is on one line, to exactly these ports.
    async fn connect(config: &Config, ports: Ports, relays: Vec<Relay>) -> Result<FarNfs> {
        let config = Config {
            host: ports.nfs.ip().to_string(),
            port: Some(ports.nfs.port()),
            mount_port: Some(ports.mount.port()),
            nconnect: 1,
            ..config.clone()
        };
        let client = NfsOrigin::connect(config.clone()).await?;
        Ok(FarNfs { client, nfs: ports.nfs, config, _relays: relays })
    }

    pub async fn another(&self) -> Result<Arc<NfsOrigin>> {
        NfsOrigin::connect(self.config.clone()).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub nfs: SocketAddr,
    pub mount: SocketAddr,
}

impl Ports {
    /// As the client itself finds them.
    pub async fn of(config: &Config) -> Result<Ports> {
        let (nfs, mount) = origin_nfs::ports(config).await?;
        Ok(Ports { nfs: address(&config.host, nfs).await?, mount: address(&config.host, mount).await? })
    }

    /// The far ends of lines to them, and where these listen.
    pub fn relayed(self, line: relay::Config) -> Result<(Vec<Relay>, Ports)> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let nfs = Relay::bind(any, self.nfs, line.clone())?;
        let mut near = Ports { nfs: nfs.local_addr(), mount: nfs.local_addr() };
        let mut relays = vec![nfs];
        if self.mount != self.nfs {
            let mount = Relay::bind(any, self.mount, line)?;
            near.mount = mount.local_addr();
            relays.push(mount);
        }
        Ok((relays, near))
    }

    pub fn url(self, export: &str) -> String {
        format!("nfs://{}{export}?mountport={}", self.nfs, self.mount.port())
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
