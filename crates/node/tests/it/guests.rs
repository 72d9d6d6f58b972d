//! What a gateway has on its disk of stripes that other nodes keep.

use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterMap, MapNode, NodeState, Stripe};

use crate::nodes::*;

#[tokio::test(flavor = "multi_thread")]
async fn guests_stay_in_their_share_and_own_stripes_are_all_there() {
    const SHARE: u64 = 6 * MIB;
    let setup = Setup { readahead_max: MIB, guests_max: Some(SHARE), ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    let files = cluster.files(24, MIB + 17).await;
    let truths = cluster.truths(&files).await;
    let gateway = &cluster.nodes[0];
    // What is counted at any moment.
    let cache = gateway.cache.clone();
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let watching = tokio::spawn(async move {
        let mut most = 0;
        while tokio::time::timeout(Duration::from_millis(1), stopped.changed()).await.is_err() {
            most = most.max(cache.metrics().guest_bytes.get());
        }
        most as u64
    });
    for _ in 0..3 {
        for (file, truth) in files.iter().zip(&truths) {
            assert!(gateway.reader(file).read_all().await.expect("read") == *truth, "wrong bytes");
        }
    }
    let (own, guests): (Vec<&KnownFile>, Vec<&KnownFile>) =
        files.iter().partition(|file| cluster.ranks(file)[0] == 0);
    assert!(!own.is_empty() && guests.len() as u64 * MIB > SHARE, "{} of its own", own.len());
    let on_disk = async |files: &[&KnownFile]| {
        let mut bytes = 0;
        for file in files {
            bytes += gateway.cache.cached_bytes(&file.key).await;
        }
        bytes
    };
    assert_eq!(on_disk(&own).await, own.len() as u64 * (MIB + 17), "it keeps its own");
    let here = on_disk(&guests).await;
    assert!((SHARE / 2..=SHARE).contains(&here), "{here} bytes of guests");
    for file in &guests {
        let keeper = &cluster.nodes[cluster.ranks(file)[0]];
        assert_eq!(keeper.cache.cached_bytes(&file.key).await, MIB + 17, "those of others are kept there");
    }
    assert_eq!(cluster.far_bytes(), 24 * (MIB + 17), "each byte was read once; {}", cluster.told());
    // Of one that is read often the bytes are here.
    let hot = gateway.reader(guests[0]);
    hot.read_all().await.expect("read");
    hot.read_all().await.expect("read");
    let fetches = gateway.fetches();
    hot.read_all().await.expect("read");
    assert_eq!(gateway.fetches(), fetches, "it asks nobody");
    stop.send_replace(true);
    let most = watching.await.expect("no panic");
    assert!(most <= SHARE, "{most} bytes of guests at one moment");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_room_for_guests_reads_each_byte_once_from_its_keeper() {
    let setup = Setup { readahead_max: 2 * MIB, guests_max: Some(0), ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    let files = cluster.files(4, 6 * MIB).await;
    for file in &files {
        let gateway = &cluster.nodes[cluster.ranks(file)[2]];
        let keeper = &cluster.nodes[cluster.ranks(file)[0]];
        let served = keeper.metrics.served_bytes.get();
        assert!(gateway.reader(file).read_all().await.expect("read") == cluster.truth(file).await);
        assert_eq!(keeper.metrics.served_bytes.get() - served, file.key.size);
        let mut left = false;
        for _ in 0..600 {
            left = gateway.cache.cached_bytes(&file.key).await == 0;
            if left {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(left, "{} bytes stay", gateway.guest_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_what_others_may_still_fetch_from_it() {
    let cluster = TestCluster::start(Setup::default()).await;
    let file = cluster.file("file", MIB).await;
    let ranks = cluster.ranks(&file);
    let first = &cluster.nodes[ranks[0]];
    let stripe = Stripe::at(file.key.file, 0);
    let keeps = || first.view.keeps(JUNCTION, stripe);
    let others = |at: &usize| cluster.nodes[*at].view.keeps(JUNCTION, stripe);
    assert!(keeps() && !ranks[1..].iter().any(others));
    let without = cluster.map(100, |id| if id == first.id { 1 } else { 1 << 40 });
    // The map has just changed: the new primary asks the one before it.
    assert!(first.view.advance(without.clone()));
    assert!(keeps());
    // Long ago, or after the coordinator was restored.
    first.view.begin_anew(without);
    assert!(!keeps());
    let drains = |node: &MapNode| MapNode {
        state: if node.id == first.id { NodeState::Draining } else { NodeState::Up },
        ..node.clone()
    };
    let nodes = cluster.map(101, |_| 1 << 40).nodes().iter().map(drains).collect();
    first.view.begin_anew(Arc::new(ClusterMap::new(101, nodes).expect("a map")));
    assert!(keeps(), "it hands out what it has while it drains");
}
