//! A target that misbehaves on demand: it stalls, hangs or fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bench_load::target::guarded::{CallGuard, GuardedClient};
use bench_load::target::{Client, Target, TargetAbout};
use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

use crate::memory::MemoryTarget;

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

impl CallGuard for Shared {
    async fn call<T: Send>(
        &self,
        kind: &'static str,
        _path: &str,
        _bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if kind == "read" {
            self.suffer().await?;
        }
        call.await
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
    async fn about(&self) -> Result<TargetAbout> {
        let read_only = self.shared.fault == Fault::ReadOnly;
        Ok(TargetAbout { read_only, ..self.inner.about().await? })
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let inner = self.inner.client(id).await?;
        Ok(Arc::new(GuardedClient { inner, guard: Arc::clone(&self.shared) }))
    }
}
