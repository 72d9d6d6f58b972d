//! A running cluster that is measured: its nodes as they are named on the command line, what they tell, and what their operator
//! can do to them. No experiment is known here.
//!
//! The cast: [`NodeWay`] is a node as it is typed, and `door.rs` how its operator asks it; [`BenchCluster`] the nodes once they have told who they are; `stage.rs` puts a
//! data set at the origin behind them ([`ClusterStage`]), and takes it away; `counted.rs` is what a node did while something was
//! measured ([`ClusterPass`]); `copies.rs` (pure) is which node has how much of a file ([`StripeCopies`]); `repair.rs` takes a copy
//! away and watches how it is made again ([`RepairWatch`]); `fio.rs` measures the disk below a cache.
//!
//! The nodes are the user's: nothing of them is changed but that files of the run's own are evicted, and, where a copy is to be
//! lost, that a node is drained for a moment. Whatever way the run ends, it is undrained ([`BenchCluster::restore`]).

mod copies;
mod counted;
mod door;
mod fio;
mod repair;
mod stage;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bench_load::target::from_url;
use clap::Args;
use types::{Error, ErrorKind, Result};

use crate::mounts::{NFS_PORT, with_port};
use crate::{CounterPage, ResultBuilder, fingerprint, refuse};

pub use copies::{StripeCopies, complete_percent, keepers};
pub use counted::{ClusterPass, local_percent};
use door::NodeDoor;
pub use fio::{check_fio, fio_rate};
pub use repair::{CopyLoss, Repair, RepairWatch};
pub use stage::ClusterStage;

/// How a client reads: as a mount with large transfers does. Names and sizes are those of `bench_load::target`.
const TRANSFERS: &str = "rsize=1m&readahead=4";
const LOOK: Duration = Duration::from_millis(200);

/// Where the nodes of a running cluster are.
#[derive(Args, Clone, Debug, Default)]
pub struct NodeListArgs {
    /// A node of a running cluster, once for each of them: where clients mount it, once for each of its links; where it tells of
    /// itself; its admin.token, if it is on another machine; and its cache directory, if that is on this machine and can be read
    #[arg(long = "node", value_name = "nfs://HOST[:PORT],...,admin=ADDR[,token=FILE][,disk=DIR]")]
    pub nodes: Vec<NodeWay>,
    /// The path at which all nodes serve the origin
    #[arg(long = "junction", value_name = "PATH", requires = "nodes")]
    pub junctions: Vec<String>,
}

impl NodeListArgs {
    /// Refuses what cannot be a path of a junction, and a storage that cannot be one. Nothing is asked yet.
    pub fn check(&self, origin: Option<&str>) -> Result<()> {
        let Some(origin) = origin else {
            return refuse(
                "--node needs --origin URL: the storage behind the cluster, where the files that are read are put",
            );
        };
        from_url(origin)?;
        if self.junctions.is_empty() {
            return refuse("--node needs --junction PATH: where the nodes serve the origin");
        }
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
        match self.junctions.iter().find(|path| !path.starts_with('/') || !path.bytes().all(good)) {
            Some(path) => refuse(format!(
                "--junction {path}: expected a path such as /show, of letters, digits and - _ . /"
            )),
            None => Ok(()),
        }
    }
}

/// A node as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWay {
    /// HOST:PORT of its NFS server, by each of its links.
    pub links: Vec<String>,
    door: NodeDoor,
    pub disk: Option<PathBuf>,
}

impl FromStr for NodeWay {
    type Err = String;

    fn from_str(typed: &str) -> std::result::Result<NodeWay, String> {
        let (mut links, mut admin, mut token, mut disk) = (Vec::new(), None, None, None);
        for part in typed.split(',') {
            if let Some(host) = part.strip_prefix("nfs://") {
                links.push(link_of(host.trim_end_matches('/'))?);
            } else if let Some(address) = part.strip_prefix("admin=") {
                admin = Some(quantity::address(address)?);
            } else if let Some(file) = part.strip_prefix("token=") {
                token = Some(PathBuf::from(file));
            } else if let Some(dir) = part.strip_prefix("disk=") {
                disk = Some(PathBuf::from(dir));
            } else {
                return Err(format!(
                    "\"{part}\" is not understood; there are nfs://HOST, admin=ADDR, token=FILE and disk=DIR"
                ));
            }
        }
        match (links.is_empty(), admin) {
            (false, Some(admin)) => Ok(NodeWay { links, door: NodeDoor { admin, token }, disk }),
            (true, _) => Err("it has no address of its NFS server; write nfs://HOST,admin=ADDR".to_owned()),
            (_, None) => Err("its counters are needed; write nfs://HOST,admin=ADDR".to_owned()),
        }
    }
}

fn link_of(host: &str) -> std::result::Result<String, String> {
    if host.is_empty() || host.contains(['/', '?', ' ']) {
        return Err(format!("nfs://{host}: expected nfs://HOST or nfs://HOST:PORT; the path is --junction"));
    }
    Ok(with_port(host, NFS_PORT))
}

/// A node that has told who it is.
pub struct BenchNode {
    pub name: String,
    pub way: NodeWay,
}

pub struct BenchCluster {
    pub nodes: Vec<BenchNode>,
    /// The node that this run has drained.
    drained: Mutex<Option<usize>>,
}

impl BenchCluster {
    /// Asks each node who it is. `Config` if they are not the nodes of one cluster, each named once.
    pub fn meet(ways: &[NodeWay]) -> Result<BenchCluster> {
        let (mut nodes, mut cluster) = (Vec::<BenchNode>::new(), None);
        for way in ways {
            let (told, admin) = (way.door.nodes()?, way.door.admin);
            let id = told["cluster"]["id"].as_str().map(str::to_owned);
            let Some(name) = told["cluster"]["name"].as_str() else {
                return refuse(format!("the tier at {admin} is no node of a cluster"));
            };
            if nodes.iter().any(|node| node.name == name) {
                return refuse(format!("{name} at {admin} was named before"));
            }
            if *cluster.get_or_insert_with(|| id.clone()) != id {
                return refuse(format!("{name} at {admin} is in another cluster than the nodes before"));
            }
            nodes.push(BenchNode { name: name.to_owned(), way: way.clone() });
        }
        if nodes.is_empty() {
            return refuse("no node was named");
        }
        Ok(BenchCluster { nodes, drained: Mutex::default() })
    }

    pub fn tell(&self, draft: &mut ResultBuilder) {
        draft.parameter("nodes", self.nodes.len());
        draft.parameter("links", self.links().count());
        let named =
            self.nodes.iter().map(|node| format!("{} by {}", node.name, node.way.links.join(" and ")));
        draft.file.fingerprint.insert("nodes".to_owned(), named.collect::<Vec<_>>().join("; "));
        for node in &self.nodes {
            let told = node.way.door.status().map(|status| fingerprint::of_status(&status.to_string()));
            let why = match told {
                Ok(Ok(told)) => {
                    draft.described(&format!("node {}", node.name), Some(told));
                    continue;
                }
                Ok(Err(e)) => e.to_string(),
                Err(e) => e.to_string(),
            };
            draft.warning(format!("{} does not tell how it is configured: {why}", node.name));
        }
    }

    /// All links of all nodes: the node's place, and where its NFS server answers there.
    pub fn links(&self) -> impl Iterator<Item = (usize, &String)> {
        self.nodes.iter().enumerate().flat_map(|(at, node)| node.way.links.iter().map(move |link| (at, link)))
    }

    /// The target whose clients go round these addresses.
    pub fn target<'a>(junction: &str, links: impl IntoIterator<Item = &'a String>) -> String {
        let url = |link: &String| {
            let port = link.rsplit_once(':').map_or("2049", |(_, port)| port);
            format!("nfs://{link}{junction}?mountport={port}&{TRANSFERS}")
        };
        let urls: Vec<String> = links.into_iter().map(url).collect();
        format!("spread:{}", urls.join(" "))
    }

    pub fn counters(&self) -> Result<Vec<CounterPage>> {
        self.nodes.iter().map(|node| node.way.door.counters()).collect()
    }

    /// Which nodes keep the stripes of a file, and how much of them each has, as the first node finds out.
    pub fn copies(&self, path: &str) -> Result<Vec<StripeCopies>> {
        let Some(first) = self.nodes.first() else { return Ok(Vec::new()) };
        let told = first.way.door.placement(path)?;
        copies::read(&told).ok_or_else(|| first.way.door.unclear())
    }

    /// Whether a node raises the alarm that there are too few copies.
    pub fn is_alarming(&self) -> bool {
        let alarms = |node: &BenchNode| {
            let told = node.way.door.status().ok()?;
            Some(told["cluster"]["under_replicated"].as_array()?.iter().any(|of| of["stripes"] != 0))
        };
        self.nodes.iter().filter_map(alarms).any(|is_so| is_so)
    }

    pub fn evict(&self, node: usize, path: &str) -> Result<()> {
        self.nodes.get(node).map_or(Ok(()), |node| node.way.door.tell("evict", path))
    }

    /// Has a node keep no stripes, until [`BenchCluster::restore`].
    fn drain(&self, node: usize) -> Result<()> {
        *self.drained.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
        self.nodes.get(node).map_or(Ok(()), |of| of.way.door.tell("drain", &of.name))
    }

    /// What was done to a node has an end.
    pub fn restore(&self) -> Result<()> {
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of) = drained.and_then(|node| self.nodes.get(node)) else { return Ok(()) };
        of.way.door.tell("undrain", &of.name)?;
        *drained = None;
        Ok(())
    }
}

/// Until it is so. `what`: for the error if it is not in time.
pub async fn wait_until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > patience {
            let why = std::io::Error::other(format!("not within {} s", patience.as_secs()));
            return Err(Error::new(ErrorKind::Unavailable, "wait until", what).with_source(why));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_its_links_its_interface_and_its_disk_and_what_lacks_is_told() {
        let way: NodeWay = "nfs://10.0.0.1,nfs://[::1]:2050,admin=127.0.0.1:9420,token=/t,disk=/cache"
            .parse()
            .expect("a node");
        assert_eq!(way.links, ["10.0.0.1:2049", "[::1]:2050"]);
        assert_eq!((way.door.admin.port(), way.disk), (9420, Some(PathBuf::from("/cache"))));
        assert_eq!(way.door.token, Some(PathBuf::from("/t")));
        assert_eq!(link_of("[::1]"), Ok("[::1]:2049".to_owned()));
        for (typed, told) in [
            ("nfs://n1", "admin=ADDR"),
            ("admin=127.0.0.1:1", "nfs://HOST"),
            ("nfs://n1/show,admin=127.0.0.1:1", "--junction"),
            ("n1,admin=127.0.0.1:1", "not understood"),
        ] {
            let why = typed.parse::<NodeWay>().expect_err(typed);
            assert!(why.contains(told), "{typed}: {why}");
        }
        let links = ["a:1".to_owned(), "b:2".to_owned()];
        let target = BenchCluster::target("/show", &links);
        assert!(target.starts_with("spread:nfs://a:1/show?mountport=1&"), "{target}");
        assert_eq!(target.split(' ').count(), 2);
    }
}
