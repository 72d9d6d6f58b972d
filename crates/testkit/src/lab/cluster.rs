//! A cluster in the lab of network namespaces: etcd, a far origin, nodes and clients, each in a host of its own.
//!
//! The origin is a directory that `forebay nas` serves. A relay in the origin's host makes it far; the host's link has the
//! rate. Nodes are `forebay serve` with one junction, [`JUNCTION`]. They stand alone, in front of the same origin, until
//! [`ClusterLab::found`] has founded a cluster in etcd; nodes that start from then on are in it.

mod node;
mod service;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::net::{LabHost, NetLab};
use super::{NotRun, not_run};
use crate::process::{answer, tool};
use relay::Relay;

pub use node::{JUNCTION, LabNode};
pub use service::LabService;

const ETCD_PORT: u16 = 2379;
const NFS_PORT: u16 = 2049;
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// What is in a lab. Rates are bytes per second of either direction of a link.
#[derive(Clone, Debug)]
pub struct ClusterLabPlan {
    pub nodes: usize,
    pub clients: usize,
    /// Of each node and each client.
    pub links: usize,
    /// Of each link of a node.
    pub rate: u64,
    /// Of each link of a client.
    pub client_rate: u64,
    pub origin_rate: u64,
    pub origin_rtt: Duration,
    /// Lines of TOML for the junction of all nodes.
    pub junction: String,
}

impl Default for ClusterLabPlan {
    fn default() -> ClusterLabPlan {
        ClusterLabPlan {
            nodes: 3,
            clients: 1,
            links: 1,
            rate: 50_000_000,
            client_rate: 50_000_000,
            origin_rate: 50_000_000,
            origin_rtt: Duration::from_millis(50),
            junction: String::new(),
        }
    }
}

pub struct ClusterLab {
    pub etcd: LabService,
    pub origin: LabService,
    pub nodes: Vec<LabNode>,
    pub clients: Vec<LabHost>,
    relay: Relay,
    forebay: PathBuf,
    etcd_program: PathBuf,
    net: NetLab,
}

/// Run `scenario` with etcd and the origin up, and no node. Prints "not run" with the reason where that is not possible, and
/// fails then if FOREBAY_MUST_RUN is set. `forebay`: the program.
pub fn with_cluster_lab(
    name: &str,
    forebay: &Path,
    plan: &ClusterLabPlan,
    scenario: impl FnOnce(&mut ClusterLab),
) {
    match ClusterLab::start(forebay, plan) {
        Ok(mut lab) => scenario(&mut lab),
        Err(NotRun(reason)) => not_run(name, &reason),
    }
}

impl ClusterLab {
    pub fn start(forebay: &Path, plan: &ClusterLabPlan) -> Result<ClusterLab, NotRun> {
        let etcd_program = tool("etcd").ok_or_else(|| NotRun("etcd is not installed".to_owned()))?;
        let net = NetLab::start()?;
        let etcd = LabService::new("etcd", net.host("etcd", &[plan.rate]));
        let origin = LabService::new("nas", net.host("origin", &[plan.origin_rate]));
        let nas = SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT));
        let far = SocketAddr::from((origin.host().address(), NFS_PORT));
        let line = relay::Config { rtt: plan.origin_rtt, ..Default::default() };
        let relay = origin.host().within(|| Relay::bind(far, nas, line)).expect("the host is new");
        let rates = vec![plan.rate; plan.links];
        let node = |number: usize| {
            let name = format!("n{number}");
            LabNode::new(net.host(&name, &rates), &net.dir().join(&name), far, &plan.junction)
        };
        let nodes = (1..=plan.nodes).map(node).collect();
        let rates = vec![plan.client_rate; plan.links];
        let clients = (1..=plan.clients).map(|number| net.host(&format!("c{number}"), &rates)).collect();
        let forebay = forebay.to_owned();
        let mut lab = ClusterLab { etcd, origin, nodes, clients, relay, forebay, etcd_program, net };
        std::fs::create_dir(lab.tree()).map_err(|e| NotRun(format!("the origin's tree: {e}")))?;
        lab.start_etcd();
        lab.start_origin();
        Ok(lab)
    }

    /// What the origin serves.
    pub fn tree(&self) -> PathBuf {
        self.net.dir().join("tree")
    }

    /// Where nodes and clients reach it; its round trips take the way of the line.
    pub fn far(&self) -> SocketAddr {
        self.relay.local_addr()
    }

    /// As nodes name the cluster.
    pub fn url(&self) -> String {
        format!("etcd://{}:{ETCD_PORT}/show", self.etcd.host().address())
    }

    /// The first time, or again, with what it had.
    pub fn start_etcd(&mut self) {
        let address = SocketAddr::from((self.etcd.host().address(), ETCD_PORT));
        let clients = format!("http://{address}");
        let mut command = Command::new(&self.etcd_program);
        command.args(["--name", "e1", "--data-dir"]).arg(self.net.dir().join("etcd"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        // One server, which listens to no peer in earnest.
        let peers = "http://127.0.0.1:2380";
        command.args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]);
        command.args(["--initial-cluster", &format!("e1={peers}")]);
        let is_healthy =
            || answer(address, "GET", "/health", "", "").is_ok_and(|told| told.contains("\"true\""));
        self.etcd.start(&command, is_healthy);
    }

    /// The first time, or again.
    pub fn start_origin(&mut self) {
        let nas = self.relay.target();
        let mut command = Command::new(&self.forebay);
        command.arg("nas").arg(self.tree()).args(["--nfs", &nas.to_string()]);
        self.origin.start(&command, || TcpStream::connect(nas).is_ok());
    }

    /// The first time, or again, with what is on its disk. It serves when this returns.
    pub fn start_node(&mut self, index: usize) {
        self.nodes[index].start(&self.forebay);
    }

    /// Found the cluster, and give each node a token.
    pub fn found(&mut self) {
        let keys = self.net.dir().join("keys");
        let url = self.url();
        let mut init = Command::new(&self.forebay);
        init.args(["cluster", "init", "--cluster", &url, "--keys"]).arg(&keys);
        self.must(&init);
        for index in 0..self.nodes.len() {
            let name = self.nodes[index].host().name().to_owned();
            let mut token = Command::new(&self.forebay);
            token.args(["cluster", "join-token", &name, "--keys"]).arg(&keys);
            token.arg("--out").arg(self.nodes[index].token());
            self.must(&token);
            self.nodes[index].join(&url);
        }
    }

    /// A command in etcd's host; what it says.
    fn must(&self, command: &Command) -> String {
        let output = self.etcd.host().run(command, COMMAND_DEADLINE);
        assert_eq!(output.status, 0, "{command:?}: {}{}", output.stdout, output.stderr);
        output.stdout
    }
}
