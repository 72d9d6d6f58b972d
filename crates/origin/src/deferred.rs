//! An origin that could not be reached at start: connected when it can be. Until then it answers "not reachable",
//! and what is cached is served.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    Change, Changed, Committed, DirCursor, DirPage, Layer, Object, Origin, OriginAnswer, OriginCall,
    OriginConfig, OriginIdentity, OriginTraits, Reference, Sending, Written,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;
use tracing::info;
use types::{ByteRange, Error, FsStat, Name, OutageReason, Result, Stability, Version};

/// A call waits this long for the connection.
const PATIENCE: Duration = Duration::from_secs(3);

pub struct Deferred {
    away: Away,
    origin: OnceCell<Arc<dyn Origin>>,
}

impl Deferred {
    pub fn new(config: Arc<dyn OriginConfig>) -> Deferred {
        Deferred { away: Away(config), origin: OnceCell::new() }
    }

    async fn connect(&self) -> Result<()> {
        let config = &self.away.0;
        let connect = self.origin.get_or_try_init(|| async {
            let origin = config.connect().await?;
            info!(origin = %config.url(), "connected at last");
            Ok::<_, Error>(origin)
        });
        match tokio::time::timeout(PATIENCE, connect).await {
            Ok(Ok(_)) => Ok(()),
            // A directory that was served and is not there: its file system is not mounted.
            Ok(Err(e)) if config.directory().is_some() => {
                Err(Error::outage(OutageReason::Replaced, "find", config.url()).with_source(e))
            }
            // Whatever the reason, it may be gone tomorrow: the junction was served before.
            Ok(Err(e)) => Err(self.away.outage(e.outage_reason().unwrap_or_default(), &e.to_string())),
            Err(_) => Err(self.away.outage(OutageReason::Unreachable, "no answer")),
        }
    }
}

impl Layer for Deferred {
    fn inner(&self) -> &dyn Origin {
        self.origin.get().map_or(&self.away, |origin| origin.as_ref())
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        _call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        self.connect().await?;
        send().await
    }
}

/// The store while it is not connected to: it is what its URL says, and answers nothing.
struct Away(Arc<dyn OriginConfig>);

impl Away {
    fn outage(&self, reason: OutageReason, why: &str) -> Error {
        Error::outage(reason, "connect to", format!("{}: {why}", self.0.url()))
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(self.outage(OutageReason::Unreachable, "it is not connected to"))
    }
}

#[async_trait]
impl Origin for Away {
    fn url(&self) -> String {
        self.0.url()
    }

    fn traits(&self) -> OriginTraits {
        self.0.traits()
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        self.0.demand_path(path, is_dir)
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.refuse()
    }

    async fn is_empty(&self) -> Result<bool> {
        self.refuse()
    }

    async fn root(&self) -> Result<Object> {
        self.refuse()
    }

    async fn lookup(&self, _dir: &Reference, _name: &Name) -> Result<Object> {
        self.refuse()
    }

    async fn getattr(&self, _object: &Reference) -> Result<Object> {
        self.refuse()
    }

    async fn readlink(&self, _link: &Reference) -> Result<Bytes> {
        self.refuse()
    }

    async fn readdir(&self, _dir: &Reference, _cursor: DirCursor) -> Result<DirPage> {
        self.refuse()
    }

    async fn read(&self, _object: &Reference, _version: Version, _range: ByteRange) -> Result<Bytes> {
        self.refuse()
    }

    async fn statfs(&self, _object: &Reference) -> Result<FsStat> {
        self.refuse()
    }

    async fn change(&self, _change: &Change) -> Result<Changed> {
        self.refuse()
    }

    async fn write(
        &self,
        _object: &Reference,
        _offset: u64,
        _data: Bytes,
        _stability: Stability,
    ) -> Result<Written> {
        self.refuse()
    }

    async fn commit(&self, _object: &Reference, _range: ByteRange) -> Result<Committed> {
        self.refuse()
    }
}
