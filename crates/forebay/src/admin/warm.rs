//! Warm-up jobs: started by one request, watched by others.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::json;
use vfs::WarmProgress;

use super::{Admin, Answer, Body, Problem, decode_all};

/// Jobs under way at the same time, and finished ones that are remembered.
const RUNNING_MAX: usize = 8;
const REMEMBERED_MAX: usize = 64;

#[derive(Default)]
pub struct Jobs {
    next: u64,
    jobs: VecDeque<Arc<Job>>,
}

struct Job {
    number: u64,
    progress: WarmProgress,
    done: Mutex<bool>,
}

impl Job {
    fn is_done(&self) -> bool {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn start(State(admin): State<Arc<Admin>>, body: Body) -> Answer {
    let paths = decode_all(body)?;
    for path in &paths {
        admin.vfs.resolve(path).await?; // a wrong path is told at once
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
        let job =
            Arc::new(Job { number: jobs.next, progress: WarmProgress::default(), done: Mutex::new(false) });
        jobs.jobs.push_back(job.clone());
        job
    };
    let number = job.number;
    let vfs = admin.vfs.clone();
    tokio::spawn(async move {
        for path in paths {
            vfs.warm(&path, &job.progress).await;
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
    let progress = &job.progress;
    let last_error = progress.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Json(json!({
        "job": job.number,
        "done": job.is_done(),
        "files": progress.files.load(Relaxed),
        "directories": progress.directories.load(Relaxed),
        "bytes": progress.bytes.load(Relaxed),
        "errors": progress.errors.load(Relaxed),
        "last_error": last_error,
    })))
}
