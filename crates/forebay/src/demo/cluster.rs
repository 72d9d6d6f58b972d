//! `forebay demo --cluster`: etcd and three nodes on loopback addresses, in front of the NAS that is 70 ms away. The tree is read
//! through each of them, and one of them is killed while another one reads.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::{EtcdConfig, EtcdUrl, etcd::Etcd};
use members::NewCluster;
use origin::Origin;
use origin_nfs::NfsOrigin;
use peer::{ClusterAuthority, make_authority};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use types::{ByteRange, Error, ErrorKind, Name, Result};

use super::{Tree, client, read_tree, row};

const NODES: u8 = 3;
/// The port for the other nodes, at a loopback address of each node.
const PEER_PORT: u16 = 17423;
/// For a start of etcd, and for the nodes to see each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file that is read while a node is killed, and was read by nobody before.
pub const LATE: &str = "made-by-forebay-demo.bin";
const LATE_BYTES: u64 = 256 << 20;
const STEP: u64 = 1 << 20;

/// The nodes, and etcd. All of them end with this.
pub struct DemoCluster {
    etcd: Child,
    nodes: Vec<DemoNode>,
    program: PathBuf,
}

struct DemoNode {
    name: String,
    process: Child,
    client: Arc<NfsOrigin>,
    admin: String,
}

/// Starts all of it in `dir`, in front of the store at `url`.
pub async fn start(dir: &Path, url: &str) -> Result<DemoCluster> {
    let program = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let (etcd, cluster) = start_etcd(dir).await?;
    let client = Etcd::new(EtcdConfig::new(cluster.clone())).await?;
    let (new, begun) = (NewCluster::draw()?, Instant::now());
    let id = loop {
        match members::init(&client, peer::WIRE, &new).await {
            Ok(id) => break id,
            Err(e) if begun.elapsed() > PATIENCE => return Err(e),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    };
    let authority = make_authority(&id.to_string())?;
    authority.write(&dir.join("keys"))?;
    let file = dir.join("forebay.toml");
    let text = format!(
        "[[junction]]\npath = \"/\"\norigin = \"{url}\"\nwrite = \"read-only\"\ndirectories = \"always\"\ncopies = 2\n"
    );
    std::fs::write(&file, text).map_err(|e| Error::io("write", file.display(), e))?;
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        nodes.push(start_node(&program, dir, &cluster, &authority, number).await?);
    }
    Ok(DemoCluster { etcd, nodes, program })
}

async fn start_etcd(dir: &Path) -> Result<(Child, EtcdUrl)> {
    let port = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let port = listener.and_then(|listener| listener.local_addr()).map(|address| address.port());
        port.map_err(|e| Error::io("find", "a free port", e))
    };
    let (clients, peers) = (port()?, port()?);
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let log = std::fs::File::create(dir.join("etcd.log")).map_err(|e| Error::io("write", "etcd.log", e))?;
    let spawned = Command::new("etcd")
        .arg("--data-dir")
        .arg(dir.join("etcd"))
        .args(["--listen-client-urls", &url(clients), "--advertise-client-urls", &url(clients)])
        .args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)])
        .args(["--initial-cluster", &format!("default={}", url(peers))])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn();
    let etcd = spawned.map_err(|e| {
        let what = format!("etcd: {e}; install it (Debian: apt-get install etcd-server)");
        Error::new(ErrorKind::Config, "start", what)
    })?;
    Ok((etcd, format!("etcd://127.0.0.1:{clients}/demo").parse()?))
}

async fn start_node(
    program: &Path,
    dir: &Path,
    cluster: &EtcdUrl,
    authority: &ClusterAuthority,
    number: u8,
) -> Result<DemoNode> {
    let name = format!("n{number}");
    let token = dir.join(format!("{name}.token"));
    authority.token(&name, members::new_node_id()?)?.write(&token)?;
    let address = SocketAddr::from(([127, 0, 0, number], PEER_PORT));
    let failed = |e| Error::io("start the node", &name, e);
    let log = std::fs::File::create(dir.join(format!("{name}.log"))).map_err(failed)?;
    let mut process = Command::new(program)
        .args(["serve", "--json", "--attended", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(["--cluster", &cluster.to_string(), "--address", &address.to_string()])
        .arg("--token")
        .arg(&token)
        .arg("--config")
        .arg(dir.join("forebay.toml"))
        .arg("--cache")
        .arg(dir.join(&name))
        .args(["--cache-size", "2GiB"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = process.stdout.take() {
        BufReader::new(output).read_line(&mut line).await.map_err(failed)?;
    }
    let told: Value = serde_json::from_str(&line).unwrap_or_default();
    let address = |key: &str| told[key].as_str().and_then(|address| address.parse::<SocketAddr>().ok());
    let (Some(nfs), Some(admin)) = (address("nfs"), address("admin")) else {
        let log = std::fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
        let last = log.lines().next_back().unwrap_or_default();
        return Err(Error::new(ErrorKind::Io, "start the node", format!("{name}: {last}")));
    };
    Ok(DemoNode { name, process, client: client(nfs).await?, admin: admin.to_string() })
}

impl DemoCluster {
    /// Reads the tree through each node, and demands that all bytes are right and were fetched once.
    pub async fn read_through_all(&self, expected: &Tree) -> Result<()> {
        self.nodes_up().await?;
        println!();
        println!("read            time s      MB/s   bytes from the NAS");
        let mut far = 0;
        for node in &self.nodes {
            let tree = read_tree(&node.client).await?;
            let now = self.far_bytes().await?;
            row(&format!("through {}", node.name), &tree, now - far, None);
            far = now;
            demand(tree.digest == expected.digest, || {
                format!("{} gave other bytes than the NAS", node.name)
            })?;
        }
        demand(far <= expected.bytes + expected.bytes / 100, || {
            format!("the NAS was asked for {far} bytes, and the tree has {}", expected.bytes)
        })?;
        println!("\nThe three reads gave the bytes of the NAS, which was asked for each of them once.\n");
        self.command(0, &["placement", "/scene.bin"]).await
    }

    /// Reads a file, which is made in `tree`, through the first node and kills the last one on the way.
    pub async fn lose_a_node(&mut self, tree: &Path) -> Result<()> {
        let bytes = origin::memory::generated(7, ByteRange::new(0, LATE_BYTES));
        let file = tree.join(LATE);
        let made = std::fs::File::create_new(&file);
        made.and_then(|mut made| made.write_all(&bytes))
            .map_err(|e| Error::io("write", file.display(), e))?;
        let expected = crc32c::crc32c(&bytes);
        let Some(victim) = self.nodes.pop() else { return Ok(()) };
        let DemoNode { name, mut process, .. } = victim;
        let mut killed = false;
        let reader = self.nodes[0].client.clone();
        let read = read_late(&reader, |done| {
            if !killed && done >= LATE_BYTES / 4 {
                killed = process.start_kill().is_ok();
            }
        })
        .await?;
        let _ = process.wait().await;
        demand(killed, || format!("{name} could not be killed"))?;
        demand(read.digest == expected, || {
            "the bytes that were read while a node died are wrong".to_owned()
        })?;
        println!(
            "\nKilled {name} while {LATE} was read through {}: all bytes right, longest wait {:.2} s.\n",
            self.nodes[0].name,
            read.longest_wait.as_secs_f64()
        );
        self.command(0, &["nodes"]).await
    }

    pub fn tell_how_to_go_on(&self) {
        println!("\nThe other nodes go on. Ask them:");
        for node in &self.nodes {
            println!("  forebay nodes --admin {}      # {}", node.admin, node.name);
        }
        println!("Ctrl-C ends it.");
    }

    /// Ends the nodes, and then etcd.
    pub async fn stop(mut self) -> Result<()> {
        for node in &mut self.nodes {
            drop(node.process.stdin.take()); // its input ends, and so does it
            let ended = tokio::time::timeout(PATIENCE, node.process.wait()).await;
            let is_well = matches!(&ended, Ok(Ok(status)) if status.success());
            demand(is_well, || format!("{} did not end well: {ended:?}", node.name))?;
        }
        let _ = self.etcd.kill().await;
        Ok(())
    }

    async fn nodes_up(&self) -> Result<()> {
        for at in 0..self.nodes.len() {
            let up = format!("up={}", self.nodes.len());
            self.output(at, &["nodes", "--wait", &up, "--json"]).await?;
        }
        Ok(())
    }

    /// What all nodes together asked the NAS for.
    async fn far_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for at in 0..self.nodes.len() {
            let status: Value =
                serde_json::from_str(&self.output(at, &["status", "--json"]).await?).unwrap_or_default();
            bytes += status["junctions"][0]["origin_bytes"].as_u64().unwrap_or(0);
        }
        Ok(bytes)
    }

    /// Shows a command and what it says.
    async fn command(&self, node: usize, arguments: &[&str]) -> Result<()> {
        println!("$ forebay {} --admin {}", arguments.join(" "), self.nodes[node].admin);
        print!("{}", self.output(node, arguments).await?);
        Ok(())
    }

    async fn output(&self, node: usize, arguments: &[&str]) -> Result<String> {
        let command = Command::new(&self.program)
            .args(arguments)
            .args(["--admin", &self.nodes[node].admin])
            .stderr(Stdio::inherit())
            .output()
            .await;
        let output = command.map_err(|e| Error::io("run", arguments.join(" "), e))?;
        demand(output.status.success(), || format!("forebay {} failed", arguments.join(" ")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A read from beginning to end.
struct LateRead {
    digest: u32,
    longest_wait: Duration,
}

/// `progress` gets the bytes so far.
async fn read_late(client: &NfsOrigin, mut progress: impl FnMut(u64)) -> Result<LateRead> {
    let root = client.root().await?.reference;
    let object = client.lookup(&root, &Name::new(LATE)?).await?;
    let mut read = LateRead { digest: 0, longest_wait: Duration::ZERO };
    let mut at = 0;
    while at < object.attr.size {
        progress(at);
        let range = ByteRange::new(at, STEP).clamp_to(object.attr.size);
        let begun = Instant::now();
        let bytes = client.read(&object.reference, object.version, range).await?;
        read.longest_wait = read.longest_wait.max(begun.elapsed());
        read.digest = crc32c::crc32c_append(read.digest, &bytes);
        at += range.length;
    }
    Ok(read)
}

fn demand(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::Corrupt, "the demo failed:", what())) }
}
