//! Warm-up jobs: started by one request, watched by others. A job that nobody watches any more ends, unless that was
//! wanted: who interrupts the command that started it, interrupts it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::Error;
use vfs::{WarmMode, WarmOrder, WarmProgress};

use super::{Admin, AdminAnswer, Body, Problem, decode};

/// Of so few paths it is told at once if all of them are wrong. One that is right is warmed, whatever the others are.
const CHECKED_MAX: usize = 16;
/// That a list of jobs tells.
const PATHS_TOLD_MAX: usize = 8;
/// A body of a request: some 100,000 paths.
pub const BODY_MAX: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WarmRequest {
    paths: Vec<String>,
    #[serde(default)]
    mode: ModeInJson,
    /// Goes on although nobody looks.
    #[serde(default)]
    detach: bool,
    /// The files stay until they are evicted by an operator.
    #[serde(default)]
    pin: bool,
}

/// A warm-up, as it was asked for, and how far it is.
pub struct Warming {
    progress: Arc<WarmProgress>,
    /// Percent-encoded; the first of them.
    paths: Vec<String>,
    all_paths: usize,
    mode: ModeInJson,
    pin: bool,
}

impl Warming {
    pub fn stop(&self) {
        self.progress.stop();
    }

    pub fn told(&self) -> Value {
        json!({
            "paths": self.paths,
            "all_paths": self.all_paths,
            "mode": self.mode,
            "pin": self.pin,
            "bytes": self.progress.bytes_done.load(Relaxed),
            "found_bytes": self.progress.bytes.load(Relaxed),
            "stopped": self.progress.is_stopped(),
            "errors": self.progress.errors.load(Relaxed),
        })
    }
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum ModeInJson {
    #[default]
    Data,
    Metadata,
}

pub async fn start(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let wrong = |e: String| {
        let example = r#"{"paths": ["/show/scene"], "mode": "data" or "metadata", "detach": false}"#;
        Problem::new(StatusCode::BAD_REQUEST, format!("send {example} ({e})"))
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let request: WarmRequest = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let paths = request.paths.iter().map(|path| decode(path)).collect::<Result<Vec<_>, _>>()?;
    if paths.len() <= CHECKED_MAX {
        let mut wrong = None;
        for path in &paths {
            let named = |e: Error| Error::new(e.kind(), "warm", path.escape_ascii()).with_source(e);
            match admin.vfs.resolve(path).await.map_err(named) {
                Ok(_) => {
                    wrong = None;
                    break;
                }
                Err(e) => wrong = Some(e),
            }
        }
        if let Some(e) = wrong {
            return Err(e.into());
        }
    }
    let job = admin.under_way.warming.begin(Warming {
        progress: Arc::default(),
        all_paths: paths.len(),
        paths: request.paths.into_iter().take(PATHS_TOLD_MAX).collect(),
        mode: request.mode,
        pin: request.pin,
    })?;
    let number = job.number;
    let vfs = admin.vfs.clone();
    tokio::spawn(async move {
        let mode = match request.mode {
            ModeInJson::Data => WarmMode::Data,
            ModeInJson::Metadata => WarmMode::Metadata,
        };
        let order = WarmOrder { mode, pin: request.pin };
        let progress = &job.progress.progress;
        tokio::select! {
            () = vfs.warm(&paths, order, progress) => {}
            () = job.stopped() => progress.stop(),
            () = job.unwatched(), if !request.detach => progress.stop(),
        }
        job.end();
    });
    Ok(Json(json!({ "job": number })))
}

pub async fn progress(
    State(admin): State<Arc<Admin>>,
    Path(number): Path<String>,
    how: RawQuery,
) -> AdminAnswer {
    let job = admin.under_way.warming.look(&number, how).await?;
    let progress = &job.progress.progress;
    let away = admin.vfs.junctions().into_iter().filter_map(|j| {
        let outage = j.outage?;
        Some(format!("{}: {}", j.path, outage.reason.name()))
    });
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
        "needed_bytes": progress.needed.load(Relaxed),
        "room_bytes": progress.room.load(Relaxed),
        "fits": progress.fits(),
        "pin": job.progress.pin,
        "away": away.collect::<Vec<_>>(),
        "origin_rate": progress.rate.load(Relaxed),
        "directories": progress.directories.load(Relaxed),
        "files": progress.files_done.load(Relaxed),
        "bytes": progress.bytes_done.load(Relaxed),
        "bytes_fetched": progress.bytes_fetched.load(Relaxed),
        "errors": progress.errors.load(Relaxed),
        "last_error": progress.last_error(),
    })))
}
