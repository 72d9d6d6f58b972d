//! Nodes that stop and start.

use std::sync::atomic::Ordering;
use std::time::Duration;

use peer::PeerServerConfig;
use types::ErrorKind;

use crate::nodes::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_what_has_arrived_and_takes_nothing_more() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    client.ping(SOON).await.expect("answered");
    node.service.read_by(|_, request| async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(good_answer(&request))
    });
    let reading = tokio::spawn({
        let client = client.clone();
        async move { client.read(&small_part(), SOON).await.flatten() }
    });
    eventually("the call has arrived", || node.service.reads.load(Ordering::Relaxed) == 1).await;
    node.stop.send_replace(true);
    reading.await.expect("no panic").expect("what has arrived is answered");
    tokio::time::timeout(SOON, node.serving).await.expect("it ends in time").expect("no panic");
    let error = client.read(&small_part(), SOON).await.flatten().expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_ever() {
    let authority = authority();
    let config = PeerServerConfig { drain_timeout: Duration::from_millis(300), ..one() };
    let node = TestNode::start(identity(&authority, 2), config).await;
    let client = node.client(&identity(&authority, 1));
    node.service.read_by(|_, _| std::future::pending());
    let reading = tokio::spawn(async move { client.read(&small_part(), SOON * 10).await.flatten() });
    eventually("the call has arrived", || node.service.reads.load(Ordering::Relaxed) == 1).await;
    node.stop.send_replace(true);
    tokio::time::timeout(SOON, node.serving).await.expect("it ends in time").expect("no panic");
    assert_eq!(reading.await.expect("no panic").expect_err("cut").kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_started_anew_is_called_on_without_an_error() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    client.ping(SOON).await.expect("answered");
    client.read(&small_part(), SOON).await.flatten().expect("answered");
    let address = node.addresses[0].to_string();
    node.stop.send_replace(true);
    node.serving.await.expect("no panic");
    let again = TestNode::start(identity(&authority, 2), on(&[&address])).await;
    // The connections of before are closed, as the client finds out.
    client.read(&small_part(), SOON).await.flatten().expect("answered by the new one");
    client.ping(SOON).await.expect("answered by the new one");
    assert_eq!(client.paths()[0].failures, 0);
    drop(again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_is_found_by_the_next_heartbeat() {
    let authority = authority();
    let node = TestNode::start(identity(&authority, 2), one()).await;
    let client = node.client(&identity(&authority, 1));
    client.ping(SOON).await.expect("answered");
    let address = node.addresses[0].to_string();
    node.stop.send_replace(true);
    node.serving.await.expect("no panic");
    client.read(&small_part(), SOON).await.flatten().expect_err("nobody is there");
    let begun = std::time::Instant::now();
    let error = client.read(&small_part(), SOON).await.flatten().expect_err("the path is left");
    assert!(error.to_string().contains("no path to it is open"), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(500), "at once");
    let _again = TestNode::start(identity(&authority, 2), on(&[&address])).await;
    client.ping(SOON).await.expect("a heartbeat goes over a path that is left when there is no other");
    client.read(&small_part(), SOON).await.flatten().expect("from now on so do calls");
}
