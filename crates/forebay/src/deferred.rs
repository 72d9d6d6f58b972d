//! An origin that could not be reached at start: connected when it can be. Until then it answers "not reachable",
//! and what is cached is served.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use origin::posix::PosixOrigin;
use origin::{
    Change, Changed, Committed, DirCursor, DirPage, Left, Object, Origin, OriginIdentity, OriginLimits,
    Reference, Written,
};
use origin_azfile::AzFileOrigin;
use origin_nfs::NfsOrigin;
use origin_object::ObjectOrigin;
use tokio::sync::OnceCell;
use tracing::info;
use types::{ByteRange, Error, FsStat, Name, OutageReason, Result, SetAttr, Stability, Version, XattrName};

/// A call waits this long for the connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// Storage that has to be connected to.
#[derive(Clone, Debug)]
pub enum Far {
    /// That is there when its file system is mounted.
    Directory(PathBuf),
    Nfs(Box<origin_nfs::Config>),
    Object(Box<origin_object::Config>),
    AzFile(Box<origin_azfile::Config>),
}

impl Far {
    pub fn url(&self) -> String {
        match self {
            Far::Directory(path) => format!("file://{}", path.display()),
            Far::Nfs(config) => config.url(),
            Far::Object(config) => config.url(),
            Far::AzFile(config) => config.url(),
        }
    }

    pub async fn connect(&self) -> Result<Arc<dyn Origin>> {
        match self {
            Far::Directory(path) => Ok(Arc::new(PosixOrigin::open(path)?)),
            Far::Nfs(config) => Ok(NfsOrigin::connect(config.as_ref().clone()).await?),
            Far::Object(config) => Ok(ObjectOrigin::connect(config.as_ref().clone()).await?),
            Far::AzFile(config) => Ok(AzFileOrigin::connect(config.as_ref().clone()).await?),
        }
    }
}

pub struct Deferred {
    far: Far,
    origin: OnceCell<Arc<dyn Origin>>,
}

impl Deferred {
    pub fn new(far: Far) -> Deferred {
        Deferred { far, origin: OnceCell::new() }
    }

    async fn connected(&self) -> Result<&dyn Origin> {
        let connect = self.origin.get_or_try_init(|| async {
            let origin = self.far.connect().await?;
            info!(origin = %self.url(), "connected at last");
            Ok::<_, Error>(origin)
        });
        let unreachable =
            |reason, why: String| Error::outage(reason, "connect to", format!("{}: {why}", self.url()));
        match tokio::time::timeout(PATIENCE, connect).await {
            Ok(Ok(origin)) => Ok(origin.as_ref()),
            // A directory that was served and is not there: its file system is not mounted.
            Ok(Err(e)) if matches!(self.far, Far::Directory(_)) => {
                Err(Error::outage(OutageReason::Replaced, "find", self.url()).with_source(e))
            }
            // Whatever the reason, it may be gone tomorrow: the junction was served before.
            Ok(Err(e)) => Err(unreachable(e.outage_reason().unwrap_or_default(), e.to_string())),
            Err(_) => Err(unreachable(OutageReason::Unreachable, "no answer".into())),
        }
    }
}

#[async_trait]
impl Origin for Deferred {
    fn url(&self) -> String {
        self.far.url()
    }

    fn read_max(&self) -> u32 {
        self.origin.get().map_or(1 << 16, |origin| origin.read_max())
    }

    fn directories_show_changes(&self) -> bool {
        !matches!(self.far, Far::Object(_) | Far::AzFile(_))
    }

    fn identity_is_place(&self) -> bool {
        matches!(self.far, Far::Object(_))
    }

    fn answers_side_by_side(&self) -> bool {
        matches!(self.far, Far::Object(_) | Far::AzFile(_))
    }

    fn commits_whole_files(&self) -> bool {
        matches!(self.far, Far::Object(_))
    }

    async fn set_at_commit(&self, object: &Reference, set: &SetAttr) -> Result<bool> {
        self.connected().await?.set_at_commit(object, set).await
    }

    fn connections(&self) -> u64 {
        self.origin.get().map_or(0, |origin| origin.connections())
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.connected().await?.identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.connected().await?.is_empty().await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.connected().await?.limits().await
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        match &self.far {
            Far::Directory(_) => origin::posix::demand_path(path),
            Far::Object(config) => config.demand_path(path, is_dir),
            Far::AzFile(_) => origin_azfile::demand_path(path),
            Far::Nfs(_) => Ok(()),
        }
    }

    async fn root(&self) -> Result<Object> {
        self.connected().await?.root().await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.connected().await?.lookup(dir, name).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.connected().await?.getattr(object).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.connected().await?.readlink(link).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.connected().await?.readdir(dir, cursor).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.connected().await?.read(object, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.connected().await?.statfs(object).await
    }

    fn has_xattrs(&self) -> bool {
        self.origin.get().is_some_and(|origin| origin.has_xattrs())
    }

    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        self.connected().await?.xattrs(object).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.connected().await?.change(change).await
    }

    async fn left_by_rename(&self, from: &Reference, was: Version, there: &Reference) -> Result<Left> {
        self.connected().await?.left_by_rename(from, was, there).await
    }

    fn write_max(&self) -> u32 {
        self.origin.get().map_or(1 << 16, |origin| origin.write_max())
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        self.connected().await?.write(object, offset, data, stability).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.connected().await?.commit(object, range).await
    }
}
