//! The target moved away by a relay: one line to NFS, one to MOUNT, and a client at its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use origin_nfs::{Config, NfsOrigin};
use relay::Relay;
use types::Result;

use super::ports::Ports;

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
