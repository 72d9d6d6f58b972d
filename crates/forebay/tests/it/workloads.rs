//! What people do with a file system, through the tier: git and make, a database, tar and rsync of many small files. It
//! prints and leaves the same as on the local file system, as its user sees it, as the origin has it, and after a restart.

mod fsx;
mod inputs;
mod place;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use place::Place;
use tempfile::TempDir;
use testkit::lab::{Guest, not_run, with_client};

use crate::tier::Tier;

/// A write policy, and the command that brings home at once what it would bring home later.
struct Policy {
    name: &'static str,
    flush: Option<&'static [&'static str]>,
}

const POLICIES: [Policy; 2] =
    [Policy { name: "back", flush: Some(&["flush", "--wait"]) }, Policy { name: "through", flush: None }];

/// A guest is slow: there it is the first one, unless FOREBAY_WORKLOAD_POLICIES=all.
fn policies_of_a_guest() -> &'static [Policy] {
    let all = std::env::var_os("FOREBAY_WORKLOAD_POLICIES").is_some_and(|wish| wish == "all");
    if all { &POLICIES } else { &POLICIES[..1] }
}

/// Name, script, and what is compared of what it leaves: `None` what it prints of that itself, else a directory.
const WORKLOADS: [(&str, &str, Option<&str>); 3] = [
    ("project", include_str!("workloads/project.sh"), None),
    ("database", include_str!("workloads/database.sh"), None),
    ("tree", include_str!("workloads/tree.sh"), Some("tree")),
];
const DESCRIBE: &str = include_str!("workloads/describe.sh");

/// The journals that sqlite has, where it may share memory.
const JOURNALS: &str = "delete truncate persist wal";
/// Through NFS it may not: "WAL does not work over a network filesystem" (sqlite.org/wal.html). One process alone needs
/// no shared memory.
const NFS_JOURNALS: &str = "delete truncate persist wal-alone";

const TOOLS: [&str; 8] = ["git", "make", "cc", "sqlite3", "tar", "rsync", "perl", "diff"];

/// How many differing lines are shown.
const SHOWN: usize = 20;

/// Of the tree that tar and rsync copy: few, so that a guest has them in half a minute. FOREBAY_WORKLOAD_FILES for
/// another number.
fn files() -> usize {
    std::env::var("FOREBAY_WORKLOAD_FILES").map_or(300, |n| n.parse().expect("a number"))
}

/// A directory with the workloads' inputs, the origin, and a place for what is done without a tier.
struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::Builder::new().prefix("forebay-work-").tempdir().expect("temporary directory");
        let bed = Bed { dir };
        for sub in ["input", "origin", "local", "mnt"] {
            fs::create_dir(bed.at(sub)).expect("made");
        }
        bed
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tier(&self, policy: &Policy, mount: Option<&Path>) -> Tier {
        let junction = format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"{}\"\n",
            self.at("origin").display(),
            policy.name
        );
        Tier::start_mounted(self.dir.path(), &junction, mount)
    }
}

/// Why the workloads cannot run on this machine.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, to mount and to give files away".to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let missing = TOOLS.iter().find(|tool| !path.split(':').any(|dir| Path::new(dir).join(tool).exists()));
    missing.map(|tool| format!("{tool} is not installed"))
}

/// A tier, and where its tree is seen.
trait Front {
    fn place(&self) -> Place<'_>;
    /// Where `place` has the tier's tree, and the inputs.
    fn root(&self) -> &Path;
    fn input(&self) -> &Path;
    fn journals(&self) -> &'static str;
    /// From now on its user sees what the origin has: a directory's own time is that of the flush, and the kernel's NFS
    /// client remembers another one for half a minute.
    fn settle(&self, policy: &Policy);
    fn stop(&mut self);
    fn start_again(&mut self);
}

/// If the policy keeps anything back.
fn flush(tier: &Tier, policy: &Policy) {
    if let Some(command) = policy.flush {
        assert!(tier.ask(command).status.success());
    }
}

struct Mounted {
    tier: Tier,
    mount: PathBuf,
    input: PathBuf,
}

impl Front for Mounted {
    fn place(&self) -> Place<'_> {
        Place::Here
    }
    fn root(&self) -> &Path {
        &self.mount
    }
    fn input(&self) -> &Path {
        &self.input
    }
    fn journals(&self) -> &'static str {
        JOURNALS
    }
    fn settle(&self, policy: &Policy) {
        flush(&self.tier, policy);
    }
    fn stop(&mut self) {
        assert_eq!(self.tier.stop(), Some(0));
    }
    fn start_again(&mut self) {
        self.tier.start_again();
    }
}

struct ByNfs<'a> {
    tier: Tier,
    client: &'a Guest,
}

const CLIENT_ROOT: &str = "/mnt/near";
const CLIENT_INPUT: &str = "/mnt/input";

impl<'a> ByNfs<'a> {
    /// The client sees the directory `input` of this machine.
    fn mounted(tier: Tier, client: &'a Guest, input: &Path) -> ByNfs<'a> {
        let input = input.display();
        client.must(&format!(
            "mkdir -p {CLIENT_INPUT}; mount -t hostfs none {CLIENT_INPUT} -o '{input}' && ls {CLIENT_INPUT}"
        ));
        let front = ByNfs { tier, client };
        front.mount();
        front
    }

    fn mount(&self) {
        let port = self.tier.nfs_port;
        self.client.mount(self.client.gateway(), port, port, "/", CLIENT_ROOT, "rw");
    }
}

impl Front for ByNfs<'_> {
    fn place(&self) -> Place<'_> {
        Place::Client(self.client)
    }
    fn root(&self) -> &Path {
        Path::new(CLIENT_ROOT)
    }
    fn input(&self) -> &Path {
        Path::new(CLIENT_INPUT)
    }
    fn journals(&self) -> &'static str {
        NFS_JOURNALS
    }
    fn settle(&self, policy: &Policy) {
        self.client.must("sync");
        flush(&self.tier, policy);
        self.client.must("echo 3 >/proc/sys/vm/drop_caches");
    }
    fn stop(&mut self) {
        self.client.must(&format!("umount {CLIENT_ROOT}"));
        assert_eq!(self.tier.stop(), Some(0));
    }
    fn start_again(&mut self) {
        self.tier.start_again();
        self.mount();
    }
}

impl Drop for ByNfs<'_> {
    fn drop(&mut self) {
        // The next policy's tier is mounted at the same place.
        self.client.sh(&format!("umount -l {CLIENT_ROOT} {CLIENT_INPUT}"));
    }
}

/// The lines that only one of the two has, if there are any.
fn difference(what: &str, expected: &str, seen: &str) -> Option<String> {
    let mut counts: HashMap<&str, i32> = HashMap::new();
    expected.lines().for_each(|line| *counts.entry(line).or_default() += 1);
    seen.lines().for_each(|line| *counts.entry(line).or_default() -= 1);
    if expected == seen {
        return None;
    }
    let only = |sign: i32| {
        let text = if sign > 0 { expected } else { seen };
        let lines = text.lines().filter(|line| counts[line] * sign > 0).take(SHOWN).collect::<Vec<_>>();
        lines.join("\n    ")
    };
    Some(format!("{what}:\n  expected, not seen:\n    {}\n  seen, not expected:\n    {}", only(1), only(-1)))
}

/// Carry out every workload here and through the front; what differs.
fn differences(bed: &Bed, front: &mut impl Front, policy: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    let run = |place: Place<'_>, script, dir: &Path, input: &Path, journals| {
        let start = Instant::now();
        let more = format!("INPUT='{}' JOURNALS='{journals}'", input.display());
        (place.run(script, dir, &more), start.elapsed().as_secs_f64())
    };
    for (name, script, _) in WORKLOADS {
        let journals = front.journals();
        let (expected, here) =
            run(Place::Here, script, &bed.at("local").join(name), &bed.at("input"), journals);
        let (seen, there) = run(front.place(), script, &front.root().join(name), front.input(), journals);
        eprintln!(
            "{name}: {here:.1} s on the local file system, {there:.1} s through the tier ({})",
            policy.name
        );
        found.extend(difference(&format!("{name} prints"), &expected, &seen));
    }
    front.settle(policy);
    let seen = front.place().run(DESCRIBE, front.root(), "");
    front.stop();
    let describe = |dir: &Path| Place::Here.run(DESCRIBE, dir, "");
    found.extend(difference("the origin, and what its user saw", &describe(&bed.at("origin")), &seen));
    for (name, _, left) in WORKLOADS {
        let Some(left) = left else { continue };
        let [expected, seen] = ["local", "origin"].map(|side| describe(&bed.at(side).join(name).join(left)));
        found.extend(difference(&format!("{name} leaves at the origin"), &expected, &seen));
    }
    front.start_again();
    let again = front.place().run(DESCRIBE, front.root(), "");
    found.extend(difference("what was seen before a restart and after it", &seen, &again));
    found
}

#[test]
fn through_fuse_git_make_sqlite_tar_and_rsync_end_as_on_the_local_file_system() {
    let name = "through_fuse_git_make_sqlite_tar_and_rsync_end_as_on_the_local_file_system";
    let no_fuse = || (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse".to_owned());
    if let Some(reason) = obstacle().or_else(no_fuse) {
        return not_run(name, &reason);
    }
    for policy in &POLICIES {
        let bed = Bed::new();
        inputs::make(&bed.at("input"), files());
        let tier = bed.tier(policy, Some(&bed.at("mnt")));
        let mut front = Mounted { tier, mount: bed.at("mnt"), input: bed.at("input") };
        let found = differences(&bed, &mut front, policy);
        assert!(found.is_empty(), "{}: {}", policy.name, found.join("\n"));
    }
}

#[test]
fn through_the_kernel_nfs_client_git_make_sqlite_tar_and_rsync_end_as_on_the_local_file_system() {
    let name = "through_the_kernel_nfs_client_git_make_sqlite_tar_and_rsync_end_as_on_the_local_file_system";
    if let Some(reason) = obstacle() {
        return not_run(name, &reason);
    }
    with_client(name, |client| {
        for policy in policies_of_a_guest() {
            let bed = Bed::new();
            inputs::make(&bed.at("input"), files());
            let mut front = ByNfs::mounted(bed.tier(policy, None), client, &bed.at("input"));
            let found = differences(&bed, &mut front, policy);
            assert!(found.is_empty(), "{}: {}", policy.name, found.join("\n"));
        }
    });
}
