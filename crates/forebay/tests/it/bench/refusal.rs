//! Wrong usage of the bench: one line that says what to do, exit code 2, and nothing left behind.

use std::process::Command;

use testkit::lab::not_run;

use super::room::{Room, end, signal, start, wait_for};
use crate::tier::{Tier, forebay};

/// Nobody answers there.
const NODE: &str = "nfs://127.0.0.1:1,admin=127.0.0.1:1";

#[test]
fn every_wrong_line_says_what_would_be_right() {
    let room = Room::new();
    let (target, file) = (room.target(), room.text("file"));
    std::fs::write(&file, "a file").expect("written");
    let missing = room.text("missing");
    let table: &[(&[&str], &str)] = &[
        (&["rendr"], "rendr"),
        (&["render", "--preset", "x"], "--preset"),
        (&["render", "--scale", "huge"], "small, medium, full"),
        (&["render", "--scale=-1"], "--scale"),
        (&["render", "--rtt", "70"], "69.5ms"),
        (&["render", "--rtt=-5ms"], "--rtt"),
        (&["render", "--file-size=-64KiB"], "512MiB"),
        (&["render", "--file-size", "0"], "at least 1 byte"),
        (&["render", "--nodes", "0"], "1..=4096"),
        (&["render", "-n", "0"], "1..=1000"),
        (&["render", "--stagger", "5"], "5/7s"),
        (&["render", "--origin", &missing], &missing),
        (&["render", "--byte-budget", "1MiB", "--files", "100"], "--byte-budget"),
        (&["sob", "5", "--target", &target], "1..=4"),
        (&["sob", "1"], "--target"),
        (&["sob", "1", "--target", &missing], &missing),
        (&["sob", "1", "--target", &file], &file),
        (&["sob", "1", "--target", "ftp://nas/export"], "nfs://"),
        (&["sob", "1", "--target", "memory:"], "unknown scheme 'memory'; expected /path"),
        (&["sob", "2", "--target", &target, "--byte-budget", "1MiB"], "--byte-budget"),
        (&["sob", "2", "--target", &target, "--id", "a/b"], "letters"),
        (&["shapes"], "--target"),
        (&["shapes", "--target", &target, "--sizes=-1MiB"], "512MiB"),
        (&["shapes", "--target", &target, "--sizes", "0"], "at least 1 byte"),
        (&["shapes", "--target", &target, "--shape", "xfxr"], "sfmr"),
        (&["shapes", "--target", &target, "--block", "0"], "--block"),
        (&["shapes", "--target", &target, "--block-sizes", "4KiB,0"], "--block"),
        (&["shapes", "--target", &target, "--fleets", "5"], "5x4"),
        (&["shapes", "--target", &target, "--limits", "azure"], "azure-blob-2018"),
        (&["shapes", "--target", &target, "--byte-budget", "1KiB"], "--byte-budget"),
        (&["loader", "--objects", "100", "--object-size", "1GiB", "--byte-budget", "1GiB"], "--byte-budget"),
        (
            &["loader", "--node", NODE, "--origin", &target, "--junction", "/a", "--junction", "/b"],
            "one --junction",
        ),
        (&["loader", "--node", NODE, "--origin", &target, "--junction", "/a", "--knee"], "--knee"),
        (&["replicas", "--node", "nfs://127.0.0.1"], "admin=ADDR"),
        (&["replicas", "--node", "127.0.0.1:1"], "nfs://HOST"),
        (&["replicas", "--junction", "/a"], "--node"),
        (&["replicas", "--node", NODE, "--junction", "/a"], "--origin URL"),
        (&["replicas", "--node", NODE, "--origin", &target], "--junction PATH"),
        (
            &["replicas", "--node", NODE, "--origin", &target, "--junction", "/a", "--gateways", "2"],
            "--gateways 2",
        ),
        (&["workflow", "--graph", &missing], &missing),
        (&["workflow", "--graph", &file], "near_seconds"),
        (&["probe", &missing], &missing),
        (&["relay", "--to", "nowhere"], "HOST:PORT"),
    ];
    let mut wrong = Vec::new();
    for (arguments, right) in table {
        let ended = room.run(arguments);
        let said = ended.err.join("\n");
        // What a run is about to do may be told first.
        let own = ended.err.iter().filter(|line| !line.starts_with("render: about")).count();
        if (ended.code, own, ended.out.as_str()) != (Some(2), 1, "") || !said.contains(right) {
            wrong.push(format!("{arguments:?}: {:?}, must say {right}: {said}", ended.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    room.assert_nothing_is_left();
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let room = Room::new();
    let target = room.target();
    let runs: [&[&str]; 6] = [
        &["render", "--dry-run"],
        &["working-set", "--dry-run"],
        &["sob", "1", "--target", &target, "--dry-run"],
        &["shapes", "--target", &target, "--dry-run"],
        &["loader", "--dry-run"],
        &["workflow", "--dry-run"],
    ];
    for arguments in runs {
        let ended = room.run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {:?}", ended.err);
        assert!(ended.out.contains("iB"), "{arguments:?}: {}", ended.out);
    }
    room.assert_nothing_is_left();
}

#[test]
fn a_target_that_cannot_be_written_is_refused_by_what_writes() {
    let room = Room::new();
    std::fs::create_dir(room.path("served")).expect("created");
    std::fs::create_dir(room.path("tier")).expect("created");
    let nas = start(nas(&room));
    let address = wait_for("the NAS", || listening(nas.id()));
    let junction = format!(
        "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"read-only\"\n",
        room.text("served")
    );
    let tier = Tier::start(&room.path("tier"), &junction);
    for (what, port) in [("a NAS", address), ("a tier", tier.nfs_port)] {
        let url = format!("nfs://127.0.0.1:{port}/?mountport={port}");
        for run in [&["sob", "1"][..], &["shapes", "--shape", "mfmw"]] {
            let ended = room.run(&[run, &["--target", &url]].concat());
            assert_eq!((ended.code, ended.err.len()), (Some(2), 1), "{run:?} on {what}: {:?}", ended.err);
            assert!(ended.err[0].contains("writable"), "{run:?} on {what}: {:?}", ended.err);
        }
    }
    assert_eq!(std::fs::read_dir(room.path("served")).expect("there").count(), 0);
    drop(tier);
    signal(nas.id(), rustix::process::Signal::TERM);
    nas.end();
}

fn nas(room: &Room) -> Command {
    let mut command = forebay();
    command.args(["nas", &room.text("served")]);
    command
}

/// The port on which a process listens.
fn listening(process: i32) -> Option<u16> {
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .ok()?
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let sockets = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).ok()?;
    // sl local_address rem_address st ... inode; 0A: LISTEN
    sockets.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours =
            fields.get(3) == Some(&"0A") && inodes.iter().any(|inode| Some(&inode.as_str()) == fields.get(9));
        let port = fields.get(1)?.rsplit(':').next()?;
        ours.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    })
}

/// In a mount namespace of its own.
#[test]
fn a_target_that_is_too_small_is_refused_before_anything_is_written() {
    let what = "a_target_that_is_too_small_is_refused_before_anything_is_written";
    if !rustix::process::geteuid().is_root() {
        return not_run(what, "needs root for a mount of its own");
    }
    let room = Room::new();
    let script = "mount -t tmpfs -o size=8m tmpfs \"$0\" || exit 77\n\
                  \"$@\"; code=$?; find \"$0\" -type f -size +64k; exit $code";
    for run in [
        &["sob", "1"][..],
        &["sob", "2"],
        &["shapes", "--shape", "mfmw"],
        &["shapes", "--shape", "sfmr,mfmr"],
    ] {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script, &room.target()]);
        let ended = end(room.launched(unshare, &[run, &["--target", &room.target()]].concat()));
        if ended.code == Some(77) {
            return not_run(what, "no tmpfs may be mounted");
        }
        assert_eq!((ended.code, ended.err.len()), (Some(2), 1), "{run:?}: {:?}", ended.err);
        assert!(
            ended.err[0].contains("MiB are free") && ended.err[0].contains("--scale"),
            "{run:?}: {:?}",
            ended.err
        );
        assert_eq!(ended.out, "", "{run:?}: files that were written");
    }
    room.assert_nothing_is_left();
}

#[test]
fn disks_are_not_measured_without_fio() {
    let room = Room::new();
    let node = format!("{NODE},disk={}", room.target());
    let mut command =
        room.bench(&["loader", "--node", &node, "--origin", &room.target(), "--junction", "/show"]);
    command.env("PATH", room.path("tmp"));
    let ended = end(command);
    assert_eq!((ended.code, ended.err.len()), (Some(2), 1), "{:?}", ended.err);
    assert!(ended.err[0].contains("install Debian's fio"), "{:?}", ended.err);
    room.assert_nothing_is_left();
}
