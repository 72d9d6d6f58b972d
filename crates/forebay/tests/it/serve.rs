//! Serving a directory to Debian's libnfs tools, and answering the operator.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::tier::{Tier, forebay};

fn sample(dir: &Path) -> std::path::PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("sub")).expect("created");
    std::fs::write(tree.join("hello.txt"), b"hello, far away\n").expect("written");
    let big: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(tree.join("sub/big.bin"), big).expect("written");
    std::fs::write(tree.join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff")), b"x").expect("written");
    tree
}

fn serve_tree(dir: &Path, files: &str) -> Tier {
    let tree = sample(dir);
    let junction =
        format!("[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nfiles = \"{files}\"\n", tree.display());
    Tier::start(dir, &junction)
}

/// A libnfs tool on a path of the tier; `None` if it is not installed.
pub fn libnfs(tool: &str, tier: &Tier, path: &str) -> Option<std::process::Output> {
    let port = tier.nfs_port;
    let url = format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}&version=3");
    match Command::new(tool).arg(url).output() {
        Ok(output) => Some(output),
        Err(e) => {
            testkit::lab::not_run(tool, &format!("Debian's libnfs-utils is not installed ({e})"));
            None
        }
    }
}

#[test]
fn libnfs_lists_and_reads_without_rpcbind() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = serve_tree(dir.path(), "30s");
    let Some(listed) = libnfs("nfs-ls", &tier, "/") else { return };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && text.contains("hello.txt") && text.contains("sub"), "{listed:?}");
    let read = libnfs("nfs-cat", &tier, "/sub/big.bin").expect("installed with nfs-ls");
    assert!(read.stdout == std::fs::read(dir.path().join("tree/sub/big.bin")).expect("there"), "other bytes");
}

#[test]
fn a_restart_keeps_handles() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut tier = serve_tree(dir.path(), "immutable");
    let before = tier.json(&["stat", "/sub/big.bin"]);
    assert_eq!(tier.stop(), Some(0), "a clean stop exits with 0");
    tier.start_again();
    assert_eq!(tier.json(&["stat", "/sub/big.bin"])["file_id"], before["file_id"]);
    tier.kill_nine();
    tier.start_again();
    assert_eq!(tier.json(&["stat", "/sub/big.bin"])["file_id"], before["file_id"]);
}

#[test]
fn the_operator_warms_looks_and_evicts() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = serve_tree(dir.path(), "30s");
    let cached = |tier: &Tier| tier.json(&["stat", "/sub/big.bin"])["cached_bytes"].clone();
    assert_eq!(cached(&tier), 0);
    let warmed = tier.json(&["warm", "/"]);
    assert_eq!((&warmed["files"], &warmed["errors"]), (&3.into(), &0.into()), "{warmed}");
    assert_eq!(cached(&tier), 3_000_000);
    let status = tier.json(&["status"]);
    assert_eq!(status["cache"]["files"], 3);
    assert_eq!(status["junctions"][0]["origin_bytes"], 3_000_000 + 16 + 1);
    let evicted = tier.json(&["evict", "/sub"])["bytes"].as_u64().expect("a number");
    assert!((3_000_000..3_100_000).contains(&evicted), "evicted {evicted} bytes of disk");
    assert_eq!(cached(&tier), 0);
    let missing = tier.ask(&["stat", "/no/such"]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no"), "{missing:?}");
}

#[test]
fn a_warm_up_counts_first_takes_lists_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = serve_tree(dir.path(), "30s");
    let origin_bytes = || tier.json(&["status"])["junctions"][0]["origin_bytes"].clone();
    let said = |verb: &[&str]| {
        let admin = tier.admin.to_string();
        let done = forebay().args(verb).args(["--admin", &admin]).output().expect("runs");
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        (done.status.success(), out.into_owned(), err.into_owned())
    };
    let (good, out, _) = said(&["warm", "/", "--dry-run"]);
    assert!(good && out.contains("3 files, 2.9 MiB, of which 0 B are here"), "{out}");
    let (good, out, _) = said(&["warm", "/", "--mode", "metadata"]);
    assert!(good && out.contains("names and attributes of 3 files in"), "{out}");
    assert_eq!(origin_bytes(), 0, "so far no byte was read");

    let list = dir.path().join("list");
    std::fs::write(&list, "/sub/big.bin\n\n/no/such\n").expect("written");
    let list = list.to_str().expect("a path");
    let (good, _, err) = said(&["warm", "--files-from", list]);
    assert!(!good && err.contains("/no/such") && err.contains("NotFound"), "{err}");
    assert_eq!(origin_bytes(), 3_000_000, "a bad path does not stop the others");
    std::fs::write(list, "/sub/big.bin\0").expect("written");
    let warmed = tier.json(&["warm", "--files-from", list, "--null"]);
    assert_eq!((&warmed["files"], &warmed["bytes_fetched"]), (&1.into(), &0.into()), "{warmed}");
    let again = tier.json(&["warm", "/"]);
    assert_eq!(again["found"]["bytes_here"], 3_000_000);
    assert_eq!((&again["bytes_fetched"], &again["bytes"]), (&17.into(), &3_000_017.into()), "{again}");
    assert_eq!(origin_bytes(), 3_000_017, "each byte once");

    std::fs::write(list, "\n").expect("written");
    let (good, _, err) = said(&["warm", "--files-from", list]);
    assert!(!good && err.contains("names no path"), "{err}");
    let (good, out, _) = said(&["warm", "/sub", "--detach"]);
    assert!(good && out.starts_with("warm-up "), "{out}");

    let job = tier.json(&["warm", "/sub", "--detach", "--pin"])["job"].to_string();
    let (good, out, _) = said(&["jobs", "watch", &job]);
    assert!(good && out.starts_with("warmed 1 files"), "{out}");
    let jobs = tier.json(&["jobs"]);
    let last = jobs["jobs"].as_array().and_then(|jobs| jobs.last()).expect("a job");
    assert_eq!(
        (last["job"].to_string(), &last["done"], &last["what"]["pin"]),
        (job.clone(), &true.into(), &true.into())
    );
    let (good, out, _) = said(&["jobs", "stop", &job]);
    assert!(good && out.contains("over already"), "{out}");
    assert!(!said(&["jobs", "stop", "999"]).0 && !said(&["jobs", "watch", "999"]).0);
}

#[test]
fn what_does_not_fit_is_not_begun_and_what_is_pinned_stays_until_it_is_evicted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tree = dir.path().join("tree");
    for (name, files) in [("keep", 10), ("a", 40), ("b", 40)] {
        std::fs::create_dir_all(tree.join(name)).expect("made");
        for file in 0..files {
            std::fs::write(tree.join(name).join(file.to_string()), vec![file; 1 << 20]).expect("written");
        }
    }
    let mut tier = Tier::start(
        dir.path(),
        &format!("[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n", tree.display()),
    );
    assert_eq!(tier.stop(), Some(0));
    let config = dir.path().join("forebay.toml");
    let text = std::fs::read_to_string(&config).expect("read");
    std::fs::write(&config, text.replace("4GiB", "64MiB")).expect("written");
    tier.start_again();
    let refused = |verb: &[&str]| {
        let answer = tier.ask(verb);
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{verb:?}: {said}");
        assert!(said.contains("do not fit") && said.contains("room for 58."), "{verb:?}: {said}");
    };
    refused(&["warm", "/", "--dry-run"]);
    refused(&["warm", "/"]);
    assert_eq!(tier.json(&["status"])["junctions"][0]["origin_bytes"], 0, "nothing was fetched");
    tier.json(&["warm", "/keep", "--pin"]);
    for others in ["/a", "/b", "/a"] {
        tier.json(&["warm", others]);
    }
    let again = |tier: &Tier| tier.json(&["warm", "/keep", "--pin"])["bytes_fetched"].clone();
    assert_eq!(again(&tier), 0, "all the others passed, and it is here");
    assert_eq!(tier.stop(), Some(0));
    tier.start_again();
    tier.json(&["warm", "/b"]);
    assert_eq!(again(&tier), 0, "after a restart too");
    let pinned = |tier: &Tier| tier.json(&["status"])["cache"]["pinned_bytes"].as_u64().expect("a number");
    assert!(pinned(&tier) >= 10 << 20);
    tier.json(&["evict", "/keep"]);
    assert_eq!(pinned(&tier), 0);
}

#[test]
fn metrics_and_health_are_there_for_prometheus() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = serve_tree(dir.path(), "30s");
    assert!(tier.get("/healthz").ends_with("ok\n"));
    tier.json(&["warm", "/sub/big.bin"]);
    if libnfs("nfs-cat", &tier, "/sub/big.bin").is_none() {
        return;
    }
    let metrics = tier.get("/metrics");
    for name in [
        "forebay_cache_hits_total",
        "forebay_cache_misses_total",
        "forebay_cache_coalesced_waits_total",
        "forebay_cache_inflight_bytes",
        "forebay_origin_bytes_total{junction=\"/\"} 3000000",
        "forebay_origin_calls_total{junction=\"/\",kind=\"read\"}",
        "forebay_nfs_call_seconds_bucket{le=",
        "procedure=\"READ\"",
    ] {
        assert!(metrics.contains(name), "{name} is missing in:\n{metrics}");
    }
}

#[test]
fn what_the_operator_asks_wrongly_is_answered_in_json() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = serve_tree(dir.path(), "30s");
    for path in [
        "/v1/nothing",
        "/v1/evict",
        "/v1/stat",
        "/v1/stat?path=%zz",
        "/v1/warm/none",
        "/v1/flush",
        "/v1/flush/none",
    ] {
        let answer = tier.get(path);
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        let json: serde_json::Value =
            serde_json::from_str(body).unwrap_or_else(|e| panic!("{path}: {e}: {answer}"));
        assert!(json["error"].as_str().is_some_and(|e| !e.is_empty()), "{path}: {answer}");
    }
}

#[test]
fn a_flush_where_nothing_is_written_back_says_so() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = serve_tree(dir.path(), "30s");
    for verb in [&["flush"][..], &["flush", "--wait"], &["flush", "/sub"]] {
        let refused = tier.ask(verb);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{verb:?}: {said}");
        assert!(said.contains("no junction is written back"), "{verb:?}: {said}");
    }
    let status = tier.json(&["status"]);
    assert!(status["journal"].is_null() && status["junctions"][0]["dirty_bytes"].is_null(), "{status}");
    assert!(!tier.get("/metrics").contains("forebay_junction_dirty_bytes"));
    assert!(!dir.path().join("cache/journal").exists(), "nobody needs one");
}

#[test]
fn a_tier_whose_origin_is_away_at_the_start_serves_what_it_has() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nas_dir = dir.path().join("nas");
    std::fs::create_dir(&nas_dir).expect("created");
    let mut nas = serve_tree(&nas_dir, "1s");
    let port = nas.nfs_port;
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"nfs://127.0.0.1:{port}/?mountport={port}\"\nfiles = \"1s\"\n"
    );
    let near_dir = dir.path().join("near");
    std::fs::create_dir(&near_dir).expect("created");
    let mut near = Tier::start(&near_dir, &junction);
    std::fs::write(nas_dir.join("tree/sub/other.txt"), b"not cached\n").expect("written");
    near.json(&["warm", "/sub/big.bin"]);
    near.stop();
    nas.stop();
    near.start_again();
    std::thread::sleep(std::time::Duration::from_millis(1200)); // beyond the ttl: it asks, and hears nothing
    let Some(read) = libnfs("nfs-cat", &near, "/sub/big.bin") else { return };
    assert_eq!(read.stdout.len(), 3_000_000, "cached data is served: {read:?}");
    assert_eq!(near.json(&["status"])["junctions"][0]["state"], "failing");
    nas.start_again();
    let read = libnfs("nfs-cat", &near, "/sub/other.txt").expect("installed");
    assert_eq!(read.stdout, b"not cached\n", "what was missing comes when the NAS is back: {read:?}");
}
