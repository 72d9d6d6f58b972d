//! `forebay mount forebay://...`: etcd and three nodes as processes, and a client that is none of them, mounted by FUSE.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::etcd::EtcdServers;
use testkit::lab::not_run;
use testkit::ports::free_port;

use crate::http;
use crate::tier::forebay;

const MIB: usize = 1 << 20;
/// Of a stripe.
const STRIPE: usize = 64 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);
/// Far less than a stripe.
const SENT_AGAIN: u64 = 16 << 20;
/// Much less than the minute after which a silent node is out.
const AT_ONCE: Duration = Duration::from_secs(25);
/// For the store's files: nobody takes them for files being written.
const AN_HOUR: Duration = Duration::from_secs(3600);
/// What nodes sent to each other.
const BETWEEN_NODES: &str = "forebay_cluster_served_bytes_total";
/// What a node sent to NFS clients.
const TO_CLIENTS: &str = "forebay_nfs_read_bytes_total";

/// A store, etcd, and nodes in front of it.
struct Stage {
    dir: tempfile::TempDir,
    _etcd: EtcdServers,
    nodes: Vec<StagedNode>,
}

struct StagedNode {
    name: String,
    process: Child,
    nfs: SocketAddr,
    admin: String,
}

impl Drop for StagedNode {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Stage {
    /// `None` where it cannot be: the test is told to be not run.
    fn make(name: &str, nodes: usize) -> Option<Stage> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            not_run(name, "it needs /dev/fuse, and root to mount");
            return None;
        }
        let etcd = match EtcdServers::start(1) {
            Ok(etcd) => etcd,
            Err(missing) => {
                not_run(name, &missing.0);
                return None;
            }
        };
        let dir = tempfile::Builder::new().prefix("forebay-client-").tempdir().expect("made");
        std::fs::create_dir(dir.path().join("far")).expect("made");
        std::fs::set_permissions(dir.path().join("far"), PermissionsExt::from_mode(0o777))
            .expect("opened to all");
        let config = format!(
            "[[junction]]\npath = \"/show\"\norigin = \"file://{}\"\nfiles = \"always\"\ndirectories = \"always\"\n\
             negative = \"0s\"\n[[nfs.export]]\nclients = [\"*\"]\nsquash = \"none\"\n",
            dir.path().join("far").display()
        );
        std::fs::write(dir.path().join("forebay.toml"), config).expect("written");
        let url = etcd.url();
        let mut stage = Stage { dir, _etcd: etcd, nodes: Vec::new() };
        let keys = stage.at("keys");
        stage.run(&["cluster", "init", "--cluster", &url, "--keys", &keys]);
        for number in 1..=nodes {
            let name = format!("n{number}");
            stage.run(&[
                "cluster",
                "join-token",
                &name,
                "--keys",
                &keys,
                "--out",
                &stage.at(&format!("{name}.token")),
            ]);
            let node = stage.start(&name, &url);
            stage.nodes.push(node);
        }
        for node in &stage.nodes {
            let up = format!("up={nodes}");
            stage.run(&["nodes", "--wait", &up, "--admin", &node.admin]);
        }
        Some(stage)
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let done = forebay().args(arguments).output().expect("it runs");
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).expect("text")
    }

    fn start(&self, name: &str, cluster: &str) -> StagedNode {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut process = forebay()
            .args(["serve", "--json", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cluster", cluster])
            .args(["--address", &address.to_string(), "--token", &self.at(&format!("{name}.token"))])
            .args(["--config", &self.at("forebay.toml"), "--cache", &self.at(name), "--cache-size", "2GiB"])
            .stdout(Stdio::piped())
            .stderr(File::create(self.at(&format!("{name}.log"))).expect("made"))
            .spawn()
            .expect("started");
        let told = announced(&mut process);
        let address = |key: &str| told[key].as_str().unwrap_or_else(|| panic!("{name}: {told}")).to_owned();
        StagedNode {
            name: name.to_owned(),
            nfs: address("nfs").parse().expect("an address"),
            admin: address("admin"),
            process,
        }
    }

    /// A file of the store, of `length` bytes that say where they are.
    fn write(&self, name: &str, length: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..length as u64)
            .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ name.len() as u8)
            .collect();
        let path = self.dir.path().join("far").join(name);
        std::fs::write(&path, &bytes).expect("written");
        let file = File::options().write(true).open(path).expect("opened");
        file.set_modified(SystemTime::now() - AN_HOUR).expect("set");
        bytes
    }

    /// By the names of these nodes.
    fn url(&self, nodes: &[usize]) -> String {
        let hosts: Vec<String> = nodes.iter().map(|node| self.nodes[*node].nfs.to_string()).collect();
        format!("forebay://{}/show", hosts.join(","))
    }

    /// The node that a mount asks for names, by its log.
    fn home(&self, mount: &str) -> usize {
        let log = std::fs::read_to_string(self.at(&format!("{mount}.log"))).expect("there");
        let mut homes = log.lines().filter(|line| line.contains("names and changes go to this node"));
        let home = homes.next_back().and_then(|line| line.split('"').nth(1)).expect("it is told").to_owned();
        self.nodes.iter().position(|node| node.name == home).expect("it is there")
    }

    /// With a cache of its own.
    fn mount(&self, url: &str, name: &str) -> ClientMount {
        let (dir, cache) = (self.at(&format!("mnt-{name}")), self.at(&format!("cache-{name}")));
        std::fs::create_dir(&dir).expect("made");
        let mut process = forebay()
            .args(["mount", url, &dir, "--cache", &cache, "--cache-size", "1GiB"])
            .args(["--admin", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .stderr(File::create(self.at(&format!("{name}.log"))).expect("made"))
            .spawn()
            .expect("started");
        let told = announced(&mut process);
        let log = || std::fs::read_to_string(self.at(&format!("{name}.log"))).unwrap_or_default();
        assert_eq!(told["mount"], dir, "{}", log());
        ClientMount { process, dir: PathBuf::from(dir) }
    }
}

impl StagedNode {
    /// The sum over all labels.
    fn metric(&self, name: &str) -> u64 {
        let text = http::get(&format!("http://{}/metrics", self.admin)).expect("answered");
        let text = String::from_utf8(text.into()).expect("text");
        let lines = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
        lines.filter_map(|line| line.split_whitespace().last()?.parse::<f64>().ok()).sum::<f64>() as u64
    }
}

struct ClientMount {
    process: Child,
    dir: PathBuf,
}

impl ClientMount {
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.join(name)).expect("read")
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("it was running");
        assert!(self.process.wait().expect("our child").success());
    }
}

impl Drop for ClientMount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
    }
}

/// The line of JSON that a process tells when it serves.
fn announced(process: &mut Child) -> Value {
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    serde_json::from_str(&line).unwrap_or_default()
}

/// Who keeps each stripe, by its name.
fn primaries(stage: &Stage, path: &str) -> Vec<String> {
    let told = stage.run(&["placement", path, "--json", "--admin", &stage.nodes[0].admin]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let of =
        |stripe: &Value| stripe["copies"][0]["node"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
    told["stripes"].as_array().expect("stripes").iter().map(of).collect()
}

#[test]
fn a_client_reads_each_stripe_from_the_node_that_keeps_it_and_nodes_send_each_other_nothing() {
    let name = "a_client_reads_each_stripe_from_the_node_that_keeps_it_and_nodes_send_each_other_nothing";
    let Some(stage) = Stage::make(name, 3) else { return };
    let files =
        [("scene", 2 * STRIPE + MIB), ("texture", STRIPE + 5), ("light", 3 * MIB), ("x", 1), ("cloth", MIB)];
    let written: Vec<Vec<u8>> = files.iter().map(|(name, length)| stage.write(name, *length)).collect();
    let counted = |what: &str| -> Vec<u64> { stage.nodes.iter().map(|node| node.metric(what)).collect() };
    // Cold, and then by another client with an empty cache, when the nodes have it all.
    for (round, named) in [("cold", &[0_usize, 1, 2][..]), ("warm", &[2][..])] {
        let (sent, between) = (counted(TO_CLIENTS), counted(BETWEEN_NODES));
        let mount = stage.mount(&stage.url(named), round);
        for ((name, _), bytes) in files.iter().zip(&written) {
            assert!(mount.read(name) == *bytes, "{round}: other bytes of {name}");
        }
        mount.end();
        assert_eq!(counted(BETWEEN_NODES), between, "{round}: nodes sent each other bytes");
        let mut expected = vec![0; stage.nodes.len()];
        for (name, length) in &files {
            for (index, primary) in primaries(&stage, &format!("/show/{name}")).iter().enumerate() {
                let node = stage.nodes.iter().position(|node| node.name == *primary).expect("one of them");
                expected[node] += (length - index * STRIPE).min(STRIPE) as u64;
            }
        }
        let now = counted(TO_CLIENTS);
        let got: Vec<u64> = now.iter().zip(&sent).map(|(now, before)| now - before).collect();
        // On a busy machine a read that straggles is sent once more.
        let is_right = |(got, kept): (&u64, &u64)| (*kept..=*kept + SENT_AGAIN).contains(got);
        assert!(got.iter().zip(&expected).all(is_right), "{round}: {got:?} were sent, {expected:?} kept");
        assert!(got.iter().filter(|bytes| **bytes > 0).count() >= 2, "{got:?}");
    }
}

#[test]
fn a_node_that_is_killed_or_stopped_under_a_read_costs_a_mounted_client_no_error_and_no_wrong_byte() {
    let name =
        "a_node_that_is_killed_or_stopped_under_a_read_costs_a_mounted_client_no_error_and_no_wrong_byte";
    let Some(mut stage) = Stage::make(name, 3) else { return };
    let bytes = stage.write("scene", 3 * STRIPE);
    let again = stage.write("second", 3 * STRIPE);
    let mount = stage.mount(&stage.url(&[0, 1, 2]), "client");
    // A node that keeps the last stripes, which were not read yet, is killed when a third of the file was.
    let victim = |stage: &Stage, path: &str| {
        let late = primaries(stage, path).into_iter().rev();
        let at = |name: String| stage.nodes.iter().position(|node| node.name == name);
        late.filter_map(at).next().expect("one of them")
    };
    let at = victim(&stage, "/show/scene");
    let mut reader = SlowReader::open(&mount.dir.join("scene"));
    reader.read(STRIPE, &bytes);
    drop(stage.nodes.remove(at));
    reader.read(2 * STRIPE, &bytes);
    println!("killed: the longest wait of a read was {:?}", reader.longest);
    std::fs::write(mount.dir.join("note"), b"without it").expect("a node that is left takes it");
    assert_eq!(std::fs::read_dir(&mount.dir).expect("listed").count(), 3);

    // Of the two that are left the one is stopped that the client asks for names: it accepts connections and says nothing.
    let at = stage.home("client");
    let mut reader = SlowReader::open(&mount.dir.join("second"));
    reader.read(STRIPE, &again);
    let pid = Pid::from_child(&stage.nodes[at].process);
    kill_process(pid, Signal::STOP).expect("it was running");
    reader.read(2 * STRIPE, &again);
    println!("stopped: the longest wait of a read was {:?}", reader.longest);
    kill_process(pid, Signal::CONT).expect("it was stopped");
    mount.end();
}

/// No other node has met them, and while the lost one is only silent, it may know what the others do not.
#[test]
fn files_that_only_the_lost_node_had_listed_are_read_at_once_without_an_error() {
    let name = "files_that_only_the_lost_node_had_listed_are_read_at_once_without_an_error";
    let Some(mut stage) = Stage::make(name, 3) else { return };
    let names: Vec<String> = (0..24).map(|number| format!("frame{number}")).collect();
    let written: Vec<Vec<u8>> = names.iter().map(|name| stage.write(name, 5000 + name.len())).collect();
    let mount = stage.mount(&stage.url(&[0, 1, 2]), "client");
    for entry in std::fs::read_dir(&mount.dir).expect("listed") {
        entry.and_then(|entry| entry.metadata()).expect("looked at");
    }
    drop(stage.nodes.remove(stage.home("client")));
    let begun = Instant::now();
    for (name, bytes) in names.iter().zip(&written) {
        assert!(mount.read(name) == *bytes, "other bytes of {name}");
    }
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
    mount.end();
}

/// Reads a file by the MiB, and knows how long the slowest of these reads took.
struct SlowReader {
    file: File,
    at: usize,
    longest: Duration,
}

impl SlowReader {
    fn open(path: &Path) -> SlowReader {
        SlowReader { file: File::open(path).expect("opened"), at: 0, longest: Duration::ZERO }
    }

    fn read(&mut self, length: usize, expected: &[u8]) {
        let end = self.at + length;
        let mut piece = vec![0; MIB];
        self.file.seek(SeekFrom::Start(self.at as u64)).expect("a place in it");
        while self.at < end {
            let begun = Instant::now();
            self.file.read_exact(&mut piece).expect("no error");
            self.longest = self.longest.max(begun.elapsed());
            assert!(piece == expected[self.at..self.at + MIB], "other bytes at {}", self.at);
            self.at += MIB;
        }
    }
}

#[test]
fn what_a_mounted_client_writes_is_seen_at_all_nodes_and_goes_on_after_the_loss_of_one() {
    let name = "what_a_mounted_client_writes_is_seen_at_all_nodes_and_goes_on_after_the_loss_of_one";
    let Some(mut stage) = Stage::make(name, 3) else { return };
    let (one, other) = (stage.mount(&stage.url(&[0]), "one"), stage.mount(&stage.url(&[1, 2]), "other"));
    let bytes: Vec<u8> = (0..5 * MIB).map(|at| (at % 251) as u8).collect();
    std::fs::create_dir(one.dir.join("shot")).expect("made");
    std::fs::write(one.dir.join("shot/plate"), &bytes).expect("written");
    std::fs::rename(one.dir.join("shot/plate"), one.dir.join("shot/plate.exr")).expect("renamed");
    assert!(std::fs::read(stage.dir.path().join("far/shot/plate.exr")).expect("at the store") == bytes);
    // A client of another node sees it at its next look, when what it knows is too old to be trusted.
    let begun = Instant::now();
    while std::fs::read(other.dir.join("shot/plate.exr")).ok().is_none_or(|read| read != bytes) {
        assert!(begun.elapsed() < PATIENCE, "it is not seen");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Whichever node is the home of the first client: with each of two gone, it goes on.
    for lost in ["n1", "n2"] {
        stage.nodes.retain(|node| node.name != lost);
        let text = format!("without {lost}");
        std::fs::write(one.dir.join(lost), &text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(std::fs::read_to_string(stage.dir.path().join("far").join(lost)).expect("there"), text);
        assert_eq!(one.read(lost), text.as_bytes());
    }
    one.end();
    other.end();
}

#[test]
fn a_mount_that_cannot_begin_says_of_each_node_why() {
    let name = "a_mount_that_cannot_begin_says_of_each_node_why";
    let Some(stage) = Stage::make(name, 1) else { return };
    let refused = |url: &str| -> String {
        let (dir, cache) = (stage.at("mnt"), stage.at("cache-refused"));
        let _ = std::fs::create_dir(&dir);
        let done = forebay()
            .args(["mount", url, &dir, "--cache", &cache, "--admin", "127.0.0.1:0"])
            .output()
            .expect("it runs");
        assert!(!done.status.success(), "{url} was mounted");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let nobody = [free_port(), free_port()];
    let told = refused(&format!("forebay://127.0.0.1:{},127.0.0.1:{}/show", nobody[0], nobody[1]));
    assert!(told.contains("none of the named nodes tells the map of its cluster"), "{told}");
    for port in nobody {
        assert!(told.contains(&format!("127.0.0.1:{port}: Connection refused")), "{told}");
    }
    // One that answers is enough, and then it is the path that is wrong.
    let node = stage.nodes[0].nfs;
    let told = refused(&format!("forebay://127.0.0.1:{},{node}/shwo", nobody[0]));
    assert!(told.contains("the server has no such export; it exports /, /show"), "{told}");
    // A tier alone.
    std::fs::create_dir(stage.dir.path().join("alone")).expect("made");
    let alone = crate::tier::Tier::start(
        &stage.dir.path().join("alone"),
        &format!("[[junction]]\npath = \"/show\"\norigin = \"file://{}\"\n", stage.at("far")),
    );
    let told = refused(&format!("forebay://127.0.0.1:{}/show", alone.nfs_port));
    let instead = format!(
        "is no node of a cluster, or one of a version without a map for clients; mount it by nfs://127.0.0.1:{}/show",
        alone.nfs_port
    );
    assert!(told.contains(&instead), "{told}");
}
