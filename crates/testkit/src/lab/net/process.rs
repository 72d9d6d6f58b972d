//! A process in a host of the lab. It ends with this, and with the lab however that ends.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{LabShared, POLL};
use crate::process::wait_until_stopped;

/// Where what it says goes.
pub(super) struct Outputs {
    pub stdout: File,
    pub stderr: File,
}

pub struct LabProcess {
    name: String,
    child: Child,
    /// Its process id may be another's from then on.
    ended: Option<ExitStatus>,
    log: PathBuf,
    /// The namespaces are there as long as it is.
    _lab: Arc<LabShared>,
}

impl LabProcess {
    /// In a thread that is in the host's network and ends soon.
    pub(super) fn start(
        lab: &Arc<LabShared>,
        name: String,
        mut command: Command,
        outputs: Outputs,
        log: PathBuf,
    ) -> LabProcess {
        command.stdin(Stdio::null()).stdout(outputs.stdout).stderr(outputs.stderr);
        // Signals reach its children as well, and Ctrl-C none of them.
        command.process_group(0);
        let child = lab.undertaker.spawn(&mut command);
        let child = child.unwrap_or_else(|e| panic!("{name}: {command:?}: {e}"));
        LabProcess { name, child, ended: None, log, _lab: lab.clone() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// As this process sees it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// SIGKILL, to its children too. It is gone afterwards.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
    }

    /// SIGTERM, and how it ended then. It fails the test if it does not end before the deadline.
    pub fn end(&mut self, deadline: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(deadline).unwrap_or_else(|| panic!("{} does not end: {}", self.name, self.log()))
    }

    /// SIGSTOP: it is there, and does nothing.
    pub fn stop(&self) {
        assert!(self.ended.is_none(), "{} has ended", self.name);
        self.signal(Signal::STOP);
        wait_until_stopped(self.child.id());
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("our child");
        }
        self.ended
    }

    /// `None` if it has not ended by then.
    pub fn wait(&mut self, deadline: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while self.ended().is_none() && begun.elapsed() < deadline {
            std::thread::sleep(POLL);
        }
        self.ended
    }

    fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // One that has ended, and was not waited for yet, takes no notice.
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
