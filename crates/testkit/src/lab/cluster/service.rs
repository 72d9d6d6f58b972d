//! A server in a host of its own, which is killed, stopped and started again.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::lab::net::{LabHost, LabProcess};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Of its log, when a test fails.
const LOG_LINES: usize = 40;

pub struct LabService {
    name: &'static str,
    host: LabHost,
    process: Option<LabProcess>,
}

impl LabService {
    pub(super) fn new(name: &'static str, host: LabHost) -> LabService {
        LabService { name, host, process: None }
    }

    pub fn host(&self) -> &LabHost {
        &self.host
    }

    /// It is up when this returns. `is_ready` is asked within its host.
    pub(super) fn start(&mut self, command: &Command, is_ready: impl Fn() -> bool + Sync) {
        assert!(!self.is_running(), "{} runs in {} already", self.name, self.host.name());
        self.process = Some(self.host.start(self.name, command));
        let begun = Instant::now();
        while !self.host.within(&is_ready) {
            let in_time = begun.elapsed() < PATIENCE;
            assert!(in_time && self.is_running(), "{} does not come up in {}", self.name, self.host.name());
            std::thread::sleep(POLL);
        }
    }

    /// As this process sees it.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it was started").pid()
    }

    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// SIGKILL. It is gone afterwards.
    pub fn kill(&mut self) {
        self.running().kill();
    }

    /// SIGTERM, and how it ended then.
    pub fn end(&mut self) -> ExitStatus {
        self.running().end(PATIENCE)
    }

    /// SIGSTOP: it is there, and says nothing.
    pub fn stop(&mut self) {
        self.running().stop();
    }

    /// SIGCONT.
    pub fn go_on(&mut self) {
        self.running().go_on();
    }

    /// What it has said so far, in all its lives.
    pub fn log(&self) -> String {
        self.process.as_ref().map(LabProcess::log).unwrap_or_default()
    }

    fn running(&mut self) -> &mut LabProcess {
        self.process.as_mut().expect("it was started")
    }
}

impl Drop for LabService {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            eprintln!("--- {} in {}:\n{last}", self.name, self.host.name());
        }
    }
}
