//! A service of files that is asked by calls: an NFSv3 server, without a mount, or a share of Azure Files by its REST
//! interface. Each client has connections of its own (`nfs.rs`).

use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use origin::{Origin, OriginConfig};
use types::{Error, ErrorKind, Result};

use super::nfs::NfsClient;
use super::{Client, Target, TargetAbout, parse_size, room_for_connections, without_options};

/// The calls by which files of a service are read and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// Bytes of a read; the server may allow less.
    pub read_size: u32,
    /// Reads under way or done ahead of a sequential reader, beyond what it has asked for.
    pub read_ahead: u32,
    /// Bytes of a write; the server may allow less.
    pub write_size: u32,
    /// Writes of a file under way before the next one waits.
    pub write_behind: u32,
}

impl Transfer {
    /// With the URL's `rsize`, `wsize` (bytes of a call, `k` and `m` allowed), `readahead` and `writebehind` (calls); and the URL
    /// without these.
    pub(super) fn with_options_of(
        mut self,
        url: &str,
        sizes: RangeInclusive<u64>,
    ) -> Result<(Transfer, String)> {
        let rest = without_options(url, |pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (option, range) = match key {
                "rsize" => (&mut self.read_size, sizes.clone()),
                "wsize" => (&mut self.write_size, sizes.clone()),
                "readahead" => (&mut self.read_ahead, 0..=1024),
                "writebehind" => (&mut self.write_behind, 1..=1024),
                _ => return Ok(false),
            };
            let number = parse_size(value).filter(|number| range.contains(number));
            *option = number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
                let (least, most) = range.into_inner();
                let why = format!("{url}: {key} '{value}' should be from {least} to {most}");
                Error::new(ErrorKind::Config, "target", why)
            })?;
            Ok(true)
        })?;
        Ok((self, rest))
    }
}

/// The transfers of a Linux client: it asks for 128 KiB behind its default read-ahead window.
const LINUX: Transfer =
    Transfer { read_size: 128 << 10, read_ahead: 1, write_size: 1 << 20, write_behind: 4 };
/// The REST interface of Azure Files takes and gives this much in one call.
const RANGE_MAX: u32 = 4 << 20;
const RANGE_MIN: u64 = 64 << 10;
/// Connections of a client to a share: as many as it has calls under way, most of the time.
const SHARE_CONNECTIONS: u64 = 8;

pub struct ServerTarget {
    config: Box<dyn OriginConfig>,
    transfer: Transfer,
    /// Descriptors that one client needs.
    connections: u64,
    /// A range can only be put inside a file.
    sized: bool,
}

impl ServerTarget {
    /// Besides what `origin-nfs` takes, the options of [`Transfer`]. One connection per client unless `nconnect` is given.
    pub fn nfs(url: &str) -> Result<Arc<ServerTarget>> {
        let (transfer, rest) = LINUX.with_options_of(url, 4096..=1 << 20)?;
        let several = rest.split(['?', '&']).any(|pair| pair.starts_with("nconnect="));
        let mut config = origin_nfs::Config::from_url(&rest)?;
        if !several {
            config.nconnect = 1;
        }
        // And a short-lived one for MOUNT while a client connects.
        let connections = config.nconnect as u64 + 1;
        Ok(Arc::new(ServerTarget { config: Box::new(config), transfer, connections, sized: false }))
    }

    /// Besides what `origin-azfile` takes, the options of [`Transfer`].
    pub fn azfile(url: &str) -> Result<Arc<ServerTarget>> {
        let whole = Transfer { read_size: RANGE_MAX, write_size: RANGE_MAX, ..LINUX };
        let (transfer, rest) = whole.with_options_of(url, RANGE_MIN..=u64::from(RANGE_MAX))?;
        let config = Box::new(origin_azfile::Config::from_url(&rest)?);
        Ok(Arc::new(ServerTarget { config, transfer, connections: SHARE_CONNECTIONS, sized: true }))
    }

    async fn connect(&self, id: u32) -> Result<Arc<dyn Origin>> {
        self.config.connect().await.map_err(|error| {
            let message = format!("{id} of {}", self.config.url());
            Error::new(error.kind(), "connect client", message).with_source(error)
        })
    }
}

#[async_trait]
impl Target for ServerTarget {
    async fn about(&self) -> Result<TargetAbout> {
        let origin = self.connect(0).await?;
        let available = origin.statfs(&origin.root().await?.reference).await?.bytes_available;
        // Whether it can be written shows only when it is tried.
        Ok(TargetAbout { url: self.config.url(), available: Some(available), ..TargetAbout::default() })
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        room_for_connections(clients, self.connections)
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let client = NfsClient::of(self.connect(id).await?, self.transfer, self.sized).await?;
        Ok(Arc::new(Arc::new(client)))
    }
}
