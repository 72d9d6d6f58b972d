//! A stand-in for Azure Files, of which there is no public emulator: its REST interface for SMB shares, written from
//! what Microsoft publishes (<https://learn.microsoft.com/rest/api/storageservices/file-service-rest-api>), on a port of
//! this machine, in memory. Microsoft's own SDK is run against it (`tests/azfile.rs` here).
//!
//! Whoever asks has to sign, as with the service. A URL names the share and what is on it; the account is the one that
//! signed.

mod answer;
mod calls;
mod names;
mod request;
mod signature;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use answer::{AzFileAnswer, refusal};
use request::AzFileRequestSeen;
use signature::Account;
use tree::{AzFileRefused, Share};

pub const ACCOUNT: &str = "standin";
/// Nobody's: base64 of a sentence.
pub const KEY: &str = "bm90IGEgc2VjcmV0IG9mIGFueWJvZHksIGp1c3QgYSBrZXkgZm9yIHRlc3Rz";

/// What every request waits for before it is looked at: the place for limits of a service.
#[async_trait]
pub trait Gate: Send + Sync {
    /// `bytes` are those of the request's body, or those that a read asks for.
    async fn pass(&self, method: &Method, bytes: u64);
}

/// It serves until it is dropped.
pub struct StandIn {
    address: SocketAddr,
    shared: Arc<AzFileShared>,
    task: JoinHandle<()>,
}

struct AzFileShared {
    account: Mutex<Account>,
    /// By the account's network rules.
    forbidden: AtomicBool,
    shares: Mutex<HashMap<String, Share>>,
    gate: Option<Arc<dyn Gate>>,
    requests: AtomicU64,
}

impl StandIn {
    /// On any port of this machine, with these shares, empty.
    pub async fn start(shares: &[&str]) -> StandIn {
        StandIn::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), shares, None)
            .await
            .expect("a free port")
    }

    pub async fn start_at(
        address: SocketAddr,
        shares: &[&str],
        gate: Option<Arc<dyn Gate>>,
    ) -> std::io::Result<StandIn> {
        let listener = TcpListener::bind(address).await?;
        let account = Mutex::new(Account { name: ACCOUNT.to_owned(), key: KEY.to_owned() });
        let (forbidden, requests) = (AtomicBool::new(false), AtomicU64::new(0));
        let shares = shares.iter().map(|name| ((*name).to_owned(), Share::new())).collect();
        let shared =
            Arc::new(AzFileShared { account, forbidden, shares: Mutex::new(shares), gate, requests });
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, shared.clone()));
        Ok(StandIn { address, shared, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether nothing is on this share.
    pub fn is_empty(&self, share: &str) -> bool {
        let shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.get(share).expect("a share").list(tree::ROOT, "", None, 1).0.is_empty()
    }

    /// To be restored later.
    pub fn snapshot(&self, share: &str) -> AzFileSnapshot {
        let shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        AzFileSnapshot(shares.get(share).expect("a share").nodes.clone())
    }

    /// The share has again what it had then, and nothing else. What differs is written again; what was not there any more
    /// is made anew, with another id. Returns what was in the files just before.
    pub fn restore(&self, share: &str, snapshot: &AzFileSnapshot) -> Vec<Bytes> {
        let mut shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.get_mut(share).expect("a share").restore(&snapshot.0)
    }

    /// What a client is told to use in place of `https://ACCOUNT.file.core.windows.net`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The URL of a junction; `more` begins with `&`.
    pub fn url(&self, place: &str, more: &str) -> String {
        format!("azfile://{ACCOUNT}/{place}?endpoint={}{more}", self.endpoint())
    }

    /// The account has this key (Base64) from now on, and no other one.
    pub fn change_key(&self, key: &str) {
        key.clone_into(&mut self.shared.account.lock().unwrap_or_else(PoisonError::into_inner).key);
    }

    /// Whether all requests are refused, whoever signed them.
    pub fn forbid_all(&self, forbidden: bool) {
        self.shared.forbidden.store(forbidden, Ordering::Relaxed);
    }

    /// Requests so far, refused ones too.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was on a share at some time.
pub struct AzFileSnapshot(BTreeMap<u64, tree::ShareNode>);

/// For clients that look for their key in the environment.
pub fn environment() -> [(&'static str, &'static str); 2] {
    [("AZURE_STORAGE_ACCOUNT", ACCOUNT), ("AZURE_STORAGE_KEY", KEY)]
}

/// Another one.
pub const NEW_KEY: &str = "YW5vdGhlciBzZW50ZW5jZSB0aGF0IGlzIGEga2V5IGZvciB0ZXN0cw==";

/// A file in `dir` with the key, for `?credentials=`.
pub fn credentials(dir: &std::path::Path) -> PathBuf {
    let path = dir.join("azure-credentials");
    std::fs::write(&path, format!("AZURE_STORAGE_KEY={KEY}\n")).expect("written");
    path
}

async fn serve(listener: TcpListener, shared: Arc<AzFileShared>) {
    // With the listener go the connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let service = service_fn(|request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(shared.answer(request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl AzFileShared {
    async fn answer(&self, request: Request<Incoming>) -> AzFileAnswer {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let client = request.headers().get("x-ms-client-request-id").cloned();
        let mut answer = self.carry_out(request).await.unwrap_or_else(refusal);
        let headers = answer.headers_mut();
        headers.insert("x-ms-request-id", format!("stand-in-{number}").parse().expect("plain text"));
        headers.insert("x-ms-version", http::HeaderValue::from_static("2023-11-03"));
        headers.extend(client.map(|id| (http::HeaderName::from_static("x-ms-client-request-id"), id)));
        answer
    }

    async fn carry_out(&self, request: Request<Incoming>) -> Result<AzFileAnswer, AzFileRefused> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, calls::RANGE_MAX as usize).collect().await;
        let body: Bytes = body.map_err(|_| (413, "RequestBodyTooLarge"))?.to_bytes();
        let asked = AzFileRequestSeen::of(&parts.uri, &parts.headers)?;
        if request::header(&parts.headers, "x-ms-version").is_none() && !asked.query.contains_key("sv") {
            return Err(request::MISSING);
        }
        let call = calls::call_of(&parts.method, &asked)?;
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        account.check(&parts, &asked, &call.needs())?;
        if self.forbidden.load(Ordering::Relaxed) {
            return Err((403, "AuthorizationFailure"));
        }
        if let Some(gate) = &self.gate {
            let read =
                request::range(&parts.headers).ok().flatten().filter(|_| call == calls::AzFileCall::Get);
            let read = read.and_then(|(first, last)| Some(last?.saturating_sub(first) + 1)).unwrap_or(0);
            gate.pass(&parts.method, read.max(body.len() as u64)).await;
        }
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.get_mut(&asked.share).ok_or((404, "ShareNotFound"))?;
        call.answer(share, &asked, &parts.headers, &body)
    }
}
