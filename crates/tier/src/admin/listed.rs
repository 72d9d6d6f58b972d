//! All jobs, whoever started them: what is under way, and what was.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::jobs::{Job, Jobs};
use super::{Admin, AdminAnswer, Problem};

pub async fn all(State(admin): State<Arc<Admin>>) -> AdminAnswer {
    let mut jobs: Vec<Value> = Vec::new();
    jobs.extend(of_kind(&admin.under_way.warming, |warming| warming.told()));
    jobs.extend(of_kind(&admin.under_way.flushing, |watched| watched.told()));
    jobs.sort_by_key(|job| job["job"].as_u64());
    Ok(Json(json!({ "jobs": jobs })))
}

fn of_kind<P>(jobs: &Jobs<P>, told: impl Fn(&P) -> Value) -> Vec<Value> {
    let one = |job: Arc<Job<P>>| {
        json!({
            "job": job.number,
            "kind": jobs.name(),
            "done": job.is_done(),
            "age_seconds": job.age().as_secs(),
            "what": told(&job.progress),
        })
    };
    jobs.all().into_iter().map(one).collect()
}

/// A warm-up ends; of a flush, who waits for it ends, and it goes on.
pub async fn stop(State(admin): State<Arc<Admin>>, Path(number): Path<String>) -> AdminAnswer {
    if let Ok(job) = admin.under_way.warming.find(&number) {
        job.progress.stop();
        job.stop();
        return Ok(Json(json!({ "job": job.number, "was_done": job.is_done() })));
    }
    if let Ok(job) = admin.under_way.flushing.find(&number) {
        job.stop();
        return Ok(Json(json!({ "job": job.number, "was_done": job.is_done() })));
    }
    Err(Problem::new(StatusCode::NOT_FOUND, format!("no job has number {number}; forebay jobs tells them")))
}
