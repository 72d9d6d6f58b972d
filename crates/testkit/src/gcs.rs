//! A stand-in for Google Cloud Storage: what a caching tier uses of its JSON interface, after Google's published reference,
//! on this machine, in memory. Google's own SDK is run against it (`tests/gcs.rs` here).
//!
//! The emulator that others use, fake-gcs-server, keeps no metagenerations and, as of 1.56.1, looks at conditions where an
//! object is uploaded only; the origin runs against that one too, for what it has (`origin-object`, `tests/it/fake_gcs.rs`).
//!
//! Who shows no token is let in, as by emulators, but for buckets whose names begin with `private`; who shows one must have
//! it from here. In buckets whose names begin with `moving` a copy takes more than one call.

mod calls;
mod fields;
mod objects;
mod token;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::lab::NotRun;
use objects::{Buckets, Objects};
use token::Issuer;

pub use token::{CLIENT, CLIENT_SECRET, EMAIL, REFRESH_TOKEN, THEIR_TOKEN, fresh_key, key};

/// Larger requests are refused.
const BODY_MAX: usize = 256 << 20;

/// It serves until it is dropped, on a thread of its own: tests that block do not keep it from answering.
pub struct Gcs {
    address: SocketAddr,
    shared: Arc<GcsShared>,
    dir: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a bucket had at some time.
pub struct GcsSnapshot(Objects);

struct GcsShared {
    buckets: Mutex<Buckets>,
    issuer: Issuer,
    forbidden: AtomicBool,
    requests: AtomicU64,
    received: AtomicU64,
}

/// A no: status, reason, message.
type GcsRefused = (u16, &'static str, String);
type GcsAnswer = Response<Full<Bytes>>;

impl Gcs {
    pub fn start() -> Result<Gcs, NotRun> {
        let not_run = |e: std::io::Error| NotRun(format!("a stand-in for GCS: {e}"));
        let dir = tempfile::Builder::new().prefix("forebay-gcs-").tempdir().map_err(not_run)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(not_run)?;
        listener.set_nonblocking(true).map_err(not_run)?;
        let address = listener.local_addr().map_err(not_run)?;
        let shared = Arc::new(GcsShared {
            buckets: Mutex::default(),
            issuer: Issuer::new(format!("http://{address}"))?,
            forbidden: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(not_run)?;
        let serving = shared.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = serve(listener, serving) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Gcs { address, shared, dir, stop: Some(stop), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn make_bucket(&self, name: &str) {
        self.buckets().make(name).expect("a new bucket");
    }

    /// The keys of all objects of a bucket, as only its administrator sees them.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        self.buckets().of(bucket).expect("a bucket").keys().cloned().collect()
    }

    /// To be restored later.
    pub fn snapshot(&self, bucket: &str) -> GcsSnapshot {
        GcsSnapshot(self.buckets().of(bucket).expect("a bucket").clone())
    }

    /// The bucket has again what it had then, and nothing else; what differs is stored anew, and so is of another
    /// generation. Returns the data of what was there just before.
    pub fn restore(&self, bucket: &str, snapshot: &GcsSnapshot) -> Vec<Bytes> {
        let mut buckets = self.buckets();
        let there = std::mem::take(buckets.of(bucket).expect("a bucket"));
        for (key, object) in &snapshot.0 {
            let id = |object: &objects::GcsObject| (object.generation, object.metageneration);
            if there.get(key).is_some_and(|now| id(now) == id(object)) {
                buckets.of(bucket).expect("a bucket").insert(key.clone(), object.clone());
            } else {
                let (data, facts) = (object.data.clone(), object.facts.clone());
                buckets.store(bucket, key, data, facts, object.components).expect("stored before");
            }
        }
        there.into_values().map(|object| object.data).collect()
    }

    /// It was stored years ago.
    pub fn make_old(&self, bucket: &str, key: &str) {
        let mut buckets = self.buckets();
        let object = buckets.of(bucket).expect("a bucket").get_mut(key).expect("an object");
        object.updated -= chrono::TimeDelta::days(1000);
        object.created = object.updated;
    }

    /// Requests so far, refused ones too.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Bytes of their bodies.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// How long tokens are good that are issued from now on.
    pub fn issue_for(&self, seconds: u64) {
        self.shared.issuer.issue_for(seconds);
    }

    /// From now on nothing is issued.
    pub fn issue_none(&self) {
        self.shared.issuer.issue_for(0);
    }

    /// Tokens issued so far.
    pub fn issued(&self) -> u64 {
        self.shared.issuer.issued()
    }

    /// Nobody's token is good any more.
    pub fn revoke_all(&self) {
        self.shared.issuer.revoke_all();
    }

    /// The service account has this key from now on, and no token of it is good any more.
    pub fn change_key(&self, key: &str) {
        self.shared.issuer.change_key(key);
    }

    /// Whether all requests for what is in buckets are refused, whoever asks: the service account lost its roles.
    pub fn forbid_all(&self, forbidden: bool) {
        self.shared.forbidden.store(forbidden, Ordering::Relaxed);
    }

    /// A file with a service account's key.
    pub fn credentials(&self) -> PathBuf {
        self.credentials_with("own", &key().expect("made already"))
    }

    /// With another key.
    pub fn credentials_with(&self, name: &str, key: &str) -> PathBuf {
        let text = json!({
            "type": "service_account",
            "client_email": EMAIL,
            "private_key": key,
            "private_key_id": "1",
            "token_uri": format!("{}/token", self.endpoint()),
        });
        let path = self.dir.path().join(format!("credentials-{name}.json"));
        std::fs::write(&path, text.to_string()).expect("written");
        path
    }

    fn buckets(&self) -> std::sync::MutexGuard<'_, Buckets> {
        self.shared.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gcs {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<GcsShared>) {
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

impl GcsShared {
    async fn answer(&self, request: Request<Incoming>) -> GcsAnswer {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let is_read = request.uri().query().is_some_and(|query| query.contains("alt=media"));
        self.carry_out(request).await.unwrap_or_else(|refused| refusal(refused, is_read))
    }

    async fn carry_out(&self, request: Request<Incoming>) -> Result<GcsAnswer, GcsRefused> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await;
        let body = body.map_err(|_| (413, "uploadTooLarge", "too large".to_owned()))?.to_bytes();
        self.received.fetch_add(body.len() as u64, Ordering::Relaxed);
        if let Some(answer) = self.issuer.answer(&parts, &body) {
            return Ok(answer);
        }
        let asked = calls::GcsRequestSeen::of(&parts)?;
        self.issuer.check(&parts, &asked.bucket)?;
        if self.forbidden.load(Ordering::Relaxed) {
            return Err((403, "forbidden", format!("{EMAIL} does not have storage.objects access")));
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        asked.carry_out(&mut buckets, &parts.headers, &body)
    }
}

/// Of a read it is said in plain words.
fn refusal((status, reason, message): GcsRefused, is_read: bool) -> GcsAnswer {
    if is_read {
        return answer(status, message.into());
    }
    let error = json!({
        "code": status,
        "message": message,
        "errors": [{ "domain": "global", "reason": reason, "message": message }],
    });
    answer(status, json!({ "error": error }).to_string().into())
}

/// In JSON.
fn answer(status: u16, body: Bytes) -> GcsAnswer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    let json = http::HeaderValue::from_static("application/json; charset=UTF-8");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}
