//! How many copies the files below a path have: it is shown, set and taken back.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use cluster::Stripe;
use members::{CopyRules, MembershipNews};
use serde::Deserialize;
use serde_json::{Value, json};
use types::{ErrorKind, FileId, FileKind, JunctionId};

use super::cluster::desk as desk_of;
use super::{Admin, AdminAnswer, Body, Problem, decode, paths};
use crate::cluster_node::ClusterDesk;
use crate::copy_rules::path_of;

/// A rule that was just put is answered once this node has heard of it, after so long at the latest.
const HEARD: Duration = Duration::from_secs(2);

/// A path in the served tree, as rules know it.
struct RulePath {
    /// The junction's.
    above: String,
    junction: JunctionId,
    /// Below the junction's root.
    path: String,
}

impl RulePath {
    fn find(news: &MembershipNews, typed: &[u8]) -> Result<RulePath, Problem> {
        let names: Vec<Bytes> = typed
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty() && *name != b".")
            .map(Bytes::copy_from_slice)
            .collect();
        if !typed.starts_with(b"/") || names.iter().any(|name| name == &b".."[..]) {
            let message = "write the path from the root of the served tree, as /show/plates";
            return Err(Problem::new(StatusCode::BAD_REQUEST, message));
        }
        let below = |junction: &str| {
            let above: Vec<&str> = junction.split('/').filter(|name| !name.is_empty()).collect();
            let is_below = names.len() >= above.len()
                && above.iter().zip(&names).all(|(above, name)| above.as_bytes() == &name[..]);
            is_below.then_some(above.len())
        };
        let found = news.junctions.iter().filter_map(|(path, id)| Some((below(path)?, path, id)));
        let Some((depth, above, id)) = found.max_by_key(|(depth, ..)| *depth) else {
            let message = format!("{} is in no junction of this cluster", paths::encode(typed));
            return Err(Problem::new(StatusCode::NOT_FOUND, message));
        };
        Ok(RulePath { above: above.clone(), junction: *id, path: path_of(&names[depth..]) })
    }

    /// A path below the junction's root, in the served tree.
    fn served(&self, path: &str) -> String {
        let above = paths::encode(self.above.trim_end_matches('/').as_bytes());
        match path {
            "/" if !above.is_empty() => above,
            path => format!("{above}{path}"),
        }
    }

    fn is_at_or_above(&self, path: &str) -> bool {
        let own = self.path.trim_end_matches('/');
        path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

pub async fn show(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> AdminAnswer {
    let desk = desk_of(&admin)?;
    let query = query.unwrap_or_default();
    let Some(path) = query.strip_prefix("path=") else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "say which path: /v1/copies?path=/show/plates"));
    };
    let news = desk.news.borrow().clone();
    told(desk, &news, &RulePath::find(&news, &decode(path)?)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToSet {
    path: String,
    /// `None`: as the directory above, or the junction, says.
    copies: Option<u8>,
}

pub async fn set(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let desk = desk_of(&admin)?;
    let wrong = |e: String| {
        let message =
            format!(r#"send {{"path": "/show/plates", "copies": 3}}, or null to take it back ({e})"#);
        Problem::new(StatusCode::BAD_REQUEST, message)
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let ToSet { path, copies } = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let typed = decode(&path)?;
    let news = desk.news.borrow().clone();
    let at = RulePath::find(&news, &typed)?;
    // A rule of a path that is gone can be taken back.
    if copies.is_some() {
        let stat = admin.vfs.stat(&typed).await?;
        if !matches!(stat.node.attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "name a file or a directory"));
        }
    }
    members::set_copies(&*desk.coordinator, at.junction, &at.path, copies).await.map_err(|e| {
        match e.kind() {
            ErrorKind::NoSpace => Problem::new(StatusCode::CONFLICT, e.to_string()),
            _ => e.into(),
        }
    })?;
    let mut news = desk.news.clone();
    let rule = |news: &MembershipNews| {
        news.copy_rules.get(&at.junction).and_then(|rules| rules.rules.get(&at.path)).copied()
    };
    // Set, and not heard of in time, it is heard of later: the answer says what is known here.
    let heard = tokio::time::timeout(HEARD, news.wait_for(|news| rule(news) == copies));
    let is_heard = heard.await.is_ok_and(|heard| heard.is_ok());
    let news = desk.news.borrow().clone();
    let Json(mut answer) = told(desk, &news, &at)?;
    answer["heard"] = json!(is_heard);
    Ok(Json(answer))
}

fn told(desk: &ClusterDesk, news: &MembershipNews, at: &RulePath) -> AdminAnswer {
    let Some((by_junction, placed)) = desk.reads.view.junction_placement(at.junction) else {
        let message = "the junction of this path is not spread over the nodes at the moment";
        return Err(Problem::new(StatusCode::CONFLICT, message));
    };
    let rules = news.copy_rules.get(&at.junction);
    let about = rules.and_then(|rules| rules.about(&at.path));
    let nodes = placed.ranks(Stripe { file: FileId([0; 16]), index: 0 }).keepers(usize::MAX).len();
    Ok(Json(json!({
        "path": at.served(&at.path),
        "junction": paths::encode(at.above.as_bytes()),
        "copies": about.map_or(by_junction, |(_, copies)| usize::from(copies)),
        "rule": about.map(|(path, _)| at.served(path)),
        "nodes": nodes,
        "rules": rules.map(|rules| below(rules, at)).unwrap_or_default(),
    })))
}

/// The rules of the path and of what lies below it.
fn below(rules: &CopyRules, at: &RulePath) -> Vec<Value> {
    let here = rules.rules.iter().filter(|(path, _)| at.is_at_or_above(path));
    here.map(|(path, copies)| json!({ "path": at.served(path), "copies": copies })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(typed: &str) -> Option<(u32, String, String)> {
        let junctions = [("/", 1), ("/show", 2), ("/show/in", 3)];
        let junctions = junctions.map(|(path, id)| (path.to_owned(), JunctionId(id)));
        let news = MembershipNews { junctions: junctions.into(), ..MembershipNews::default() };
        let at = RulePath::find(&news, typed.as_bytes()).ok()?;
        Some((at.junction.0, at.path.clone(), at.served(&at.path)))
    }

    #[test]
    fn a_path_is_of_the_deepest_junction_above_it() {
        let at = |junction, path: &str, served: &str| Some((junction, path.to_owned(), served.to_owned()));
        assert_eq!(find("/show/a b"), at(2, "/a%20b", "/show/a%20b"));
        assert_eq!(find("/show/"), at(2, "/", "/show"));
        assert_eq!(find("//show/./in/x"), at(3, "/x", "/show/in/x"));
        assert_eq!(find("/shows"), at(1, "/shows", "/shows"));
        assert_eq!(find("/"), at(1, "/", "/"));
        assert_eq!([find("show"), find("/show/../x")], [None, None]);
    }

    #[test]
    fn a_path_shows_its_own_rule_and_those_below_it() {
        let rules = ["/", "/a", "/a/b", "/ab"].map(|path| (path.to_owned(), 2));
        let rules = CopyRules { revision: 1, rules: rules.into() };
        let shown = |path: &str| {
            let at = RulePath { above: "/show".to_owned(), junction: JunctionId(1), path: path.to_owned() };
            below(&rules, &at)
                .iter()
                .map(|rule| rule["path"].as_str().expect("text").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(shown("/a"), ["/show/a", "/show/a/b"]);
        assert_eq!(shown("/"), ["/show", "/show/a", "/show/a/b", "/show/ab"]);
        assert!(shown("/c").is_empty());
    }
}
