//! A share of Azure Files as a target, by its REST interface: each client has connections of its own, and asks as the
//! client of an NFS server does (`nfs.rs`).
//!
//! A range can only be put inside a file, so one that many write is made as long as it gets before they do.

use std::sync::Arc;

use async_trait::async_trait;
use origin::Origin;
use origin_azfile::{AzFileOrigin, Config};
use types::{Error, Result};

use super::nfs::{NfsClient, Transfer, room_for_connections};
use super::{Capabilities, Client, Target, TargetSpace};

/// The interface takes and gives this much in one call.
const RANGE_MAX: u32 = 4 << 20;
const RANGE_MIN: u64 = 64 << 10;
/// Connections of a client: as many as it has calls under way, most of the time.
const CONNECTIONS: u64 = 8;

#[derive(Clone, Debug)]
pub struct AzureFileOptions {
    config: Config,
    transfer: Transfer,
}

impl AzureFileOptions {
    /// Besides what the origin's URL takes, those of [`Transfer`], as with an NFS server.
    pub fn from_url(url: &str) -> Result<AzureFileOptions> {
        let whole = Transfer { read_size: RANGE_MAX, read_ahead: 1, write_size: RANGE_MAX, write_behind: 4 };
        let (transfer, rest) = whole.with_options_of(url, RANGE_MIN..=u64::from(RANGE_MAX))?;
        Ok(AzureFileOptions { config: Config::from_url(&rest)?, transfer })
    }
}

pub struct AzFileTarget {
    options: AzureFileOptions,
}

impl AzFileTarget {
    pub fn new(options: AzureFileOptions) -> Arc<AzFileTarget> {
        Arc::new(AzFileTarget { options })
    }
}

#[async_trait]
impl Target for AzFileTarget {
    fn describe(&self) -> String {
        self.options.config.url()
    }

    fn capabilities(&self) -> Capabilities {
        // Whether it can be written shows only when it is tried.
        Capabilities { read_only: false, parallel_write: true, whole_files: false }
    }

    async fn space(&self) -> Result<Option<TargetSpace>> {
        let origin = AzFileOrigin::connect(self.options.config.clone()).await?;
        let root = origin.root().await?;
        let stat = origin.statfs(&root.reference).await?;
        Ok(Some(TargetSpace { available: stat.bytes_available, total: stat.bytes_total }))
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        room_for_connections(clients, CONNECTIONS)
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let origin = AzFileOrigin::connect(self.options.config.clone()).await.map_err(|error| {
            let message = format!("{id} of {}", self.options.config.url());
            Error::new(error.kind(), "connect client", message).with_source(error)
        })?;
        Ok(Arc::new(NfsClient::of(origin, self.options.transfer, true).await?))
    }
}
