//! A real Slurm on this machine: munged, slurmctld, and a slurmd for each node, on ports and in a directory of its own.
//!
//! Debian's `slurm-wlm` and `munge`. All nodes are this machine under other names, which slurmd is built for. Processes
//! are tracked by their parents and not confined, so that it needs no cgroups and runs in a container. Needs root.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{NotRun, not_run};
use crate::ports::free_port;

const UP_DEADLINE: Duration = Duration::from_secs(30);
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

pub struct Slurm {
    /// First, so that it ends the daemons before their files go.
    _undertaker: SlurmUndertaker,
    dir: tempfile::TempDir,
}

/// Run `scenario` on a cluster of `nodes` nodes with 64 processors each, in name. Prints "not run" with the reason
/// where that is not possible, and fails then if FOREBAY_MUST_RUN is set.
pub fn with_slurm(name: &str, nodes: u16, scenario: impl FnOnce(&Slurm)) {
    match Slurm::start(nodes) {
        Ok(slurm) => scenario(&slurm),
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

impl Slurm {
    pub fn start(nodes: u16) -> Result<Slurm, NotRun> {
        check_machine()?;
        let failed = |what: &str, e: std::io::Error| NotRun(format!("{what}: {e}"));
        let dir = tempfile::Builder::new().prefix("forebay-slurm-").tempdir();
        let dir = dir.map_err(|e| failed("temporary directory", e))?;
        std::fs::write(dir.path().join("slurm.conf"), configuration(dir.path(), nodes)?)
            .map_err(|e| failed("slurm.conf", e))?;
        let key =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(dir.path().join("key"));
        // Nobody else can reach the socket, so that any key of the right length does.
        key.and_then(|mut file| file.write_all(&[0x5a; 64])).map_err(|e| failed("munge key", e))?;
        let mut undertaker = SlurmUndertaker::watch(dir.path())?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        let munged = ["--foreground", "--force", "--key-file", &at("key"), "--socket", &at("munge.sock")];
        let more = [
            "--pid-file",
            &at("munge.pid"),
            "--log-file",
            &at("munge.log"),
            "--seed-file",
            &at("munge.seed"),
        ];
        undertaker.start(dir.path(), "munged", &[&munged[..], &more[..]].concat())?;
        wait_for("munged", dir.path(), || dir.path().join("munge.sock").exists())?;
        undertaker.start(dir.path(), "slurmctld", &["-D"])?;
        for node in 1..=nodes {
            undertaker.start(dir.path(), "slurmd", &["-D", "-N", &format!("n{node}")])?;
        }
        let slurm = Slurm { _undertaker: undertaker, dir };
        let idle = || {
            let output = slurm.command("sinfo").args(["-h", "-N", "-o", "%T"]).output();
            output.is_ok_and(|o| {
                String::from_utf8_lossy(&o.stdout).lines().filter(|line| *line == "idle").count()
                    == usize::from(nodes)
            })
        };
        wait_for("slurm", slurm.dir.path(), idle)?;
        Ok(slurm)
    }

    /// A command of Slurm's, or any other, that talks to this cluster.
    pub fn command(&self, program: &str) -> Command {
        command(program, self.dir.path())
    }

    /// `srun` for `ranks` tasks on `nodes` nodes; the program and its arguments are to follow.
    pub fn srun(&self, nodes: u16, ranks: u16) -> Command {
        let mut command = self.command("srun");
        command.args([format!("--nodes={nodes}"), format!("--ntasks={ranks}")]);
        command
    }
}

fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", PATH).env("SLURM_CONF", dir.join("slurm.conf"));
    command
}

fn configuration(dir: &Path, nodes: u16) -> Result<String, NotRun> {
    let dir = dir.display();
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| NotRun(format!("hostname: {e}")))?;
    let host = host.trim().split('.').next().unwrap_or_default().to_owned();
    let mut text = format!(
        "ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/munge.sock
SlurmctldPort={}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
",
        free_port()
    );
    for node in 1..=nodes {
        text.push_str(&format!(
            "NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=64 State=UNKNOWN\n",
            free_port()
        ));
    }
    std::fs::create_dir(format!("{dir}/state")).map_err(|e| NotRun(format!("state: {e}")))?;
    Ok(text)
}

fn check_machine() -> Result<(), NotRun> {
    if !rustix::process::getuid().is_root() {
        return Err(NotRun("slurmd needs root".into()));
    }
    let parts = [
        ("/usr/sbin/munged", "munge"),
        ("/usr/sbin/slurmctld", "slurm-wlm"),
        ("/usr/sbin/slurmd", "slurm-wlm"),
        ("/usr/bin/srun", "slurm-wlm"),
        ("/usr/bin/setsid", "util-linux"),
    ];
    match parts.iter().find(|(path, _)| !PathBuf::from(path).exists()) {
        Some((_, package)) => Err(NotRun(format!("Debian's {package} is not installed"))),
        None => Ok(()),
    }
}

fn wait_for(what: &str, dir: &Path, mut up: impl FnMut() -> bool) -> Result<(), NotRun> {
    let begun = Instant::now();
    while !up() {
        if begun.elapsed() > UP_DEADLINE {
            let logs = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            let last: Vec<&str> = logs.lines().rev().take(8).collect();
            return Err(NotRun(format!("{what} does not come up: {}", last.join(" | "))));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A process that outlives the test by a moment, cancels its jobs, ends the daemons and removes their files, however
/// the test has ended. It is told of each daemon by a pipe that only the test holds, and acts when that ends.
struct SlurmUndertaker {
    process: Child,
    daemons: Vec<Child>,
}

impl SlurmUndertaker {
    fn watch(dir: &Path) -> Result<SlurmUndertaker, NotRun> {
        let script = "exec 2>/dev/null; daemons=; while read -r daemon; do daemons=\"$daemons $daemon\"; done
timeout 3 scancel --user=root
for i in 1 2 3 4 5 6 7 8 9 10; do [ -z \"$(timeout 1 squeue -h)\" ] && break; sleep 0.1; done
kill -9 $daemons; rm -rf \"$1\"";
        let mut command = command("setsid", dir);
        command.args(["sh", "-c", script, "undertaker"]).arg(dir).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|e| NotRun(format!("setsid: {e}")))?;
        Ok(SlurmUndertaker { process, daemons: Vec::new() })
    }

    fn start(&mut self, dir: &Path, program: &str, arguments: &[&str]) -> Result<(), NotRun> {
        let failed = |e: std::io::Error| NotRun(format!("{program}: {e}"));
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).map_err(failed)?;
        let mut command = command(program, dir);
        command.args(arguments).current_dir(dir).stdin(Stdio::null()).process_group(0);
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        let child = command.spawn().map_err(failed)?;
        if let Some(pipe) = &mut self.process.stdin {
            writeln!(pipe, "{}", child.id()).map_err(failed)?;
        }
        self.daemons.push(child);
        Ok(())
    }
}

impl Drop for SlurmUndertaker {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        for daemon in &mut self.daemons {
            let _ = daemon.wait();
        }
    }
}
