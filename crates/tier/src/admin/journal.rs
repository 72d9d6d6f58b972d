//! What waits in the journal: listed, shown, and given up.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use types::{Error, ErrorKind};
use vfs::WaitingFilter;

use super::{Admin, AdminAnswer, Body, Problem, decode};
use crate::dropped;

/// Of one answer; who wants more asks on behind the last.
const LISTED_MAX: usize = 1000;
/// Taken together in one order.
const ALL_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToDrop {
    /// Numbers of operations.
    #[serde(default)]
    operations: Vec<u64>,
    /// In place of numbers: all that `junction` and `refused` leave.
    #[serde(default)]
    all: bool,
    /// Path of a junction.
    #[serde(default)]
    junction: Option<String>,
    #[serde(default)]
    refused: bool,
    #[serde(default)]
    with_dependents: bool,
    /// Percent-encoded; a directory that is not there yet.
    #[serde(default)]
    export: Option<String>,
}

/// `?after=7&refused=1&junction=/show`
pub async fn list(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> AdminAnswer {
    let (mut after, mut filter) = (0, WaitingFilter::default());
    for word in query.unwrap_or_default().split('&').filter(|word| !word.is_empty()) {
        let wrong = || {
            let message = format!("\"{word}\" is none of after=NUMBER, refused=1 and junction=/path");
            Problem::new(StatusCode::BAD_REQUEST, message)
        };
        match word.split_once('=').ok_or_else(wrong)? {
            ("after", number) => after = number.parse().map_err(|_| wrong())?,
            ("refused", "1") => filter.refused = true,
            ("refused", "0") => filter.refused = false,
            ("junction", path) => filter.junction = Some(text(path)?),
            _ => return Err(wrong()),
        }
    }
    let listed = admin.vfs.waiting(after, LISTED_MAX + 1, &filter).await?;
    let more = listed.len() > LISTED_MAX;
    let told: Vec<_> = listed.iter().take(LISTED_MAX).map(dropped::told).collect();
    Ok(Json(json!({ "operations": told, "more": more })))
}

pub async fn show(State(admin): State<Arc<Admin>>, Path(sequence): Path<u64>) -> AdminAnswer {
    let (operation, dependents) = admin.vfs.waiting_operation(sequence).await?;
    let mut told = dropped::told(&operation);
    told["needed_by"] = json!(dependents);
    Ok(Json(told))
}

pub async fn drop(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let wrong = |e: String| {
        let message = format!(
            r#"send {{"operations": [7], "with_dependents": false}}, or {{"all": true, "refused": true, "junction": "/show"}} ({e})"#
        );
        Problem::new(StatusCode::BAD_REQUEST, message)
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let asked: ToDrop = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    if asked.all != asked.operations.is_empty() {
        return Err(wrong("either the operations or all".to_owned()));
    }
    // Who asked may go: what was begun comes to its end.
    let dropping = tokio::spawn(async move { carry_out(&admin, asked).await });
    dropping.await.map_err(|e| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?
}

async fn carry_out(admin: &Admin, asked: ToDrop) -> AdminAnswer {
    let filter = WaitingFilter { junction: asked.junction, refused: asked.refused };
    let wanted = match asked.all {
        true => {
            let all = admin.vfs.waiting(0, ALL_MAX, &filter).await?;
            all.iter().map(|operation| operation.sequence).collect()
        }
        false => asked.operations,
    };
    if wanted.is_empty() {
        return Ok(Json(json!({ "dropped": [], "bytes": 0, "export": null })));
    }
    let dropping = admin.vfs.begin_drop(&wanted, asked.with_dependents).await?;
    let dir = match &asked.export {
        Some(dir) => absolute(dir)?,
        None => dropped::default_dir(&admin.dir, &dropping),
    };
    let exported = dropped::export(&dropping, &dir).await?;
    let numbers: Vec<u64> = dropping.operations.iter().map(|operation| operation.sequence).collect();
    dropping.finish().await?;
    let dir = exported.dir.to_string_lossy().into_owned();
    Ok(Json(json!({ "dropped": numbers, "bytes": exported.bytes, "export": dir })))
}

fn absolute(dir: &str) -> Result<PathBuf, Problem> {
    use std::os::unix::ffi::OsStringExt;
    let dir = PathBuf::from(std::ffi::OsString::from_vec(decode(dir)?));
    match dir.is_absolute() {
        true => Ok(dir),
        false => {
            let message = format!("{}: name it by a path that begins with a slash", dir.display());
            Err(Error::new(ErrorKind::InvalidArgument, "export to", message).into())
        }
    }
}

fn text(path: &str) -> Result<String, Problem> {
    let path = decode(path)?;
    String::from_utf8(path).map_err(|e| Problem::new(StatusCode::BAD_REQUEST, e.to_string()))
}
