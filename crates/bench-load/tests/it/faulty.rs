//! A target that misbehaves on demand: it stalls, hangs or fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bench_load::target::memory::MemoryTarget;
use bench_load::target::{
    Capabilities, Client, EntryStatus, Forgot, Target, TargetEntry, TargetFile, TargetSpace,
};
use bytes::Bytes;
use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Reads that begin within the first period, after the first read, last until the end of the second.
    StallOnce { after: Duration, stall: Duration },
    /// Reads from the n-th on never return.
    HangFrom(u64),
    /// Reads from the n-th on fail.
    FailFrom(u64),
    /// It says that nothing can be written.
    ReadOnly,
    /// It says that a file can have one writer.
    OneWriter,
    /// Each read takes so long.
    Slow(Duration),
}

/// Memory with a fault in front.
pub struct Faulty {
    inner: Arc<dyn Target>,
    shared: Arc<Shared>,
}

struct Shared {
    fault: Fault,
    reads: AtomicU64,
    begin: std::sync::OnceLock<Instant>,
}

impl Faulty {
    pub fn target(inner: Arc<MemoryTarget>, fault: Fault) -> Arc<dyn Target> {
        let shared = Arc::new(Shared { fault, reads: AtomicU64::new(0), begin: std::sync::OnceLock::new() });
        Arc::new(Faulty { inner, shared })
    }
}

impl Shared {
    async fn suffer(&self) -> Result<()> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        let since = self.begin.get_or_init(Instant::now).elapsed();
        match self.fault {
            Fault::StallOnce { after, stall } if since >= after && since < after + stall => {
                tokio::time::sleep(after + stall - since).await;
            }
            Fault::HangFrom(n) if number >= n => std::future::pending().await,
            Fault::FailFrom(n) if number >= n => return Err(Error::new(ErrorKind::Io, "read", "planted")),
            Fault::Slow(time) => tokio::time::sleep(time).await,
            _ => {}
        }
        Ok(())
    }
}

#[async_trait]
impl Target for Faulty {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn capabilities(&self) -> Capabilities {
        let fault = self.shared.fault;
        Capabilities {
            read_only: fault == Fault::ReadOnly,
            parallel_write: fault != Fault::OneWriter,
            whole_files: false,
        }
    }

    async fn space(&self) -> Result<Option<TargetSpace>> {
        self.inner.space().await
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let inner = self.inner.client(id).await?;
        Ok(Arc::new(FaultyClient { inner, shared: Arc::clone(&self.shared) }))
    }
}

struct FaultyClient {
    inner: Arc<dyn Client>,
    shared: Arc<Shared>,
}

#[async_trait]
impl Client for FaultyClient {
    async fn mkdir(&self, path: &str) -> Result<()> {
        self.inner.mkdir(path).await
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        self.inner.create(path).await
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let inner = self.inner.open(path).await?;
        Ok(Arc::new(FaultyFile { inner, shared: Arc::clone(&self.shared) }))
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        self.inner.stat(path).await
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        self.inner.list(path).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path).await
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        self.inner.rmdir(path).await
    }

    async fn forget(&self) -> Result<Forgot> {
        self.inner.forget().await
    }
}

struct FaultyFile {
    inner: Arc<dyn TargetFile>,
    shared: Arc<Shared>,
}

#[async_trait]
impl TargetFile for FaultyFile {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.shared.suffer().await?;
        self.inner.read(offset, length).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.inner.write(offset, data).await
    }

    async fn sync(&self) -> Result<()> {
        self.inner.sync().await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
