//! Bounds the calls that an origin gets at the same time. Metadata and bytes have separate room, so that a look-up
//! does not queue behind bulk reads.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use types::{ByteRange, Error, ErrorKind, FsStat, Name, Result, Version};

use crate::{DirCursor, DirPage, Object, Origin, Reference};

#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    /// Metadata calls at the same time. 256 at 221 ms is 1,150 look-ups per second.
    pub metadata_calls: usize,
    /// Reads at the same time. 128 of 512 KiB at 221 ms is 300 MB/s.
    pub reads: usize,
    /// Longest wait for room; then the call fails with `Busy`.
    pub patience: Duration,
}

impl Default for LimitConfig {
    fn default() -> LimitConfig {
        LimitConfig { metadata_calls: 256, reads: 128, patience: Duration::from_secs(10) }
    }
}

pub struct Limit {
    inner: Arc<dyn Origin>,
    metadata: Semaphore,
    reads: Semaphore,
    patience: Duration,
}

impl Limit {
    pub fn new(inner: Arc<dyn Origin>, config: LimitConfig) -> Arc<Limit> {
        let (metadata, reads) = (Semaphore::new(config.metadata_calls), Semaphore::new(config.reads));
        Arc::new(Limit { inner, metadata, reads, patience: config.patience })
    }

    async fn room<'a>(&self, semaphore: &'a Semaphore) -> Result<SemaphorePermit<'a>> {
        match tokio::time::timeout(self.patience, semaphore.acquire()).await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => Err(Error::new(ErrorKind::Busy, "wait for room to call", self.inner.url())),
        }
    }
}

#[async_trait]
impl Origin for Limit {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read_max(&self) -> u32 {
        self.inner.read_max()
    }

    async fn root(&self) -> Result<Object> {
        let _room = self.room(&self.metadata).await?;
        self.inner.root().await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let _room = self.room(&self.metadata).await?;
        self.inner.lookup(dir, name).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        let _room = self.room(&self.metadata).await?;
        self.inner.getattr(object).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let _room = self.room(&self.metadata).await?;
        self.inner.readlink(link).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let _room = self.room(&self.metadata).await?;
        self.inner.readdir(dir, cursor).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let _room = self.room(&self.reads).await?;
        self.inner.read(object, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        let _room = self.room(&self.metadata).await?;
        self.inner.statfs(object).await
    }
}
