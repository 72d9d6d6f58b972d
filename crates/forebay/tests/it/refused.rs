//! What the origin refuses for good, written `back`: refused at the call where that can be known, undone by its owner by
//! ordinary means, or given up by the operator. The tree is mounted here, and the origin is a directory.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::tier::{Tier, forebay};
use crate::usage::failure;

/// Longer than anything here takes on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

struct Bed {
    dir: tempfile::TempDir,
    /// The origin has a file system of its own.
    is_mounted: bool,
}

impl Bed {
    /// `None` where it cannot be: without FUSE, or root. `size`: of the origin's own file system, in MiB.
    fn new(name: &str, size: Option<usize>) -> Option<Bed> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            testkit::lab::not_run(name, "it needs /dev/fuse, and root");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("forebay-refused-").tempdir().expect("temporary directory");
        for sub in ["tree", "mnt"] {
            fs::create_dir(dir.path().join(sub)).expect("made");
        }
        let mut bed = Bed { dir, is_mounted: false };
        if let Some(size) = size {
            let option = format!("size={size}m");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(bed.at("tree"));
            if !mount_ran(&mut mount) {
                testkit::lab::not_run(name, "it needs the right to mount");
                return None;
            }
            bed.is_mounted = true;
        }
        Some(bed)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn junction(&self, policy: &str) -> String {
        let origin = self.at("tree");
        format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"{policy}\"\n",
            origin.display()
        )
    }

    fn tier(&self, delay: &str) -> Tier {
        let junction = format!("{}flush_delay = \"{delay}\"\n", self.junction("back"));
        Tier::start_mounted(self.dir.path(), &junction, Some(&self.at("mnt")))
    }
}

fn mount_ran(command: &mut Command) -> bool {
    command.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.at("tree")).status();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "not in {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8).collect()
}

fn names_in(dir: &Path) -> Vec<String> {
    let listed = fs::read_dir(dir).expect("listed");
    let mut names: Vec<_> =
        listed.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn refused(tier: &Tier) -> u64 {
    tier.json(&["status"])["journal"]["refused"].as_u64().expect("told")
}

fn listed(tier: &Tier, more: &[&str]) -> Vec<Value> {
    let told = tier.json(&[&["journal", "list"], more].concat());
    told["operations"].as_array().expect("a list").clone()
}

fn numbers(operations: &[Value]) -> Vec<String> {
    operations.iter().map(|operation| operation["operation"].to_string()).collect()
}

/// All is home: the flush says so with its exit code.
fn flush(tier: &Tier) {
    let output = tier.ask(&["flush", "--wait"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The largest file that this file system can have; `None`: any.
fn largest_file(dir: &Path) -> Option<u64> {
    let file = tempfile::tempfile_in(dir).expect("made");
    let (mut fits, mut too_large) = (0, i64::MAX.cast_unsigned());
    if file.set_len(too_large).is_ok() {
        return None;
    }
    while too_large - fits > 1 {
        let middle = fits + (too_large - fits) / 2;
        if file.set_len(middle).is_ok() { fits = middle } else { too_large = middle }
    }
    Some(fits)
}

#[test]
fn a_file_larger_than_the_origin_can_have_is_refused_when_it_is_asked_for() {
    const NAME: &str = "a_file_larger_than_the_origin_can_have_is_refused_when_it_is_asked_for";
    let Some(bed) = Bed::new(NAME, None) else { return };
    let (mnt, tree) = (bed.at("mnt"), bed.at("tree"));
    let Some(max) = largest_file(&tree) else {
        return testkit::lab::not_run(NAME, "files can be as long as they like here");
    };
    let mut tier = bed.tier("100ms");
    let file = File::create(mnt.join("f")).expect("made");
    let too_large = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("refused").raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    };
    too_large(file.set_len(max + 1));
    // The kernel may keep what is written for a while; it says so at the sync.
    too_large(file.write_all_at(&[7; 10], max).and_then(|()| file.sync_all()));
    drop(file);
    fs::remove_file(mnt.join("f")).expect("removed");
    fs::write(mnt.join("f"), b"valid\n").expect("written");
    fs::rename(mnt.join("f"), mnt.join("g")).expect("renamed");
    flush(&tier);
    assert_eq!(
        (names_in(&tree), fs::read(tree.join("g")).expect("there")),
        (vec!["g".to_owned()], b"valid\n".to_vec())
    );
    // Nothing stands in the way of another policy.
    assert_eq!(tier.stop(), Some(0));
    let tier = Tier::start_mounted(bed.dir.path(), &bed.junction("through"), Some(&mnt));
    assert_eq!(tier.json(&["status"])["write"], "through");
}

/// One directory in the other, until that is refused; returns how many there are.
fn dig(top: &Path, name: &str, most: usize) -> usize {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let name = CString::new(name).expect("a name");
    let mut at: OwnedFd = rustix::fs::open(top, flags, Mode::empty()).expect("opened");
    for level in 0..most {
        match rustix::fs::mkdirat(&at, &name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::NAMETOOLONG) => return level,
            Err(e) => panic!("level {level}: {e}"),
        }
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).expect("opened");
    }
    most
}

/// As `rm -rf` goes: down, and up again by directories.
fn clear(top: &Path, name: &str) {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let name = CString::new(name).expect("a name");
    let mut way: Vec<OwnedFd> = vec![rustix::fs::open(top, flags, Mode::empty()).expect("opened")];
    while let Ok(below) = rustix::fs::openat(&way[way.len() - 1], &name, flags, Mode::empty()) {
        way.push(below);
    }
    way.pop();
    while let Some(dir) = way.pop() {
        rustix::fs::unlinkat(&dir, &name, AtFlags::REMOVEDIR).expect("removed");
    }
}

#[test]
fn a_path_deeper_than_the_origin_can_have_is_refused_and_the_tree_is_removed_from_both() {
    let Some(bed) =
        Bed::new("a_path_deeper_than_the_origin_can_have_is_refused_and_the_tree_is_removed_from_both", None)
    else {
        return;
    };
    let (tier, mnt, tree) = (bed.tier("100ms"), bed.at("mnt"), bed.at("tree"));
    let name = "d".repeat(200);
    let depth = dig(&mnt, &name, 100);
    assert!((40..100).contains(&depth), "{depth} directories");
    flush(&tier);
    assert_eq!(names_in(&tree), std::slice::from_ref(&name));
    clear(&mnt, &name);
    flush(&tier);
    assert_eq!(names_in(&tree), Vec::<String>::new());
    // The same with nothing home in between.
    dig(&mnt, &name, 100);
    clear(&mnt, &name);
    flush(&tier);
    assert_eq!((names_in(&tree), names_in(&mnt)), (Vec::new(), Vec::new()));
}

#[test]
fn what_is_refused_is_listed_exported_and_given_up_and_the_rest_gets_home() {
    let Some(bed) =
        Bed::new("what_is_refused_is_listed_exported_and_given_up_and_the_rest_gets_home", Some(24))
    else {
        return;
    };
    let (tier, mnt, tree) = (bed.tier("1h"), bed.at("mnt"), bed.at("tree"));
    fs::write(mnt.join("before"), b"before\n").expect("written");
    flush(&tier);
    fs::write(mnt.join("toobig"), content(40 * MIB)).expect("acknowledged");
    tier.json(&["flush"]);
    until("it is refused", || refused(&tier) > 0);
    fs::set_permissions(mnt.join("toobig"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("set");
    let all = listed(&tier, &[]);
    let (kinds, bytes): (Vec<_>, Vec<_>) = all
        .iter()
        .map(|it| (it["kind"].as_str().expect("told"), it["bytes"].as_u64().expect("told")))
        .unzip();
    assert!(kinds.contains(&"write") && kinds.contains(&"set"), "{all:#?}");
    assert_eq!(bytes.iter().sum::<u64>(), 40 * MIB as u64);
    assert!(all.iter().all(|it| it["path"] == "/toobig" && it["junction"] == "/"), "{all:#?}");
    let parked = listed(&tier, &["--refused", "--junction", "/"]);
    let why = parked[0]["refused"].as_str().expect("why");
    assert!(why.to_lowercase().contains("space"), "{why}");
    let first = numbers(&all)[0].clone();
    let shown = tier.json(&["journal", "show", &first]);
    assert_eq!(shown["needed_by"].as_array().map(Vec::len), Some(all.len() - 1), "{shown:#}");

    // Not a part of it without the rest, and nothing that is not there.
    let partly = tier.ask(&["journal", "drop", &first]);
    let said = String::from_utf8_lossy(&partly.stderr).into_owned();
    assert!(!partly.status.success() && said.contains("--with-dependents"), "{said}");
    assert!(!tier.ask(&["journal", "drop", "999999999"]).status.success());
    assert_eq!(listed(&tier, &[]).len(), all.len());

    let export = bed.at("exported");
    let export_text = export.display().to_string();
    let dropped = tier.json(&["journal", "drop", &first, "--with-dependents", "--export", &export_text]);
    assert_eq!(dropped["dropped"].as_array().map(Vec::len), Some(all.len()), "{dropped}");
    assert_eq!((&dropped["bytes"], &dropped["export"]), (&(40 * MIB).into(), &export_text.clone().into()));
    let list: Value =
        serde_json::from_slice(&fs::read(export.join("operations.json")).expect("there")).expect("JSON");
    let mut again = File::create(bed.at("again")).expect("made");
    for operation in list["operations"].as_array().expect("a list") {
        if let Some(file) = operation["file"].as_str() {
            let offset: u64 =
                operation["details"]["offset"].as_str().expect("told").parse().expect("a number");
            again.write_all_at(&fs::read(export.join(file)).expect("there"), offset).expect("written");
        }
    }
    again.flush().expect("written");
    assert!(fs::read(bed.at("again")).expect("read") == content(40 * MIB), "other bytes were exported");
    let audit = fs::read_to_string(bed.at("cache/audit.log")).expect("kept");
    assert!(
        audit.lines().any(|line| line.contains("/v1/journal/drop") && line.contains("exported")),
        "{audit}"
    );

    assert_eq!((refused(&tier), listed(&tier, &[]).len()), (0, 0));
    // What arrived of it at the origin is what clients see, and can remove.
    until("clients see what the origin has", || names_in(&mnt) == names_in(&tree));
    if tree.join("toobig").exists() {
        let size = |dir: &Path| fs::metadata(dir.join("toobig")).expect("there").len();
        until("and as long as it is there", || size(&mnt) == size(&tree));
        fs::remove_file(mnt.join("toobig")).expect("removed");
        flush(&tier); // which makes room
    }
    fs::write(mnt.join("later"), b"later\n").expect("written");
    flush(&tier);
    assert_eq!(names_in(&tree), ["before", "later"]);
    assert_eq!(names_in(&mnt), ["before", "later"]);
}

#[test]
fn a_dropped_removal_brings_the_file_back_and_a_dropped_file_is_gone_also_after_a_restart() {
    let Some(bed) = Bed::new(
        "a_dropped_removal_brings_the_file_back_and_a_dropped_file_is_gone_also_after_a_restart",
        None,
    ) else {
        return;
    };
    let (mut tier, mnt, tree) = (bed.tier("1h"), bed.at("mnt"), bed.at("tree"));
    for name in ["kept", "moved", "written"] {
        fs::write(tree.join(name), b"as it was\n").expect("written");
    }
    let as_it_was = || {
        until("it is as before", || names_in(&mnt) == ["kept", "moved", "written"]);
        for name in ["kept", "moved", "written"] {
            until(name, || fs::read(mnt.join(name)).is_ok_and(|bytes| bytes == b"as it was\n"));
        }
    };
    as_it_was();
    fs::remove_file(mnt.join("kept")).expect("removed");
    fs::rename(mnt.join("moved"), mnt.join("elsewhere")).expect("renamed");
    File::options()
        .append(true)
        .open(mnt.join("written"))
        .expect("opened")
        .write_all(b"more")
        .expect("written");
    fs::write(mnt.join("new"), b"new\n").expect("written");
    assert_eq!(names_in(&mnt), ["elsewhere", "new", "written"]);
    tier.json(&["journal", "drop", "--all"]);
    as_it_was();
    tier.kill_nine();
    let _ = Command::new("umount").arg("-l").arg(&mnt).status();
    tier.start_again();
    as_it_was();
    assert_eq!(listed(&tier, &[]).len(), 0);
    // It goes on as before.
    fs::write(mnt.join("new"), b"newer\n").expect("written");
    flush(&tier);
    assert_eq!(fs::read(tree.join("new")).expect("there"), b"newer\n");
    let kept = fs::read_dir(bed.at("cache/dropped")).expect("exported").count();
    assert_eq!(kept, 1);
}

#[test]
fn what_is_left_of_a_write_when_a_later_one_is_dropped_gets_home() {
    let Some(bed) = Bed::new("what_is_left_of_a_write_when_a_later_one_is_dropped_gets_home", None) else {
        return;
    };
    let (tier, mnt, tree) = (bed.tier("1h"), bed.at("mnt"), bed.at("tree"));
    fs::write(mnt.join("file"), b"first, then").expect("written");
    File::open(mnt.join("file")).expect("opened").sync_all().expect("synced");
    let before = listed(&tier, &[]).len();
    let file = File::options().write(true).open(mnt.join("file")).expect("opened");
    file.write_all_at(b"LATER AND LONGER", 7).and_then(|()| file.sync_all()).expect("written");
    drop(file);
    let later = numbers(&listed(&tier, &[])[before..]);
    let words: Vec<&str> = later.iter().map(String::as_str).collect();
    tier.json(&[&["journal", "drop", "--with-dependents"], &words[..]].concat());
    until("clients see the first", || fs::read(mnt.join("file")).is_ok_and(|bytes| bytes == b"first, then"));
    flush(&tier);
    assert_eq!(fs::read(tree.join("file")).expect("there"), b"first, then");
}

/// A start that is refused says how it is looked at and given up, and that works.
fn given_up_while_stopped(bed: &Bed, config: &str) {
    let (cache, file) = (bed.at("cache").display().to_string(), bed.at("refused.toml"));
    let text = format!(
        "[cache]\ndir = \"{cache}\"\n[nfs]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{config}"
    );
    fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let (said, code) = failure(&["serve", "--config", &file]);
    assert_eq!(code, Some(2), "{said}");
    for part in ["forebay journal list --cache", "forebay journal drop --all --cache", &cache] {
        assert!(said.contains(part), "{said}");
    }
    let told = forebay().args(["journal", "list", "--json", "--cache", &cache]).output().expect("run");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let operations = told["operations"].as_array().expect("a list");
    assert!(operations.iter().any(|it| it["path"] == "/file" && it["kind"] == "write"), "{told:#}");
    assert!(operations.iter().all(|it| it["junction"] == "/"), "{told:#}");
    let first = numbers(operations)[0].clone();
    let shown = forebay().args(["journal", "show", &first, "--cache", &cache]).output().expect("run");
    assert!(shown.status.success() && String::from_utf8_lossy(&shown.stdout).contains("/file"), "{shown:?}");
    let (said, _) = failure(&["journal", "drop", &first, "--cache", &cache]);
    assert!(said.contains("--with-dependents"), "{said}");
    let dropped =
        forebay().args(["journal", "drop", "--all", "--json", "--cache", &cache]).output().expect("run");
    assert!(dropped.status.success(), "{dropped:?}");
    let dropped: Value = serde_json::from_slice(&dropped.stdout).expect("JSON");
    let export = PathBuf::from(dropped["export"].as_str().expect("told"));
    let bytes = names_in(&export).into_iter().find(|name| name.ends_with(".bytes")).expect("the write");
    assert_eq!(fs::read(export.join(bytes)).expect("there"), b"not home\n");
    let audit = fs::read_to_string(bed.at("cache/audit.log")).expect("kept");
    assert!(audit.lines().any(|line| line.contains("journal drop, stopped")), "{audit}");
}

fn stopped_with_a_file(bed: &Bed) {
    let mut tier = bed.tier("1h");
    fs::write(bed.at("mnt/file"), b"not home\n").expect("written");
    let cache = bed.at("cache").display().to_string();
    let (said, _) = failure(&["journal", "list", "--cache", &cache]);
    assert!(said.contains("in use"), "of a running tier: {said}");
    assert_eq!(tier.stop(), Some(0));
}

#[test]
fn a_junction_goes_from_back_to_through_though_something_waits() {
    let Some(bed) = Bed::new("a_junction_goes_from_back_to_through_though_something_waits", None) else {
        return;
    };
    stopped_with_a_file(&bed);
    given_up_while_stopped(&bed, &bed.junction("through"));
    let tier = Tier::start_mounted(bed.dir.path(), &bed.junction("through"), Some(&bed.at("mnt")));
    assert_eq!((names_in(&bed.at("mnt")), names_in(&bed.at("tree"))), (Vec::new(), Vec::new()));
    fs::write(bed.at("mnt/file"), b"through\n").expect("written");
    assert_eq!(fs::read(bed.at("tree/file")).expect("there"), b"through\n");
    drop(tier);
}

#[test]
fn a_junction_is_taken_out_of_the_configuration_though_something_waits_for_it() {
    let Some(bed) =
        Bed::new("a_junction_is_taken_out_of_the_configuration_though_something_waits_for_it", None)
    else {
        return;
    };
    stopped_with_a_file(&bed);
    fs::create_dir(bed.at("other")).expect("made");
    let other = format!("[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n", bed.at("other").display());
    given_up_while_stopped(&bed, &other);
    let tier = Tier::start(bed.dir.path(), &other);
    assert_eq!(tier.json(&["status"])["write"], "through");
}

#[test]
fn a_file_for_which_the_origin_has_no_room_is_removed_and_everything_else_gets_home() {
    let Some(bed) = Bed::new(
        "a_file_for_which_the_origin_has_no_room_is_removed_and_everything_else_gets_home",
        Some(24),
    ) else {
        return;
    };
    let (tier, mnt, tree) = (bed.tier("100ms"), bed.at("mnt"), bed.at("tree"));
    fs::write(mnt.join("toobig"), content(40 * MIB)).expect("acknowledged");
    until("it is refused", || refused(&tier) > 0);
    fs::remove_file(mnt.join("toobig")).expect("removed");
    fs::write(mnt.join("later"), b"later\n").expect("written");
    flush(&tier);
    assert_eq!(names_in(&tree), ["later"]);
    assert_eq!(fs::read(tree.join("later")).expect("there"), b"later\n");
    assert_eq!(names_in(&mnt), ["later"]);
    assert_eq!(refused(&tier), 0);
}

#[test]
fn a_file_for_which_there_was_no_room_is_cut_or_written_anew_and_gets_home() {
    let Some(bed) =
        Bed::new("a_file_for_which_there_was_no_room_is_cut_or_written_anew_and_gets_home", Some(24))
    else {
        return;
    };
    let (tier, mnt, tree) = (bed.tier("100ms"), bed.at("mnt"), bed.at("tree"));
    fs::write(mnt.join("cut"), content(40 * MIB)).expect("acknowledged");
    until("it is refused", || refused(&tier) > 0);
    File::options().write(true).open(mnt.join("cut")).expect("opened").set_len(1000).expect("cut");
    flush(&tier);
    assert_eq!(fs::read(tree.join("cut")).expect("there"), content(1000));
    fs::write(mnt.join("over"), content(40 * MIB)).expect("acknowledged");
    until("it is refused", || refused(&tier) > 0);
    fs::write(mnt.join("new"), b"in its place\n").expect("written");
    fs::rename(mnt.join("new"), mnt.join("over")).expect("renamed over it");
    flush(&tier);
    assert_eq!(fs::read(tree.join("over")).expect("there"), b"in its place\n");
    assert_eq!(names_in(&tree), ["cut", "over"]);
}

/// K1 b: somebody makes room at the origin by removing what was refused there.
#[test]
fn what_an_admin_removes_at_the_origin_after_its_owner_did_does_not_come_back() {
    let Some(bed) =
        Bed::new("what_an_admin_removes_at_the_origin_after_its_owner_did_does_not_come_back", Some(24))
    else {
        return;
    };
    let (tier, mnt, tree) = (bed.tier("100ms"), bed.at("mnt"), bed.at("tree"));
    fs::write(mnt.join("toobig"), content(40 * MIB)).expect("acknowledged");
    until("it is refused", || refused(&tier) > 0);
    let _ = fs::remove_file(tree.join("toobig")); // what arrived of it, if any did
    fs::remove_file(mnt.join("toobig")).expect("removed");
    flush(&tier);
    assert_eq!(names_in(&tree), Vec::<String>::new());
}
