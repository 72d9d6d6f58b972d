//! The cluster as its operator sees it from any node: who is in it, where a file lies, and what becomes of a node.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use cache::CacheKey;
use cluster::{ClusterMap, MapNode, NodeState};
use members::{MembershipNews, MembershipStatus, NodeChange, RaisedAlarm};
use node::{HeldCopy, StripeListing, ToldFigures};
use peer::message::{Heartbeat, NodeFigures};
use serde::Deserialize;
use serde_json::{Value, json};
use types::{FileKind, NodeId};

use super::{Admin, AdminAnswer, Body, Problem, decode, paths};
use crate::cluster_node::ClusterDesk;

pub(super) fn desk(admin: &Admin) -> Result<&ClusterDesk, Problem> {
    let alone = "this tier is in no cluster; one that is was started with --cluster etcd://...";
    admin.cluster.as_ref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, alone))
}

/// For `status`.
pub fn summary(desk: &ClusterDesk) -> Value {
    let news = desk.news.borrow().clone();
    let view = &desk.reads.view;
    let map = view.map();
    let count = |state: NodeState| map.nodes().iter().filter(|node| node.state == state).count();
    let silent = map.nodes().iter().filter(|node| view.is_passed_over(node.id));
    let figures: Vec<NodeFigures> =
        map.nodes().iter().filter_map(|node| Some(told(desk, node.id)?.figures)).collect();
    let sum = |of: fn(&NodeFigures) -> u64| figures.iter().map(of).fold(0, u64::saturating_add);
    json!({
        "id": news.cluster.map(|id| id.to_string()),
        "url": desk.coordinator.url(),
        "node": view.own().to_string(),
        "name": map.node(view.own()).map(|node| node.name.as_str()),
        "secure": desk.is_secure,
        "membership": membership(&news.status),
        "map": map.number(),
        "up": count(NodeState::Up),
        "draining": count(NodeState::Draining),
        "out": count(NodeState::Out),
        "silent": silent.map(|node| node.name.as_str()).collect::<Vec<_>>(),
        "cached": sum(|it| it.cached),
        "cache_max": sum(|it| it.cache_max),
        "far_bytes": sum(|it| it.far_bytes),
        "under_replicated": under_replicated(desk, &news),
        "under_replicated_elsewhere": told_elsewhere(desk, &map),
        "alarms": news.alarms.iter().map(alarm).collect::<Vec<_>>(),
    })
}

/// What a node told of itself last.
fn told(desk: &ClusterDesk, node: NodeId) -> Option<ToldFigures> {
    if node == desk.reads.view.own() {
        let Heartbeat { figures, build, .. } = (desk.own)();
        return Some(ToldFigures { figures, build, at: Instant::now() });
    }
    desk.reads.view.figures(node)
}

/// What other nodes count that has too few copies: a node counts some of the stripes, so the cluster's number is the sum.
fn told_elsewhere(desk: &ClusterDesk, map: &ClusterMap) -> Vec<Value> {
    let others = map.nodes().iter().filter(|node| node.id != desk.reads.view.own());
    let missing = others.filter_map(|node| Some((node, told(desk, node.id)?.figures)));
    let missing = missing.filter(|(_, told)| told.missing_stripes > 0);
    let one = |(node, told): (&MapNode, NodeFigures)| {
        json!({
            "node": node.name,
            "stripes": told.missing_stripes,
            "bytes": told.missing_bytes,
            "seconds": told.missing_seconds,
        })
    };
    missing.map(one).collect()
}

/// What this node counts.
fn under_replicated(desk: &ClusterDesk, news: &MembershipNews) -> Value {
    let told = desk.copies.under_replicated().into_iter().map(|(id, missing)| {
        let path = news.junctions.iter().find(|(_, junction)| **junction == id).map(|(path, _)| path);
        json!({
            "junction": path,
            "stripes": missing.stripes,
            "bytes": missing.bytes,
            "seconds": missing.lasting.as_secs(),
        })
    });
    told.collect()
}

fn membership(status: &MembershipStatus) -> Value {
    match status {
        MembershipStatus::Starting => json!("starting"),
        MembershipStatus::Waiting(why) => json!(format!("waiting: {why}")),
        MembershipStatus::FromFile(why) => json!(format!("by the last map that it knew: {why}")),
        MembershipStatus::Joined => json!("joined"),
        MembershipStatus::Refused(error) => json!(format!("refused: {error}")),
    }
}

fn alarm(alarm: &RaisedAlarm) -> Value {
    json!({ "text": alarm.alarm.to_string(), "since": alarm.since.as_secs() })
}

pub async fn nodes(State(admin): State<Arc<Admin>>) -> AdminAnswer {
    let desk = desk(&admin)?;
    let map = desk.reads.view.map();
    let nodes = map.nodes().iter().map(|node| self::node(desk, node));
    Ok(Json(json!({ "cluster": summary(desk), "nodes": nodes.collect::<Vec<_>>() })))
}

fn node(desk: &ClusterDesk, node: &MapNode) -> Value {
    let view = &desk.reads.view;
    json!({
        "name": node.name,
        "id": node.id.to_string(),
        "state": node.state.name(),
        "answers": node.id == view.own() || !view.is_passed_over(node.id),
        "here": node.id == view.own(),
        "addresses": node.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "nfs": desk.news.borrow().nfs.get(&node.id).map(ToString::to_string),
        "weight": node.weight,
        "label": node.label.to_string(),
        "told": told(desk, node.id).map(|told| json!({
            "cached": told.figures.cached,
            "cache_max": told.figures.cache_max,
            "far_bytes": told.figures.far_bytes,
            "missing_bytes": told.figures.missing_bytes,
            "to_copy_bytes": told.figures.to_copy_bytes,
            "counted_map": told.figures.counted_map,
            "build": told.build,
            "seconds_ago": told.at.elapsed().as_secs(),
        })),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToChange {
    /// Its name or its id.
    node: String,
    change: ChangeWord,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChangeWord {
    Drain,
    Undrain,
    Leave,
    Forget,
}

pub async fn change(State(admin): State<Arc<Admin>>, body: Body) -> AdminAnswer {
    let desk = desk(&admin)?;
    let wrong = |e: String| {
        let message =
            format!(r#"send {{"node": "n1", "change": "drain"}}: drain, undrain, leave or forget ({e})"#);
        Problem::new(StatusCode::BAD_REQUEST, message)
    };
    let body = body.map_err(|e| wrong(e.to_string()))?;
    let ToChange { node, change } = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
    let change = match change {
        ChangeWord::Drain => NodeChange::Drain,
        ChangeWord::Undrain => NodeChange::Undrain,
        ChangeWord::Leave => NodeChange::Leave,
        ChangeWord::Forget => NodeChange::Forget,
    };
    let id = members::change_node(&*desk.coordinator, &node, change).await?;
    Ok(Json(json!({ "node": id.to_string() })))
}

pub async fn placement(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> AdminAnswer {
    let desk = desk(&admin)?;
    let query = query.unwrap_or_default();
    let Some(path) = query.strip_prefix("path=") else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "say which file: /v1/placement?path=/show/scene"));
    };
    let path = decode(path)?;
    let stat = admin.vfs.stat(&path).await?;
    if stat.node.attr.kind != FileKind::Regular {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "only a file has stripes; name one"));
    }
    let key = CacheKey { file: stat.node.id, version: stat.version, size: stat.node.attr.size };
    desk.reads.view.file_copies().meet(stat.node.junction, stat.node.id);
    let stripes = desk.reads.list_stripes(&admin.cache, stat.node.junction, &key).await;
    let Some(stripes) = stripes else {
        let message = "the junction of this file is not spread over the nodes at the moment";
        return Err(Problem::new(StatusCode::CONFLICT, message));
    };
    let stripes: Vec<Value> = stripes.iter().map(|listed| stripe(desk, listed)).collect();
    Ok(Json(json!({
        "path": paths::encode(&path),
        "size": key.size,
        "version": key.version.to_string(),
        "map": desk.reads.view.number(),
        "stripes": stripes,
    })))
}

fn stripe(desk: &ClusterDesk, listed: &StripeListing) -> Value {
    let map = desk.reads.view.map();
    let copy = |copy: &HeldCopy| {
        let name = map.node(copy.node).map_or_else(|| copy.node.to_string(), |node| node.name.clone());
        json!({ "node": name, "percent": copy.percent })
    };
    json!({
        "offset": listed.range.offset,
        "bytes": listed.range.length,
        "copies": listed.copies.iter().map(copy).collect::<Vec<_>>(),
    })
}
