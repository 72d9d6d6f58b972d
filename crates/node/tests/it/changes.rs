//! Nodes that come and go.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::nodes::*;

const NEVER: Duration = Duration::from_secs(60);

/// Heartbeats are 0.4 s apart, and three may be missed.
async fn until_passed_over(cluster: &TestCluster, gone: usize) {
    let id = cluster.nodes[gone].id;
    let begun = Instant::now();
    for (at, node) in cluster.nodes.iter().enumerate() {
        while at != gone && !node.view.is_passed_over(id) {
            assert!(begun.elapsed() < Duration::from_secs(10), "nobody notices");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn until_answering(cluster: &TestCluster, back: usize) {
    let id = cluster.nodes[back].id;
    let begun = Instant::now();
    while cluster.nodes.iter().any(|node| node.view.is_passed_over(id)) {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody notices");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn read_everywhere(cluster: &TestCluster, files: &[KnownFile], but: Option<usize>) {
    let truths = cluster.truths(files).await;
    for (at, node) in cluster.nodes.iter().enumerate().filter(|(at, _)| Some(*at) != but) {
        for (file, truth) in files.iter().zip(&truths) {
            let read = timeout(NEVER, node.reader(file).read_all()).await.expect("in time");
            assert!(read.expect("read") == *truth, "wrong bytes at node {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_among_readers_costs_no_error_and_no_wrong_byte() {
    let mut cluster = TestCluster::start(Setup { copies: 2, ..Setup::default() }).await;
    let files = cluster.files(6, 6 * MIB).await;
    let truths = cluster.truths(&files).await;
    let (mut readers, gone) = (Vec::new(), 0);
    for node in cluster.nodes.iter().skip(1) {
        for (file, truth) in files.iter().zip(&truths) {
            let (reader, truth) = (node.reader(file), truth.clone());
            readers.push(tokio::spawn(async move {
                let begun = Instant::now();
                assert!(reader.read_all().await.expect("no error") == truth, "wrong bytes");
                begun.elapsed()
            }));
        }
    }
    sleep(Duration::from_millis(60)).await;
    cluster.kill(gone);
    for reader in readers {
        timeout(NEVER, reader).await.expect("in time").expect("right");
    }
    until_passed_over(&cluster, gone).await;
    // What it was the primary of has another one now.
    let more = cluster.file("more", 2 * MIB).await;
    read_everywhere(&cluster, &[more], Some(gone)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_two_nodes_do_not_wait_for_each_other_when_the_only_keeper_dies() {
    let mut cluster = TestCluster::start(Setup { copies: 1, ..Setup::default() }).await;
    let files = cluster.files(12, MIB).await;
    let truths = cluster.truths(&files).await;
    let gone = 0;
    cluster.kill(gone);
    // At once: nobody has noticed yet.
    let begun = Instant::now();
    let mut readers = Vec::new();
    for node in cluster.nodes.iter().skip(1) {
        for (file, truth) in files.iter().zip(&truths) {
            let (reader, truth) = (node.reader(file), truth.clone());
            readers.push(tokio::spawn(async move {
                assert!(reader.read_all().await.expect("no error") == truth, "wrong bytes");
            }));
        }
    }
    for reader in readers {
        timeout(NEVER, reader).await.expect("in time").expect("right");
    }
    // A call that waits in a circle ends after a minute.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_more_gets_its_stripes_from_those_that_have_them() {
    let mut cluster = TestCluster::start(Setup { nodes: 2, ..Setup::default() }).await;
    let files = cluster.files(12, MIB).await;
    read_everywhere(&cluster, &files, None).await;
    let unique = 12 * MIB;
    assert_eq!(cluster.far_bytes(), unique);
    cluster.add().await;
    cluster.publish();
    let moved = files.iter().filter(|file| cluster.ranks(file)[0] == 2).count();
    assert!(moved > 0, "with twelve files it is the primary of one at least");
    read_everywhere(&cluster, &files, None).await;
    assert_eq!(cluster.far_bytes(), unique, "{moved} files moved, and none was read from afar again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_of_a_restored_coordinator_comes_into_force_though_its_number_is_lower() {
    let cluster = TestCluster::start(Setup::default()).await;
    let file = cluster.file("file", MIB).await;
    let (first, last) = (cluster.ranks(&file)[0], cluster.ranks(&file)[2]);
    let last = &cluster.nodes[last];
    let id = cluster.nodes[first].id;
    // As it was before the stripe's primary joined.
    let older = cluster.map(1, |node| if node == id { 0 } else { 1 << 40 });
    assert!(!last.view.advance(older.clone()), "an older map by itself changes nothing");
    last.view.begin_anew(older);
    assert_eq!(last.view.number(), 1);
    assert!(last.route(&file).asked.iter().all(|(node, _)| *node != id), "it keeps nothing by this map");
    assert!(last.reader(&file).read_all().await.expect("read") == cluster.truth(&file).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_gets_what_it_missed_from_those_that_stood_in_for_it() {
    let mut cluster = TestCluster::start(Setup::default()).await;
    let before = cluster.files(9, MIB).await;
    read_everywhere(&cluster, &before, None).await;
    let gone = 1;
    cluster.kill(gone);
    until_passed_over(&cluster, gone).await;
    let mut meanwhile = Vec::new();
    for at in 0..9 {
        meanwhile.push(cluster.file(&format!("meanwhile{at}"), MIB).await);
    }
    assert!(meanwhile.iter().any(|file| cluster.ranks(file)[0] == gone));
    read_everywhere(&cluster, &meanwhile, Some(gone)).await;
    assert_eq!(cluster.far_bytes(), 18 * MIB);
    cluster.restart(gone).await;
    until_answering(&cluster, gone).await;
    let all: Vec<KnownFile> = before.into_iter().chain(meanwhile).collect();
    read_everywhere(&cluster, &all, None).await;
    assert_eq!(cluster.far_bytes(), 18 * MIB, "nothing was read from afar again");
}
