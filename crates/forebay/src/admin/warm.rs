//! Warm-up jobs: started by one request, watched by others. A job that nobody watches any more ends, unless that was
//! wanted: who interrupts the command that started it, interrupts it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use types::Error;
use vfs::{WarmMode, WarmProgress};

use super::{Admin, Answer, Body, Problem, decode};

/// Jobs under way at the same time, and finished ones that are remembered.
const RUNNING_MAX: usize = 8;
const REMEMBERED_MAX: usize = 64;
/// Paths up to this many are looked for at once, so that a wrong one is told at once.
const CHECKED_MAX: usize = 16;
/// A watched job ends when nobody has looked at it for so long.
const UNWATCHED_MAX: Duration = Duration::from_secs(10);
/// A body of a request: some 100,000 paths.
pub const BODY_MAX: usize = 16 << 20;

#[derive(Deserialize)]
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

#[derive(Default)]
pub struct Jobs {
    next: u64,
    jobs: VecDeque<Arc<Job>>,
}

struct Job {
    number: u64,
    progress: Arc<WarmProgress>,
    done: Mutex<bool>,
    looked_at: Mutex<Instant>,
}

impl Job {
    fn is_done(&self) -> bool {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when nobody has looked for too long.
    async fn unwatched(&self) {
        loop {
            let last = *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(left) = UNWATCHED_MAX.checked_sub(last.elapsed()) else { return };
            tokio::time::sleep(left).await;
        }
    }
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
    let job = {
        let mut jobs = admin.warming.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.jobs.iter().filter(|job| !job.is_done()).count() >= RUNNING_MAX {
            let message = format!("{RUNNING_MAX} warm-ups are under way; wait for one to end");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        if jobs.jobs.len() >= REMEMBERED_MAX
            && let Some(old) = jobs.jobs.iter().position(|job| job.is_done())
        {
            jobs.jobs.remove(old);
        }
        jobs.next += 1;
        let job = Arc::new(Job {
            number: jobs.next,
            progress: Arc::default(),
            done: Mutex::new(false),
            looked_at: Mutex::new(Instant::now()),
        });
        jobs.jobs.push_back(job.clone());
        job
    };
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
        *job.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
    });
    Ok(Json(json!({ "job": number })))
}

pub async fn progress(State(admin): State<Arc<Admin>>, Path(number): Path<String>) -> Answer {
    let job = {
        let jobs = admin.warming.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.jobs.iter().find(|job| job.number.to_string() == number).cloned()
    };
    let job =
        job.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("no warm-up has number {number}")))?;
    job.look();
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
