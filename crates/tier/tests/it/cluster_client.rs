//! A client that knows the map of a cluster of tiers in this process, and is no node of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ClientMap;
use origin::{Change, Origin};
use origin_cluster::{ClusterOrigin, ClusterUrl};
use origin_nfs::{AuthSysIdentity, CallTarget, ask_program};
use rpc_nfs3::cluster_map::{MapAnswer, PROGRAM, UNKNOWN_TAG, VERSION, encode_known, procedure};
use testkit::etcd::with_etcd;
use types::{ByteRange, CreateHow, ErrorKind, Name, SetAttr, Stability};

use crate::cluster::{PATIENCE, ServedNode, Stage};

/// Nothing is trusted for long, and everybody is who he says he is.
const RULES: &str = "files = \"always\"\ndirectories = \"always\"\nnegative = \"0s\"\n\
                     [[nfs.export]]\nclients = [\"*\"]\nsquash = \"none\"\n";

async fn connect(nodes: &[ServedNode]) -> Arc<ClusterOrigin> {
    let hosts: Vec<String> = nodes.iter().map(|node| node.nfs.to_string()).collect();
    let url = ClusterUrl::parse(&format!("forebay://{}/", hosts.join(","))).expect("a URL");
    ClusterOrigin::connect(url).await.expect("connected")
}

fn name(text: &'static str) -> Name {
    Name::new(text).expect("a name")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_cluster_goes_on_with_any_node_that_is_left() {
    with_etcd("a_client_of_a_cluster_goes_on_with_any_node_that_is_left", 1, async |etcd| {
        let mut stage = Stage::make_trusting(etcd, 3, RULES).await;
        // It is told of one node, and hears of the others.
        let client = connect(&stage.nodes[..1]).await;
        let identity = client.identity().await.expect("it has one");
        let root = client.root().await.expect("a root");
        let bytes = stage.write("scene", 3 << 20);
        let find = async || client.lookup(&root.reference, &name("scene")).await.expect("there");
        let read = async |what: &str| {
            let file = find().await;
            let read = client.read(&file.reference, file.version, ByteRange::new(0, file.attr.size)).await;
            assert!(read.unwrap_or_else(|e| panic!("{what}: {e}")) == bytes, "{what}: other bytes");
        };
        read("all are there").await;
        let mut written = Vec::new();
        for lost in ["the node that was named", "the second one"] {
            stage.nodes.remove(0).running.stop().await.expect("stopped");
            let begun = Instant::now();
            read(lost).await;
            assert!(begun.elapsed() < Duration::from_secs(10), "{lost}: {:?}", begun.elapsed());
            let change = Change::Create {
                dir: root.reference.clone(),
                name: Name::new(lost.to_owned()).expect("a name"),
                how: CreateHow::Guarded,
                set: SetAttr { mode: Some(0o644), ..SetAttr::default() },
            };
            let made = client.change(&change).await.unwrap_or_else(|e| panic!("{lost}: {e}"));
            let file = made.object.expect("made").reference;
            let done = client.write(&file, 0, lost.into(), Stability::Unstable).await;
            let done = done.unwrap_or_else(|e| panic!("{lost}: {e}"));
            let committed = client.commit(&file, ByteRange::new(0, 0)).await;
            assert_eq!(
                committed.unwrap_or_else(|e| panic!("{lost}: {e}")).verifier,
                done.verifier,
                "of one node"
            );
            assert_eq!(std::fs::read(stage.far().join(lost)).expect("at the store"), lost.as_bytes());
            assert_eq!(client.identity().await.expect("it has one"), identity, "{lost}");
            written.push(lost);
        }
        stage.nodes.remove(0).running.stop().await.expect("stopped");
        let error = client.getattr(&root.reference).await.expect_err("nobody is left");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // One that begins anew finds a node that is back.
        let node = stage.serve(1, "").await.expect("back");
        let again = connect(std::slice::from_ref(&node)).await;
        for name in written {
            let found = again.lookup(&root.reference, &Name::new(name.to_owned()).expect("a name")).await;
            assert_eq!(found.expect("there").attr.size, name.len() as u64);
        }
        node.running.stop().await.expect("stopped");
        stage.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_is_heard_of_and_read_from() {
    with_etcd("a_new_node_is_heard_of_and_read_from", 1, async |etcd| {
        let mut stage = Stage::make_trusting(etcd, 1, RULES).await;
        let client = connect(&stage.nodes).await;
        let node = stage.serve(2, "").await.expect("in the cluster");
        stage.nodes.push(node);
        stage.all_see(2).await;
        let begun = Instant::now();
        // With each file there is an even chance that the new node keeps it. What it reads for the other node is no READ of a client.
        for number in 0.. {
            let called = format!("file{number}");
            let bytes = stage.write(&called, 10_000);
            let root = client.root().await.expect("a root");
            let file =
                client.lookup(&root.reference, &Name::new(called).expect("a name")).await.expect("there");
            let read = client.read(&file.reference, file.version, ByteRange::new(0, 10_000)).await;
            assert!(read.expect("read") == bytes);
            if sent_to_clients(&stage.nodes[1]) > 0 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "the new node is not read from");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stage.stop().await;
    })
    .await;
}

/// Bytes of READs that a node answered.
fn sent_to_clients(node: &ServedNode) -> u64 {
    let mut text = String::new();
    let registry = node.running.admin().registry.read().expect("nobody panicked");
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
    let line = text.lines().find_map(|line| line.strip_prefix("forebay_nfs_read_bytes_total "));
    line.expect("it is counted").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_admit_a_client_is_passed_over() {
    with_etcd("a_node_that_does_not_admit_a_client_is_passed_over", 1, async |etcd| {
        let stage = Stage::make_trusting(etcd, 2, RULES).await;
        let closed = "[[nfs.export]]\nclients = [\"192.0.2.0/24\"]\n";
        let (running, _) = stage.run(3, closed).await.expect("in the cluster");
        let bytes = stage.write("scene", 3 << 20);
        // Which node a client asks first is drawn anew for each.
        for number in 0..12 {
            let client = connect(&stage.nodes[..1]).await;
            let root = client.root().await.unwrap_or_else(|e| panic!("client {number}: {e}"));
            let file = client.lookup(&root.reference, &name("scene")).await.expect("there");
            let read = client.read(&file.reference, file.version, ByteRange::new(0, file.attr.size)).await;
            assert!(read.unwrap_or_else(|e| panic!("client {number}: {e}")) == bytes);
        }
        running.stop().await.expect("stopped");
        stage.stop().await;
    })
    .await;
}

async fn ask_map(nfs: SocketAddr, known: u64) -> MapAnswer {
    let target = CallTarget { program: PROGRAM, version: VERSION, procedure: procedure::MAP };
    let (host, identity) = (nfs.ip().to_string(), AuthSysIdentity::default());
    let asked = ask_program(
        (&host, nfs.port()),
        target,
        &identity,
        "ask",
        |e| encode_known(e, known),
        Duration::from_secs(5),
    );
    MapAnswer::decode(&mut asked.await.expect("answered")).expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_map_is_told_to_whom_an_export_rule_admits() {
    with_etcd("the_map_is_told_to_whom_an_export_rule_admits", 1, async |etcd| {
        let stage = Stage::make(etcd, 2).await;
        let MapAnswer::Document { tag, json } = ask_map(stage.nodes[0].nfs, UNKNOWN_TAG).await else {
            panic!("everybody is admitted")
        };
        let told = ClientMap::from_json(&json).expect("a map");
        let at: Vec<_> = stage.nodes.iter().map(|node| vec![node.nfs]).collect();
        assert_eq!(told.nfs.values().cloned().collect::<Vec<_>>(), at);
        assert_eq!((told.map.nodes().len(), told.silent.len(), told.junctions.len()), (2, 0, 1));
        assert_eq!(told.junctions[0].spread.as_ref().map(|spread| spread.copies), Some(1));
        assert_eq!(ask_map(stage.nodes[0].nfs, tag).await, MapAnswer::Unchanged);
        // One that admits others only.
        let closed = "[[nfs.export]]\nclients = [\"192.0.2.0/24\"]\n";
        let (running, nfs) = stage.run(3, closed).await.expect("in the cluster");
        assert_eq!(ask_map(nfs, UNKNOWN_TAG).await, MapAnswer::Refused);
        running.stop().await.expect("stopped");
        stage.stop().await;
    })
    .await;
}
