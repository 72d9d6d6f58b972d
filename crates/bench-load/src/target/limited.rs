//! A target with the limits of a service in front of it (`origin::emulated`): shapes that were measured against a cloud run
//! without one. The clients of another process have limits of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use origin::emulated::{EmulatedService, ServiceClient, ServiceLimits};
use types::Result;

use super::{Calls, Capabilities, Client, EntryStatus, Forgot, Target, TargetEntry, TargetFile, TargetSpace};

/// The name by which a busy answer is counted among a client's calls.
pub const BUSY_CALL: &str = "busy";

pub struct LimitedTarget {
    inner: Arc<dyn Target>,
    limits: ServiceLimits,
    service: Arc<EmulatedService>,
}

impl LimitedTarget {
    pub fn new(inner: Arc<dyn Target>, limits: ServiceLimits) -> Arc<LimitedTarget> {
        Arc::new(LimitedTarget { inner, limits, service: EmulatedService::new(limits) })
    }
}

#[async_trait]
impl Target for LimitedTarget {
    fn describe(&self) -> String {
        format!("limits:{}:{}", self.limits, self.inner.describe())
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn space(&self) -> Result<Option<TargetSpace>> {
        self.inner.space().await
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        self.inner.room_for(clients)
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let service = Arc::new(self.service.client());
        Ok(Arc::new(LimitedClient { inner: self.inner.client(id).await?, service }))
    }
}

struct LimitedClient {
    inner: Arc<dyn Client>,
    service: Arc<ServiceClient>,
}

impl LimitedClient {
    fn file(&self, path: &str, inner: Arc<dyn TargetFile>) -> Arc<dyn TargetFile> {
        let service = Arc::clone(&self.service);
        Arc::new(LimitedFile { inner, service, path: path.to_owned(), written: AtomicBool::new(false) })
    }
}

#[async_trait]
impl Client for LimitedClient {
    async fn mkdir(&self, path: &str) -> Result<()> {
        self.service.limited(path, 0, self.inner.mkdir(path)).await
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        Ok(self.file(path, self.service.limited(path, 0, self.inner.create(path)).await?))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        Ok(self.file(path, self.service.limited(path, 0, self.inner.open(path)).await?))
    }

    fn commits(&self) -> bool {
        self.inner.commits()
    }

    async fn create_shared(&self, path: &str, size: u64) -> Result<Arc<dyn TargetFile>> {
        let file = self.service.limited(path, 0, self.inner.create_shared(path, size)).await?;
        Ok(self.file(path, file))
    }

    async fn commit(&self, path: &str) -> Result<()> {
        self.service.limited(path, 0, self.inner.commit(path)).await
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        self.service.limited(path, 0, self.inner.stat(path)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        self.service.limited(path, 0, self.inner.list(path)).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        self.service.limited(path, 0, self.inner.remove(path)).await
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        self.service.limited(path, 0, self.inner.rmdir(path)).await
    }

    /// No request: it is the client's own knowledge.
    async fn forget(&self) -> Result<Forgot> {
        self.inner.forget().await
    }

    fn calls(&self) -> Calls {
        let mut calls = self.inner.calls();
        calls.insert(BUSY_CALL, self.service.busy());
        calls
    }
}

struct LimitedFile {
    inner: Arc<dyn TargetFile>,
    service: Arc<ServiceClient>,
    path: String,
    written: AtomicBool,
}

#[async_trait]
impl TargetFile for LimitedFile {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let bytes = (length as u64).min(self.size().saturating_sub(offset));
        self.service.limited(&self.path, bytes, self.inner.read(offset, length)).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let bytes = data.len() as u64;
        self.written.store(true, Ordering::Relaxed);
        self.service.limited(&self.path, bytes, self.inner.write(offset, data)).await
    }

    async fn sync(&self) -> Result<()> {
        self.service.limited(&self.path, 0, self.inner.sync()).await
    }

    /// A request if something was written, which services commit. What was read needs no end.
    async fn close(&self) -> Result<()> {
        match self.written.load(Ordering::Relaxed) {
            true => self.service.limited(&self.path, 0, self.inner.close()).await,
            false => self.inner.close().await,
        }
    }
}
