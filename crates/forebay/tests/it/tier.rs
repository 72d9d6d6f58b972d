//! A forebay process under test.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::ports::free_port;
use testkit::programs;

const START_DEADLINE: Duration = Duration::from_secs(60);
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// States of a process (proc_pid_stat(5)) of which nothing runs any more; idle: it waits for its threads to dump core.
const DEAD: [char; 3] = ['Z', 'X', 'I'];
/// Of its log, when a test fails.
const LOG_LINES: usize = 100;

pub struct Tier {
    process: Child,
    pub nfs_port: u16,
    pub admin: SocketAddr,
    config: PathBuf,
    mount: Option<PathBuf>,
    log: PathBuf,
    env: Vec<(String, String)>,
}

/// The ports of a tier.
pub struct Ports {
    pub nfs: u16,
    pub admin: SocketAddr,
}

pub fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
}

/// The program that `forebay bench` goes on as: of this build, beside it.
pub fn bench_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::beside(Path::new(env!("CARGO_BIN_EXE_forebay")), "forebay-bench"))
}

/// `forebay bench`.
pub fn forebay_bench() -> Command {
    bench_program();
    let mut command = forebay();
    command.arg("bench");
    command
}

impl Ports {
    pub fn free() -> Ports {
        Ports { nfs: free_port(), admin: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())) }
    }
}

/// Of the tiers under test: the same tests run with nothing fetched ahead too, with FOREBAY_TEST_READAHEAD=0.
pub fn readahead() -> String {
    std::env::var("FOREBAY_TEST_READAHEAD").unwrap_or_else(|_| "256MiB".to_owned())
}

impl Tier {
    /// Start with `junctions` (TOML of the junction tables) and its cache and configuration in `dir`.
    pub fn start(dir: &Path, junctions: &str) -> Tier {
        Tier::start_mounted(dir, junctions, None)
    }

    /// As `start`, and mounted here by FUSE.
    pub fn start_mounted(dir: &Path, junctions: &str, mount: Option<&Path>) -> Tier {
        Tier::start_with_env(dir, junctions, mount, Vec::new())
    }

    /// As `start`, serving NFS at this port.
    pub fn start_at_port(dir: &Path, junctions: &str, nfs: u16) -> Tier {
        Tier::start_at(dir, junctions, None, Vec::new(), Ports { nfs, ..Ports::free() })
    }

    /// As `start_mounted`, with more in its environment.
    pub fn start_with_env(
        dir: &Path,
        junctions: &str,
        mount: Option<&Path>,
        env: Vec<(String, String)>,
    ) -> Tier {
        Tier::start_at(dir, junctions, mount, env, Ports::free())
    }

    fn start_at(
        dir: &Path,
        junctions: &str,
        mount: Option<&Path>,
        env: Vec<(String, String)>,
        ports: Ports,
    ) -> Tier {
        let cache = dir.join("cache");
        let readahead = readahead();
        let text = format!(
            "[cache]\ndir = \"{}\"\nsize = \"4GiB\"\nfree_floor = \"64MiB\"\nreadahead = \"{readahead}\"\n[nfs]\nlisten = \"0.0.0.0:{}\"\n\
             [[nfs.export]]\nclients = [\"*\"]\nsquash = \"none\"\n[admin]\nlisten = \"{}\"\n{junctions}\n",
            cache.display(),
            ports.nfs,
            ports.admin
        );
        let config = dir.join("forebay.toml");
        std::fs::write(&config, text).expect("written");
        let (mount, log) = (mount.map(Path::to_owned), dir.join("forebay.log"));
        let process =
            serving(&config, mount.as_deref(), &log).envs(env.clone()).spawn().expect("forebay starts");
        let mut tier = Tier { process, nfs_port: ports.nfs, admin: ports.admin, config, mount, log, env };
        tier.wait_until_up();
        tier
    }

    /// With this configuration, which names these ports. It may die at a crash point before it serves: `serves` says
    /// whether.
    pub fn start_to_die(
        config: PathBuf,
        ports: &Ports,
        mount: Option<&Path>,
        log: PathBuf,
        crash_at: Option<&str>,
    ) -> (Tier, bool) {
        let mount = mount.map(Path::to_owned);
        let (process, serves) = spawn_to_die(serving(&config, mount.as_deref(), &log), crash_at);
        let env = Vec::new();
        (Tier { process, nfs_port: ports.nfs, admin: ports.admin, config, mount, log, env }, serves)
    }

    /// Of one that ended. False: it died before it served.
    pub fn start_again_to_die(&mut self, crash_at: Option<&str>) -> bool {
        let (process, serves) = spawn_to_die(self.serving(), crash_at);
        self.process = process;
        serves
    }

    fn serving(&self) -> Command {
        let mut command = serving(&self.config, self.mount.as_deref(), &self.log);
        command.envs(self.env.clone());
        command
    }

    /// The end of what it has told.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    pub fn pid(&self) -> i32 {
        self.process.id().try_into().expect("a pid")
    }

    /// SIGKILL, and no wait for its end.
    pub fn kill(&mut self) {
        self.process.kill().expect("our child");
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("our child")
    }

    /// It answers nobody any more. What it held may not be free yet: a thread of it may wait in the kernel.
    pub fn is_dead(&mut self) -> bool {
        let ended = self.ended().is_some();
        let stat =
            || std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        ended || stat().rsplit(") ").next().is_none_or(|state| state.starts_with(DEAD))
    }

    fn wait_until_up(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(self.admin).is_err() {
            assert!(self.process.try_wait().expect("our child").is_none(), "forebay ended: see its log");
            assert!(start.elapsed() < START_DEADLINE, "forebay does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        // The admin server is up before the mount.
        while self.mount.as_deref().is_some_and(|place| !is_mounted(place)) {
            assert!(start.elapsed() < START_DEADLINE, "forebay does not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill_nine(&mut self) {
        self.process.kill().expect("it was running");
        self.process.wait().expect("our child");
    }

    /// Start again on the same ports with what is on disk.
    pub fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    pub fn start_again_with(&mut self, arguments: &[&str]) {
        self.process = self.serving().args(arguments).spawn().expect("forebay starts");
        self.wait_until_up();
    }

    /// SIGTERM; its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it was running");
        self.process.wait().expect("our child").code()
    }

    pub fn ask(&self, verb: &[&str]) -> Output {
        let output = forebay().args(verb).args(["--admin", &self.admin.to_string(), "--json"]).output();
        output.expect("forebay runs")
    }

    pub fn json(&self, verb: &[&str]) -> Value {
        let output = self.ask(verb);
        assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn get(&self, path: &str) -> String {
        self.try_get(path).expect("answered")
    }

    /// Of one that may be dead, and held by its mount. (A command would wait for that before it begins: what is started
    /// closes the files that this process has open there.)
    pub fn try_get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The value of this line of `/metrics`; 0 if there is none.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// User and system time so far.
    pub fn cpu_seconds(&self) -> f64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it is running");
        let after_name = stat.rsplit(')').next().expect("there is a name in brackets");
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
        ticks as f64 / 100.0
    }

    /// The most that was ever resident.
    pub fn resident_mib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it is running");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux has this line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the tier's log ends with:\n{}", self.log_tail());
        }
        if let Some(place) = &self.mount {
            // A killed tier leaves it; the directory could not be removed.
            let _ = Command::new("umount").arg("-l").arg(place).stderr(Stdio::null()).status();
        }
    }
}

/// Whether another file system than its parent's answers there.
fn is_mounted(place: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev());
    let parent = device(place.parent().expect("in a directory")).expect("there");
    device(place).is_ok_and(|found| found != parent)
}

fn serving(config: &Path, mount: Option<&Path>, log: &Path) -> Command {
    let log = File::options().create(true).append(true).open(log).expect("opened");
    let level = std::env::var("FOREBAY_TEST_LOG").unwrap_or_else(|_| "info".to_owned());
    let mut command = forebay();
    command.args(["serve", "--config"]).arg(config).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log).env("FOREBAY_LOG", level);
    if let Some(mount) = mount {
        command.arg("--mount").arg(mount);
    }
    command
}

/// The state of each, and where in the kernel it is, as far as that is told.
fn threads_of(process: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let told = tasks.map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{}{}", read("stat"), read("stack"))
    });
    told.collect()
}

/// Returns when it serves (and has mounted), or has ended.
fn spawn_to_die(mut command: Command, crash_at: Option<&str>) -> (Child, bool) {
    command.arg("--json").stdout(Stdio::piped());
    command.envs(crash_at.map(|at| ("FOREBAY_CRASH_AT", at)));
    let mut process = command.spawn().expect("forebay starts");
    let stdout = process.stdout.take().expect("piped");
    let (told, announced) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = told.send(line);
    });
    let Ok(line) = announced.recv_timeout(START_DEADLINE) else {
        let threads = threads_of(process.id());
        let _ = process.kill();
        let _ = process.wait();
        panic!("forebay does not come up, and does not end; its threads:\n{threads}");
    };
    (process, !line.is_empty())
}
