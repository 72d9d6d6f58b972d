//! What is told of a tier and of a path, as JSON.

use serde_json::{Value, json};
use types::{FileKind, Timestamp};
use vfs::StatOut;

use super::Admin;
use super::paths;

pub fn status(admin: &Admin) -> Value {
    let cache = admin.cache.stats();
    let metrics = admin.cache.metrics();
    let junctions = admin.vfs.junctions().into_iter().map(|j| {
        json!({
            "path": j.path,
            "origin": j.url,
            "files": j.files,
            "directories": j.directories,
            "write": admin.vfs.write_policy(j.id).to_string(),
            "state": if j.failing.is_some() { "failing" } else { "ok" },
            "failing_ms": j.failing.as_ref().map(|(ms, _)| ms),
            "error": j.failing.as_ref().map(|(_, error)| error),
            "origin_calls": admin.origin_metrics.all_calls_of(&j.path),
            "origin_bytes": admin.origin_metrics.bytes_of(&j.path),
        })
    });
    let junctions = Value::Array(junctions.collect());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": admin.started.elapsed().as_secs(),
        "write": write(admin),
        "junctions": junctions,
        "cache": {
            "bytes_used": cache.bytes_used,
            "bytes_max": cache.bytes_max,
            "files": cache.files,
            "degraded": cache.degraded,
            "hit_bytes": metrics.hit_bytes.get(),
            "miss_bytes": metrics.miss_bytes.get(),
            "fetched_bytes": metrics.fetched_bytes.get(),
            "evicted_bytes": metrics.evicted_bytes.get(),
            "corrupt_blocks": metrics.corrupt_blocks.get(),
        },
        "nfs": admin.nfs.as_ref().map(|nfs| {
            json!({ "address": nfs.address.to_string(), "connections": (nfs.connections)() })
        }),
        "mount": admin.mount.as_ref().map(|dir| dir.display().to_string()),
    })
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

/// Seconds since 1970, with nine digits.
fn time(t: Timestamp) -> String {
    format!("{}.{:09}", t.seconds, t.nanos)
}
