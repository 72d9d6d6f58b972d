//! A process of the tier's program, `forebay`, at work beside us. It ends when it is dropped, and by itself if we end in any other
//! way: it watches its standard input, whose other end is ours.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use program::companion;
use serde::Deserialize;
use types::{Error, ErrorKind, Result};

use super::usage::Usage;

/// From the start to the first answer: a tier gives its origin 10 s, and the line may be long.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// After SIGTERM; then it is killed. A tier gives calls under way 8 s.
const STOP_DEADLINE: Duration = Duration::from_secs(12);
/// Lines of its log that are kept, to say why it ended.
const LOG_LINES: usize = 20;

pub struct Process {
    child: Child,
    name: String,
    log: Arc<Mutex<VecDeque<String>>>,
}

/// What it prints when it serves.
#[derive(Debug, Deserialize)]
pub struct Addresses {
    pub nfs: SocketAddr,
    pub admin: Option<SocketAddr>,
    #[serde(default)]
    pub s3: Option<SocketAddr>,
}

impl Process {
    /// Start, and wait until it says where it answers. `environment`: besides ours, for what must not stand in a command
    /// line.
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Result<(Process, Addresses)> {
        let name = format!("forebay {}", arguments.first().unwrap_or(&""));
        let failed = |e| Error::io("start", &name, e);
        let mut command = companion::forebay()?;
        // A group of its own: Ctrl-C is for us, and we end it in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
            .args(arguments)
            .envs(environment.iter().copied())
            .arg("--attended")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stderr) = child.stderr.take() {
            let log = log.clone();
            std::thread::spawn(move || keep_last_lines(stderr, &log));
        }
        let (line, first_line) = sync_channel(1);
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout).lines();
                let _ = line.send(lines.next().and_then(|line| line.ok()));
                lines.for_each(drop); // so that it never waits for us
            });
        }
        let mut process = Process { child, name, log };
        let said = match first_line.recv_timeout(START_DEADLINE) {
            Ok(said) => said.unwrap_or_default(),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => String::new(),
        };
        let addresses = serde_json::from_str(&said).map_err(|_| process.why_it_ended())?;
        Ok((process, addresses))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn usage(&self) -> Usage {
        Usage::of(self.child.id())
    }

    /// An error if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.why_it_ended()),
        }
    }

    fn why_it_ended(&mut self) -> Error {
        // Its last words may still be on the way.
        let patience = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && patience.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let last = log.back().cloned().unwrap_or_else(|| "it said nothing".into());
        Error::new(ErrorKind::Unavailable, "run", format!("{} ({last})", self.name))
    }

    fn ended_within(&mut self, patience: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if !self.ended_within(STOP_DEADLINE) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn keep_last_lines(stderr: impl std::io::Read, log: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).lines().map_while(std::io::Result::ok) {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == LOG_LINES {
            log.pop_front();
        }
        log.push_back(line);
    }
}
