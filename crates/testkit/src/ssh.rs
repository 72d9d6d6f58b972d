//! A real sshd on a port of its own, with keys of its own: this machine as the hosts `n1`, `n2`, ... of an ssh command.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{NotRun, not_run};
use crate::ports::free_port;

const UP_DEADLINE: Duration = Duration::from_secs(10);

pub struct Sshd {
    process: Child,
    dir: tempfile::TempDir,
}

/// Run `scenario` with an sshd. Prints "not run" with the reason where that is not possible, and fails then if
/// FOREBAY_MUST_RUN is set.
pub fn with_sshd(name: &str, scenario: impl FnOnce(&Sshd)) {
    match Sshd::start() {
        Ok(sshd) => scenario(&sshd),
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

impl Sshd {
    pub fn start() -> Result<Sshd, NotRun> {
        let parts = [
            ("/usr/sbin/sshd", "openssh-server"),
            ("/usr/bin/ssh", "openssh-client"),
            ("/usr/bin/setpriv", "util-linux"),
        ];
        if let Some((_, package)) = parts.iter().find(|(path, _)| !PathBuf::from(path).exists()) {
            return Err(NotRun(format!("Debian's {package} is not installed")));
        }
        if !rustix::process::getuid().is_root() {
            return Err(NotRun("sshd needs root".into()));
        }
        let failed = |e: std::io::Error| NotRun(format!("sshd: {e}"));
        let dir = tempfile::Builder::new().prefix("forebay-sshd-").tempdir().map_err(failed)?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", &at(key)];
            let made = Command::new("ssh-keygen").args(arguments).status().map_err(failed)?;
            if !made.success() {
                return Err(NotRun("ssh-keygen made no key".into()));
            }
        }
        // Where sshd locks itself in before a login.
        std::fs::create_dir_all("/run/sshd").map_err(failed)?;
        let port = free_port();
        std::fs::write(dir.path().join("sshd.conf"), server(port, &at)).map_err(failed)?;
        std::fs::write(dir.path().join("ssh.conf"), client(port, &at)).map_err(failed)?;
        let log = std::fs::File::create(dir.path().join("log")).map_err(failed)?;
        // setpriv: it dies with the test, however the test dies.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "/usr/sbin/sshd", "-D", "-e", "-f", &at("sshd.conf")]);
        let process = command.stdin(Stdio::null()).stderr(log).spawn().map_err(failed)?;
        let sshd = Sshd { process, dir };
        sshd.wait_until_up(port)?;
        Ok(sshd)
    }

    /// `ssh` with what reaches it, before the host: as many words.
    pub fn command(&self) -> Vec<String> {
        vec!["ssh".into(), "-F".into(), self.dir.path().join("ssh.conf").display().to_string()]
    }

    fn wait_until_up(&self, port: u16) -> Result<(), NotRun> {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if begun.elapsed() > UP_DEADLINE {
                return Err(NotRun(format!("sshd does not come up: {}", log_of(self.dir.path()))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let login = self.command();
        let mut command = Command::new(login.first().expect("it has three words"));
        let output = command.args(login.iter().skip(1)).args(["n1", "true"]).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            _ => Err(NotRun(format!("sshd lets nobody in: {}", log_of(self.dir.path())))),
        }
    }
}

fn log_of(dir: &Path) -> String {
    let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    log.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
}

fn server(port: u16, at: &dyn Fn(&str) -> String) -> String {
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 100\n",
        at("host"),
        at("user.pub")
    )
}

fn client(port: u16, at: &dyn Fn(&str) -> String) -> String {
    format!(
        "Host n*\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
        at("user")
    )
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
