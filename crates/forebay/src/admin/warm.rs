//! Warm-up jobs: started by one request, watched by others. A job that nobody watches any more ends, unless that was
//! wanted: who interrupts the command that started it, interrupts it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use types::Error;
use vfs::WarmMode;

use super::{Admin, Answer, Body, Problem, decode};

/// Paths up to this many are looked for at once, so that a wrong one is told at once.
const CHECKED_MAX: usize = 16;
/// A body of a request: some 100,000 paths.
pub const BODY_MAX: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    paths: Vec<String>,
    #[serde(default)]
    mode: Mode,
    /// Goes on although nobody looks.
    #[serde(default)]
    detach: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Data,
    Metadata,
}

pub async fn start(State(admin): State<Arc<Admin>>, body: Body) -> Answer {
    let wrong = |e: String| {
        let example = r#"{"paths": ["/show/scene"], "mode": "data" or "metadata", "detach": false}"#;
        Problem::new(StatusCode::BAD_REQUEST, format!("send {example} ({e})"))
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let request: Request = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let paths = request.paths.iter().map(|path| decode(path)).collect::<Result<Vec<_>, _>>()?;
    if paths.len() <= CHECKED_MAX {
        for path in &paths {
            let named = |e: Error| Error::new(e.kind(), "warm", path.escape_ascii()).with_source(e);
            admin.vfs.resolve(path).await.map_err(named)?;
        }
    }
    let job = admin.under_way.warming.begin(Arc::default())?;
    let number = job.number;
    let vfs = admin.vfs.clone();
    tokio::spawn(async move {
        let mode = match request.mode {
            Mode::Data => WarmMode::Data,
            Mode::Metadata => WarmMode::Metadata,
        };
        tokio::select! {
            () = vfs.warm(&paths, mode, &job.progress) => {}
            () = job.unwatched(), if !request.detach => job.progress.stop(),
        }
        job.end();
    });
    Ok(Json(json!({ "job": number })))
}

pub async fn progress(State(admin): State<Arc<Admin>>, Path(number): Path<String>, how: RawQuery) -> Answer {
    let job = admin.under_way.warming.look(&number, how).await?;
    let progress = &job.progress;
    Ok(Json(json!({
        "job": job.number,
        "done": job.is_done(),
        "stopped": progress.is_stopped(),
        "counted": progress.counted.load(Relaxed),
        "found": {
            "files": progress.files.load(Relaxed),
            "bytes": progress.bytes.load(Relaxed),
            "bytes_here": progress.bytes_here.load(Relaxed),
        },
        "origin_rate": progress.rate.load(Relaxed),
        "directories": progress.directories.load(Relaxed),
        "files": progress.files_done.load(Relaxed),
        "bytes": progress.bytes_done.load(Relaxed),
        "bytes_fetched": progress.bytes_fetched.load(Relaxed),
        "errors": progress.errors.load(Relaxed),
        "last_error": progress.last_error(),
    })))
}
