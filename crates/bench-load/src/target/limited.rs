//! Storage with the limits of a service in front of it: bytes and requests a second of a file or of all, a time to the
//! first byte, and "busy, retry after" answers. So shapes that were measured against a cloud run without one.
//!
//! Limits are kept by this process: the clients of another one have theirs.

mod service;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

use super::{Calls, Capabilities, Client, Entry, File, Forgot, Space, Status, Target};
pub use service::Service;
use service::{Answer, State};

/// By this a busy answer is counted among a client's calls.
pub const BUSY_CALL: &str = "busy";
/// A request that is answered with "busy" so often in a row has failed: services' own clients give up after three to ten.
const TRIES_MAX: u32 = 10;

pub struct LimitedTarget {
    inner: Arc<dyn Target>,
    service: Service,
    gate: Arc<Gate>,
}

/// What all clients ask before they do anything.
struct Gate {
    begun: Instant,
    state: Mutex<State>,
}

impl Gate {
    fn new(service: Service) -> Arc<Gate> {
        Arc::new(Gate { begun: Instant::now(), state: Mutex::new(State::new(service)) })
    }
}

impl LimitedTarget {
    pub fn new(inner: Arc<dyn Target>, service: Service) -> Arc<LimitedTarget> {
        Arc::new(LimitedTarget { inner, service, gate: Gate::new(service) })
    }
}

#[async_trait]
impl Target for LimitedTarget {
    fn describe(&self) -> String {
        format!("limits:{}:{}", self.service, self.inner.describe())
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn space(&self) -> Result<Option<Space>> {
        self.inner.space().await
    }

    fn room_for(&self, clients: u32) -> Result<()> {
        self.inner.room_for(clients)
    }

    async fn client(&self, id: u32) -> Result<Arc<dyn Client>> {
        let asker = Arc::new(Asker::at(Arc::clone(&self.gate)));
        Ok(Arc::new(LimitedClient { inner: self.inner.client(id).await?, asker }))
    }
}

/// One client's side: it does as it is told, and counts how often it was told to come again.
pub struct Asker {
    gate: Arc<Gate>,
    busy: AtomicU64,
}

impl Asker {
    /// The only client of a service.
    pub fn new(service: Service) -> Asker {
        Asker::at(Gate::new(service))
    }

    fn at(gate: Arc<Gate>) -> Asker {
        Asker { gate, busy: AtomicU64::new(0) }
    }

    /// The call, when its turn has come, and not over before the service would be done with it. `path` says which file.
    pub async fn limited<T>(
        &self,
        path: &str,
        bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            let answer = {
                let mut state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.ask(self.gate.begun.elapsed(), path, bytes)
            };
            match answer {
                Answer::Granted { begin, done } => {
                    self.sleep_until(begin).await;
                    let result = call.await;
                    self.sleep_until(done).await;
                    return result;
                }
                Answer::Busy { again } => {
                    self.busy.fetch_add(1, Ordering::Relaxed);
                    self.sleep_until(again).await;
                }
            }
        }
        let reason = format!("{path}: busy, {TRIES_MAX} times in a row");
        Err(Error::new(ErrorKind::Unavailable, "ask the limited service for", reason))
    }

    /// A request that moves next to nothing.
    async fn request<T>(&self, path: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.limited(path, 0, call).await
    }

    async fn sleep_until(&self, at: std::time::Duration) {
        if at > self.gate.begun.elapsed() {
            // Whoever runs the workers gives up those who wait too long.
            tokio::time::sleep_until(self.gate.begun + at).await;
        }
    }
}

struct LimitedClient {
    inner: Arc<dyn Client>,
    asker: Arc<Asker>,
}

impl LimitedClient {
    fn file(&self, path: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        let asker = Arc::clone(&self.asker);
        Arc::new(LimitedFile { inner, asker, path: path.to_owned(), written: AtomicBool::new(false) })
    }
}

#[async_trait]
impl Client for LimitedClient {
    async fn mkdir(&self, path: &str) -> Result<()> {
        self.asker.request(path, self.inner.mkdir(path)).await
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        Ok(self.file(path, self.asker.request(path, self.inner.create(path)).await?))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        Ok(self.file(path, self.asker.request(path, self.inner.open(path)).await?))
    }

    fn commits(&self) -> bool {
        self.inner.commits()
    }

    async fn create_shared(&self, path: &str, size: u64) -> Result<Arc<dyn File>> {
        let file = self.asker.request(path, self.inner.create_shared(path, size)).await?;
        Ok(self.file(path, file))
    }

    async fn commit(&self, path: &str) -> Result<()> {
        self.asker.request(path, self.inner.commit(path)).await
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    async fn stat(&self, path: &str) -> Result<Status> {
        self.asker.request(path, self.inner.stat(path)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.asker.request(path, self.inner.list(path)).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        self.asker.request(path, self.inner.remove(path)).await
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        self.asker.request(path, self.inner.rmdir(path)).await
    }

    /// No request: it is the client's own knowledge.
    async fn forget(&self) -> Result<Forgot> {
        self.inner.forget().await
    }

    fn calls(&self) -> Calls {
        let mut calls = self.inner.calls();
        calls.insert(BUSY_CALL, self.asker.busy.load(Ordering::Relaxed));
        calls
    }
}

struct LimitedFile {
    inner: Arc<dyn File>,
    asker: Arc<Asker>,
    path: String,
    written: AtomicBool,
}

#[async_trait]
impl File for LimitedFile {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let bytes = (length as u64).min(self.size().saturating_sub(offset));
        self.asker.limited(&self.path, bytes, self.inner.read(offset, length)).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let bytes = data.len() as u64;
        self.written.store(true, Ordering::Relaxed);
        self.asker.limited(&self.path, bytes, self.inner.write(offset, data)).await
    }

    async fn sync(&self) -> Result<()> {
        self.asker.request(&self.path, self.inner.sync()).await
    }

    /// A request if something was written, which services commit. What was read needs no end.
    async fn close(&self) -> Result<()> {
        match self.written.load(Ordering::Relaxed) {
            true => self.asker.request(&self.path, self.inner.close()).await,
            false => self.inner.close().await,
        }
    }
}
