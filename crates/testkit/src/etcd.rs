//! A real etcd on this machine: one server or several, each on ports and in a directory of its own.
//!
//! Debian's `etcd-server` has the server, `etcd-client` the program that compacts it, and saves and restores its snapshots.

mod control;
mod mute_line;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{NotRun, not_run};
use crate::ports::free_port;
use crate::process::{answer, tool, wait_until_stopped};

pub use mute_line::MuteLine;

const PATIENCE: Duration = Duration::from_secs(30);
/// So that an election takes a second. The least lease that etcd grants then has a second, too.
const HEARTBEAT_MS: u32 = 50;
const ELECTION_MS: u32 = 500;

/// The servers. They end with this.
pub struct EtcdServers {
    servers: Vec<Server>,
    dir: tempfile::TempDir,
    etcdctl: PathBuf,
    tls: Option<EtcdTlsFiles>,
    /// Counted up when all of them begin anew, so that no one takes another for a member of before.
    token: u32,
}

/// For the clients' port.
#[derive(Clone, Debug)]
pub struct EtcdTlsFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

struct Server {
    name: String,
    program: PathBuf,
    dir: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
    stopped: bool,
}

/// Run `scenario` with that many servers. Prints "not run" with the reason where that is not possible, and fails then if
/// FOREBAY_MUST_RUN is set.
pub async fn with_etcd<F: Future<Output = ()>>(
    name: &str,
    servers: usize,
    scenario: impl FnOnce(EtcdServers) -> F,
) {
    match EtcdServers::start(servers) {
        Ok(etcd) => scenario(etcd).await,
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

impl EtcdServers {
    pub fn start(count: usize) -> Result<EtcdServers, NotRun> {
        EtcdServers::start_with(count, |_| Ok(None))
    }

    /// `tls` gets the directory and makes the files there.
    pub fn start_with(
        count: usize,
        tls: impl FnOnce(&Path) -> Result<Option<EtcdTlsFiles>, NotRun>,
    ) -> Result<EtcdServers, NotRun> {
        let program = tool("etcd").ok_or_else(|| NotRun("etcd is not installed".to_owned()))?;
        let etcdctl = tool("etcdctl").ok_or_else(|| NotRun("etcdctl is not installed".to_owned()))?;
        let dir = tempfile::Builder::new().prefix("forebay-etcd-").tempdir();
        let dir = dir.map_err(|e| NotRun(format!("temporary directory: {e}")))?;
        let tls = tls(dir.path())?;
        let server = |index: usize| Server {
            name: format!("e{index}"),
            program: program.clone(),
            dir: dir.path().join(format!("e{index}")),
            client: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            peer: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            child: None,
            stopped: false,
        };
        let servers = (0..count).map(server).collect();
        let mut etcd = EtcdServers { servers, dir, etcdctl, tls, token: 0 };
        etcd.start_all();
        Ok(etcd)
    }

    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Where a server's clients connect.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.servers[index].client
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.client).collect()
    }

    /// Of a cluster called `show` on all servers.
    pub fn url(&self) -> String {
        url_of(&self.addresses())
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn tls(&self) -> Option<&EtcdTlsFiles> {
        self.tls.as_ref()
    }
}

/// `etcd://` with these servers, and `show`.
pub fn url_of(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    format!("etcd://{}/show", addresses.join(","))
}

/// What happens to servers.
impl EtcdServers {
    pub fn kill(&mut self, index: usize) {
        self.servers[index].kill();
    }

    /// SIGTERM: it ends its streams as it should.
    pub fn end(&mut self, index: usize) {
        self.servers[index].signal(Signal::TERM);
        if let Some(mut child) = self.servers[index].child.take() {
            child.wait().expect("our child");
        }
    }

    pub fn kill_all(&mut self) {
        self.servers.iter_mut().for_each(Server::kill);
    }

    /// SIGSTOP: it is there, and says nothing.
    pub fn stop(&mut self, index: usize) {
        self.servers[index].signal(Signal::STOP);
        self.servers[index].stopped = true;
        wait_until_stopped(self.servers[index].child.as_ref().expect("it runs").id());
    }

    /// SIGCONT.
    pub fn go_on(&mut self, index: usize) {
        self.servers[index].signal(Signal::CONT);
        self.servers[index].stopped = false;
    }

    /// One that was killed starts with what it had. Waits until it serves, if a majority runs.
    pub fn start_again(&mut self, index: usize) {
        self.spawn(index);
        self.wait_until_healthy();
    }

    /// All of those that do not run.
    pub fn start_all(&mut self) {
        for index in 0..self.servers.len() {
            if self.servers[index].child.is_none() {
                self.spawn(index);
            }
        }
        self.wait_until_healthy();
    }

    /// All are killed, and start with nothing.
    pub fn wipe(&mut self) {
        self.kill_all();
        for server in &self.servers {
            let _ = std::fs::remove_dir_all(&server.dir);
        }
        self.token += 1;
        self.start_all();
    }

    fn spawn(&mut self, index: usize) {
        let log = self.dir.path().join(format!("{}.log", self.servers[index].name));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log");
        let (members, token) = (self.initial_cluster(), self.token());
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let server = &mut self.servers[index];
        let (clients, peers) = (format!("{scheme}://{}", server.client), format!("http://{}", server.peer));
        let mut command = Command::new(&server.program);
        command
            .args(["--name", &server.name])
            .arg("--data-dir")
            .arg(&server.dir)
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &members, "--initial-cluster-token", &token])
            .args(["--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--election-timeout", &ELECTION_MS.to_string()]);
        if let Some(tls) = &self.tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
            command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        server.child = Some(command.spawn().expect("etcd starts"));
    }

    fn initial_cluster(&self) -> String {
        let members = self.servers.iter().map(|server| format!("{}=http://{}", server.name, server.peer));
        members.collect::<Vec<_>>().join(",")
    }

    fn token(&self) -> String {
        format!("forebay-{}", self.token)
    }

    /// Until each server that runs has answered a question that needs a leader.
    fn wait_until_healthy(&self) {
        let running: Vec<&Server> =
            self.servers.iter().filter(|server| server.child.is_some() && !server.stopped).collect();
        if running.len() * 2 <= self.servers.len() {
            return;
        }
        let begun = Instant::now();
        for server in running {
            while !self.is_healthy(server) {
                if begun.elapsed() > PATIENCE {
                    let log = self.dir.path().join(format!("{}.log", server.name));
                    let log = std::fs::read_to_string(log).unwrap_or_default();
                    panic!("etcd {} does not come up: {log}", server.name);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn is_healthy(&self, server: &Server) -> bool {
        if self.tls.is_some() {
            return self.etcdctl_at(server.client, &["endpoint", "health"]).is_ok();
        }
        answer(server.client, "GET", "/health", "", "").is_ok_and(|answer| answer.contains("\"true\""))
    }
}

impl Server {
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.stopped = false;
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("our child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
