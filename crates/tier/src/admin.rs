//! What the operator asks a running tier over HTTP. The command line speaks to this, and so do Prometheus and scripts.
//!
//! By a Unix socket for the tier's own user, and by TCP, where a change needs the token; who may ask what is in `guard.rs`.

mod audit;
mod cluster;
mod copies;
mod flush;
mod guard;
mod jobs;
mod journal;
mod listed;
mod listen;
mod paths;
mod ready;
mod report;
mod warm;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Extension, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use cache::Cache;
use fair::Offenders;
use origin::count::OriginMetrics;
use prometheus_client::registry::Registry;
use quantity::Size;
use serde::Deserialize;
use tokio::sync::watch;
use types::ErrorKind;
use vfs::Vfs;

use crate::cluster_node::ClusterDesk;

use jobs::Jobs;

pub use audit::Audit;
pub use guard::{Guard, Refusals, Who};
pub use listen::{Doors, bind, listen_on};
pub use ready::Phase;
pub use report::status as status_of;

pub use paths::{decode as decode_path, encode as encode_path};

pub struct Admin {
    /// The cache directory.
    pub dir: PathBuf,
    pub vfs: Arc<Vfs>,
    pub cache: Arc<Cache>,
    /// Changed when the first junction is written back while the tier runs.
    pub registry: RwLock<Registry>,
    pub origin_metrics: OriginMetrics,
    pub nfs: Option<NfsFacts>,
    pub s3: Option<S3Facts>,
    /// Where the tree is mounted on this machine.
    pub mount: Option<PathBuf>,
    /// In a cluster.
    pub cluster: Option<ClusterDesk>,
    /// Clients of the fronts that were cut short.
    pub offenders: Arc<Offenders>,
    /// With files of the cache directory that were damaged, found at the start.
    pub lost: Vec<String>,
    pub started: Instant,
    pub under_way: UnderWay,
    pub guard: Guard,
    pub phase: Phase,
}

/// What requests have started.
pub struct UnderWay {
    warming: Jobs<warm::Warming>,
    flushing: Jobs<flush::Watched>,
}

impl Default for UnderWay {
    fn default() -> UnderWay {
        let numbers = Arc::<jobs::Numbers>::default();
        UnderWay { warming: Jobs::new("warm-up", numbers.clone()), flushing: Jobs::new("flush", numbers) }
    }
}

pub struct NfsFacts {
    pub address: SocketAddr,
    pub connections: Box<dyn Fn() -> i64 + Send + Sync>,
}

pub struct S3Facts {
    pub address: SocketAddr,
    pub is_tls: bool,
    pub connections: Box<dyn Fn() -> i64 + Send + Sync>,
}

/// Paths are percent-encoded, since they are bytes and JSON is text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToEvict {
    paths: Vec<String>,
    /// Also what could not be brought again now.
    #[serde(default)]
    force: bool,
}

/// What went wrong, for a person to read.
#[derive(Debug)]
pub struct Problem(StatusCode, String);

impl Problem {
    fn new(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem(status, message.into())
    }
}

impl From<types::Error> for Problem {
    fn from(error: types::Error) -> Problem {
        let status = match error.kind() {
            ErrorKind::NotFound | ErrorKind::Stale => StatusCode::NOT_FOUND,
            ErrorKind::InvalidArgument | ErrorKind::NameTooLong | ErrorKind::NotADirectory => {
                StatusCode::BAD_REQUEST
            }
            ErrorKind::Unavailable | ErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

type AdminAnswer = Result<Json<serde_json::Value>, Problem>;
/// Of a request, as it came: what is wrong with it is told as every other problem is.
type Body = Result<Bytes, BytesRejection>;

pub async fn serve(admin: Arc<Admin>, doors: Doors, stop: watch::Receiver<bool>) {
    let metrics = reading().fallback(async || {
        Problem::new(StatusCode::NOT_FOUND, "metrics and health alone are told at this address")
    });
    let metrics = metrics.with_state(admin.clone());
    listen::serve(doors, router(admin), metrics, stop).await;
}

/// What tells no name of a file and changes nothing.
fn reading() -> Router<Arc<Admin>> {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready::answer))
        .route("/metrics", get(metrics))
}

fn router(admin: Arc<Admin>) -> Router {
    reading()
        .route("/v1/status", get(status))
        .route("/v1/stat", get(stat))
        .route("/v1/evict", post(evict))
        .route("/v1/junction/accept", post(accept))
        .route("/v1/warm", post(warm::start).layer(DefaultBodyLimit::max(warm::BODY_MAX)))
        .route("/v1/warm/{job}", get(warm::progress))
        .route("/v1/flush", post(flush::start))
        .route("/v1/flush/{job}", get(flush::progress))
        .route("/v1/journal", get(journal::list))
        .route("/v1/journal/{operation}", get(journal::show))
        .route("/v1/journal/drop", post(journal::drop))
        .route("/v1/nodes", get(cluster::nodes))
        .route("/v1/nodes/change", post(cluster::change))
        .route("/v1/placement", get(cluster::placement))
        .route("/v1/copies", get(copies::show).post(copies::set))
        .route("/v1/jobs", get(listed::all))
        .route("/v1/jobs/{job}/stop", post(listed::stop))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "no such path; see docs/reference.md"))
        .method_not_allowed_fallback(async || {
            let message = "this path takes another method: GET to look, POST to evict, warm and flush";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, message)
        })
        // The last layer is the outermost: nothing is answered without it.
        .layer(middleware::from_fn_with_state(admin.clone(), guard::guard))
        .with_state(admin)
}

async fn status(State(admin): State<Arc<Admin>>, Extension(who): Extension<Who>) -> Json<serde_json::Value> {
    let mut told = report::status(&admin);
    if who == Who::Anybody {
        report::withhold_names(&mut told);
    }
    Json(told)
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut text = String::new();
    let registry = admin.registry.read().unwrap_or_else(PoisonError::into_inner);
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([("content-type", kind)], text).into_response()
        }
        Err(e) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

async fn stat(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> AdminAnswer {
    let query = query.unwrap_or_default();
    let Some(path) = query.strip_prefix("path=") else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "say which path: /v1/stat?path=/show/scene"));
    };
    let path = decode(path)?;
    Ok(Json(report::stat(&path, admin.vfs.stat(&path).await?)))
}

async fn evict(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let wrong = |e: String| {
        let message = format!(r#"send {{"paths": ["/show/scene"], "force": false}} ({e})"#);
        Problem::new(StatusCode::BAD_REQUEST, message)
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let request: ToEvict = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let paths = request.paths.iter().map(|path| decode(path)).collect::<Result<Vec<_>, _>>()?;
    if !request.force {
        refuse_only_copies(&admin.vfs, &paths).await?;
    }
    let mut total = vfs::Evicted::default();
    for path in paths {
        let evicted = admin.vfs.evict(&path).await?;
        total.files += evicted.files;
        total.bytes += evicted.bytes;
    }
    Ok(Json(serde_json::json!({ "files": total.files, "bytes": total.bytes })))
}

/// What is dropped while its origin is away is gone for as long as that lasts.
async fn refuse_only_copies(vfs: &Vfs, paths: &[Vec<u8>]) -> Result<(), Problem> {
    let mut all = vfs::OnlyCopies::default();
    for path in paths {
        let copies = vfs.only_copies(path).await?;
        all.files += copies.files;
        all.bytes += copies.bytes;
        all.junctions.extend(copies.junctions);
    }
    if all.bytes == 0 {
        return Ok(());
    }
    all.junctions.sort();
    all.junctions.dedup();
    let message = format!(
        "the origin of {} is away, and {} of {} files are here alone: nobody can read them again before it is back; evict \
         them all the same with --force",
        all.junctions.join(", "),
        Size(all.bytes),
        all.files
    );
    Err(Problem::new(StatusCode::CONFLICT, message))
}

/// Which junction's origin is accepted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    path: String,
}

async fn accept(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let wrong = |e: String| {
        let message = format!(r#"send {{"path": "/show"}}, the path of a junction ({e})"#);
        Problem::new(StatusCode::BAD_REQUEST, message)
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let Accepted { path } = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let origin = admin.vfs.accept_origin(&path).await?;
    Ok(Json(serde_json::json!({ "junction": path, "origin": origin })))
}

fn decode(path: &str) -> Result<Vec<u8>, Problem> {
    paths::decode(path).ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            format!("{path}: write other bytes than letters, digits, -._~/ as %41"),
        )
    })
}
