//! One client for each server, and the turn between them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::sync::Mutex;
use types::timeline::since_boot;
use types::{Error, ErrorKind, Result};

use super::EtcdConfig;
use super::failure::{EtcdFailure, RequestFate};

/// HTTP/2 pings while a stream is open. etcd ends connections that are pinged more often than each five seconds.
const PING: Duration = Duration::from_secs(10);

pub struct Endpoints {
    servers: Vec<EtcdServer>,
    /// Where the next call begins. An index of `servers`.
    preferred: AtomicUsize,
    /// Since the machine booted, in milliseconds; 0: never.
    heard_ms: AtomicU64,
    pub attempt: Duration,
}

struct EtcdServer {
    /// With its scheme.
    url: String,
    options: ConnectOptions,
    /// Made when it is needed and taken away when it failed, so that the next call has a connection of its own.
    client: Mutex<Option<Client>>,
}

impl Endpoints {
    pub async fn new(config: &EtcdConfig) -> Result<Endpoints> {
        let options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(config.attempt)
            .with_keep_alive(PING, config.attempt)
            .with_keep_alive_while_idle(false);
        let (scheme, options) = match &config.tls {
            Some(tls) => ("https", options.with_tls(tls.options()?)),
            None => ("http", options),
        };
        let server = |server: &String| EtcdServer {
            url: format!("{scheme}://{server}"),
            options: options.clone(),
            client: Mutex::new(None),
        };
        let servers: Vec<EtcdServer> = config.url.servers().iter().map(server).collect();
        for server in &servers {
            server.client().await.map_err(|failure| {
                let context = config.url.to_string();
                Error::new(ErrorKind::Config, "prepare the clients of etcd", context).with_source(failure)
            })?;
        }
        let (preferred, heard_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
        Ok(Endpoints { servers, preferred, heard_ms, attempt: config.attempt })
    }

    /// Each server once, the preferred one first.
    pub fn round(&self) -> impl Iterator<Item = usize> + Send + use<> {
        let (first, count) = (self.preferred(), self.servers.len());
        (0..count).map(move |step| (first + step) % count)
    }

    /// How long that takes at the most.
    pub fn whole_round(&self) -> Duration {
        self.attempt * u32::try_from(self.servers.len()).unwrap_or(u32::MAX)
    }

    pub fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    pub fn url(&self, index: usize) -> &str {
        self.servers.get(index).map_or("", |server| &server.url)
    }

    pub fn heard(&self) -> Option<Duration> {
        let then = self.heard_ms.load(Ordering::Relaxed);
        (then != 0).then(|| Duration::from_millis(now_ms().saturating_sub(then)))
    }

    /// This server has just answered.
    pub fn hear(&self) {
        self.heard_ms.fetch_max(now_ms(), Ordering::Relaxed);
    }

    /// This server did not answer as it should: others are asked first from now on, and it by a new connection.
    pub async fn leave(&self, index: usize) {
        let next = (index + 1) % self.servers.len();
        let _ = self.preferred.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(server) = self.servers.get(index) {
            server.client.lock().await.take();
        }
    }

    /// One attempt at one server.
    pub async fn attempt<T, F>(
        &self,
        index: usize,
        deadline: Duration,
        call: impl FnOnce(Client) -> F + Send,
    ) -> std::result::Result<T, EtcdFailure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>> + Send,
    {
        let Some(server) = self.servers.get(index) else {
            return Err(EtcdFailure::malformed("", "no such server"));
        };
        let attempt = async {
            let client = server.client().await?;
            call(client).await.map_err(|error| EtcdFailure::new(&server.url, &error))
        };
        let outcome = match tokio::time::timeout(deadline, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(EtcdFailure::silent(&server.url, deadline)),
        };
        match &outcome {
            Ok(_) => self.hear(),
            Err(failure) if failure.fate == RequestFate::Refused => self.hear(),
            Err(failure) => {
                tracing::debug!(%failure, "a server of etcd failed");
                self.leave(index).await;
            }
        }
        outcome
    }

    /// A call that may be made twice: each server once, until one answers.
    pub async fn call<T, F>(
        &self,
        call: impl Fn(Client) -> F + Send + Sync,
    ) -> std::result::Result<T, Vec<EtcdFailure>>
    where
        T: Send,
        F: Future<Output = std::result::Result<T, etcd_client::Error>> + Send,
    {
        let mut failures = Vec::new();
        for index in self.round() {
            match self.attempt(index, self.attempt, &call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.fate == RequestFate::Refused => return Err(vec![failure]),
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures)
    }
}

impl EtcdServer {
    async fn client(&self) -> std::result::Result<Client, EtcdFailure> {
        let mut client = self.client.lock().await;
        if let Some(client) = client.as_ref() {
            return Ok(client.clone());
        }
        // It connects with the first request.
        let new = Client::connect([&self.url], Some(self.options.clone())).await;
        let new = new.map_err(|error| EtcdFailure::new(&self.url, &error))?;
        *client = Some(new.clone());
        Ok(new)
    }
}

/// All that was said in one round, as one error. Its kind is the last server's.
pub fn error_of(operation: &'static str, of: &str, failures: &[EtcdFailure]) -> Error {
    let kind = failures.last().map_or(ErrorKind::Unavailable, |failure| failure.kind);
    let said: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    Error::new(kind, operation, format!("{of} ({})", said.join("; ")))
}

fn now_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}
