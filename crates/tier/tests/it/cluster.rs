//! Three tiers in this process are a cluster: one etcd, one store, and an NFS client of each.

mod many_files;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::{EtcdConfig, etcd::Etcd};
use origin::{Change, Object, Origin, Reference};
use origin_nfs::NfsOrigin;
use peer::{ClusterAuthority, make_authority};
use quantity::Address;
use testkit::etcd::{EtcdServers, with_etcd};
use testkit::ports::free_port;
use tier::running::RunningTier;
use tier::settings::{Overrides, Settings};
use tier::wire_up;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use types::{ByteRange, CreateHow, ErrorKind, Name, NodeId, SetAttr, Stability};

use crate::several::find;

const MIB: usize = 1 << 20;
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Stage {
    etcd: EtcdServers,
    authority: ClusterAuthority,
    dir: tempfile::TempDir,
    pub(crate) nodes: Vec<ServedNode>,
    /// For how long the junction's rules trust what is known.
    ttl: &'static str,
}

pub(crate) struct ServedNode {
    pub(crate) running: RunningTier,
    pub(crate) client: Arc<NfsOrigin>,
    pub(crate) nfs: SocketAddr,
}

impl Stage {
    /// What is known is never trusted for long.
    pub(crate) async fn make(etcd: EtcdServers, nodes: u64) -> Stage {
        Stage::make_trusting(etcd, nodes, "files = \"always\"\ndirectories = \"always\"\nnegative = \"0s\"\n")
            .await
    }

    pub(crate) async fn make_trusting(etcd: EtcdServers, nodes: u64, ttl: &'static str) -> Stage {
        let dir = tempfile::tempdir().expect("made");
        let far = dir.path().join("far");
        std::fs::create_dir(&far).expect("made");
        std::fs::set_permissions(&far, std::fs::Permissions::from_mode(0o777)).expect("opened to all");
        let client = Etcd::new(EtcdConfig::new(etcd.url().parse().expect("a URL"))).await.expect("clients");
        let new = members::NewCluster::draw().expect("drawn");
        let id = members::init(&client, peer::WIRE, &new).await.expect("a new cluster");
        let authority = make_authority(&id.to_string()).expect("an authority");
        let mut stage = Stage { etcd, authority, dir, nodes: Vec::new(), ttl };
        for number in 1..=nodes {
            let node = stage.serve(number, "").await.expect("in the cluster");
            stage.nodes.push(node);
        }
        stage.all_see(nodes as usize).await;
        stage
    }

    pub(crate) fn far(&self) -> PathBuf {
        self.dir.path().join("far")
    }

    /// The file has `length` bytes that say where they are.
    pub(crate) fn write(&self, name: &str, length: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..length).map(|at| (at / 7 + at % 251 + name.len()) as u8).collect();
        std::fs::write(self.far().join(name), &bytes).expect("written");
        bytes
    }

    fn settings(&self, number: u64, more: &str) -> types::Result<Settings> {
        let token = self.authority.token(&format!("n{number}"), NodeId(number)).expect("a token");
        let path = self.dir.path().join(format!("n{number}.token"));
        token.write(&path).expect("written");
        let file = format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n{}{more}",
            self.far().display(),
            self.ttl
        );
        let any = Some(Address(([127, 0, 0, 1], 0).into()));
        let overrides = Overrides {
            cache: Some(self.dir.path().join(format!("cache{number}"))),
            nfs: any,
            admin: any,
            cluster: Some(self.etcd.url()),
            token: Some(path),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], free_port()))],
            ..Default::default()
        };
        Settings::build(toml::from_str(&file).expect("read"), &overrides)
    }

    pub(crate) async fn serve(&self, number: u64, more: &str) -> types::Result<ServedNode> {
        let (running, nfs) = self.run(number, more).await?;
        let url = format!("nfs://{nfs}/?mountport={}", nfs.port());
        let client = NfsOrigin::connect(origin_nfs::Config::from_url(&url)?).await?;
        Ok(ServedNode { running, client, nfs })
    }

    /// A node without a client, and where it serves NFS.
    pub(crate) async fn run(&self, number: u64, more: &str) -> types::Result<(RunningTier, SocketAddr)> {
        let tier = wire_up::build(&self.settings(number, more)?).await?;
        let nfs = tier.nfs_address()?.expect("an NFS server");
        let mut running = RunningTier::start(tier);
        running.mount().await?;
        Ok((running, nfs))
    }

    /// Each node has a map with so many nodes, all of which answer it.
    pub(crate) async fn all_see(&self, nodes: usize) {
        let begun = Instant::now();
        let sees = |node: &ServedNode| {
            let desk = node.running.admin().cluster.as_ref().expect("a node");
            let (view, map) = (&desk.reads.view, desk.reads.view.map());
            map.nodes().len() == nodes && map.nodes().iter().all(|node| !view.is_passed_over(node.id))
        };
        while !self.nodes.iter().all(sees) {
            assert!(begun.elapsed() < PATIENCE, "the nodes do not see each other");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What all nodes together asked the store for.
    fn far_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.running.admin().origin_metrics.bytes_of("/")).sum()
    }

    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.running.stop().await.expect("stopped");
        }
    }
}

async fn read(client: &NfsOrigin, name: &'static str) -> Vec<u8> {
    let object = find(client, name).await;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < object.attr.size {
        let rest = object.attr.size - bytes.len() as u64;
        let range = ByteRange::new(bytes.len() as u64, rest.min(MIB as u64));
        bytes.extend(client.read(&object.reference, object.version, range).await.expect("read"));
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tiers_are_a_cluster_that_reads_each_byte_of_the_store_once() {
    with_etcd("three_tiers_are_a_cluster_that_reads_each_byte_of_the_store_once", 1, async |etcd| {
        let stage = Stage::make(etcd, 3).await;
        let names = ["scene", "texture", "geometry", "light", "camera", "cloth"];
        let written: Vec<Vec<u8>> =
            names.iter().enumerate().map(|(at, name)| stage.write(name, (at + 1) * MIB + at)).collect();
        let all: u64 = written.iter().map(|bytes| bytes.len() as u64).sum();
        for node in &stage.nodes {
            for (name, bytes) in names.iter().zip(&written) {
                assert!(read(&node.client, name).await == *bytes, "{name}");
            }
        }
        assert_eq!(stage.far_bytes(), all, "of each byte the store was asked once");
        // Each did its part: with six files and a hash, one that asked for nothing has kept nothing.
        let asked = |node: &ServedNode| node.running.admin().origin_metrics.bytes_of("/");
        assert!(
            stage.nodes.iter().filter(|node| asked(node) > 0).count() >= 2,
            "{:?}",
            stage.nodes.iter().map(asked).collect::<Vec<_>>()
        );
        stage.stop().await;
    })
    .await;
}

fn name(text: &str) -> Name {
    Name::new(text.to_owned()).expect("a name")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_of_one_node_is_good_at_every_node() {
    with_etcd("a_handle_of_one_node_is_good_at_every_node", 1, async |etcd| {
        let mut stage = Stage::make(etcd, 3).await;
        std::fs::create_dir_all(stage.far().join("shots/010")).expect("made");
        let bytes = stage.write("shots/010/plate", 100_000);
        let (shots, shot) = (find(&stage.nodes[0].client, "shots").await, name("010"));
        let dir = stage.nodes[0].client.lookup(&shots.reference, &shot).await.expect("there");
        let object = stage.nodes[0].client.lookup(&dir.reference, &name("plate")).await.expect("there");
        // Neither the file nor a directory above it was ever asked for there.
        let whole = ByteRange::new(0, bytes.len() as u64);
        let read = stage.nodes[1].client.read(&object.reference, object.version, whole).await.expect("read");
        assert!(read == bytes);
        let listed = stage.nodes[2].client.getattr(&dir.reference).await.expect("a directory");
        assert_eq!(listed.reference, dir.reference);

        // A name that the other node knows to be absent, and that was made since.
        let absent = stage.nodes[2].client.lookup(&dir.reference, &name("late")).await;
        assert_eq!(absent.expect_err("not yet").kind(), ErrorKind::NotFound);
        stage.write("shots/010/late", 10);
        let late = stage.nodes[0].client.lookup(&dir.reference, &name("late")).await.expect("there");
        let attr = stage.nodes[2].client.getattr(&late.reference).await.expect("by its handle").attr;
        assert_eq!(attr.size, 10);

        // One that is gone is stale, and another file under its name is not it.
        let gone = stage.write("shots/010/gone", 10);
        let handle = stage.nodes[0].client.lookup(&dir.reference, &name("gone")).await.expect("there");
        let kept = stage.far().join("shots/010/other");
        std::fs::write(&kept, gone).expect("written");
        std::fs::rename(kept, stage.far().join("shots/010/gone")).expect("replaced");
        let stale = stage.nodes[1].client.getattr(&handle.reference).await;
        assert_eq!(stale.expect_err("another file").kind(), ErrorKind::Stale);

        // While a node is away that may know the file, it is not said to be gone.
        let only_there = stage.write("shots/010/lost", 10);
        let lost = stage.nodes[2].client.lookup(&dir.reference, &name("lost")).await.expect("there");
        let node = stage.nodes.remove(2);
        node.running.stop().await.expect("stopped");
        let away = stage.nodes[1].client.getattr(&lost.reference).await;
        assert_eq!(away.expect_err("its node is away").kind(), ErrorKind::Busy);
        let node = stage.serve(3, "").await.expect("back");
        stage.nodes.push(node);
        let begun = Instant::now();
        loop {
            match stage.nodes[1].client.getattr(&lost.reference).await {
                Ok(object) => break assert_eq!(object.attr.size, only_there.len() as u64),
                Err(e) => assert!(begun.elapsed() < PATIENCE && e.is_retryable(), "{e}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stage.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_and_serves_while_etcd_is_away_if_it_was_a_member() {
    with_etcd("a_node_starts_and_serves_while_etcd_is_away_if_it_was_a_member", 1, async |etcd| {
        let mut stage = Stage::make(etcd, 2).await;
        let bytes = stage.write("scene", 100_000);
        assert!(read(&stage.nodes[0].client, "scene").await == bytes);
        stage.etcd.kill_all();
        let node = stage.nodes.remove(1);
        node.running.stop().await.expect("stopped");
        let again = stage.serve(2, "").await.expect("by its file");
        assert!(read(&again.client, "scene").await == bytes);
        again.running.stop().await.expect("stopped");
        stage.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_cannot_be_in_a_cluster_is_refused_in_one_line() {
    with_etcd("what_a_node_cannot_be_in_a_cluster_is_refused_in_one_line", 1, async |etcd| {
        let mut stage = Stage::make(etcd, 1).await;
        let back = refused(stage.settings(2, "write = \"back\"\n"));
        assert!(back.contains("/ is written back, and a cluster does not do that yet"), "{back}");
        let copies = refused(stage.settings(2, "copies = 0\n"));
        assert!(copies.contains("write a number from 1 to 16"), "{copies}");
        // A token of another cluster.
        let ours = std::mem::replace(&mut stage.authority, make_authority("00000000000000ff").expect("made"));
        let other = refused(stage.serve(2, "").await);
        assert!(other.contains("token is of the cluster 00000000000000ff"), "{other}");
        // The name of a node that runs.
        stage.authority = ours;
        let twice = refused(stage.serve(2, "[cluster]\nnode = \"n1\"\n").await);
        assert!(twice.contains("has that name"), "{twice}");
        stage.stop().await;
    })
    .await;
}

/// A request to a node's operator's interface, as the commands make it.
async fn ask(node: &ServedNode, call: &str, body: &str) -> (u16, serde_json::Value) {
    let socket = node.running.admin().dir.join("admin.sock");
    let mut stream = tokio::net::UnixStream::connect(socket).await.expect("it listens");
    let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("{call} {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let json = answer.split_once("\r\n\r\n").expect("a body").1;
    (status, serde_json::from_str(json).unwrap_or_else(|e| panic!("{answer}: {e}")))
}

async fn set_copies(node: &ServedNode, path: &str, copies: serde_json::Value) -> (u16, serde_json::Value) {
    let body = serde_json::json!({ "path": path, "copies": copies });
    ask(node, "POST /v1/copies", &body.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_directory_are_set_at_one_node_and_made_by_all() {
    with_etcd("copies_of_a_directory_are_set_at_one_node_and_made_by_all", 1, async |etcd| {
        let stage = Stage::make(etcd, 3).await;
        std::fs::create_dir(stage.far().join("hero shot")).expect("made");
        let names = ["one", "two", "three", "four"];
        for name in names {
            stage.write(&format!("hero shot/{name}"), MIB);
            stage.write(name, MIB);
        }
        // All of it is read through one node, before there is a rule.
        let client = &stage.nodes[0].client;
        let hero = find(client, "hero shot").await;
        for name in names {
            let below = Name::new(name.as_bytes().to_vec()).expect("a name");
            let file = client.lookup(&hero.reference, &below).await.expect("there");
            client.read(&file.reference, file.version, ByteRange::new(0, MIB as u64)).await.expect("read");
            read(client, name).await;
        }
        let told = ask(&stage.nodes[2], "GET /v1/copies?path=/hero%20shot", "").await;
        assert_eq!(
            (told.0, &told.1["copies"], &told.1["rule"]),
            (200, &1.into(), &serde_json::Value::Null),
            "{told:?}"
        );
        let (status, told) = set_copies(&stage.nodes[1], "/hero%20shot/", 3.into()).await;
        assert_eq!(
            (status, &told["copies"], &told["nodes"], &told["heard"]),
            (200, &3.into(), &3.into(), &true.into()),
            "{told}"
        );
        let begun = Instant::now();
        loop {
            let mut whole = 0;
            for name in names {
                let call = format!("GET /v1/placement?path=/hero%20shot/{name}");
                let (_, told) = ask(&stage.nodes[2], &call, "").await;
                let copies = told["stripes"][0]["copies"].as_array().cloned().unwrap_or_default();
                whole += copies.iter().filter(|copy| copy["percent"] == 100).count();
            }
            if whole == 3 * names.len() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "only {whole} copies");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(stage.far_bytes(), 2 * (names.len() * MIB) as u64, "from the store once");
        let (_, plain) = ask(&stage.nodes[2], "GET /v1/placement?path=/one", "").await;
        assert_eq!(plain["stripes"][0]["copies"].as_array().map(Vec::len), Some(1), "{plain}");
        // The deepest rule counts; what is taken back is gone at all nodes.
        set_copies(&stage.nodes[0], "/hero%20shot/one", 2.into()).await;
        let (_, told) = ask(&stage.nodes[0], "GET /v1/copies?path=/hero%20shot/one", "").await;
        assert_eq!((&told["copies"], &told["rule"]), (&2.into(), &"/hero%20shot/one".into()), "{told}");
        let (_, told) = set_copies(&stage.nodes[0], "/hero%20shot", serde_json::Value::Null).await;
        assert_eq!((&told["copies"], told["rules"].as_array().map(Vec::len)), (&1.into(), Some(1)), "{told}");
        // What cannot be meant is refused with a sentence.
        for (path, copies, expected, word) in [
            ("/hero%20shot/nobody", 2, 404, "nobody"),
            ("hero", 2, 400, "from the root"),
            ("/one", 17, 400, "1 to 16"),
        ] {
            let (status, told) = set_copies(&stage.nodes[0], path, copies.into()).await;
            assert!(
                status == expected && told["error"].as_str().is_some_and(|e| e.contains(word)),
                "{status} {told}"
            );
        }
        stage.stop().await;
    })
    .await;
}

/// The cache directory of a tier that was alone, under other junctions.
#[tokio::test(flavor = "multi_thread")]
async fn a_cache_directory_with_other_ids_is_refused_and_says_what_to_do() {
    with_etcd("a_cache_directory_with_other_ids_is_refused_and_says_what_to_do", 1, async |etcd| {
        let stage = Stage::make(etcd, 1).await;
        let elsewhere = tempfile::tempdir().expect("made");
        let cache = stage.dir.path().join("cache2");
        alone(elsewhere.path(), &cache).await;
        let refusal = refused(stage.serve(2, "").await);
        assert!(refusal.contains("a cache directory of its own with --cache"), "{refusal}");
        stage.stop().await;
    })
    .await;
}

/// For tests in which nothing is seen by itself.
const AN_HOUR: &str = "files = \"1h\"\ndirectories = \"1h\"\nnegative = \"1h\"\n";

async fn root(client: &NfsOrigin) -> Reference {
    client.root().await.expect("a root").reference
}

async fn look_up(client: &NfsOrigin, called: &'static str) -> types::Result<Object> {
    client.lookup(&root(client).await, &name(called)).await
}

/// The file has these bytes, by way of this node.
async fn write_at(client: &NfsOrigin, called: &'static str, bytes: &'static [u8]) {
    let file = match look_up(client, called).await {
        Ok(object) => object.reference,
        Err(_) => {
            let (dir, set) = (root(client).await, SetAttr { mode: Some(0o644), ..SetAttr::default() });
            let change = Change::Create { dir, name: name(called), how: CreateHow::Guarded, set };
            client.change(&change).await.expect("made");
            find(client, called).await.reference
        }
    };
    client.write(&file, 0, bytes.into(), Stability::FileSync).await.expect("written");
}

/// Waits until a client of the node sees the name so. The ttl is an hour: it is told, or it never sees that.
async fn until_seen(client: &NfsOrigin, called: &'static str, is_so: impl Fn(Option<&Object>) -> bool) {
    let begun = Instant::now();
    loop {
        let seen = match look_up(client, called).await {
            Ok(object) => Some(object),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => panic!("{called}: {e}"),
        };
        if is_so(seen.as_ref()) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{called} is still {seen:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_changes_is_seen_through_the_others_without_waiting_for_the_ttl() {
    with_etcd(
        "what_one_node_changes_is_seen_through_the_others_without_waiting_for_the_ttl",
        1,
        async |etcd| {
            let stage = Stage::make_trusting(etcd, 3, AN_HOUR).await;
            let here = &stage.nodes[0].client;
            let others: Vec<&NfsOrigin> = stage.nodes[1..].iter().map(|node| &*node.client).collect();
            // All know that it is not there.
            for client in &others {
                assert_eq!(look_up(client, "file").await.expect_err("not there").kind(), ErrorKind::NotFound);
            }
            write_at(here, "file", b"first").await;
            for client in &others {
                until_seen(client, "file", |seen| seen.is_some_and(|object| object.attr.size == 5)).await;
                assert_eq!(read(client, "file").await, b"first");
            }
            // Bytes, attributes.
            write_at(here, "file", b"second, and longer").await;
            for client in &others {
                until_seen(client, "file", |seen| seen.is_some_and(|object| object.attr.size == 18)).await;
                assert_eq!(read(client, "file").await, b"second, and longer");
            }
            let object = find(here, "file").await.reference;
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            here.change(&Change::Set { object, set, guard: None }).await.expect("set");
            for client in &others {
                until_seen(client, "file", |seen| {
                    seen.is_some_and(|object| object.attr.mode & 0o777 == 0o600)
                })
                .await;
            }
            // Names.
            let (from_dir, to_dir) = (root(here).await, root(here).await);
            let (from, to) = (name("file"), name("moved"));
            here.change(&Change::Rename { from_dir, from, to_dir, to, identity: None })
                .await
                .expect("renamed");
            for client in &others {
                until_seen(client, "moved", |seen| seen.is_some()).await;
                until_seen(client, "file", |seen| seen.is_none()).await;
            }
            let gone = Change::Remove { dir: root(here).await, name: name("moved") };
            here.change(&gone).await.expect("removed");
            for client in &others {
                until_seen(client, "moved", |seen| seen.is_none()).await;
            }
            stage.stop().await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_holds_up_no_change_and_no_notice_to_the_others() {
    with_etcd("a_node_that_is_away_holds_up_no_change_and_no_notice_to_the_others", 1, async |etcd| {
        let mut stage = Stage::make_trusting(etcd, 3, AN_HOUR).await;
        stage.nodes.remove(2).running.stop().await.expect("stopped");
        let (here, there) = (&stage.nodes[0].client, &stage.nodes[1].client);
        for called in ["a", "b", "c", "d"] {
            assert_eq!(look_up(there, called).await.expect_err("not there").kind(), ErrorKind::NotFound);
            write_at(here, called, b"bytes").await;
            until_seen(there, called, |seen| seen.is_some_and(|object| object.attr.size == 5)).await;
        }
        stage.stop().await;
    })
    .await;
}

fn refused<T>(outcome: types::Result<T>) -> String {
    match outcome {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

async fn alone(far: &Path, cache: &Path) {
    let any = Some(Address(([127, 0, 0, 1], 0).into()));
    let overrides = Overrides {
        origin: vec![format!("file://{}", far.display())],
        cache: Some(cache.to_owned()),
        nfs: any,
        admin: any,
        ..Default::default()
    };
    let settings = Settings::build(toml::from_str("").expect("read"), &overrides).expect("good settings");
    let tier = wire_up::build(&settings).await.expect("built");
    RunningTier::start(tier).stop().await.expect("stopped");
}
