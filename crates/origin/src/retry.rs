//! Tries again what may succeed later, until a deadline. Looks at `is_retryable` and at nothing else. A try under
//! way is not cut short, because a slow answer is worth more than a new question: each origin bounds its own calls.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use types::{ByteRange, FsStat, Name, Result, Turn, Version};

use crate::{DirCursor, DirPage, Object, Origin, Reference};

#[derive(Clone, Copy, Debug)]
pub struct RetryConfig {
    /// From the first try. After it the error is passed on: a front then says "try again later" to its client,
    /// which must not wait for an answer longer than it would wait before sending the call again.
    pub deadline: Duration,
    /// Pause after the first failure; doubles with each.
    pub pause_first: Duration,
    /// Longest pause.
    pub pause_max: Duration,
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            deadline: Duration::from_secs(5),
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(1),
        }
    }
}

pub struct Retry {
    inner: Arc<dyn Origin>,
    config: RetryConfig,
}

impl Retry {
    pub fn new(inner: Arc<dyn Origin>, config: RetryConfig) -> Arc<Retry> {
        Arc::new(Retry { inner, config })
    }

    async fn run<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        let deadline = Instant::now() + self.config.deadline;
        let mut pause = self.config.pause_first;
        loop {
            match call().await {
                Err(e) if e.is_retryable() && Instant::now() + pause < deadline => {
                    tracing::debug!("trying again in {pause:?}: {e}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.config.pause_max);
                }
                result => return result,
            }
        }
    }
}

#[async_trait]
impl Origin for Retry {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read_max(&self) -> u32 {
        self.inner.read_max()
    }

    fn distance(&self) -> Option<types::Distance> {
        self.inner.distance()
    }

    async fn root(&self) -> Result<Object> {
        self.run(|| self.inner.root()).await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.run(|| self.inner.lookup(dir, name)).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.run(|| self.inner.getattr(object)).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.run(|| self.inner.readlink(link)).await
    }

    /// Only the first piece: when a listing breaks in the middle, it is for the caller to begin again.
    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        if cursor != DirCursor::default() {
            return self.inner.readdir(dir, cursor).await;
        }
        self.run(|| self.inner.readdir(dir, cursor)).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.run(|| self.inner.read(object, version, range)).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.run(|| self.inner.statfs(object)).await
    }

    async fn turn(&self) -> Turn {
        self.inner.turn().await
    }
}
