//! A service of files that is asked by calls: an NFSv3 server, without a mount, or a share of Azure Files by its REST
//! interface. Each client has connections of its own (`nfs.rs`).

use std::sync::Arc;

use async_trait::async_trait;
use origin::Origin;
use origin_azfile::AzFileOrigin;
use origin_nfs::NfsOrigin;
use types::{Error, Result};

use super::nfs::NfsClient;
use super::transfer::Transfer;
use super::{Capabilities, Client, Target, TargetSpace, room_for_connections};

/// The transfers of a Linux client: it asks for 128 KiB behind its default read-ahead window.
const LINUX: Transfer =
    Transfer { read_size: 128 << 10, read_ahead: 1, write_size: 1 << 20, write_behind: 4 };
/// The REST interface of Azure Files takes and gives this much in one call.
const RANGE_MAX: u32 = 4 << 20;
const RANGE_MIN: u64 = 64 << 10;
/// Connections of a client to a share: as many as it has calls under way, most of the time.
const SHARE_CONNECTIONS: u64 = 8;

pub struct ServerTarget {
    service: FileService,
    transfer: Transfer,
}

/// Which service, and how it is reached.
enum FileService {
    Nfs(origin_nfs::Config),
    Share(origin_azfile::Config),
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
        Ok(Arc::new(ServerTarget { service: FileService::Nfs(config), transfer }))
    }

    /// Besides what `origin-azfile` takes, the options of [`Transfer`].
    pub fn azfile(url: &str) -> Result<Arc<ServerTarget>> {
        let whole = Transfer { read_size: RANGE_MAX, write_size: RANGE_MAX, ..LINUX };
        let (transfer, rest) = whole.with_options_of(url, RANGE_MIN..=u64::from(RANGE_MAX))?;
        let service = FileService::Share(origin_azfile::Config::from_url(&rest)?);
        Ok(Arc::new(ServerTarget { service, transfer }))
    }

    async fn connect(&self, id: u32) -> Result<Arc<dyn Origin>> {
        let connected: Result<Arc<dyn Origin>> = match &self.service {
            FileService::Nfs(config) => NfsOrigin::connect(config.clone()).await.map(|origin| origin as _),
            FileService::Share(config) => {
                AzFileOrigin::connect(config.clone()).await.map(|origin| origin as _)
            }
        };
        connected.map_err(|error| {
            let message = format!("{id} of {}", self.describe());
            Error::new(error.kind(), "connect client", message).with_source(error)
        })
    }
}

#[async_trait]
impl Target for ServerTarget {
    fn describe(&self) -> String {
        match &self.service {
            FileService::Nfs(config) => config.url(),
            FileService::Share(config) => config.url(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        // Whether it can be written shows only when it is tried.
        Capabilities { read_only: false, parallel_write: true, whole_files: false }
    }

    async fn space(&self) -> Result<Option<TargetSpace>> {
        let origin = self.connect(0).await?;
        let stat = origin.statfs(&origin.root().await?.reference).await?;
        Ok(Some(TargetSpace { available: stat.bytes_available, total: stat.bytes_total }))
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        let each = match &self.service {
            // A descriptor for each connection, and a short-lived one for MOUNT while a client connects.
            FileService::Nfs(config) => config.nconnect as u64 + 1,
            FileService::Share(_) => SHARE_CONNECTIONS,
        };
        room_for_connections(clients, each)
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        // A range can only be put inside a file of a share.
        let sized = matches!(self.service, FileService::Share(_));
        Ok(Arc::new(NfsClient::of(self.connect(id).await?, self.transfer, sized).await?))
    }
}
