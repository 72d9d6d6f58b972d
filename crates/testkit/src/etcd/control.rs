//! What an operator does with `etcdctl`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::EtcdServers;

impl EtcdServers {
    /// The server that leads.
    pub fn leader(&self) -> usize {
        let leads = |address: &SocketAddr| {
            let status = self.status(*address)?;
            (status["header"]["member_id"] == status["leader"]).then_some(())
        };
        let running = self
            .servers
            .iter()
            .position(|server| server.child.is_some() && !server.stopped && leads(&server.client).is_some());
        running.expect("one of them leads")
    }

    /// As the first server that answers knows it.
    pub fn revision(&self) -> u64 {
        let status = self.addresses().into_iter().find_map(|address| self.status(address));
        let status = status.expect("a server answers");
        status["header"]["revision"].as_u64().expect("a number")
    }

    fn status(&self, address: SocketAddr) -> Option<Value> {
        let told = self.etcdctl_at(address, &["endpoint", "status", "--write-out=json"]).ok()?;
        let told: Value = serde_json::from_str(&told).ok()?;
        told.get(0).map(|told| told["Status"].clone())
    }

    /// What was before the present revision is forgotten.
    pub fn compact(&self) {
        let revision = self.revision().to_string();
        self.etcdctl(&["compaction", "--physical", &revision]);
    }

    /// A backup.
    pub fn snapshot(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        self.etcdctl_at(self.address(0), &["snapshot", "save", &path.to_string_lossy()]).expect("a snapshot");
        path
    }

    /// All servers are killed, get what the backup has, and start.
    pub fn restore(&mut self, snapshot: &Path) {
        self.kill_all();
        self.token += 1;
        let (members, token) = (self.initial_cluster(), self.token());
        for server in &self.servers {
            let _ = std::fs::remove_dir_all(&server.dir);
            let mut command = Command::new(&self.etcdctl);
            command
                .arg("snapshot")
                .arg("restore")
                .arg(snapshot)
                .args(["--name", &server.name, "--data-dir"])
                .arg(&server.dir)
                .args(["--initial-cluster", &members, "--initial-cluster-token", &token])
                .args(["--initial-advertise-peer-urls", &format!("http://{}", server.peer)]);
            run(command).expect("restored");
        }
        self.start_all();
    }

    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        self.etcdctl_at(self.address(0), arguments).expect("etcdctl does it")
    }

    pub(super) fn etcdctl_at(&self, address: SocketAddr, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.etcdctl);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        command.arg(format!("--endpoints={scheme}://{address}")).arg("--command-timeout=2s");
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca).arg("--cert").arg(&tls.certificate);
            command.arg("--key").arg(&tls.key);
        }
        command.args(arguments);
        run(command)
    }
}

fn run(mut command: Command) -> Result<String, String> {
    let output = command.env("ETCDCTL_API", "3").output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
