//! Nodes with several addresses.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peer::message::ReadRole;
use peer::{LEFT_FOR, PathReport, PeerClient, PeerClientConfig, local_addresses};

use crate::nodes::*;
use crate::relay::TestRelay;

async fn read_many(client: &PeerClient, reads: usize) {
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..reads {
        let client = client.clone();
        running.spawn(async move { client.read(&part(ReadRole::Rank), SOON).await.flatten().map(drop) });
    }
    while let Some(read) = running.join_next().await {
        read.expect("no panic").expect("bytes, over whichever path is good");
    }
}

fn carried(before: &[PathReport], after: &[PathReport]) -> Vec<u64> {
    before.iter().zip(after).map(|(before, after)| after.carried_bytes - before.carried_bytes).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_addresses_are_used_and_one_that_dies_is_left_and_found_again() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), on(&["127.0.0.2:0", "127.0.0.3:0"])).await;
    let relay = TestRelay::start("127.0.0.4:0", node.addresses[1]).await;
    let (us, config) = (identity(&authority, 1), PeerClientConfig::default());
    let client = client_to(node.id(), &[node.addresses[0], relay.address], &us, config);
    let begin = client.paths();
    read_many(&client, 12).await;
    let both = client.paths();
    let share = carried(&begin, &both);
    assert!(share.iter().all(|bytes| *bytes >= 4 * PART), "{share:?}");
    let address = relay.address.to_string();
    relay.stop().await;
    read_many(&client, 12).await;
    let one = client.paths();
    assert_eq!((one[0].is_left, one[1].is_left), (false, true), "{one:?}");
    let begun = Instant::now();
    read_many(&client, 6).await;
    assert_eq!(carried(&one, &client.paths())[1], 0, "nothing goes where nothing comes through");
    assert!(begun.elapsed() < LEFT_FOR, "nobody waits for it");
    let _relay = TestRelay::start(&address, node.addresses[1]).await;
    eventually("it is found again", || !client.paths()[1].is_left).await;
    assert!(begun.elapsed() > LEFT_FOR - Duration::from_secs(2), "it is left for a while");
    let found = client.paths();
    read_many(&client, 12).await;
    let share = carried(&found, &client.paths());
    assert!(share.iter().all(|bytes| *bytes >= 4 * PART), "{share:?}");
    assert!(client.paths().iter().all(|path| path.outstanding_bytes == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_is_answered_over_the_other_address_when_one_is_dead() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    // It takes connections and says nothing.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let dead = (dead.local_addr().expect("bound"), dead);
    let us = identity(&authority, 1);
    let client = client_to(node.id(), &[dead.0, node.addresses[0]], &us, PeerClientConfig::default());
    for _ in 0..4 {
        client.ping(Duration::from_secs(1)).await.expect("answered over the other");
    }
    assert_eq!(client.paths().iter().map(|path| path.is_left).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_begin_at_our_address_in_the_network_and_are_so_many() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), on(&["127.0.0.2:0", "127.0.0.3:0"])).await;
    let us = identity(&authority, 1);
    let config = PeerClientConfig { bulk_connections: 2, ..PeerClientConfig::default() };
    let client = node.client_with(&us, config);
    client.set_addresses(&node.addresses, &local_addresses());
    let locals: Vec<_> = client.paths().iter().map(|path| path.path.local).collect();
    assert_eq!(locals, [Some([127, 0, 0, 1].into()); 2]);
    node.service.read_by(|_, request| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(good_answer(&request))
    });
    let reading = tokio::spawn({
        let client = client.clone();
        async move { read_many(&client, 12).await }
    });
    eventually("two calls on each of two paths", || node.service.reads.load(Ordering::Relaxed) >= 4).await;
    assert_eq!(node.service.reads.load(Ordering::Relaxed), 4, "and no more at once");
    reading.await.expect("all are answered");
    // An address that is gone: its path, too.
    client.set_addresses(&node.addresses[..1], &[]);
    assert_eq!(client.paths().len(), 1);
    client.read(&small_part(), SOON).await.flatten().expect("over the other");
}
