//! Flushing on demand. What is begun goes on by itself; only who waits for its end is a job that others watch.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use types::Error;
use vfs::{Unflushed, WritePolicy};

use super::report::REFUSALS_TOLD_MAX;
use super::{Admin, AdminAnswer, Body, Problem, decode};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushBody {
    /// Absent: everything.
    #[serde(default)]
    path: Option<String>,
    /// Its end is asked for.
    #[serde(default)]
    wait: bool,
}

/// A flush whose end somebody waits for.
pub struct Watched {
    /// Paths of the junctions concerned.
    junctions: Vec<String>,
    /// What the origins refused; absent until it is over.
    outcome: Mutex<Option<Vec<String>>>,
}

impl Watched {
    pub fn told(&self) -> Value {
        json!({ "junctions": self.junctions })
    }
}

pub async fn start(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let wrong = |e: String| {
        let example = r#"{"path": "/show/scene", "wait": false}, or {} for everything"#;
        Problem::new(StatusCode::BAD_REQUEST, format!("send {example} ({e})"))
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let request: FlushBody = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let path = request.path.as_deref().map(decode).transpose()?;
    let path = path.as_deref().filter(|path| components(path).next().is_some());
    let policies: Vec<_> =
        admin.vfs.junctions().into_iter().map(|j| (admin.vfs.write_policy(j.id), j.path)).collect();
    let concerned =
        concerned(&policies, path).map_err(|message| Problem::new(StatusCode::CONFLICT, message))?;
    let named = |e: Error| match path {
        Some(path) => Error::new(e.kind(), "flush", path.escape_ascii()).with_source(e),
        None => e,
    };
    let flushing = admin.vfs.flush_home(path).await.map_err(named)?;
    let mut begun = waiting(&admin.vfs.unflushed(), &concerned);
    begun["flush"] = Value::Null;
    if request.wait {
        let job =
            admin.under_way.flushing.begin(Watched { junctions: concerned, outcome: Mutex::default() })?;
        begun["flush"] = job.number.into();
        tokio::spawn(async move {
            tokio::select! {
                refused = flushing.wait() => {
                    *job.progress.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
                }
                () = job.unwatched() => {}
                () = job.stopped() => {}
            }
            job.end();
        });
    }
    Ok(Json(begun))
}

pub async fn progress(
    State(admin): State<Arc<Admin>>,
    Path(number): Path<String>,
    how: RawQuery,
) -> AdminAnswer {
    let job = admin.under_way.flushing.look(&number, how).await?;
    // In this order: of what is done the outcome is there.
    let done = job.is_done();
    let outcome = job.progress.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut told = waiting(&admin.vfs.unflushed(), &job.progress.junctions);
    told["flush"] = job.number.into();
    told["done"] = done.into();
    // Nobody looked for too long: how it ended, nobody knows.
    told["stopped"] = (done && outcome.is_none()).into();
    let refused = outcome.unwrap_or_default();
    told["refused"] = refused.len().into();
    told["refusals"] = refused.iter().take(REFUSALS_TOLD_MAX).cloned().collect();
    Ok(Json(told))
}

/// What the origins of these junctions do not have yet, whether this flush is to bring it or not.
fn waiting(unflushed: &Unflushed, junctions: &[String]) -> Value {
    let loads = || unflushed.junctions.iter().filter(|load| junctions.contains(&load.path));
    json!({
        "operations": unflushed.journal.as_ref().map_or(0, |journal| journal.operations),
        "dirty_bytes": loads().map(|load| load.dirty_bytes).sum::<u64>(),
        "oldest_seconds": loads().filter_map(|load| load.oldest).max().map(|age| age.as_secs()),
    })
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// The junctions written `back` that a path (absent: everything) is about. If there are none, why.
fn concerned(policies: &[(WritePolicy, String)], path: Option<&[u8]>) -> Result<Vec<String>, String> {
    let is_inside = |inner: &[u8], outer: &[u8]| {
        let mut inner = components(inner);
        components(outer).all(|part| inner.next() == Some(part))
    };
    let all_back: Vec<_> =
        policies.iter().filter(|(policy, _)| *policy == WritePolicy::Back).map(|(_, path)| path).collect();
    if all_back.is_empty() {
        return Err(
            "no junction is written back, so nothing waits to be flushed; what clients are told is done is \
                    at the origin"
                .to_owned(),
        );
    }
    let known = all_back.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ");
    let Some(path) = path else { return Ok(all_back.into_iter().cloned().collect()) };
    if let Some((policy, junction)) = policies.iter().find(|(_, at)| is_inside(path, at.as_bytes())) {
        return match policy {
            WritePolicy::Back => Ok(vec![junction.clone()]),
            other => Err(format!(
                "the junction {junction} is written {other}, so nothing of it waits to be flushed; \
                                  written back: {known}"
            )),
        };
    }
    let below: Vec<_> =
        all_back.iter().filter(|at| is_inside(at.as_bytes(), path)).map(|at| (*at).clone()).collect();
    if below.is_empty() {
        return Err(format!(
            "nothing at or below {} is written back; written back: {known}",
            path.escape_ascii()
        ));
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn junctions() -> Vec<(WritePolicy, String)> {
        let at = |policy, path: &str| (policy, path.to_owned());
        vec![
            at(WritePolicy::Back, "/show/a"),
            at(WritePolicy::Through, "/show/b"),
            at(WritePolicy::Back, "/work"),
            at(WritePolicy::ReadOnly, "/lib"),
        ]
    }

    #[test]
    fn a_path_is_about_its_junction_or_those_below_it() {
        let concerned = |path: Option<&str>| concerned(&junctions(), path.map(str::as_bytes));
        let table: [(Option<&str>, &[&str]); 6] = [
            (None, &["/show/a", "/work"]),
            (Some("/work"), &["/work"]),
            (Some("/work/deep/down"), &["/work"]),
            (Some("//show//a/"), &["/show/a"]),
            (Some("/show"), &["/show/a"]),
            (Some("/show/a/b"), &["/show/a"]),
        ];
        for (path, expected) in table {
            assert_eq!(concerned(path).expect("right"), expected, "{path:?}");
        }
    }

    #[test]
    fn where_nothing_can_wait_it_is_said_why() {
        let why = |path: Option<&str>, junctions: &[(WritePolicy, String)]| {
            concerned(junctions, path.map(str::as_bytes)).expect_err("refused")
        };
        assert!(why(Some("/lib/x"), &junctions()).contains("/lib is written read-only"));
        let told = why(Some("/show/b"), &junctions());
        assert!(told.contains("through") && told.ends_with("written back: /show/a, /work"), "{told}");
        assert!(why(Some("/worker"), &junctions()).contains("at or below /worker"));
        assert!(why(None, &junctions()[1..2]).contains("no junction is written back"));
    }

    #[test]
    fn only_the_junctions_concerned_are_counted() {
        let load = |path: &str, dirty_bytes, seconds| vfs::JunctionLoad {
            path: path.into(),
            dirty_bytes,
            oldest: Some(std::time::Duration::from_secs(seconds)),
        };
        let junctions = vec![load("/a", 1, 10), load("/b", 2, 30), load("/c", 4, 20)];
        let unflushed = Unflushed { junctions, ..Unflushed::default() };
        let told = waiting(&unflushed, &["/a".to_owned(), "/c".to_owned()]);
        assert_eq!(told, json!({ "operations": 0, "dirty_bytes": 5, "oldest_seconds": 20 }));
    }
}
