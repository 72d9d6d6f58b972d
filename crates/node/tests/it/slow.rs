//! A node that is slow holds up nobody but who needs it, and little room none at all.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use node::CopyConfig;
use tokio::time::{sleep, timeout};
use types::ByteRange;

use crate::nodes::*;

const NEVER: Duration = Duration::from_secs(60);
/// A call that is not answered is given up after 5 s; what takes longer on a machine that is busy is tried with further files.
const TRIES: usize = 8;

async fn cluster_of_three() -> TestCluster {
    TestCluster::start(Setup { copies: 3, copying: Some(CopyConfig::default()), ..Setup::default() }).await
}

/// Files of which a node is the primary.
async fn files_of(cluster: &TestCluster, primary: usize, name: &str, count: usize) -> Vec<KnownFile> {
    let mut files = Vec::new();
    for at in 0.. {
        if files.len() == count {
            break;
        }
        let file = cluster.file(&format!("{name}{at}"), 200_000).await;
        if cluster.ranks(&file)[0] == primary {
            files.push(file);
        }
    }
    files
}

async fn read_at(cluster: &TestCluster, at: usize, file: &KnownFile) {
    assert!(cluster.nodes[at].reader(file).read_all().await.expect("read") == cluster.truth(file).await);
}

/// Whether the file comes to a node while at least `held` calls wait at another one, without a break.
async fn comes_meanwhile(
    cluster: &TestCluster,
    at: usize,
    file: &KnownFile,
    slow: usize,
    held: usize,
) -> bool {
    let begun = Instant::now();
    while cluster.nodes[at].cache.cached_bytes(&file.key).await < file.key.size {
        if cluster.nodes[slow].held.waiting() < held || begun.elapsed() > NEVER {
            return false;
        }
        sleep(Duration::from_millis(10)).await;
    }
    cluster.nodes[slow].held.waiting() >= held
}

async fn until_waiting(cluster: &TestCluster, slow: usize, held: usize) {
    let begun = Instant::now();
    while cluster.nodes[slow].held.waiting() < held {
        assert!(begun.elapsed() < NEVER, "{} calls wait", cluster.nodes[slow].held.waiting());
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_take_what_it_is_told_holds_up_no_other_one() {
    let cluster = cluster_of_three().await;
    let (primary, well, slow) = (0, 1, 2);
    cluster.nodes[slow].held.holds_feeds.store(true, Ordering::SeqCst);
    let files = files_of(&cluster, primary, "file", 2 * TRIES).await;
    let mut came = false;
    for pair in files.chunks(2) {
        // The first one has the slow node called, and the second one comes after it.
        read_at(&cluster, primary, &pair[0]).await;
        until_waiting(&cluster, slow, 1).await;
        read_at(&cluster, primary, &pair[1]).await;
        came |= comes_meanwhile(&cluster, well, &pair[1], slow, 1).await;
        if came {
            break;
        }
    }
    assert!(came, "what the others are told waits for the slow node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_for_its_copies_leaves_room_for_those_of_others() {
    let cluster = cluster_of_three().await;
    let (slow, quick, copies) = (0, 1, 2);
    cluster.nodes[slow].held.holds_haves.store(true, Ordering::SeqCst);
    let (of_slow, of_quick) =
        (files_of(&cluster, slow, "slow", 100).await, files_of(&cluster, quick, "quick", TRIES).await);
    for file in &of_slow {
        read_at(&cluster, slow, file).await;
    }
    let mut came = false;
    for file in &of_quick {
        // All places for copies would be taken by its files for minutes.
        until_waiting(&cluster, slow, 2).await;
        read_at(&cluster, quick, file).await;
        came |= comes_meanwhile(&cluster, copies, file, slow, 1).await;
        if came {
            break;
        }
    }
    assert!(came, "copies of others wait for the slow node");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_read_and_copy_from_each_other_with_budgets_of_one_part_go_on() {
    let setup = Setup {
        nodes: 2,
        copies: 2,
        copying: Some(CopyConfig::default()),
        // As little as a cache takes, and room for one READ of the other node in each role.
        inflight_max: 4 * MIB,
        served_max: 1,
        ..Setup::default()
    };
    let cluster = TestCluster::start(setup).await;
    let files = cluster.files(16, 3 * MIB).await;
    let truths = cluster.truths(&files).await;
    let mut readers = Vec::new();
    for node in &cluster.nodes {
        for (file, truth) in files.iter().zip(&truths) {
            for part in 0..6 {
                let (reader, range) = (node.reader(file), ByteRange::new(part * MIB / 2, MIB / 2));
                let truth = truth.slice(range.offset as usize..range.end() as usize);
                readers.push(tokio::spawn(async move {
                    assert!(reader.read(range).await.expect("read") == truth, "wrong bytes");
                }));
            }
        }
    }
    for reader in readers {
        timeout(NEVER, reader).await.expect("they go on").expect("right");
    }
    let begun = Instant::now();
    for file in &files {
        for node in &cluster.nodes {
            while node.cache.cached_bytes(&file.key).await < file.key.size {
                assert!(begun.elapsed() < NEVER, "copies stopped");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    assert_eq!(cluster.far_bytes(), 48 * MIB, "{}", cluster.told());
}
