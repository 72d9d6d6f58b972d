//! Whether clients are served all that they may ask for, for who sends them here: a load balancer, a job scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use vfs::Unflushed;

use super::Admin;

/// From the first to the last answer of a tier.
#[derive(Debug, Default)]
pub struct Phase(AtomicU8);

const STARTING: u8 = 0;
const SERVING: u8 = 1;
const STOPPING: u8 = 2;

impl Phase {
    pub fn serves(&self) {
        self.0.store(SERVING, Ordering::Relaxed);
    }

    pub fn stops(&self) {
        self.0.store(STOPPING, Ordering::Relaxed);
    }

    fn problem(&self) -> Option<String> {
        match self.0.load(Ordering::Relaxed) {
            STARTING => Some("starting".to_owned()),
            STOPPING => Some("stopping".to_owned()),
            _ => None,
        }
    }
}

/// 200, or 503 with the reasons. They name no file: anybody may ask.
pub async fn answer(State(admin): State<Arc<Admin>>) -> Response {
    let mut reasons: Vec<String> = admin.phase.problem().into_iter().collect();
    for junction in admin.vfs.junctions() {
        if let Some(outage) = junction.outage {
            reasons.push(format!(
                "junction {}: its origin is away ({})",
                junction.path,
                outage.reason.name()
            ));
        }
    }
    reasons.extend(writes_stopped(&admin.vfs.unflushed()));
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": reasons.is_empty(), "reasons": reasons }))).into_response()
}

/// Why nothing is written back any more.
fn writes_stopped(unflushed: &Unflushed) -> Vec<String> {
    let Some(journal) = &unflushed.journal else { return Vec::new() };
    let mut reasons = Vec::new();
    if journal.failed {
        reasons.push("the journal's disk failed: nothing is written back".to_owned());
    }
    if !journal.damaged.is_empty() {
        reasons.push("the journal is damaged: nothing is written back".to_owned());
    }
    if journal.used_bytes >= journal.size_max {
        reasons.push("the journal is full: writers wait".to_owned());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use vfs::JournalLoad;

    use super::*;

    #[test]
    fn a_tier_that_starts_or_stops_or_cannot_be_written_to_says_why() {
        let phase = Phase::default();
        assert_eq!(phase.problem().as_deref(), Some("starting"));
        phase.serves();
        assert_eq!(phase.problem(), None);
        phase.stops();
        assert_eq!(phase.problem().as_deref(), Some("stopping"));
        let journal = |failed, damaged: &[&str], used_bytes| Unflushed {
            journal: Some(JournalLoad {
                dir: "/journal".into(),
                operations: 0,
                used_bytes,
                size_max: 100,
                failed,
                damaged: damaged.iter().map(|at| (*at).to_owned()).collect(),
            }),
            ..Unflushed::default()
        };
        assert!(writes_stopped(&Unflushed::default()).is_empty());
        assert!(writes_stopped(&journal(false, &[], 99)).is_empty());
        assert_eq!(writes_stopped(&journal(true, &["x"], 100)).len(), 3);
    }
}
