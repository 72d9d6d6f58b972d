//! Clients whose calls go through something: the limits of a service, or a fault that a test plants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use types::Result;

use super::{Calls, Client, EntryStatus, TargetEntry, TargetFile};

/// What the calls of a client and of its files go through.
pub trait CallGuard: Send + Sync + 'static {
    /// Does a call of that kind on a path, which moves so many bytes.
    fn call<T: Send>(
        &self,
        kind: &'static str,
        path: &str,
        bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;

    /// What it counts besides the client's own calls.
    fn count(&self, _calls: &mut Calls) {}
}

pub struct GuardedClient<G> {
    pub inner: Arc<dyn Client>,
    pub guard: Arc<G>,
}

impl<G: CallGuard> GuardedClient<G> {
    fn file(&self, path: &str, inner: Arc<dyn TargetFile>) -> Arc<dyn TargetFile> {
        let (guard, path) = (Arc::clone(&self.guard), path.to_owned());
        Arc::new(GuardedFile { inner, guard, path, written: AtomicBool::new(false) })
    }
}

#[async_trait]
impl<G: CallGuard> Client for GuardedClient<G> {
    async fn mkdir(&self, path: &str) -> Result<()> {
        self.guard.call("mkdir", path, 0, self.inner.mkdir(path)).await
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        Ok(self.file(path, self.guard.call("create", path, 0, self.inner.create(path)).await?))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        Ok(self.file(path, self.guard.call("open", path, 0, self.inner.open(path)).await?))
    }

    fn commits(&self) -> bool {
        self.inner.commits()
    }

    async fn create_shared(&self, path: &str, size: u64) -> Result<Arc<dyn TargetFile>> {
        let file = self.guard.call("create", path, 0, self.inner.create_shared(path, size)).await?;
        Ok(self.file(path, file))
    }

    async fn commit(&self, path: &str) -> Result<()> {
        self.guard.call("commit", path, 0, self.inner.commit(path)).await
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        self.guard.call("stat", path, 0, self.inner.stat(path)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        self.guard.call("list", path, 0, self.inner.list(path)).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        self.guard.call("remove", path, 0, self.inner.remove(path)).await
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        self.guard.call("rmdir", path, 0, self.inner.rmdir(path)).await
    }

    /// No call: it is the client's own knowledge.
    fn forget(&self) {
        self.inner.forget();
    }

    fn calls(&self) -> Calls {
        let mut calls = self.inner.calls();
        self.guard.count(&mut calls);
        calls
    }
}

struct GuardedFile<G> {
    inner: Arc<dyn TargetFile>,
    guard: Arc<G>,
    path: String,
    written: AtomicBool,
}

#[async_trait]
impl<G: CallGuard> TargetFile for GuardedFile<G> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let bytes = (length as u64).min(self.size().saturating_sub(offset));
        self.guard.call("read", &self.path, bytes, self.inner.read(offset, length)).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let bytes = data.len() as u64;
        self.written.store(true, Ordering::Relaxed);
        self.guard.call("write", &self.path, bytes, self.inner.write(offset, data)).await
    }

    /// A call if something was written, which services commit. What was read needs no end.
    async fn close(&self) -> Result<()> {
        match self.written.load(Ordering::Relaxed) {
            true => self.guard.call("close", &self.path, 0, self.inner.close()).await,
            false => self.inner.close().await,
        }
    }
}
