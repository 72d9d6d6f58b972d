//! A node of the lab: `forebay serve` in a host of its own.

use std::fs;
use std::io::{Error, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{LabService, NFS_PORT};
use crate::lab::net::{LabHost, eventually};
use crate::process::answer;

/// Where nodes serve the origin.
pub const JUNCTION: &str = "/show";
/// For the other nodes, on each link.
const NODE_PORT: u16 = 7423;
const ADMIN_PORT: u16 = 9420;
const PATIENCE: Duration = Duration::from_secs(60);
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT);

pub struct LabNode {
    pub service: LabService,
    /// Its disk: configuration, cache, token.
    dir: PathBuf,
    /// Of a node of a cluster.
    arguments: Vec<String>,
    is_mounted: bool,
}

impl LabNode {
    /// In front of the origin at `far`; `junction`: more lines of its table.
    pub(super) fn new(host: LabHost, dir: &Path, far: SocketAddr, junction: &str) -> LabNode {
        fs::create_dir(dir).expect("the lab's directory is there");
        let text = format!(
            "[cache]\ndir = \"{}\"\nsize = \"4GiB\"\nfree_floor = \"64MiB\"\n[nfs]\nlisten = \"0.0.0.0:{NFS_PORT}\"\n\
             [[nfs.export]]\nclients = [\"*\"]\nsquash = \"none\"\n[admin]\nlisten = \"0.0.0.0:{ADMIN_PORT}\"\n\
             [[junction]]\npath = \"{JUNCTION}\"\norigin = \"nfs://{far}/?mountport={}\"\n{junction}\n",
            dir.join("cache").display(),
            far.port(),
        );
        fs::write(dir.join("forebay.toml"), text).expect("written");
        let service = LabService::new("node", host);
        LabNode { service, dir: dir.to_owned(), arguments: Vec::new(), is_mounted: false }
    }

    /// Lines of TOML more, behind the junction's table, from its next start on.
    pub fn configure(&self, more: &str) {
        let file = fs::File::options().append(true).open(self.dir.join("forebay.toml"));
        file.and_then(|mut file| file.write_all(more.as_bytes())).expect("it was written before");
    }

    /// From its next start on it has a mount, too, which programs of its host see.
    pub fn mount(&mut self) {
        fs::create_dir(self.mount_point()).expect("it was not mounted before");
        self.is_mounted = true;
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// The junction on its mount, as this process reaches it for as long as the node runs.
    pub fn mounted(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.service.pid()));
        let place = self.mount_point().join(JUNCTION.trim_start_matches('/'));
        root.join(place.strip_prefix("/").expect("absolute"))
    }

    /// What it has had in memory at once, at most.
    pub fn resident_bytes_max(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.service.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("Linux tells") << 10
    }

    /// Its cache directory.
    pub fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// As a bench names it that runs in a host of the lab: by its first links, with its interface, token and cache.
    pub fn bench_node(&self, links: usize) -> String {
        let links = self.host().links().iter().take(links);
        let mut parts: Vec<String> =
            links.map(|link| format!("nfs://{}:{NFS_PORT}", link.address())).collect();
        let cache = self.cache();
        parts.push(format!("admin={}:{ADMIN_PORT}", self.host().address()));
        parts.push(format!("token={}", cache.join("admin.token").display()));
        parts.push(format!("disk={}", cache.display()));
        parts.join(",")
    }

    /// The file of its token.
    pub(super) fn token(&self) -> PathBuf {
        self.dir.join("token")
    }

    /// From its next start on it is a node of this cluster.
    pub(super) fn join(&mut self, cluster: &str) {
        let token = self.token().display().to_string();
        let mut arguments = ["--cluster", cluster, "--token", &token].map(str::to_owned).to_vec();
        for link in self.host().links() {
            arguments.extend(["--address".to_owned(), format!("{}:{NODE_PORT}", link.address())]);
        }
        self.arguments = arguments;
    }

    pub(super) fn start(&mut self, forebay: &Path) {
        let mut command = Command::new(forebay);
        command.args(["serve", "--config"]).arg(self.dir.join("forebay.toml")).args(&self.arguments);
        if self.is_mounted {
            command.arg("--mount").arg(self.mount_point());
        }
        let level = std::env::var("FOREBAY_TEST_LOG").unwrap_or_else(|_| "info".to_owned());
        command.env("FOREBAY_LOG", level);
        self.service.start(&command, || asked("/v1/status").is_ok());
        if self.is_mounted {
            // Its interface is up before the mount.
            eventually("the node is mounted", PATIENCE, || self.mounted().is_dir());
        }
    }

    pub fn host(&self) -> &LabHost {
        self.service.host()
    }

    /// Of one that is dead: its cache is lost.
    pub fn wipe(&mut self) {
        assert!(!self.service.is_running(), "{} uses its disk", self.host().name());
        fs::remove_dir_all(self.cache()).expect("it was there");
    }

    /// What the operator's interface answers, asked on the node itself.
    pub fn get(&self, path: &str) -> std::io::Result<String> {
        self.host().within(|| asked(path))
    }

    /// `/v1/status`.
    pub fn status(&self) -> Value {
        let told = self.get("/v1/status").expect("it answers");
        serde_json::from_str(&told).expect("JSON")
    }

    /// The value of this line of `/metrics`; 0 if there is none.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").expect("it answers");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// For libnfs, over the link of this number. `path` begins with a slash, below the junction.
    pub fn nfs_url(&self, link: usize, path: &str) -> String {
        let address = self.host().link(link).address();
        format!("nfs://{address}{JUNCTION}{path}?nfsport={NFS_PORT}&mountport={NFS_PORT}&version=3")
    }
}

/// What a GET gives, if it does, in this thread's network.
fn asked(path: &str) -> std::io::Result<String> {
    let told = answer(ADMIN, "GET", path, "", "")?;
    let (head, body) = told.split_once("\r\n\r\n").ok_or(ErrorKind::UnexpectedEof)?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(Error::other(head.to_owned())),
    }
}
