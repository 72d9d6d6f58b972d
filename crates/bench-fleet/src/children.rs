//! The ranks that rank 0 starts itself: processes here, or there over ssh.
//!
//! Their standard output is closed, as rank 0 alone prints; their errors go where ours do. They get the same arguments
//! and, in the environment, their rank and the way to rank 0. The token comes on their standard input, where nobody else
//! sees it, as on a command line; its end is how they learn early that rank 0 is gone.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use types::{Error, ErrorKind, Result};

use crate::coordinator::Event;
use crate::launch::{COORDINATOR, RANK, RankStart, SIZE, TOKEN, TOKEN_ON_STDIN, quote};
use crate::options::{FleetOptions, this_program};
use crate::token::RunToken;

/// The file that the process runs which starts another one, whatever has become of its name.
const ITSELF: &str = "/proc/self/exe";
/// Processes that have not ended by themselves so long after the run are killed.
const ENDING: Duration = Duration::from_secs(3);

pub struct Children {
    waiting: JoinSet<()>,
    /// Their standard inputs, open as long as the run is.
    inputs: Vec<ChildStdin>,
}

/// What the processes must know.
pub struct Orders<'a> {
    pub options: &'a FleetOptions,
    pub size: u32,
    pub token: &'a RunToken,
    /// Rank 0's port.
    pub port: u16,
    /// `HOST:PORT` by which other machines may reach rank 0.
    pub ways_in: &'a [String],
}

impl Children {
    /// Start them all, and tell of each how it ended.
    pub async fn start(
        starts: &[RankStart],
        orders: &Orders<'_>,
        events: &mpsc::Sender<Event>,
    ) -> Result<Children> {
        let mut children = Children { waiting: JoinSet::new(), inputs: Vec::with_capacity(starts.len()) };
        for start in starts {
            let rank = start.rank;
            let mut child = match &start.host {
                None => local(rank, orders)?,
                Some(host) => remote(rank, host, orders)?,
            };
            if let Some(mut input) = child.stdin.take() {
                // If the process is gone already, how it ended says why.
                let _ = input.write_all(format!("{}\n", orders.token.reveal()).as_bytes()).await;
                children.inputs.push(input);
            }
            let over_ssh = start.host.is_some();
            let events = events.clone();
            children.waiting.spawn(async move {
                let how = match child.wait().await {
                    Ok(status) => describe(status, over_ssh),
                    Err(e) => e.to_string(),
                };
                // The coordinator is gone at the end of the run.
                let _ = events.send(Event::ChildEnded(rank, how)).await;
            });
        }
        Ok(children)
    }

    /// Let them end, and kill those that do not.
    pub async fn end(mut self) {
        self.inputs.clear();
        let all = async { while self.waiting.join_next().await.is_some() {} };
        if timeout(ENDING, all).await.is_err() {
            tracing::warn!(left = self.waiting.len(), "processes of the run did not end, and are killed");
        }
        self.waiting.shutdown().await;
    }
}

fn local(rank: u32, orders: &Orders<'_>) -> Result<Child> {
    let program = &orders.options.program;
    let mut command = match this_program() {
        // What runs, and not what lies there now: a new build in the middle of a run would be another program.
        Ok(own) if own == *program => Command::new(ITSELF),
        _ => Command::new(program),
    };
    command.arg0(program);
    command.args(&orders.options.arguments);
    command.envs(variables(rank, orders, format!("127.0.0.1:{}", orders.port)));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().map_err(|e| Error::io("start a process of", orders.options.program.display(), e))
}

fn remote(rank: u32, host: &str, orders: &Orders<'_>) -> Result<Child> {
    let mut ssh = orders.options.launch.ssh.as_deref().unwrap_or("ssh").split_whitespace();
    let Some(program) = ssh.next() else {
        return Err(Error::new(ErrorKind::Config, "--ssh", "is no command"));
    };
    let mut command = Command::new(program);
    // No questions: there may be nobody to answer, and rank 0's terminal is not for passwords of many hosts.
    command.args(ssh).args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", host]);
    command.arg(remote_line(rank, orders)?);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().map_err(|e| Error::io("reach a host by", program, e))
}

/// The line for the shell on the other side: the same program with the same arguments, in the same directory if there is
/// one.
fn remote_line(rank: u32, orders: &Orders<'_>) -> Result<String> {
    let dir = std::env::current_dir().map_err(|e| Error::io("find the working directory", "", e))?;
    let plain = |word: &std::ffi::OsStr| match word.to_str() {
        Some(word) => Ok(quote(word)),
        None => Err(Error::new(ErrorKind::Config, "--hosts", format!("{word:?} is not UTF-8"))),
    };
    let mut line = format!("cd {} 2>/dev/null; exec env", plain(dir.as_os_str())?);
    for (name, value) in variables(rank, orders, orders.ways_in.join(",")) {
        line.push_str(&format!(" {name}={}", quote(&value)));
    }
    let arguments = orders.options.arguments.iter().map(|word| word.as_os_str());
    for word in std::iter::once(orders.options.program.as_os_str()).chain(arguments) {
        line.push(' ');
        line.push_str(&plain(word)?);
    }
    Ok(line)
}

/// What a process finds in its environment; `ways` are the addresses of rank 0.
fn variables(rank: u32, orders: &Orders<'_>, ways: String) -> [(&'static str, String); 4] {
    let token = TOKEN_ON_STDIN.to_owned();
    [(RANK, rank.to_string()), (SIZE, orders.size.to_string()), (COORDINATOR, ways), (TOKEN, token)]
}

fn describe(status: ExitStatus, over_ssh: bool) -> String {
    match status.code() {
        Some(255) if over_ssh => {
            "ssh ended with 255: its host is out of reach, or it was killed there".into()
        }
        Some(126 | 127) if over_ssh => "this program is not at the same path on its host".into(),
        _ => status.to_string(),
    }
}
