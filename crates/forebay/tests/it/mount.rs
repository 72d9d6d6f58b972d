//! `forebay mount` and `serve --mount` as processes: mounted, used, stopped, killed, and run by somebody who is not
//! root.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::http;
use crate::tier::forebay;

const BIG: usize = 3_000_000;
/// For the origin's files: nobody takes them for files being written.
const AN_HOUR: Duration = Duration::from_secs(3600);

struct Bed {
    dir: tempfile::TempDir,
}

/// A directory with an origin, a place to mount at and a place for the cache; `None` where nothing can be mounted.
fn bed(name: &str) -> Option<Bed> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        testkit::lab::not_run(name, "it needs /dev/fuse, and root to try both ways to mount");
        return None;
    }
    let dir = tempfile::Builder::new().prefix("forebay-mount-").tempdir().expect("temporary directory");
    for sub in ["tree", "tree/sub", "mnt", "cache"] {
        fs::create_dir(dir.path().join(sub)).expect("made");
    }
    fs::write(dir.path().join("tree/hello.txt"), b"hello, far away\n").expect("written");
    fs::write(dir.path().join("tree").join(std::ffi::OsStr::from_bytes(b"odd-\xff")), b"x").expect("written");
    let big = dir.path().join("tree/sub/big.bin");
    fs::write(&big, content()).expect("written");
    File::options()
        .write(true)
        .open(big)
        .expect("opened")
        .set_modified(SystemTime::now() - AN_HOUR)
        .expect("set");
    Some(Bed { dir })
}

fn content() -> Vec<u8> {
    (0..BIG).map(|i| (i % 251) as u8).collect()
}

impl Bed {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn origin(&self) -> String {
        format!("file://{}", self.at("tree").display())
    }

    /// The arguments after `forebay`.
    fn mount_arguments(&self) -> Vec<String> {
        let path = |name: &str| self.at(name).display().to_string();
        let words = ["mount", &self.origin(), &path("mnt"), "--cache", &path("cache")];
        let rest = ["--cache-size", "1GiB", "--admin", "127.0.0.1:0", "--json"];
        words.iter().chain(&rest).map(|word| (*word).to_owned()).collect()
    }

    fn mount(&self) -> Mount {
        let mut command = forebay();
        command.args(self.mount_arguments());
        Mount::start(command)
    }

    fn is_mounted(&self) -> bool {
        let text = fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
        text.lines().any(|line| line.split(' ').nth(4) == self.at("mnt").to_str())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Whatever a failed test leaves: the directory could not be removed otherwise.
        while self.is_mounted()
            && Command::new("umount").arg("-l").arg(self.at("mnt")).status().is_ok_and(|s| s.success())
        {
        }
    }
}

struct Mount {
    process: Child,
    announced: Value,
}

impl Mount {
    fn start(mut command: Command) -> Mount {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("forebay starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        let announced = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?} is not JSON: {e}"));
        Mount { process, announced }
    }

    fn admin(&self) -> &str {
        self.announced["admin"].as_str().expect("announced")
    }

    fn metric(&self, name: &str) -> f64 {
        let url = format!("http://{}/metrics", self.admin());
        let text = String::from_utf8(http::get(&url).expect("answered").into()).expect("text");
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0.0)
    }

    fn warm(&self, path: &str) {
        let done = forebay().args(["warm", path, "--json", "--admin", self.admin()]).output().expect("runs");
        assert!(done.status.success(), "{done:?}");
    }

    fn signal(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("it was running");
        self.process.wait().expect("our child").code()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Mount {
    /// What one line of `forebay status` says of the only junction.
    fn junction(&self) -> String {
        let told = forebay().args(["status", "--admin", self.admin()]).output().expect("runs");
        let told = String::from_utf8(told.stdout).expect("text");
        told.lines().find(|line| line.starts_with("junction")).expect("there is one").to_owned()
    }

    /// Times that the journal was synced.
    fn syncs(&self) -> f64 {
        self.metric("forebay_journal_sync_seconds_count")
    }
}

/// What `tar x` does for each of them.
fn unpack(dir: &Path, files: usize) {
    for number in 0..files {
        let mut file = File::create_new(dir.join(format!("file-{number}"))).expect("made");
        file.write_all(&[7; 4096]).expect("written");
        file.set_modified(SystemTime::UNIX_EPOCH + AN_HOUR).expect("set");
        file.set_permissions(fs::Permissions::from_mode(0o640)).expect("set");
    }
}

/// So often is done what asks for a sync, or does not.
const TIMES: usize = 200;

#[test]
fn what_programs_write_back_is_synced_when_they_ask_or_always_if_so_configured() {
    const NAME: &str = "what_programs_write_back_is_synced_when_they_ask_or_always_if_so_configured";
    let Some(bed) = bed(NAME) else { return };
    let (config, mnt) = (bed.at("forebay.toml"), bed.at("mnt"));
    // Nothing is flushed: that has syncs of its own.
    let text = format!(
        "[cache]\ndir = \"{}\"\nsize = \"1GiB\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[junction]]\npath = \"/\"\n\
         origin = \"{}\"\nwrite = \"back\"\nflush_delay = \"1h\"\n",
        bed.at("cache").display(),
        bed.origin()
    );
    fs::write(&config, text).expect("written");
    let mounted = |more: &[&str]| {
        let mut command = forebay();
        command.arg("mount").arg("--config").arg(&config).arg(&mnt).arg("--json").args(more);
        Mount::start(command)
    };
    let mut mount = mounted(&[]);
    assert!(mount.junction().contains("write back (durability fsync)"), "{}", mount.junction());
    let dir = mnt.join("unpacked");
    fs::create_dir(&dir).expect("made");
    let (before, begun) = (mount.syncs(), Instant::now());
    unpack(&dir, TIMES);
    // One in a second, which nobody asks for.
    let (syncs, seconds) = (mount.syncs() - before, begun.elapsed().as_secs_f64());
    assert!(syncs <= 3.0 + seconds, "{syncs} in {seconds} s");
    // Each of these is another one: what it is for was written behind the last.
    let (file, whole) = (File::create(dir.join("more")).expect("made"), File::open(&dir).expect("opened"));
    let asking: [(&str, &dyn Fn() -> std::io::Result<()>); 3] = [
        ("fsync", &|| file.sync_all()),
        ("fdatasync", &|| file.sync_data()),
        ("fsync of a directory", &|| whole.sync_all()),
    ];
    for (what, ask) in asking {
        let before = mount.syncs();
        for _ in 0..TIMES {
            (&file).write_all(what.as_bytes()).expect("written");
            ask().expect(what);
        }
        let syncs = mount.syncs() - before;
        assert!(syncs >= TIMES as f64, "{what}: {syncs}");
    }
    fs::write(dir.join("last"), b"not synced").expect("written");
    drop((file, whole));
    assert_eq!(mount.signal(rustix::process::Signal::KILL), None);
    drop(mount);

    let mut mount = mounted(&["--durability", "always"]);
    assert!(mount.junction().contains("write back (durability always)"), "{}", mount.junction());
    assert_eq!(fs::read(dir.join("last")).expect("it was in the file of the journal"), b"not synced");
    assert_eq!(fs::read_dir(&dir).expect("listed").count(), TIMES + 2);
    fs::create_dir(mnt.join("always")).expect("made");
    let before = mount.syncs();
    unpack(&mnt.join("always"), TIMES);
    let syncs = mount.syncs() - before;
    // What was written is on the disk with the next of them, so that nothing is left for the close.
    assert!(syncs >= 3.0 * TIMES as f64, "{syncs}: create, chmod and utimes are to be synced each");
    assert_eq!(mount.signal(rustix::process::Signal::TERM), Some(0));
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "it never came true that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_directory_is_mounted_read_and_unmounted_by_each_signal() {
    let Some(bed) = bed("a_directory_is_mounted_read_and_unmounted_by_each_signal") else { return };
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut mount = bed.mount();
        assert_eq!(mount.announced["mount"], bed.at("mnt").display().to_string());
        assert!(mount.announced["nfs"].is_null());
        assert_eq!(fs::read(bed.at("mnt/hello.txt")).expect("read"), b"hello, far away\n");
        assert!(fs::read(bed.at("mnt/sub/big.bin")).expect("read") == content(), "other bytes");
        let names = fs::read_dir(bed.at("mnt")).expect("listed").count();
        assert_eq!(names, 3);
        let held = File::open(bed.at("mnt/hello.txt")).expect("opened");
        assert_eq!(mount.signal(signal), Some(0));
        assert!(!bed.is_mounted(), "also while a file is open");
        drop(held);
    }
}

#[test]
fn a_warm_file_is_read_by_the_kernel_itself_also_after_a_restart() {
    let Some(bed) = bed("a_warm_file_is_read_by_the_kernel_itself_also_after_a_restart") else { return };
    let passed = "forebay_fuse_opens_total{how=\"passthrough\"}";
    let mut mount = bed.mount();
    mount.warm("/sub/big.bin");
    assert!(fs::read(bed.at("mnt/sub/big.bin")).expect("read") == content(), "other bytes");
    assert_eq!((mount.metric(passed), mount.metric("forebay_fuse_read_bytes_total")), (1.0, 0.0));
    mount.signal(rustix::process::Signal::TERM);
    let mount = bed.mount();
    eventually("the file was checked and is passed through", || {
        assert!(fs::read(bed.at("mnt/sub/big.bin")).expect("read") == content(), "other bytes");
        mount.metric(passed) > 0.0
    });
}

#[test]
fn what_a_killed_tier_leaves_is_replaced_at_the_next_start() {
    let Some(bed) = bed("what_a_killed_tier_leaves_is_replaced_at_the_next_start") else { return };
    let mut mount = bed.mount();
    let held = File::open(bed.at("mnt/hello.txt")).expect("opened");
    mount.signal(rustix::process::Signal::KILL);
    let dead = fs::read_dir(bed.at("mnt")).expect_err("nobody answers");
    assert_eq!(dead.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()), "{dead}");
    let mut again = bed.mount();
    assert_eq!(fs::read(bed.at("mnt/hello.txt")).expect("read"), b"hello, far away\n");
    assert_eq!(again.signal(rustix::process::Signal::TERM), Some(0));
    assert!(!bed.is_mounted(), "not one is left");
    drop(held);
}

/// A killed process may be in the same state, if it was telling the kernel of a change; no test can time that.
#[test]
fn a_mount_that_nobody_answers_for_is_replaced_at_the_next_start() {
    let Some(bed) = bed("a_mount_that_nobody_answers_for_is_replaced_at_the_next_start") else { return };
    let mount = bed.mount();
    let stopped = rustix::process::Pid::from_child(&mount.process);
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).expect("it was running");
    let waiting = std::thread::spawn({
        let file = bed.at("mnt/hello.txt");
        move || fs::read(file).expect_err("nobody answers any more")
    });
    let mut command = forebay();
    // The stopped one has its cache still.
    let other = |word: String| if word.ends_with("/cache") { format!("{word}-2") } else { word };
    command.args(bed.mount_arguments().into_iter().map(other));
    let mut again = Mount::start(command);
    assert_eq!(fs::read(bed.at("mnt/hello.txt")).expect("read"), b"hello, far away\n");
    waiting.join().expect("no panic");
    assert_eq!(again.signal(rustix::process::Signal::TERM), Some(0));
    assert!(!bed.is_mounted(), "not one is left");
}

#[test]
fn a_mount_that_is_taken_away_ends_the_command() {
    let Some(bed) = bed("a_mount_that_is_taken_away_ends_the_command") else { return };
    let mut mount = bed.mount();
    assert!(Command::new("umount").arg(bed.at("mnt")).status().expect("util-linux").success());
    assert_eq!(mount.process.wait().expect("our child").code(), Some(0));
}

#[test]
fn serve_mounts_too_and_both_fronts_are_one_file_system() {
    let Some(bed) = bed("serve_mounts_too_and_both_fronts_are_one_file_system") else { return };
    let mut command = forebay();
    let path = |name: &str| bed.at(name).display().to_string();
    command.args(["serve", "--origin", &bed.origin(), "--mount", &path("mnt"), "--cache", &path("cache")]);
    command.args(["--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json"]);
    let mut mount = Mount::start(command);
    assert!(mount.announced["nfs"].is_string());
    assert!(fs::read(bed.at("mnt/sub/big.bin")).expect("read") == content(), "other bytes");
    let stat =
        forebay().args(["stat", "/sub/big.bin", "--json", "--admin", mount.admin()]).output().expect("runs");
    let stat: Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    assert_eq!(stat["cached_bytes"], BIG);
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(bed.at("mnt/sub/big.bin")).expect("there"));
    assert_eq!(stat["inode"].as_u64(), Some(inode));
    assert_eq!(mount.signal(rustix::process::Signal::TERM), Some(0));
    assert!(!bed.is_mounted());
}

#[test]
fn a_mount_says_what_it_is_of_and_takes_a_configuration_file() {
    let Some(bed) = bed("a_mount_says_what_it_is_of_and_takes_a_configuration_file") else { return };
    let source = || {
        let text = fs::read_to_string("/proc/self/mounts").expect("Linux has it");
        let mounts = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut ours = mounts.filter(|words| Some(words[1]) == bed.at("mnt").to_str());
        ours.next().map(|words| (words[0].to_owned(), words[2].to_owned()))
    };
    let kind = "fuse.forebay".to_owned();
    let mut mount = bed.mount();
    assert_eq!(source(), Some((format!("forebay:{}", bed.origin()), kind.clone())));
    assert_eq!(mount.signal(rustix::process::Signal::TERM), Some(0));
    let file = bed.at("forebay.toml");
    let junction = |path: &str, dir: PathBuf| {
        format!("[[junction]]\npath = \"{path}\"\norigin = \"file://{}\"\n", dir.display())
    };
    let text = junction("/all", bed.at("tree")) + &junction("/part", bed.at("tree/sub"));
    fs::write(&file, text).expect("written");
    let path = |name: &str| bed.at(name).display().to_string();
    let mut command = forebay();
    command.args(["mount", "--config", &path("forebay.toml"), &path("mnt"), "--cache", &path("cache")]);
    command.args(["--admin", "127.0.0.1:0", "--json"]);
    let mut mount = Mount::start(command);
    assert_eq!(source(), Some(("forebay:/all+/part".to_owned(), kind)));
    assert!(fs::read(bed.at("mnt/part/big.bin")).expect("read") == content(), "other bytes");
    assert_eq!(mount.signal(rustix::process::Signal::TERM), Some(0));
}

#[test]
fn somebody_who_is_not_root_mounts_through_fusermount3() {
    let name = "somebody_who_is_not_root_mounts_through_fusermount3";
    let Some(bed) = bed(name) else { return };
    for (tool, package) in [("fusermount3", "fuse3"), ("setpriv", "util-linux")] {
        if !["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(tool).exists()) {
            return testkit::lab::not_run(name, &format!("Debian's {package} is not installed"));
        }
    }
    // Everything where nobody can reach it.
    let program = bed.at("forebay");
    fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).expect("copied");
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).expect("set");
    for sub in ["mnt", "cache"] {
        std::os::unix::fs::chown(bed.at(sub), Some(65534), Some(65534)).expect("given");
    }
    let as_nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command
    };
    let mut command = as_nobody(&program);
    command.args(bed.mount_arguments());
    let mut mount = Mount::start(command);
    // Another user, root too, must show the tier's token.
    let token = bed.at("cache/admin.token");
    let mut warm = forebay();
    warm.args(["warm", "/sub/big.bin", "--json", "--admin", mount.admin(), "--token-file"]).arg(token);
    let done = warm.output().expect("runs");
    assert!(done.status.success(), "{done:?}");
    let read = as_nobody(Path::new("cat")).arg(bed.at("mnt/sub/big.bin")).output().expect("runs");
    assert!(read.status.success() && read.stdout == content(), "{}", String::from_utf8_lossy(&read.stderr));
    assert_eq!(mount.metric("forebay_fuse_opens_total{how=\"passthrough\"}"), 0.0, "that takes a privilege");
    assert_eq!(mount.metric("forebay_fuse_opens_total{how=\"snapshot\"}"), 1.0);
    assert!(
        fs::read_dir(bed.at("mnt")).is_err(),
        "whoever mounted it may use it, and nobody else, not even root"
    );
    // setpriv has become forebay.
    mount.signal(rustix::process::Signal::KILL);
    let mut command = as_nobody(&program);
    command.args(bed.mount_arguments());
    let mut again = Mount::start(command);
    let read = as_nobody(Path::new("cat")).arg(bed.at("mnt/hello.txt")).output().expect("runs");
    assert_eq!(read.stdout, b"hello, far away\n");
    assert_eq!(again.signal(rustix::process::Signal::TERM), Some(0));
    assert!(!bed.is_mounted(), "not one is left");
}

#[test]
fn a_wrong_place_is_refused_in_one_line() {
    let Some(bed) = bed("a_wrong_place_is_refused_in_one_line") else { return };
    let cache = bed.at("cache").display().to_string();
    let refused = |place: &str, right: &str| {
        let place = bed.at(place).display().to_string();
        let arguments = ["mount", &bed.origin(), &place, "--cache", &cache, "--admin", "127.0.0.1:0"];
        let output = forebay().args(arguments).env("FOREBAY_LOG", "off").output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(right), "{said}");
    };
    refused("missing", "mkdir -p");
    refused("tree/hello.txt", "lies inside");
    refused("tree/sub", "lies inside");
    fs::write(bed.at("cache/x"), b"x").expect("written");
    refused("cache", "not empty");
    let _mount = bed.mount();
    refused("mnt", "umount");
}
