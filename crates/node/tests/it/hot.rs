//! A stripe that many nodes read is served by more nodes than are to keep it, for as long as that lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use node::{CopyConfig, FromLabels, HeatConfig, ReadFrom};

use crate::copies::{bytes_of, until};
use crate::nodes::*;

const WINDOW: Duration = Duration::from_millis(500);

/// Five nodes whose gateways keep nothing, so that all that they read is asked of others.
async fn cluster(rate: u64) -> TestCluster {
    let copying = Some(CopyConfig::default());
    let setup = Setup { nodes: 5, copying, guests_max: Some(0), readahead_max: 0, ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    let heat = HeatConfig { rate, window: WINDOW };
    cluster.nodes.iter().for_each(|node| node.view.set_heat(heat));
    cluster
}

/// Each node reads all files again and again, until it is told to stop.
fn read_on(
    cluster: &TestCluster,
    files: &[KnownFile],
) -> (Arc<AtomicBool>, Vec<tokio::task::JoinHandle<()>>) {
    let stop = Arc::new(AtomicBool::new(false));
    let reader = |node: &TestNode| {
        let (readers, stop) = (files.iter().map(|file| node.reader(file)).collect::<Vec<_>>(), stop.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                for reader in &readers {
                    reader.read_all().await.expect("read");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    let readers = cluster.nodes.iter().map(reader).collect();
    (stop, readers)
}

fn from_rank(node: &TestNode) -> u64 {
    node.metrics.reads.get_or_create(&FromLabels { from: ReadFrom::Rank }).get()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_stripe_gains_copies_that_serve_it_and_loses_them_when_it_has_cooled() {
    let cluster = cluster(20_000).await;
    let files = cluster.files(4, MIB / 4).await;
    let (stop, readers) = read_on(&cluster, &files);
    until(&cluster, "further nodes keep the files", async || {
        let mut more = 0;
        for file in &files {
            let second = &cluster.nodes[cluster.ranks(file)[1]];
            more += usize::from(second.cache.cached_bytes(&file.key).await == file.key.size);
        }
        more == files.len()
    })
    .await;
    until(&cluster, "and serve them", async || cluster.nodes.iter().any(|node| from_rank(node) > 0)).await;
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.expect("it read without an error");
    }
    assert_eq!(cluster.far_bytes(), bytes_of(&files), "from afar once; {}", cluster.told());
    until(&cluster, "it cools", async || cluster.nodes.iter().all(|node| node.view.hot_stripes() == 0)).await;
    for file in &files {
        let ranks = cluster.ranks(file);
        let route = cluster.nodes[ranks[4]].route(file);
        assert_eq!(route.asked[0].0, cluster.nodes[ranks[0]].id, "the primary is asked as ever");
        assert!(!cluster.nodes[ranks[1]].route(file).keeps);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stripe_below_the_rate_stays_with_its_primary() {
    let cluster = cluster(1 << 40).await;
    let files = cluster.files(2, MIB / 4).await;
    let (stop, readers) = read_on(&cluster, &files);
    let served =
        |cluster: &TestCluster| cluster.nodes.iter().map(|node| node.metrics.served_bytes.get()).sum::<u64>();
    let begun = tokio::time::Instant::now();
    until(&cluster, "much was served, for several windows", async || {
        served(&cluster) > 20 * bytes_of(&files) && begun.elapsed() > 4 * WINDOW
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.expect("it read without an error");
    }
    assert!(cluster.nodes.iter().all(|node| node.view.hot_stripes() == 0 && from_rank(node) == 0));
}
