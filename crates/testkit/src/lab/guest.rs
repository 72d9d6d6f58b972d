//! One User-Mode Linux guest: booted, told shell commands, torn down.
//!
//! A command is a file in a directory that host and guest share; its number is sent down the guest's console, and its
//! output and exit status come back as files. Commands run in parallel.

use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{NotRun, run};

const BOOT_DEADLINE: Duration = Duration::from_secs(60);
const COMMAND_DEADLINE: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(20);

/// In the lab's directory.
const REGISTERS: &str = "registers.so";

/// Make what all guests start with: see `registers.c`.
pub fn prepare(dir: &Path) -> Result<(), NotRun> {
    let source = dir.join("registers.c");
    std::fs::write(&source, include_str!("registers.c")).map_err(|e| NotRun(e.to_string()))?;
    let made = dir.join(REGISTERS);
    run("cc", &["-shared", "-fPIC", "-O2", "-o", &made.to_string_lossy(), &source.to_string_lossy()])
}

pub struct Guest {
    name: &'static str,
    /// Shared with the guest.
    shared: PathBuf,
    net: Ipv4Addr,
    tap: String,
    kernel: Child,
    console: Mutex<ChildStdin>,
    next: AtomicU64,
}

#[derive(Debug)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub status: i32,
}

impl Guest {
    pub fn boot(
        dir: &Path,
        name: &'static str,
        net: Ipv4Addr,
        memory_mib: u32,
        disk: Option<&Path>,
    ) -> Result<Guest, NotRun> {
        let shared = dir.join(name);
        std::fs::create_dir(&shared).map_err(|e| NotRun(e.to_string()))?;
        let init = shared.join("init");
        let failed = |e: std::io::Error| NotRun(format!("boot {name}: {e}"));
        std::fs::write(&init, include_str!("init.sh")).map_err(failed)?;
        run("chmod", &["+x", &init.to_string_lossy()])?;
        let tap = format!("fb{}{}", &name[..1], std::process::id());
        let _ = run("ip", &["link", "del", &tap]);
        run("ip", &["tuntap", "add", &tap, "mode", "tap"])?;
        run("ip", &["addr", "add", &format!("{}/24", host_in(net, 1)), "dev", &tap])?;
        run("ip", &["link", "set", &tap, "up"])?;
        // setpriv: the guest dies with the test, however the test dies.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "linux.uml"]);
        command.args([
            &format!("mem={memory_mib}M"),
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
        ]);
        command.arg(format!("init={}", init.display()));
        if let Some(disk) = disk {
            command.arg(format!("ubd0={}", disk.display()));
        }
        command.arg(format!("vec0:transport=tap,ifname={tap},gro=1"));
        command.args(["con=null", "con0=fd:0,fd:1", "quiet"]);
        command.arg(format!("lab_shared={}", shared.display()));
        command.arg(format!("lab_address={}", host_in(net, 2)));
        command.arg(format!("lab_gateway={}", host_in(net, 1)));
        command.env("LD_PRELOAD", dir.join(REGISTERS));
        let log = std::fs::File::create(shared.join("console.log")).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(log.try_clone().map_err(failed)?).stderr(log).process_group(0);
        let mut kernel = command.spawn().map_err(failed)?;
        let console = Mutex::new(kernel.stdin.take().expect("piped"));
        Ok(Guest { name, shared, net, tap, kernel, console, next: AtomicU64::new(1) })
    }

    pub fn wait_ready(&mut self) -> Result<(), NotRun> {
        let start = Instant::now();
        while !self.shared.join("ready").exists() {
            let ended = self.kernel.try_wait().ok().flatten();
            if ended.is_some() || start.elapsed() > BOOT_DEADLINE {
                let log = std::fs::read_to_string(self.shared.join("console.log")).unwrap_or_default();
                return Err(NotRun(format!("{} did not boot: {}", self.name, log.trim())));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    pub fn address(&self) -> Ipv4Addr {
        host_in(self.net, 2)
    }

    /// The host, as this guest reaches it.
    pub fn gateway(&self) -> Ipv4Addr {
        host_in(self.net, 1)
    }

    /// Start a shell script; wait for it with [`RunningGuest::wait`].
    pub fn start(&self, script: &str) -> RunningGuest<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        std::fs::write(self.shared.join(format!("{number}.sh")), script)
            .expect("the shared directory can be written");
        let mut console = self.console.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writeln!(console, "{number}").expect("the guest is running");
        RunningGuest { guest: self, number }
    }

    /// Run a shell script, whatever its exit status.
    pub fn sh(&self, script: &str) -> Output {
        self.start(script)
            .wait(COMMAND_DEADLINE)
            .unwrap_or_else(|| panic!("{}: no end of: {script}", self.name))
    }

    /// Run a shell script that must succeed.
    pub fn must(&self, script: &str) -> Output {
        let output = self.sh(script);
        assert_eq!(output.status, 0, "{}: {script}\n{}{}", self.name, output.stdout, output.stderr);
        output
    }

    /// Mount by NFS; `options` are added to those that every mount here needs.
    pub fn mount(
        &self,
        server: Ipv4Addr,
        port: u16,
        mount_port: u16,
        export: &str,
        dir: &str,
        options: &str,
    ) {
        self.must(&format!(
            "mkdir -p {dir}; mount.nfs {server}:{export} {dir} -o \
             vers=3,tcp,nolock,port={port},mountport={mount_port},mountproto=tcp,hard,timeo=600,{options}"
        ));
    }

    pub(super) fn process(&self) -> u32 {
        self.kernel.id()
    }

    pub fn tap(&self) -> &str {
        &self.tap
    }

    /// Nothing reaches the guest any more. The link stays up: with its route gone, what is meant for the guest would
    /// leave by the host's default route.
    pub(super) fn cut(&self) {
        // A queue that no packet fits into.
        run("tc", &["qdisc", "replace", "dev", &self.tap, "root", "bfifo", "limit", "1"])
            .expect("the tap exists");
    }

    pub(super) fn restore(&self) {
        run("tc", &["qdisc", "del", "dev", &self.tap, "root"]).expect("it was cut");
    }
}

/// A script under way.
pub struct RunningGuest<'a> {
    guest: &'a Guest,
    number: u64,
}

impl RunningGuest<'_> {
    /// `None` if it has not ended within `deadline`.
    pub fn wait(&self, deadline: Duration) -> Option<Output> {
        let file = |ending: &str| self.guest.shared.join(format!("{}.{ending}", self.number));
        let start = Instant::now();
        loop {
            if let Ok(status) = std::fs::read_to_string(file("status")) {
                let text = |ending| {
                    String::from_utf8_lossy(&std::fs::read(file(ending)).unwrap_or_default()).into_owned()
                };
                let status = status.trim().parse().unwrap_or(-1);
                return Some(Output { stdout: text("out"), stderr: text("err"), status });
            }
            if start.elapsed() > deadline {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(i32::try_from(self.kernel.id()).unwrap_or(0)) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.kernel.wait();
        let _ = run("ip", &["link", "del", &self.tap]);
    }
}

fn host_in(net: Ipv4Addr, last: u8) -> Ipv4Addr {
    let [a, b, c, _] = net.octets();
    Ipv4Addr::new(a, b, c, last)
}
