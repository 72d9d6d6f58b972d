//! SIGHUP: junctions that come and go while clients are at work, and rules that are others from then on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::lab::not_run;
use testkit::ports::free_port;

use crate::serve::libnfs;
use crate::tier::{Tier, forebay};

const PATIENCE: Duration = Duration::from_secs(60);
const ID: &str = "AKFOREBAYTESTRELOAD";
const SECRET: &str = "real+clients/sign/with+this/secret000001";

/// A tier that is told by its configuration file alone.
struct Bed {
    /// Ends, and its mount with it, before its origins are removed.
    tier: Tier,
    dir: TempDir,
    s3_port: u16,
    is_mounted: bool,
    /// Reloads so far.
    reloads: usize,
}

impl Bed {
    /// `junctions`: names of directories with a file `told`, and more for their tables. `top`: what stands before all tables.
    fn new(test: &str, junctions: &[(&str, &str)]) -> Bed {
        let dir = tempfile::Builder::new().prefix("forebay-reload-").tempdir().expect("temporary directory");
        fs::create_dir(dir.path().join("mnt")).expect("made");
        for name in ["one", "two"] {
            fs::create_dir(dir.path().join(name)).expect("made");
            fs::write(dir.path().join(name).join("told"), format!("told by {name}\n")).expect("written");
        }
        let is_mounted = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
        if !is_mounted {
            not_run(test, "the part with a mount needs /dev/fuse, and root");
        }
        let s3_port = free_port();
        let s3 = format!(
            "[s3]\nlisten = \"127.0.0.1:{s3_port}\"\n[[s3.key]]\nid = \"{ID}\"\nsecret = \"{SECRET}\"\nread = [\"*\"]\n\
             write = [\"*\"]\n"
        );
        let mount = dir.path().join("mnt");
        // What the configuration says of the log counts only where the environment says nothing.
        let env = vec![("FOREBAY_LOG".to_owned(), String::new())];
        let config = format!("{s3}{}", tables(dir.path(), junctions));
        let tier = Tier::start_with_env(dir.path(), &config, is_mounted.then_some(mount.as_path()), env);
        Bed { tier, dir, s3_port, is_mounted, reloads: 0 }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self) -> String {
        fs::read_to_string(self.at("forebay.toml")).expect("read")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("forebay.log")).expect("a log")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.tier.pid()).expect("a pid"), signal).expect("it runs");
    }

    /// The configuration is this from now on; the line that the reload has in the audit log.
    fn reload(&mut self, config: &str) -> Value {
        fs::write(self.at("forebay.toml"), config).expect("written");
        self.signal(Signal::HUP);
        self.reloads += 1;
        let audited = || {
            let text = fs::read_to_string(self.at("cache/audit.log")).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.filter(|line| line["what"] == "SIGHUP").nth(self.reloads - 1)
        };
        let mut line = None;
        self.until("that it was reloaded", || {
            line = audited();
            line.is_some()
        });
        let mut line = line.expect("seen");
        line["result"] = serde_json::from_str(line["result"].as_str().expect("text")).expect("JSON");
        line
    }

    /// The same with these junctions in place of what was typed of them.
    fn reload_with(&mut self, junctions: &[(&str, &str)]) -> Value {
        let config = self.config();
        let rest = config.split("[[junction]]").next().expect("there is something before them").to_owned();
        let config = format!("{rest}{}", tables(self.dir.path(), junctions));
        self.reload(&config)
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what} is not seen; the log:\n{}", self.tier.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The status and the body of a request that is signed.
    fn s3(&self, path: &str) -> (u16, String) {
        let user = format!("{ID}:{SECRET}");
        let url = format!("http://127.0.0.1:{}{path}", self.s3_port);
        let output = Command::new("curl")
            .args(["-s", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user])
            .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-w", "\n%{http_code}", &url])
            .output()
            .expect("curl is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').expect("a status");
        (status.parse().expect("a number"), body.to_owned())
    }

    fn mounted(&self, path: &str) -> PathBuf {
        self.at("mnt").join(path)
    }

    fn junctions(&self) -> Vec<String> {
        let status = self.tier.json(&["status"]);
        let all = status["junctions"].as_array().expect("a list").iter();
        all.map(|junction| junction["path"].as_str().expect("text").to_owned()).collect()
    }

    /// By all fronts and the operator's interface.
    fn serves(&self, name: &str) {
        let told = format!("told by {name}\n");
        assert!(self.junctions().contains(&format!("/{name}")), "{:?}", self.junctions());
        let up = format!("forebay_junction_up{{junction=\"/{name}\",reason=\"none\"}} 1");
        self.until(&up, || self.tier.get("/metrics").contains(&up));
        assert_eq!(self.tier.json(&["stat", &format!("/{name}/told")])["size"], told.len());
        assert_eq!(self.s3(&format!("/{name}/told")), (200, told.clone()));
        if let Some(read) = libnfs("nfs-cat", &self.tier, &format!("/{name}/told")) {
            assert_eq!(String::from_utf8_lossy(&read.stdout), told, "{read:?}");
        }
        if self.is_mounted {
            self.until("what is served on the mount", || self.mounted(name).exists());
            assert_eq!(fs::read_to_string(self.mounted(&format!("{name}/told"))).expect("read"), told);
            assert!(self.names().contains(&name.to_owned()), "{:?}", self.names());
        }
    }

    fn serves_no(&self, name: &str) {
        assert!(!self.junctions().contains(&format!("/{name}")), "{:?}", self.junctions());
        assert!(!self.tier.get("/metrics").contains(&format!("forebay_junction_up{{junction=\"/{name}\"")));
        let (status, body) = self.s3(&format!("/{name}/told"));
        assert!(status == 404 && body.contains("NoSuchBucket"), "{status} {body}");
        if let Some(read) = libnfs("nfs-cat", &self.tier, &format!("/{name}/told")) {
            assert!(!read.status.success(), "{read:?}");
        }
        if self.is_mounted {
            self.until("that it is gone from the mount", || !self.mounted(name).exists());
            let read = fs::read(self.mounted(&format!("{name}/told")));
            assert_eq!(read.expect_err("gone").kind(), ErrorKind::NotFound);
            assert!(!self.names().contains(&name.to_owned()), "{:?}", self.names());
        }
    }

    fn names(&self) -> Vec<String> {
        let listed = fs::read_dir(self.at("mnt")).expect("listed");
        listed.map(|entry| entry.expect("read").file_name().into_string().expect("UTF-8")).collect()
    }
}

/// Each its path, which is the name of its origin's directory too, and more.
fn tables(dir: &Path, junctions: &[(&str, &str)]) -> String {
    let table = |(name, more): &(&str, &str)| {
        format!(
            "[[junction]]\npath = \"/{name}\"\norigin = \"file://{}\"\n{more}\n",
            dir.join(name).display()
        )
    };
    junctions.iter().map(table).collect()
}

fn listed<'a>(line: &'a Value, what: &str) -> Vec<&'a str> {
    let all = line["result"][what].as_array().unwrap_or_else(|| panic!("{what} in {line:#}"));
    all.iter().map(|one| one.as_str().expect("text")).collect()
}

#[test]
fn a_junction_that_is_added_is_served_by_every_front_at_once_and_one_that_is_removed_by_none() {
    let mut bed = Bed::new("a_junction_that_is_added_is_served_by_every_front_at_once", &[("one", "")]);
    bed.serves("one");
    bed.serves_no("two"); // the kernel knows now that there is none
    let line = bed.reload_with(&[("one", ""), ("two", "")]);
    assert_eq!((listed(&line, "changed"), &line["status"]), (vec!["[[junction]] /two (added)"], &200.into()));
    bed.serves("two");
    bed.serves("one");
    let warmed = bed.tier.json(&["warm", "/two"]);
    assert_eq!((&warmed["files"], &warmed["errors"]), (&1.into(), &0.into()), "{warmed}");

    let held = bed.is_mounted.then(|| fs::File::open(bed.mounted("one/told")).expect("opened"));
    let line = bed.reload_with(&[("two", "")]);
    assert_eq!(listed(&line, "changed"), ["[[junction]] /one (removed)"], "{line:#}");
    bed.serves_no("one");
    bed.serves("two");
    drop(held);

    let read_before = bed.tier.json(&["status"])["junctions"][0]["origin_bytes"].clone();
    bed.reload_with(&[("one", ""), ("two", "")]);
    bed.serves("one");
    let line = bed.reload_with(&[("one", "")]);
    assert_eq!(listed(&line, "changed"), ["[[junction]] /two (removed)"]);
    bed.reload_with(&[("one", ""), ("two", "")]);
    bed.serves("two");
    let status = bed.tier.json(&["status"]);
    let b = status["junctions"].as_array().expect("a list").iter().find(|it| it["path"] == "/two");
    assert_eq!(b.expect("served")["origin_bytes"], read_before, "what was cached of it is there still");
    assert_eq!(bed.tier.stop(), Some(0));
}

#[test]
fn what_was_written_back_is_never_lost_by_a_removal_and_a_first_junction_of_it_opens_the_journal() {
    let mut bed = Bed::new("what_was_written_back_is_never_lost_by_a_removal", &[("one", "")]);
    if !bed.is_mounted {
        return;
    }
    let back = "write = \"back\"\nflush_delay = \"1h\"";
    bed.reload_with(&[("one", ""), ("two", back)]);
    bed.serves("two");
    assert!(bed.log().contains("one copy on one disk"), "it is said as at a start");
    assert!(bed.tier.get("/metrics").contains("forebay_journal_"), "and counted");
    fs::write(bed.mounted("two/plan"), b"not at the origin").expect("written");
    assert!(!bed.at("two/plan").exists());
    for _ in 0..2 {
        let line = bed.reload_with(&[("one", "")]);
        let refused = listed(&line, "refused");
        assert!(line["status"] == 409 && refused.len() == 1, "{line:#}");
        assert!(refused[0].starts_with("[[junction]] /two (removed)"), "{refused:?}");
        assert!(
            refused[0].contains("17 bytes") && refused[0].contains("forebay flush --wait /two"),
            "{refused:?}"
        );
        bed.serves("two");
        assert_eq!(fs::read(bed.mounted("two/plan")).expect("it stays"), b"not at the origin");
    }
    let flushed = bed.tier.ask(&["flush", "--wait", "/two"]);
    assert!(flushed.status.success(), "{flushed:?}");
    let line = bed.reload_with(&[("one", "")]);
    assert_eq!(listed(&line, "changed"), ["[[junction]] /two (removed)"], "{line:#}");
    bed.serves_no("two");
    assert_eq!(fs::read(bed.at("two/plan")).expect("at the origin"), b"not at the origin");
    // The journal has no changes of a junction that is not there: the next start would refuse it.
    bed.tier.kill_nine();
    let _ = Command::new("umount").arg("-l").arg(bed.at("mnt")).status();
    bed.tier.start_again();
    bed.serves("one");
    bed.serves_no("two");
}

#[test]
fn a_ttl_that_is_changed_holds_at_once_for_what_was_told_under_the_old_one_too() {
    let rules = "files = \"1h\"\ndirectories = \"1h\"\nnegative = \"1h\"";
    let mut bed = Bed::new("a_ttl_that_is_changed_holds_at_once", &[("one", rules)]);
    let read = |bed: &Bed| {
        let by_s3 = bed.s3("/one/told").1;
        let by_mount = bed.is_mounted.then(|| fs::read_to_string(bed.mounted("one/told")).expect("read"));
        assert!(by_mount.is_none_or(|told| told == by_s3), "the mount is as the tier");
        by_s3
    };
    assert_eq!(read(&bed), "told by one\n");
    fs::write(bed.at("one/told"), b"told otherwise, and longer\n").expect("written");
    assert_eq!(read(&bed), "told by one\n", "for an hour");
    let line = bed.reload_with(&[("one", "files = \"100ms\"\ndirectories = \"100ms\"\nnegative = \"1h\"")]);
    assert_eq!(listed(&line, "changed"), ["files, directories of /one"], "{line:#}");
    bed.until("the change under the new ttl", || bed.s3("/one/told").1 == "told otherwise, and longer\n");
    if bed.is_mounted {
        let told = || fs::read_to_string(bed.mounted("one/told")).expect("read");
        bed.until("the change on the mount", || told() == "told otherwise, and longer\n");
    }
    let freshness = |bed: &Bed| bed.tier.json(&["stat", "/one/told"])["freshness"].clone();
    assert_eq!(freshness(&bed), "ttl 100ms");
    bed.reload_with(&[(
        "one",
        "files = \"immutable\"\nstale_if_error = \"1h\"\ndirectory_names_max = 20000",
    )]);
    assert_eq!(freshness(&bed), "immutable");
    let line = bed.reload_with(&[("one", "files = \"immutable\"\nwrite = \"read-only\"")]);
    assert_eq!(listed(&line, "needing_restart"), ["write of /one"], "{line:#}");
}

#[test]
fn a_mistake_in_the_file_changes_nothing_and_its_line_is_named() {
    let mut bed = Bed::new("a_mistake_in_the_file_changes_nothing", &[("one", "")]);
    let good = bed.config();
    let line_of = |text: &str, wanted: &str| {
        let at = text.lines().position(|line| line == wanted).expect("it is there") + 1;
        format!("forebay.toml:{at}:")
    };
    let without_a = good.split("[[junction]]").next().expect("something").to_owned();
    let origin = bed.at("two");
    let table = |path: &str, more: &str| {
        format!("[[junction]]\npath = \"{path}\"\norigin = \"file://{}\"\n{more}\n", origin.display())
    };
    let bad = [
        (format!("{without_a}{}", table("/two", "files = \"soon\"")), "files = \"soon\"", "\"30s\""),
        (format!("{good}{}", table("/one/two", "")), "path = \"/one/two\"", "beside each other"),
        (format!("{good}{}", table("two", "")), "path = \"two\"", "/show"),
        (
            format!("{good}{}[[nfs.export]]\njunction = \"/six\"\nclients = [\"*\"]\n", table("/two", "")),
            "junction = \"/six\"",
            "the junctions are /one, /two",
        ),
        (format!("{without_a}log = 7\n{}", table("/two", "")), "log = 7", ""),
        (format!("log = \"debgu\"\n{without_a}{}", table("/two", "")), "log = \"debgu\"", "info,cache=debug"),
    ];
    for (text, wrong, right) in bad {
        let line = bed.reload(&text);
        let error = line["result"]["error"].as_str().expect("an error");
        assert!(error.contains(&line_of(&text, wrong)) && error.contains(right), "{wrong}: {error}");
        assert_eq!(line["status"], 400);
        assert!(bed.log().contains(&format!("SIGHUP: nothing is changed: {error}")), "{error}");
        assert_eq!(bed.junctions(), ["/one"], "{wrong}");
    }
    bed.serves("one");
    // An origin that is not there is no mistake in the file: what can be done is done.
    let away = good.replace("[[nfs.export]]", "[[nfs.export]]\naccess = \"read-only\"");
    let away = format!("{away}{}", table("/six", "").replace("/two\"", "/nowhere\""));
    let line = bed.reload(&away);
    assert_eq!(listed(&line, "changed"), ["[[nfs.export]]"], "{line:#}");
    let refused = listed(&line, "refused");
    assert!(
        refused.len() == 1 && refused[0].contains("/six (added)") && refused[0].contains("nowhere"),
        "{refused:?}"
    );
    fs::create_dir(bed.at("nowhere")).expect("made");
    let line = bed.reload(&away);
    assert_eq!(
        listed(&line, "changed"),
        ["[[junction]] /six (added)"],
        "the next hangup tries again: {line:#}"
    );
}

#[test]
fn the_log_and_the_flush_go_by_what_a_hangup_brought() {
    let back = |more: &str| format!("write = \"back\"\n{more}");
    let mut bed = Bed::new(
        "the_log_and_the_flush_go_by_what_a_hangup_brought",
        &[("one", &back("flush_delay = \"1h\""))],
    );
    let debugged = |bed: &Bed| bed.log().contains("DEBUG");
    assert!(!debugged(&bed));
    let config = bed.config();
    let line = bed.reload(&format!("log = \"debug\"\n{config}"));
    assert_eq!(listed(&line, "changed"), ["log"], "{line:#}");
    bed.s3("/one/told");
    bed.until("what is for debugging", || debugged(&bed));
    bed.reload(&format!("log = \"error\"\n{config}"));
    let quiet = bed.log().len();
    bed.tier.json(&["evict", "/one"]);
    bed.s3("/one/told");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(bed.log().len(), quiet, "nothing is an error");
    bed.reload(&config);
    if !bed.is_mounted {
        return;
    }

    fs::write(bed.mounted("one/first"), b"first").expect("written");
    std::thread::sleep(Duration::from_millis(500));
    assert!(!bed.at("one/first").exists(), "in an hour");
    let line = bed.reload_with(&[("one", &back("flush_delay = \"0s\""))]);
    assert_eq!(
        listed(&line, "changed"),
        ["flush_delay, flush_rate, flush_windows, conflicts of /one"],
        "{line:#}"
    );
    let is_home = |bed: &Bed, name: &str, length: u64| {
        bed.at("one").join(name).metadata().is_ok_and(|found| found.len() == length)
    };
    bed.until("what waited for its delay", || is_home(&bed, "first", 5));

    // The first unit may run into debt, which the others pay at 256 KiB a second.
    bed.reload_with(&[("one", &back("flush_delay = \"0s\"\nflush_rate = \"256KiB\""))]);
    let data = vec![7; 1 << 20];
    for name in ["one", "two", "three"] {
        fs::write(bed.mounted("one").join(name), &data).expect("written");
    }
    let home = |bed: &Bed| ["one", "two", "three"].iter().filter(|name| is_home(bed, name, 1 << 20)).count();
    std::thread::sleep(Duration::from_secs(2));
    assert!(home(&bed) < 3, "3 MiB at 256 KiB a second");
    bed.reload_with(&[("one", &back("flush_delay = \"0s\""))]);
    let began = Instant::now();
    bed.until("all of it", || home(&bed) == 3);
    assert!(began.elapsed() < Duration::from_secs(6), "without the limit: {:?}", began.elapsed());
}

#[test]
fn no_signal_but_those_that_say_so_ends_a_tier_or_its_mount() {
    let bed = Bed::new("no_signal_but_those_that_say_so_ends_a_tier_or_its_mount", &[("one", "")]);
    let held = bed.is_mounted.then(|| fs::File::open(bed.mounted("one/told")).expect("opened"));
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::PIPE, Signal::HUP] {
        bed.signal(signal);
        std::thread::sleep(Duration::from_millis(100));
        assert!(bed.tier.get("/healthz").starts_with("HTTP/1.0 200"), "{signal:?}");
        if let Some(held) = &held {
            assert_eq!(held.metadata().expect("the mount lives").len(), 12, "{signal:?}");
            assert_eq!(
                fs::read_to_string(bed.mounted("one/told")).expect("read"),
                "told by one\n",
                "{signal:?}"
            );
        }
    }
    bed.serves("one");
    assert!(bed.log().contains("SIGUSR1: forebay "));
}

/// A NAS that gives so much a second, so that a warm-up of it lasts.
fn slow_nas(dir: &Path, limits: &str) -> (std::process::Child, String) {
    use std::io::{BufRead, BufReader};
    let mut command = forebay();
    command.arg("nas").arg(dir).args(["--limits", limits, "--attended"]);
    let mut nas = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(nas.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    let told: Value = serde_json::from_str(&line).expect("JSON");
    (nas, told["nfs"].as_str().expect("an address").to_owned())
}

#[test]
fn a_warm_up_that_runs_is_listed_watched_again_and_stopped() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("made");
    for name in 0..192_u8 {
        fs::write(tree.join(name.to_string()), vec![name; 1 << 20]).expect("written");
    }
    let (mut nas, address) = slow_nas(&tree, "all=24MiB/s");
    let port = address.rsplit(':').next().expect("a port").to_owned();
    let origin = format!("nfs://127.0.0.1:{port}/?mountport={port}");
    let tier = Tier::start(dir.path(), &format!("[[junction]]\npath = \"/\"\norigin = \"{origin}\"\n"));
    let said = |verb: &[&str]| {
        let admin = tier.admin.to_string();
        let done = forebay().args(verb).args(["--admin", &admin]).output().expect("runs");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let job = tier.json(&["warm", "/", "--detach"])["job"].to_string();
    let bytes = || tier.json(&["status"])["junctions"][0]["origin_bytes"].as_u64().expect("a number");
    let began = Instant::now();
    while bytes() == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is fetched");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (code, listed) = said(&["jobs"]);
    assert!(code == Some(0) && listed.contains("under way") && listed.contains("warm-up"), "{listed}");
    let watch = std::thread::spawn({
        let (job, admin) = (job.clone(), tier.admin.to_string());
        move || forebay().args(["jobs", "watch", &job, "--admin", &admin]).output().expect("runs")
    });
    std::thread::sleep(Duration::from_secs(1));
    assert!(!watch.is_finished(), "192 MiB at 24 MiB a second");
    let (code, stopped) = said(&["jobs", "stop", &job]);
    assert!(code == Some(0) && !stopped.contains("over already"), "{stopped}");
    let watched = watch.join().expect("ends with the job");
    assert_ne!(watched.status.code(), Some(0), "it did not come to its end: {watched:?}");
    let (_, listed) = said(&["jobs"]);
    assert!(listed.contains("stopped"), "{listed}");
    // Reads that were under way come in still.
    let mut before = bytes();
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let now = bytes();
        if now == before {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it goes on");
        before = now;
    }
    let all = 192 << 20;
    assert!(before < all * 3 / 4, "{before}: it was stopped");
    let warmed = tier.json(&["warm", "/"]);
    assert_eq!(warmed["bytes_fetched"], all - before, "it goes on where it was: {warmed}");
    assert_eq!(tier.json(&["warm", "/"])["bytes_fetched"], 0, "and all of it is here");
    nas.kill().expect("our child");
    nas.wait().expect("our child");
}
