//! What one node changed is told to the others, and nobody waits for it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use peer::message::ChangeNotice;
use tokio::time::sleep;
use types::{ErrorKind, FileId, NodeId};

use crate::nodes::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn file(number: u64) -> FileId {
    FileId::derive(JUNCTION, &number.to_le_bytes())
}

fn heard(node: &TestNode) -> HashSet<FileId> {
    node.heard.calls.lock().expect("no panic holds it").iter().flatten().copied().collect()
}

fn calls(node: &TestNode) -> usize {
    node.heard.calls.lock().expect("no panic holds it").len()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_changes_is_told_to_all_others_and_not_to_itself() {
    let cluster = TestCluster::start(Setup::default()).await;
    cluster.nodes[0].notices.announce(&[file(1), file(2)]);
    for node in &cluster.nodes[1..] {
        until("it is told", || heard(node) == HashSet::from([file(1), file(2)])).await;
        assert_eq!(node.metrics.received_notices.get(), 2);
    }
    cluster.nodes[0].notices.settle(PATIENCE).await;
    assert_eq!(cluster.nodes[0].metrics.sent_notices.get(), 4);
    assert_eq!(cluster.nodes[0].metrics.dropped_notices.get(), 0);
    assert_eq!(calls(&cluster.nodes[0]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_its_time_has_one_call_under_way_and_the_newest_files_wait() {
    let cluster = TestCluster::start(Setup { nodes: 3, ..Setup::default() }).await;
    let (slow, other) = (&cluster.nodes[1], &cluster.nodes[2]);
    let (held, begun) = (slow.heard.gate.lock().await, Instant::now());
    let sender = &cluster.nodes[0].notices;
    sender.announce(&[file(0)]);
    until("it is told", || calls(slow) == 1).await;
    // A storm: few files, many times; then more of them than wait for one node.
    for _ in 0..1000 {
        sender.announce(&[file(0), file(1), file(2)]);
    }
    until("the other is told", || heard(other).len() == 3).await;
    assert!(calls(other) < 1000, "what changes while a call is under way goes in one");
    for number in 1000..1000 + NOTICES_MAX as u64 {
        sender.announce(&[file(number)]);
    }
    let newest = file(999 + NOTICES_MAX as u64);
    until("nobody waits for the slow one", || heard(other).contains(&newest)).await;
    // A call that has no answer for 5 s is made again.
    assert!(calls(slow) == 1 || begun.elapsed() > Duration::from_secs(4), "one call at a time");
    let dropped = cluster.nodes[0].metrics.dropped_notices.get();
    assert!(dropped >= 3, "the oldest gave way, of the slow one: {dropped}");
    drop(held);
    until("it is told the rest", || heard(slow).contains(&newest)).await;
    assert_eq!(heard(slow).len(), NOTICES_MAX + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_holds_up_nobody_and_hears_when_it_is_back_of_what_still_waits() {
    let mut cluster = TestCluster::start(Setup::default()).await;
    cluster.kill(2);
    let gone = cluster.nodes[2].id;
    cluster.nodes[0].notices.announce(&[file(1)]);
    until("the one that is there is told", || heard(&cluster.nodes[1]).len() == 1).await;
    until("it is passed over", || cluster.nodes[0].view.is_passed_over(gone)).await;
    let begun = Instant::now();
    for number in 0..100_000 {
        cluster.nodes[0].notices.announce(&[file(number % 200)]);
    }
    assert!(begun.elapsed() < PATIENCE, "to announce is to wait for nobody");
    until("the one that is there is told", || heard(&cluster.nodes[1]).contains(&file(199))).await;
    cluster.restart(2).await;
    let back = &cluster.nodes[2];
    until("it is told what waits", || heard(back).len() == NOTICES_MAX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_in_the_map_tells_nobody_anything() {
    let cluster = TestCluster::start(Setup::default()).await;
    let notice = ChangeNotice { files: vec![file(1)] };
    let refused = cluster.client(NodeId(99), 0).notice(notice.clone(), PATIENCE).await;
    assert_eq!(refused.expect_err("it is not in the map").kind(), ErrorKind::NotPermitted);
    assert_eq!(calls(&cluster.nodes[0]), 0);
    cluster.client(cluster.nodes[1].id, 0).notice(notice, PATIENCE).await.expect("it is in the map");
    assert_eq!(calls(&cluster.nodes[0]), 1);
}
