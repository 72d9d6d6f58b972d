//! Rules on copies: what one node knows by its names all nodes go by.

use std::collections::HashMap;
use std::time::Duration;

use cluster::Stripe;
use node::CopyConfig;
use types::{BLOCK_SIZE, ByteRange};

use crate::copies::{alarm, bytes_of, is_kept, read_at, until};
use crate::nodes::*;

/// A node goes by these rules, as once its watch has told it.
fn rule(node: &TestNode, revision: u64, rules: &[(&'static str, u8)]) {
    node.names.set_rules(revision, rules);
    node.view.set_copy_rules(HashMap::from([(JUNCTION, revision)]));
}

fn rule_all(cluster: &TestCluster, rules: &[(&'static str, u8)]) {
    cluster.nodes.iter().for_each(|node| rule(node, 7, rules));
}

/// How many nodes keep the file, as a node sees it.
fn wanted(node: &TestNode, file: &KnownFile) -> usize {
    node.view.keepers(JUNCTION, Stripe::at(file.key.file, 0)).expect("the junction is placed").len()
}

/// Whole copies, wherever they are.
async fn held(cluster: &TestCluster, file: &KnownFile) -> usize {
    let mut held = 0;
    for node in &cluster.nodes {
        held += usize::from(node.cache.cached_bytes(&file.key).await == file.key.size);
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_makes_copies_of_what_is_cached_and_of_what_is_read_later_and_of_nothing_else() {
    let setup = Setup { copying: Some(CopyConfig::default()), guests_max: Some(0), ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    let files = cluster.files(9, MIB + 17).await;
    let (ruled, plain) = files.split_at(5);
    let (early, late) = ruled.split_at(4);
    // One node alone has met them.
    ruled.iter().for_each(|file| cluster.nodes[0].names.meet(file, "ruled"));
    plain.iter().for_each(|file| cluster.nodes[0].names.meet(file, "plain"));
    read_at(&cluster, 0, early).await;
    read_at(&cluster, 0, plain).await;
    until(&cluster, "each is at its primary", async || is_kept(&cluster, early, 1, None).await).await;
    rule_all(&cluster, &[("ruled", 3)]);
    until(&cluster, "what was cached has its copies", async || is_kept(&cluster, early, 3, None).await).await;
    read_at(&cluster, 0, late).await;
    until(&cluster, "what is read later has them", async || is_kept(&cluster, late, 3, None).await).await;
    for file in plain {
        assert_eq!(held(&cluster, file).await, 1, "no rule is about it");
    }
    let one_read_of_each = bytes_of(&files);
    assert_eq!(cluster.far_bytes(), one_read_of_each, "{}", cluster.told());
    until(&cluster, "no alarm", async || cluster.nodes.iter().all(|node| alarm(node) == 0)).await;
    // Taken back: nobody looks after the copies any more.
    cluster.nodes.iter().for_each(|node| node.view.set_copy_rules(HashMap::new()));
    assert!(cluster.nodes.iter().all(|node| wanted(node, &early[0]) == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_keeps_a_file_hears_with_a_read_by_which_rule_and_after_a_rename_with_a_later_one() {
    let setup = Setup { guests_max: Some(0), readahead_max: 0, ..Setup::default() };
    let cluster = TestCluster::start(setup).await;
    rule_all(&cluster, &[("old place", 2), ("later place", 3)]);
    let file = cluster.file("scene", 64 * MIB).await;
    let ranks = cluster.ranks(&file);
    let (primary, gateway) = (&cluster.nodes[ranks[0]], &cluster.nodes[ranks[2]]);
    gateway.names.meet(&file, "old place");
    let mut block = 0;
    let mut read_more = async || {
        let range = ByteRange::new(block * BLOCK_SIZE, BLOCK_SIZE);
        gateway.reader(&file).read(range).await.expect("read");
        block += 1;
    };
    assert_eq!(wanted(primary, &file), 1, "it does not know the path");
    read_more().await;
    assert_eq!([wanted(gateway, &file), wanted(primary, &file)], [2, 2]);
    // Its new place is under no rule.
    gateway.names.meet(&file, "new place");
    until(&cluster, "the primary hears of the rename", async || {
        read_more().await;
        wanted(primary, &file) == 1
    })
    .await;
    // By other rules what is told means nothing.
    rule(primary, 8, &[]);
    gateway.names.meet(&file, "later place");
    tokio::time::sleep(Duration::from_millis(5100)).await;
    read_more().await;
    assert_eq!([wanted(gateway, &file), wanted(primary, &file)], [3, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_more_copies_than_nodes_there_are_as_many_as_nodes_and_the_alarm_tells_of_the_others() {
    let copying = CopyConfig { alarm_after: Duration::ZERO, ..CopyConfig::default() };
    let cluster = TestCluster::start(Setup { copying: Some(copying), ..Setup::default() }).await;
    let files = cluster.files(3, MIB).await;
    files.iter().for_each(|file| cluster.nodes[0].names.meet(file, "ruled"));
    rule_all(&cluster, &[("ruled", 5)]);
    read_at(&cluster, 0, &files).await;
    until(&cluster, "all nodes keep them", async || is_kept(&cluster, &files, 3, None).await).await;
    let missing = |cluster: &TestCluster| cluster.nodes.iter().map(alarm).sum::<u64>();
    until(&cluster, "it is told", async || missing(&cluster) == 3).await;
}
