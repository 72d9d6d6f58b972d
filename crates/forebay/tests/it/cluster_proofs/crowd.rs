//! 500 clients of one node read at once, by NFS and by S3, each over a connection of its own, what this node and others keep: the node
//! stays within its budgets.

use std::path::Path;
use std::sync::Arc;

use bench_load::target::{TargetFile, from_url};
use testkit::lab::cluster::{ClusterLab, ClusterLabPlan, with_cluster_lab};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::pattern::Pattern;
use super::{MIB, ORIGIN_BYTES, asked_for, found, nfs_url, plan, s3_url};

const CLIENTS: usize = 500;
const MACHINES: usize = 5;
const NODE: usize = 0;
const FILES: usize = 32;
const FILE: u64 = 2 * MIB;
const PIECE: u64 = 256 << 10;
/// Budgets of a node, MiB: answers to clients 128, fetches 128, and what it sends to other nodes in the two roles in which it may fetch
/// for them 512 (`peer::PeerServerConfig`); the rest is for caches of names, the database's pages (64) and the program.
const MOST: u64 = 128 + 128 + 512 + 128;

/// Each reads pieces of files that nobody has read before, from a place of its own on.
async fn read_as(
    client: usize,
    url: String,
    pieces: u64,
    pattern: Arc<Pattern>,
    all: Arc<Barrier>,
) -> types::Result<()> {
    let by = from_url(&url)?.client(0).await?;
    let file = client % FILES;
    let open = by.open(&format!("crowd/{file}")).await?;
    all.wait().await;
    for piece in 0..pieces {
        let at = (client as u64 / FILES as u64 + piece) * PIECE % FILE;
        let bytes = TargetFile::read(&*open, at, PIECE as usize).await?;
        assert!(bytes.len() as u64 == PIECE && pattern.is(file, at, &bytes), "{url}: other bytes at {at}");
    }
    Ok(())
}

/// A fifth of the clients at each of five machines: one machine may have 512 connections by S3.
fn read_by_all(lab: &ClusterLab, pattern: &Arc<Pattern>, pieces: u64) {
    let urls = [nfs_url(lab, NODE), s3_url(lab, NODE)];
    from_url(&urls[0]).and_then(|target| target.room_for(2 * CLIENTS as u32)).expect("room");
    let all = Arc::new(Barrier::new(CLIENTS));
    let read_at = |machine: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut clients = JoinSet::new();
            for client in (0..CLIENTS).filter(|client| client / urls.len() % MACHINES == machine) {
                let url = urls[client % urls.len()].clone();
                clients.spawn(read_as(client, url, pieces, pattern.clone(), all.clone()));
            }
            // The first that fails is told: the others would wait for it.
            let read = async {
                while let Some(client) = clients.join_next().await {
                    client.expect("right").expect("no error");
                }
            };
            tokio::time::timeout(super::PATIENCE, read).await.expect("in time");
        });
    };
    std::thread::scope(|scope| {
        for (machine, host) in lab.clients.iter().enumerate() {
            let read_at = &read_at;
            scope.spawn(move || host.within(|| read_at(machine)));
        }
    });
}

/// Two pieces each; for the record more (`FOREBAY_CROWD_PIECES=32`).
#[test]
#[ignore = "it leaves other tests no processor; scripts/prove.sh cluster-crowd runs it"]
fn a_node_of_a_cluster_stays_within_its_budgets_of_memory_while_500_clients_read() {
    let name = "a_node_of_a_cluster_stays_within_its_budgets_of_memory_while_500_clients_read";
    let plan = ClusterLabPlan { clients: MACHINES, ..plan(3, 2) };
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan, |lab| {
        let pattern = Arc::new(Pattern::new());
        std::fs::create_dir(lab.tree().join("crowd")).expect("made");
        for file in 0..FILES {
            pattern.write(file, &lab.tree().join(format!("crowd/{file}")), FILE);
        }
        found(lab, 3);
        let idle = lab.nodes[NODE].resident_bytes_max() / MIB;
        read_by_all(lab, &pattern, asked_for("FOREBAY_CROWD_PIECES", 2));
        let most: Vec<u64> = lab.nodes.iter().map(|node| node.resident_bytes_max() / MIB).collect();
        println!(
            "cluster crowd: {CLIENTS} clients of one node: peak resident {most:?} MiB of its nodes, {idle} MiB before"
        );
        assert!(most[NODE] <= MOST, "{} MiB", most[NODE]);
        let others = lab.nodes.iter().skip(1).map(|node| node.metric(ORIGIN_BYTES)).sum::<f64>();
        assert!(others > 0.0, "the other nodes fetched nothing for it");
    });
}
