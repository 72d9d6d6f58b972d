//! A junction that is written `back`, as a process: what waits is told, survives stops and kills, and goes home.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use relay::{Config as Line, Relay};
use serde_json::Value;

use crate::serve::libnfs;
use crate::tier::{Tier, forebay};
use crate::usage::failure;

/// Longer than any test: nothing is flushed unless somebody asks.
const HELD: &str = "write = \"back\"\nflush_delay = \"1h\"";
const BYTES: usize = 1_500_000;

fn content(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|i| ((i * 7 + seed) % 251) as u8).collect()
}

/// The one directory of the origin: libnfs mounts that of the file, and takes no file at the root.
fn show_of(dir: &Path) -> PathBuf {
    let show = dir.join("tree/show");
    std::fs::create_dir_all(&show).expect("made");
    show
}

/// A tier over an origin with an empty directory.
fn held(dir: &Path) -> Tier {
    show_of(dir);
    let origin = dir.join("tree");
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nfiles = \"1s\"\n{HELD}\n",
        origin.display()
    );
    Tier::start(dir, &junction)
}

/// Copied there by libnfs; `None` if it is not installed.
fn copy(tier: &Tier, path: &str, bytes: &[u8]) -> Option<Output> {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), bytes).expect("written");
    let port = tier.nfs_port;
    let url = format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}&version=3");
    match Command::new("nfs-cp").arg(file.path()).arg(url).output() {
        Ok(done) => Some(done),
        Err(e) => {
            testkit::lab::not_run("nfs-cp", &format!("Debian's libnfs-utils is not installed ({e})"));
            None
        }
    }
}

/// Copied, closed, and so acknowledged.
fn put(tier: &Tier, path: &str, bytes: &[u8]) -> Option<()> {
    let done = copy(tier, path, bytes)?;
    assert!(done.status.success(), "{path}: {done:?}");
    Some(())
}

fn read(tier: &Tier, path: &str) -> Vec<u8> {
    let read = libnfs("nfs-cat", tier, path).expect("installed with nfs-cp");
    assert!(read.status.success(), "{path}: {}", String::from_utf8_lossy(&read.stderr));
    read.stdout
}

fn dirty_bytes(tier: &Tier) -> u64 {
    let status = tier.json(&["status"]);
    let junction = status["junctions"][0]["dirty_bytes"].as_u64().expect("a junction written back tells it");
    assert_eq!(status["journal"]["dirty_bytes"], junction, "there is only this one");
    junction
}

fn flush(tier: &Tier, path: &[&str]) -> Value {
    tier.json(&[&["flush", "--wait"], path].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_written_back_waits_here_and_a_flush_brings_it_home() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (tier, show) = (held(dir.path()), show_of(dir.path()));
    assert_eq!(dirty_bytes(&tier), 0);
    let Some(()) = put(&tier, "/show/frame.exr", &content(1)) else { return };
    assert_eq!(std::fs::read_dir(&show).expect("listed").count(), 0, "the origin has nothing of it yet");
    assert!(read(&tier, "/show/frame.exr") == content(1), "and clients read it");

    let status = tier.json(&["status"]);
    assert_eq!(status["write"], "back");
    let (junction, journal) = (&status["junctions"][0], &status["journal"]);
    assert_eq!(junction["dirty_bytes"], BYTES);
    assert!(junction["dirty_oldest_seconds"].is_u64() && journal["oldest_seconds"].is_u64(), "{status}");
    assert!(journal["operations"].as_u64().is_some_and(|operations| operations > 0), "{status}");
    let used = journal["bytes_used"].as_u64().expect("told");
    assert!(used >= BYTES as u64 && journal["bytes_max"].as_u64().is_some_and(|max| max >= used), "{status}");
    assert_eq!(journal["dir"], dir.path().join("cache/journal").display().to_string());
    let (nothing, no) = (Value::from(Vec::<Value>::new()), Value::from(false));
    for name in ["damaged", "refusals", "alarms"] {
        assert_eq!(journal[name], nothing, "{name}");
    }
    assert_eq!((&journal["failed"], &journal["conflicts"]), (&no, &0.into()));
    let metrics = tier.get("/metrics");
    for line in
        [&format!("forebay_junction_dirty_bytes{{junction=\"/\"}} {BYTES}")[..], "forebay_journal_max_bytes "]
    {
        assert!(metrics.contains(line), "{line} is missing in:\n{metrics}");
    }

    let flushed = flush(&tier, &[]);
    assert_eq!((&flushed["done"], &flushed["refused"]), (&true.into(), &0.into()), "{flushed}");
    assert!(std::fs::read(show.join("frame.exr")).expect("there now") == content(1), "other bytes");
    assert_eq!(dirty_bytes(&tier), 0);
    let status = tier.json(&["status"]);
    assert_eq!(
        (&status["journal"]["operations"], &status["journal"]["oldest_seconds"]),
        (&0.into(), &Value::Null)
    );
    assert!(read(&tier, "/show/frame.exr") == content(1), "other bytes after the flush");
    let again = tier.json(&["flush"]);
    assert_eq!((&again["flush"], &again["operations"]), (&Value::Null, &0.into()), "{again}");
}

#[test]
fn what_was_acknowledged_survives_kill_nine() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut tier, show) = (held(dir.path()), show_of(dir.path()));
    let Some(()) = put(&tier, "/show/first", &content(1)) else { return };
    tier.kill_nine();
    tier.start_again();
    assert_eq!(dirty_bytes(&tier), BYTES as u64);
    assert!(read(&tier, "/show/first") == content(1), "other bytes");
    put(&tier, "/show/second", &content(2));
    tier.kill_nine();
    tier.start_again();
    assert_eq!(std::fs::read_dir(&show).expect("listed").count(), 0, "nothing was flushed");
    flush(&tier, &[]);
    for (name, seed) in [("first", 1), ("second", 2)] {
        assert!(std::fs::read(show.join(name)).expect("there now") == content(seed), "other bytes in {name}");
    }
    assert_eq!(std::fs::read_dir(&show).expect("listed").count(), 2, "and nothing else");
}

#[test]
fn a_damaged_journal_takes_nothing_until_its_damage_is_accepted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut tier, show) = (held(dir.path()), show_of(dir.path()));
    let Some(()) = put(&tier, "/show/first", &content(1)) else { return };
    put(&tier, "/show/second", &content(2));
    tier.kill_nine();
    let segment = dir.path().join("cache/journal/00000001.journal");
    let mut bytes = std::fs::read(&segment).expect("there");
    let (header, sequence) = (64, 8);
    bytes[header + sequence] ^= 0xff; // of the first entry
    std::fs::write(&segment, bytes).expect("written");

    tier.start_again();
    let damaged = |tier: &Tier| tier.json(&["status"])["journal"]["damaged"].clone();
    let places = damaged(&tier);
    assert!(places[0].as_str().is_some_and(|place| place.contains("00000001.journal")), "{places}");
    assert!(read(&tier, "/show/second") == content(2), "what can be read is shown");
    let refused = copy(&tier, "/show/third", &content(3)).expect("installed");
    assert!(!refused.status.success(), "{refused:?}");
    tier.stop();

    tier.start_again_with(&["--accept-journal-damage"]);
    assert_eq!(damaged(&tier), Value::from(Vec::<Value>::new()));
    put(&tier, "/show/third", &content(3));
    for (name, seed) in [("second", 2), ("third", 3)] {
        flush(&tier, &[&format!("/show/{name}")]);
        assert!(std::fs::read(show.join(name)).expect("there now") == content(seed), "other bytes in {name}");
    }
}

#[test]
fn a_stop_leaves_what_waits_to_the_next_start() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut tier, show) = (held(dir.path()), show_of(dir.path()));
    let Some(()) = put(&tier, "/show/kept", &content(3)) else { return };
    assert_eq!(tier.stop(), Some(0));
    assert_eq!(std::fs::read_dir(&show).expect("listed").count(), 0, "SIGTERM does not wait for the flush");
    tier.start_again();
    assert_eq!(dirty_bytes(&tier), BYTES as u64);
    flush(&tier, &["/show/kept"]);
    assert!(std::fs::read(show.join("kept")).expect("there now") == content(3), "other bytes");
    assert_eq!(tier.stop(), Some(0));
}

#[test]
fn a_policy_that_changes_while_something_waits_is_refused_and_afterwards_taken() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut tier, show) = (held(dir.path()), show_of(dir.path()));
    let Some(()) = put(&tier, "/show/owed", &content(4)) else { return };
    tier.stop();
    let config = dir.path().join("forebay.toml");
    let serve = ["serve", "--config", config.to_str().expect("UTF-8"), "--write", "through"];
    let (said, _) = failure(&serve);
    assert!(said.contains("back"), "{said}");
    tier.start_again();
    flush(&tier, &[]);
    tier.stop();
    let text = std::fs::read_to_string(&config).expect("there").replace(HELD, "write = \"through\"");
    std::fs::write(&config, text).expect("written");
    tier.start_again();
    assert_eq!(tier.json(&["status"])["write"], "through");
    assert!(read(&tier, "/show/owed") == content(4), "other bytes");
    put(&tier, "/show/at-once", &content(5));
    assert!(std::fs::read(show.join("at-once")).expect("there already") == content(5), "other bytes");
}

#[test]
fn a_foreign_file_in_the_way_of_a_flush_is_kept_and_told_of() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (tier, show) = (held(dir.path()), show_of(dir.path()));
    let Some(()) = put(&tier, "/show/plan", &content(6)) else { return };
    std::fs::write(show.join("plan"), b"theirs").expect("written");
    flush(&tier, &[]);
    assert_eq!(std::fs::read(show.join("plan")).expect("there"), b"theirs");
    let names = std::fs::read_dir(&show).expect("listed").map(|entry| entry.expect("listed").file_name());
    let copies: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("plan.conflict-")).collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(std::fs::read(show.join(&copies[0])).expect("there") == content(6), "other bytes");
    let journal = tier.json(&["status"])["journal"].clone();
    assert_eq!(journal["conflicts"], 1, "{journal}");
    let alarm = &journal["alarms"][0];
    assert_eq!(alarm["kind"], "kept both");
    assert!(alarm["text"].as_str().is_some_and(|text| text.contains("plan")), "{alarm}");
    let admin = tier.admin.to_string();
    let shown = forebay().args(["status", "--admin", &admin]).output().expect("runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.lines().any(|line| line.starts_with("ALARM") && line.contains("plan")), "{shown}");
}

#[test]
fn only_what_is_below_a_path_is_flushed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let show = show_of(dir.path());
    std::fs::create_dir_all(show.join("a")).expect("made");
    std::fs::create_dir_all(show.join("b")).expect("made");
    let tier = held(dir.path());
    let Some(()) = put(&tier, "/show/a/x", &content(7)) else { return };
    put(&tier, "/show/b/x", &content(8));
    flush(&tier, &["/show/a"]);
    assert!(show.join("a/x").exists() && !show.join("b/x").exists());
    assert_eq!(dirty_bytes(&tier), BYTES as u64);
    let missing = tier.ask(&["flush", "/no/such"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("/no/such"), "{}", said(&missing));
}

#[test]
fn what_is_written_back_goes_home_by_itself() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let show = show_of(dir.path());
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"back\"\nflush_delay = \"500ms\"\n",
        dir.path().join("tree").display()
    );
    let tier = Tier::start(dir.path(), &junction);
    let Some(()) = put(&tier, "/show/frame", &content(9)) else { return };
    let start = std::time::Instant::now();
    while dirty_bytes(&tier) > 0 {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "it is never flushed");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(std::fs::read(show.join("frame")).expect("there now") == content(9), "other bytes");
}

/// So much memory, as this directory, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(name: &str, at: PathBuf, size: &str) -> Option<SmallDisk> {
        let size = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "forebay-test"]).arg(&at).output();
        if !mounted.as_ref().is_ok_and(|done| done.status.success()) {
            testkit::lab::not_run(name, &format!("it needs root, to mount a small disk: {mounted:?}"));
            return None;
        }
        Some(SmallDisk(at))
    }

    fn grow(&self, size: &str) {
        let how = format!("remount,size={size}");
        let grown = Command::new("mount").args(["-o", &how]).arg(&self.0).status();
        assert!(grown.is_ok_and(|status| status.success()), "remounted");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn what_the_origin_refuses_is_named_stays_here_and_goes_home_when_that_is_mended() {
    let name = "what_the_origin_refuses_is_named_stays_here_and_goes_home_when_that_is_mended";
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(disk) = SmallDisk::mount(name, show_of(dir.path()), "1m") else { return };
    let tier = held(dir.path());
    let Some(()) = put(&tier, "/show/large", &content(10)) else { return };
    let refused = tier.ask(&["flush", "--wait"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains("not flushed: /show/large (operation "), "{}", said(&refused));
    let told: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert!(told["refused"].as_u64().is_some_and(|refused| refused > 0), "{told}");
    let journal = tier.json(&["status"])["journal"].clone();
    assert!(journal["refused"].as_u64().is_some_and(|refused| refused > 0), "{journal}");
    assert!(read(&tier, "/show/large") == content(10), "it is here all the same");

    disk.grow("64m");
    flush(&tier, &[]);
    assert!(std::fs::read(disk.0.join("large")).expect("there now") == content(10), "other bytes");
    assert_eq!(tier.json(&["status"])["journal"]["refused"], 0);
}

#[test]
fn a_flush_waits_through_an_outage_and_clients_go_on() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (far, near) = (dir.path().join("far"), dir.path().join("near"));
    std::fs::create_dir(&near).expect("made");
    let show = show_of(&far);
    let tree = format!("[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n", far.join("tree").display());
    let mut nas = Tier::start(&far, &tree);
    let port = nas.nfs_port;
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"nfs://127.0.0.1:{port}/?mountport={port}\"\n{HELD}\n"
    );
    let tier = Tier::start(&near, &junction);
    let Some(()) = put(&tier, "/show/before", &content(11)) else { return };
    nas.stop();
    let admin = tier.admin.to_string();
    let mut waiting = forebay().args(["flush", "--wait", "--json", "--admin", &admin]).spawn().expect("runs");
    put(&tier, "/show/meanwhile", &content(12));
    assert!(read(&tier, "/show/before") == content(11), "other bytes");
    assert!(waiting.try_wait().expect("our child").is_none(), "the origin is away: it cannot have it");
    nas.start_again();
    assert!(waiting.wait().expect("our child").success(), "the origin has what was there before");
    assert!(std::fs::read(show.join("before")).expect("there now") == content(11), "other bytes");
    flush(&tier, &[]);
    assert!(std::fs::read(show.join("meanwhile")).expect("there now") == content(12), "other bytes");
}

/// More than one segment of the journal takes, and there is room for one, and for the reserve.
const FILES: usize = 60;

#[test]
fn a_full_journal_disk_lets_writers_wait_and_readers_go_on_until_there_is_room() {
    let name = "a_full_journal_disk_lets_writers_wait_and_readers_go_on_until_there_is_room";
    if !Path::new("/dev/fuse").exists() {
        return testkit::lab::not_run(name, "it needs /dev/fuse");
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |sub: &str| dir.path().join(sub);
    for sub in ["near", "mount", "journal"] {
        std::fs::create_dir(at(sub)).expect("made");
    }
    let Some(disk) = SmallDisk::mount(name, at("journal"), "140m") else { return };
    let (far, home) = (at("far"), show_of(&at("far")));
    let tree = format!("[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n", far.join("tree").display());
    let mut nas = Tier::start(&far, &tree);
    let port = nas.nfs_port;
    let text = format!(
        "[journal]\ndir = \"{}\"\n[[junction]]\npath = \"/\"\norigin = \"nfs://127.0.0.1:{port}/?mountport={port}\"\n{HELD}\n",
        disk.0.display()
    );
    let tier = Tier::start_mounted(&at("near"), &text, Some(&at("mount")));
    let show = at("mount/show");
    std::fs::write(show.join("before"), content(0)).expect("written");
    // Nothing that is flushed makes room.
    nas.stop();
    let (told, written) = std::sync::mpsc::sync_channel(FILES);
    let writer = std::thread::spawn({
        let show = show.clone();
        move || {
            for number in 1..=FILES {
                std::fs::write(show.join(format!("file{number}")), content(number))
                    .expect("it waits, no more");
                told.send(number).expect("we listen");
            }
        }
    });
    let quiet = std::time::Duration::from_secs(4);
    let mut last = 0;
    while let Ok(number) = written.recv_timeout(quiet) {
        last = number;
    }
    assert!((20..FILES).contains(&last), "{last} files of 1.5 MB on a disk of 140 MiB");
    assert!(!writer.is_finished());
    assert!(std::fs::read(show.join("before")).expect("read") == content(0), "other bytes");
    assert!(std::fs::read(show.join(format!("file{last}"))).expect("read") == content(last), "other bytes");

    disk.grow("400m");
    writer.join().expect("it goes on, without a restart and without its origin");
    nas.start_again();
    flush(&tier, &[]);
    for number in 1..=FILES {
        let bytes = std::fs::read(home.join(format!("file{number}"))).expect("at home");
        assert!(bytes == content(number), "other bytes in file {number}");
    }
    assert!(std::fs::read(home.join("before")).expect("at home") == content(0), "other bytes");
}

/// The other tier told of a write at the time in the new file's verifier, far ahead, until it had stored it: after some
/// seconds, on a slow line while others of that file were still to come. What came then seemed older and was not believed,
/// and the flush took its own work for another's.
#[test]
fn what_takes_long_to_be_flushed_to_another_tier_is_no_conflict() {
    const NAME: &str = "what_takes_long_to_be_flushed_to_another_tier_is_no_conflict";
    // More than is flushed at once of one file, and more than the line carries before the other tier stores by itself.
    const FILES: usize = 6;
    const PARTS: usize = 72;
    if !Path::new("/dev/fuse").exists() {
        return testkit::lab::not_run(NAME, "there is no /dev/fuse");
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let (far, near) = (dir.path().join("far"), dir.path().join("near"));
    let (tree, mount) = (dir.path().join("tree"), dir.path().join("mnt"));
    for made in [&far, &near, &tree, &mount] {
        std::fs::create_dir(made).expect("made");
    }
    let junction = "[[junction]]\npath = \"/\"";
    let origin = format!("{junction}\norigin = \"file://{}\"\nwrite = \"through\"", tree.display());
    let nas = Tier::start(&far, &origin);
    let (rtt, rate) = (Duration::from_millis(10), "250Mbit".parse().expect("a rate"));
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let line = Line { rtt, rate: Some(rate), ..Line::default() };
    let line = Relay::bind(at(0), at(nas.nfs_port), line).expect("a relay");
    let url = format!("nfs://{}/?mountport={}", line.local_addr(), line.local_addr().port());
    let origin = format!("{junction}\norigin = \"{url}\"\nwrite = \"back\"\nflush_delay = \"1h\"");
    let mut tier = Tier::start_mounted(&near, &origin, Some(&mount));
    let name = |file: usize| format!("f{file}");
    let part = |file: usize, part: usize| vec![(file * 31 + part) as u8; 1 << 20];
    for file in 0..FILES {
        let mut out = std::fs::File::create(mount.join(name(file))).expect("made");
        (0..PARTS).for_each(|at| out.write_all(&part(file, at)).expect("written"));
    }
    let begun = Instant::now();
    let flushed = flush(&tier, &[]);
    assert_eq!((&flushed["done"], &flushed["refused"]), (&true.into(), &0.into()), "{flushed}");
    assert!(begun.elapsed() > Duration::from_secs(8), "the other tier had no time to store by itself");
    let journal = &tier.json(&["status"])["journal"];
    let none = Value::from(Vec::<Value>::new());
    assert_eq!((&journal["conflicts"], &journal["alarms"]), (&0.into(), &none));
    assert_eq!(std::fs::read_dir(&tree).expect("listed").count(), FILES, "a copy beside");
    for file in 0..FILES {
        let wanted: Vec<u8> = (0..PARTS).flat_map(|at| part(file, at)).collect();
        for place in [&tree, &mount] {
            let seen = std::fs::read(place.join(name(file))).expect("there");
            assert!(seen == wanted, "{} has other bytes in {}", name(file), place.display());
        }
    }
    assert_eq!(tier.stop(), Some(0));
}
