//! What is told of a tier and of a path, as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use types::{FileKind, Timestamp};
use vfs::{AlarmKind, StatOut, Unflushed};

use super::Admin;
use super::cluster;
use super::paths;

/// An origin that refuses one thing may refuse a hundred thousand.
pub const REFUSALS_TOLD_MAX: usize = 100;

pub fn status(admin: &Admin) -> Value {
    let unflushed = admin.vfs.unflushed();
    let cache = admin.cache.stats();
    let metrics = admin.cache.metrics();
    let junctions = admin.vfs.junctions().into_iter().map(|j| {
        let load = unflushed.junctions.iter().find(|load| load.path == j.path);
        json!({
            "path": j.path,
            "origin": j.url,
            "files": j.files,
            "directories": j.directories,
            "write": admin.vfs.write_policy(j.id).to_string(),
            "durability": admin.vfs.durability(j.id).map(|durability| durability.to_string()),
            "state": if j.outage.is_some() { "failing" } else { "ok" },
            "outage": j.outage.as_ref().map(|outage| outage.reason.name()),
            "failing_ms": j.outage.as_ref().map(|outage| outage.since_ms),
            "error": j.outage.as_ref().map(|outage| &outage.error),
            "origin_calls": admin.origin_metrics.all_calls_of(&j.path),
            "origin_bytes": admin.origin_metrics.bytes_of(&j.path),
            "dirty_bytes": load.map(|load| load.dirty_bytes),
            "dirty_oldest_seconds": load.and_then(|load| load.oldest).map(|age| age.as_secs()),
        })
    });
    let junctions = Value::Array(junctions.collect());
    let (metadata_trouble, metadata_lost) = admin.vfs.database_trouble();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": admin.started.elapsed().as_secs(),
        "write": write(admin),
        "junctions": junctions,
        "cache": {
            "bytes_used": cache.bytes_used,
            "bytes_max": cache.bytes_max,
            "pinned_bytes": cache.pinned_bytes,
            "files": cache.files,
            "degraded": cache.degraded,
            "hit_bytes": metrics.hit_bytes.get(),
            "miss_bytes": metrics.miss_bytes.get(),
            "fetched_bytes": metrics.fetched_bytes.get(),
            "evicted_bytes": metrics.evicted_bytes.get(),
            "corrupt_blocks": metrics.corrupt_blocks.get(),
        },
        "lost": admin.lost,
        "metadata": { "trouble": metadata_trouble, "lost": metadata_lost },
        "journal": journal(&unflushed),
        "nfs": admin.nfs.as_ref().map(|nfs| {
            json!({ "address": nfs.address.to_string(), "connections": (nfs.connections)() })
        }),
        "s3": admin.s3.as_ref().map(|s3| {
            let connections = (s3.connections)();
            json!({ "address": s3.address.to_string(), "tls": s3.is_tls, "connections": connections })
        }),
        "clients_cut": clients_cut(admin),
        "mount": admin.mount.as_ref().map(|dir| dir.display().to_string()),
        "cluster": admin.cluster.as_ref().map(cluster::summary),
    })
}

/// Who is not the operator learns how the tier does, and no name of a file: other users of this machine may ask too.
pub fn withhold_names(status: &mut Value) {
    const WITHHELD: &str = "told to the operator alone";
    let each = |list: &mut Value, field: Option<&str>| {
        for one in list.as_array_mut().into_iter().flatten() {
            let text = match field {
                Some(field) => &mut one[field],
                None => one,
            };
            if text.is_string() {
                *text = WITHHELD.into();
            }
        }
    };
    each(&mut status["junctions"], Some("error"));
    if status["journal"].is_object() {
        each(&mut status["journal"]["refusals"], None);
        each(&mut status["journal"]["alarms"], Some("text"));
    }
}

/// Which clients were cut short in the last ten minutes, the worst first.
fn clients_cut(admin: &Admin) -> Value {
    let told = admin.offenders.recent().into_iter().map(|client| {
        json!({
            "front": client.front,
            "address": client.address.to_string(),
            "reason": client.offence.name(),
            "text": client.offence.description(),
            "count": client.count,
            "age_seconds": client.since_last.as_secs(),
            "alarm": client.count >= fair::ALARM_COUNT,
        })
    });
    told.collect()
}

/// Nothing, where nothing is written `back`.
fn journal(unflushed: &Unflushed) -> Value {
    let Some(journal) = &unflushed.journal else { return Value::Null };
    let oldest = unflushed.junctions.iter().filter_map(|load| load.oldest).max();
    let alarms = unflushed.alarms.iter().map(|alarm| {
        json!({
            "at": time_of(alarm.at),
            "age_seconds": alarm.raised.elapsed().as_secs(),
            "kind": alarm_kind(alarm.kind),
            "text": alarm.text,
        })
    });
    json!({
        "dir": journal.dir.display().to_string(),
        "operations": journal.operations,
        "dirty_bytes": unflushed.junctions.iter().map(|load| load.dirty_bytes).sum::<u64>(),
        "oldest_seconds": oldest.map(|age| age.as_secs()),
        "bytes_used": journal.used_bytes,
        "bytes_max": journal.size_max,
        "failed": journal.failed,
        "damaged": journal.damaged,
        "conflicts": unflushed.conflicts,
        "refused": unflushed.refused.len(),
        "refusals": unflushed.refused.iter().take(REFUSALS_TOLD_MAX).collect::<Vec<_>>(),
        "alarms": alarms.collect::<Vec<_>>(),
    })
}

fn alarm_kind(kind: AlarmKind) -> &'static str {
    match kind {
        AlarmKind::KeptBoth => "kept both",
        AlarmKind::TookOurs => "took ours",
        AlarmKind::Dropped => "dropped ours",
        AlarmKind::Resumed => "resumed",
        AlarmKind::Overtaken => "overtaken",
        AlarmKind::Parked => "parked",
    }
}

/// Of all junctions, if they agree.
fn write(admin: &Admin) -> String {
    let mut policies: Vec<_> =
        admin.vfs.junctions().iter().map(|j| admin.vfs.write_policy(j.id).to_string()).collect();
    policies.sort();
    policies.dedup();
    policies.join(" and ")
}

pub fn stat(path: &[u8], out: StatOut) -> Value {
    let attr = &out.node.attr;
    json!({
        "path": paths::encode(path),
        "kind": kind(attr.kind),
        "size": attr.size,
        "mode": format!("{:04o}", attr.mode),
        "uid": attr.uid,
        "gid": attr.gid,
        "nlink": attr.nlink,
        "mtime": time(attr.mtime),
        "ctime": time(attr.ctime),
        "inode": attr.fileid,
        "file_id": out.node.id.to_string(),
        "version": out.version.to_string(),
        "cached_bytes": out.cached_bytes,
        "junction": out.junction.as_ref().map(|(path, _)| path),
        "origin": out.junction.as_ref().map(|(_, url)| url),
        "freshness": out.freshness,
        "write": out.write.to_string(),
        "age_ms": out.age_ms,
    })
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::BlockDevice => "block device",
        FileKind::CharDevice => "character device",
        FileKind::Socket => "socket",
        FileKind::Fifo => "fifo",
    }
}

fn time_of(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:09}", since.as_secs(), since.subsec_nanos())
}

/// Seconds since 1970, with nine digits.
fn time(t: Timestamp) -> String {
    format!("{}.{:09}", t.seconds, t.nanos)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vfs::{JournalLoad, JunctionLoad, Raised};

    use super::*;

    fn load(path: &str, dirty_bytes: u64, seconds: Option<u64>) -> JunctionLoad {
        JunctionLoad { path: path.into(), dirty_bytes, oldest: seconds.map(Duration::from_secs) }
    }

    #[test]
    fn what_waits_is_summed_up_and_many_refusals_are_counted() {
        let unflushed = Unflushed {
            junctions: vec![load("/a", 5, Some(9)), load("/b", 7, Some(40)), load("/c", 0, None)],
            journal: Some(JournalLoad {
                dir: "/journal".into(),
                operations: 3,
                used_bytes: 4096,
                size_max: 1 << 30,
                failed: false,
                damaged: Vec::new(),
            }),
            refused: (0..250).map(|i| format!("operation {i}: no")).collect(),
            alarms: vec![Raised {
                at: UNIX_EPOCH + Duration::from_millis(1500),
                raised: std::time::Instant::now(),
                kind: AlarmKind::KeptBoth,
                text: "/a/plan: ours is plan.conflict-x".into(),
            }],
            conflicts: 1,
        };
        let told = journal(&unflushed);
        assert_eq!((&told["dirty_bytes"], &told["oldest_seconds"]), (&json!(12), &json!(40)));
        assert_eq!((&told["refused"], told["refusals"].as_array().map(Vec::len)), (&json!(250), Some(100)));
        assert_eq!(told["alarms"][0]["at"], "1.500000000");
        assert_eq!(told["alarms"][0]["kind"], "kept both");
        assert_eq!(journal(&Unflushed::default()), Value::Null);

        let mut status =
            json!({ "journal": told, "junctions": [{ "path": "/a", "error": "lookup /a/plan: no" }] });
        withhold_names(&mut status);
        assert!(!status.to_string().contains("plan"), "{status}");
        assert!(
            status["journal"]["alarms"][0]["kind"] == "kept both" && status["junctions"][0]["path"] == "/a"
        );
    }
}
