//! What a cluster goes through while clients use it, in the lab of network namespaces: links of 50 MB/s, and a far origin. What is
//! asserted is what clients got, what counters counted, and how long the longest pause was; never how fast something was, but for a
//! rate that is compared with another one of the same run.
//!
//! The cast:
//! - [`Pattern`] (`pattern.rs`): bytes of which each part says of which file and from where it is.
//! - [`Reader`] (`reader.rs`): a client that reads files by NFS, by S3 or on a mount, checks what it gets, and takes the time.
//! - `loss.rs`: 24 readers while a node is killed, stopped, and cut off.
//! - `herd.rs`: readers of all nodes read one file while nodes come, go and start again: how much of it leaves the origin.
//! - `etcd_away.rs`: etcd is away for as long as one likes.
//! - `crowd.rs`: what a node has in memory while 500 clients read.
//! - `first_byte.rs`: a cold read through a node that is not the primary, beside one through the primary: a measurement.
//!
//! The way: [`found`] starts the nodes, each with three fronts; a proof writes files of the pattern at the origin, starts readers in the
//! hosts of clients, does something to a node, and asks the readers what they saw.

mod crowd;
mod etcd_away;
mod first_byte;
mod herd;
mod loss;
mod pattern;
mod reader;

use std::path::PathBuf;
use std::time::Duration;

use testkit::lab::cluster::{ClusterLab, ClusterLabPlan, JUNCTION};
use testkit::lab::net::{LinkSide, eventually};

const PATIENCE: Duration = Duration::from_secs(240);
const MIB: u64 = 1 << 20;
/// Of each link of a node, bytes per second.
const RATE: u64 = 50_000_000;
const S3_PORT: u16 = 9000;
const S3_ID: &str = "AKFOREBAYCLUSTER";
const S3_SECRET: &str = "of+the+cluster/in+the+lab/00000000000001";
/// What each node asked the origin for.
const ORIGIN_BYTES: &str = "forebay_origin_bytes_total{junction=\"/show\"}";
/// Calls to other nodes for bytes that failed, so that somebody else was asked.
const FAILED_ASKS: &str = "forebay_cluster_failed_asks_total";

/// One client host, which is not what limits anything.
fn plan(nodes: usize, copies: usize) -> ClusterLabPlan {
    ClusterLabPlan {
        nodes,
        rate: RATE,
        client_rate: 8 * RATE,
        origin_rate: RATE,
        origin_rtt: Duration::from_millis(40),
        junction: format!("copies = {copies}"),
        ..Default::default()
    }
}

/// The first `started` nodes of the cluster are up, and each serves NFS and S3.
fn found(lab: &mut ClusterLab, started: usize) {
    for node in &lab.nodes {
        node.configure(&format!(
            "[s3]\nlisten = \"0.0.0.0:{S3_PORT}\"\n[[s3.key]]\nid = \"{S3_ID}\"\nsecret = \"{S3_SECRET}\"\nread = [\"*\"]\n"
        ));
    }
    lab.found();
    (0..started).for_each(|node| lab.start_node(node));
    await_nodes(lab, &(0..started).collect::<Vec<_>>());
}

/// Each of these nodes knows so many, and all of them answer it.
fn await_nodes(lab: &ClusterLab, running: &[usize]) {
    for node in running {
        eventually("each node knows all of them, and each answers", PATIENCE, || {
            let cluster = &lab.nodes[*node].status()["cluster"];
            cluster["up"] == running.len() && cluster["silent"].as_array().is_some_and(Vec::is_empty)
        });
    }
}

/// Of the NFS server of a node, for a client of `bench_load`.
fn nfs_url(lab: &ClusterLab, node: usize) -> String {
    let address = lab.nodes[node].host().address();
    format!("nfs://{address}:2049{JUNCTION}?mountport=2049")
}

/// Of its S3 server.
fn s3_url(lab: &ClusterLab, node: usize) -> String {
    let keys = keys_file(lab);
    if !keys.exists() {
        let text = format!("[default]\naws_access_key_id = {S3_ID}\naws_secret_access_key = {S3_SECRET}\n");
        std::fs::write(&keys, text).expect("written");
    }
    let (bucket, address) = (JUNCTION.trim_start_matches('/'), lab.nodes[node].host().address());
    format!(
        "s3://{bucket}?endpoint=http://{address}:{S3_PORT}&region=us-east-1&credentials={}",
        keys.display()
    )
}

fn keys_file(lab: &ClusterLab) -> PathBuf {
    lab.tree().with_file_name("s3-keys")
}

/// What the nodes that run asked the origin for since each was started.
fn origin_bytes(lab: &ClusterLab, running: &[usize]) -> u64 {
    running.iter().map(|node| lab.nodes[*node].metric(ORIGIN_BYTES) as u64).sum()
}

/// What has left the origin's host, with frames and names.
fn far_bytes(lab: &ClusterLab) -> u64 {
    lab.origin.host().link(0).bytes(LinkSide::Out)
}

/// What an environment variable says, or what is good for every run of the tests.
fn asked_for(variable: &str, usual: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}; write a number"))
}
