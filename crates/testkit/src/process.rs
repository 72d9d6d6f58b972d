//! A server that a test starts: on a port and in a directory of its own, ended with the test.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::NotRun;
use crate::ports::free_port;

pub struct TestProcess {
    name: String,
    child: Child,
    /// By which it is started again.
    command: Command,
    patience: Duration,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

/// What `scripts/setup.sh` builds is in a directory of its own, which need not be on the path.
pub fn tool(program: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/forebay-tools/bin"));
    let paths = std::env::var_os("PATH").map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let mut candidates = home.into_iter().chain(paths.unwrap_or_default()).map(|dir| dir.join(program));
    candidates.find(|path| path.is_file())
}

/// The status of the answer to a request; `more` are lines of its head.
pub fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    more: &str,
    body: impl AsRef<[u8]>,
) -> std::io::Result<u16> {
    let answer = answer(address, method, path, more, body)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| std::io::Error::other(format!("no HTTP: {answer:?}")))
}

/// The same, all of it.
pub fn answer(
    address: SocketAddr,
    method: &str,
    path: &str,
    more: &str,
    body: impl AsRef<[u8]>,
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let body = body.as_ref();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// SIGSTOP reaches one thread of a process after the other: until it has reached all, or the process has ended. One that waits in
/// the kernel (D) does nothing of its own any more, and may be there until SIGCONT: a shell whose child was stopped before it
/// became another program.
pub fn wait_until_stopped(pid: u32) {
    let is_stopped = |thread: std::fs::DirEntry| {
        // Behind the name, which is in parentheses.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 'D', 'Z', 'X']))
    };
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    while !threads().all(is_stopped) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl TestProcess {
    /// `name` is for messages; `given` gets the directory and the address that the server is to take; it is there once
    /// `is_ready`, or the test fails.
    pub fn start(
        name: &str,
        program: Option<PathBuf>,
        patience: Duration,
        given: impl FnOnce(&mut Command, &Path, SocketAddr),
        is_ready: impl Fn(SocketAddr) -> bool,
    ) -> Result<TestProcess, NotRun> {
        let program = program.ok_or_else(|| NotRun(format!("{name} is not installed")))?;
        let dir = tempfile::Builder::new().prefix(&format!("forebay-{name}-")).tempdir();
        let dir = dir.map_err(|e| NotRun(format!("temporary directory: {e}")))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let log = std::fs::File::create(dir.path().join("log")).map_err(|e| NotRun(format!("log: {e}")))?;
        let mut command = Command::new(program);
        given(&mut command, dir.path(), address);
        command
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| NotRun(format!("log: {e}")))?)
            .stderr(log)
            // Killed with the test's own group when that is interrupted.
            .process_group(0);
        let child = command.spawn().map_err(|e| NotRun(format!("{name}: {e}")))?;
        let process = TestProcess { name: name.to_owned(), child, command, patience, dir, address };
        process.wait_until(is_ready);
        Ok(process)
    }

    /// It ends as SIGTERM ends it, and starts at the same address with what `given` changes.
    pub fn start_again(&mut self, given: impl FnOnce(&mut Command), is_ready: impl Fn(SocketAddr) -> bool) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it was running");
        self.child.wait().expect("our child");
        given(&mut self.command);
        self.child = self.command.spawn().expect("started before");
        self.wait_until(is_ready);
    }

    fn wait_until(&self, is_ready: impl Fn(SocketAddr) -> bool) {
        let begun = Instant::now();
        while !is_ready(self.address) {
            if begun.elapsed() > self.patience {
                let log = std::fs::read_to_string(self.dir().join("log")).unwrap_or_default();
                panic!("{} does not come up: {log}", self.name);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its own, with its log; it goes with the server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
