//! Budgets of bytes: nodes that wait for each other go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use peer::message::{ReadRequest, ReadRole};
use peer::{PeerClient, PeerClientConfig, PeerServerConfig};
use tokio::sync::Barrier;
use types::ErrorKind;

use crate::nodes::*;

/// Room for one READ of the largest size in each budget.
fn one_part() -> PeerServerConfig {
    PeerServerConfig { rank_bytes: PART, primary_bytes: PART, ..one() }
}

/// As rank it asks `other`, the primary, once both nodes are serving as ranks.
fn serve(node: &TestNode, other: PeerClient, both: Arc<Barrier>) {
    node.service.read_by(move |_, request| {
        let (other, both) = (other.clone(), both.clone());
        async move {
            if request.role == ReadRole::Primary {
                tokio::time::sleep(Duration::from_millis(5)).await; // the far origin
                return Ok(good_answer(&request));
            }
            both.wait().await;
            let asked = ReadRequest { role: ReadRole::Primary, hops: request.hops + 1, ..request.clone() };
            let answer = other.read(&asked, SOON * 4).await.flatten()?;
            assert!(answer.bytes == bytes_at(request.range));
            Ok(good_answer(&request))
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_pull_from_each_other_never_stop() {
    const ROUNDS: usize = 6;
    let authority = authority();
    // One connection in each lane, and budgets of one part: whatever could run out does.
    let narrow = PeerClientConfig { bulk_connections: 1, ..PeerClientConfig::default() };
    let config = || PeerServerConfig { calls_per_peer: 1, ..one_part() };
    let a = TestNode::start(identity(&authority, 1), config()).await;
    let b = TestNode::start(identity(&authority, 2), config()).await;
    let (a_to_b, b_to_a) = (b.client_with(&a.us, narrow), a.client_with(&b.us, narrow));
    let both = Arc::new(Barrier::new(2));
    serve(&a, a_to_b.clone(), both.clone());
    serve(&b, b_to_a.clone(), both);
    let done = Arc::new(AtomicUsize::new(0));
    let mut readers = tokio::task::JoinSet::new();
    for client in [a_to_b, b_to_a] {
        for _ in 0..ROUNDS {
            let (client, done) = (client.clone(), done.clone());
            readers.spawn(async move {
                client.read(&part(ReadRole::Rank), SOON * 6).await.flatten().expect("it goes on");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    let all = async { while readers.join_next().await.is_some_and(|reader| reader.is_ok()) {} };
    tokio::time::timeout(SOON * 6, all).await.expect("the nodes have stopped");
    assert_eq!(done.load(Ordering::Relaxed), 2 * ROUNDS);
    let reads = |node: &TestNode| node.service.reads.load(Ordering::Relaxed);
    assert_eq!((reads(&a), reads(&b)), (2 * ROUNDS as u64, 2 * ROUNDS as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_hand_reads_on_and_none_of_them_stops() {
    const NODES: usize = 3;
    const READS: usize = 10;
    let authority = authority();
    let narrow = PeerClientConfig { bulk_connections: 1, ..PeerClientConfig::default() };
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let config = PeerServerConfig { calls_per_peer: 2, ..one_part() };
        nodes.push(TestNode::start(identity(&authority, node as u64), config).await);
    }
    let clients: Vec<Vec<PeerClient>> =
        nodes.iter().map(|us| nodes.iter().map(|node| node.client_with(&us.us, narrow)).collect()).collect();
    // The primary of a READ follows from its map number: each node is it for a third of them.
    let origin_reads = Arc::new(AtomicUsize::new(0));
    for (own, node) in nodes.iter().enumerate() {
        let (others, origin_reads) = (clients[own].clone(), origin_reads.clone());
        node.service.read_by(move |_, request| {
            let (others, origin_reads) = (others.clone(), origin_reads.clone());
            async move {
                let primary = request.map as usize % NODES;
                if primary == own {
                    origin_reads.fetch_add(1, Ordering::Relaxed);
                    return Ok(good_answer(&request));
                }
                assert_eq!(request.role, ReadRole::Rank, "a primary that is none was asked");
                let asked = ReadRequest { role: ReadRole::Primary, hops: request.hops + 1, ..request };
                let answer = others[primary].read(&asked, SOON * 4).await.flatten()?;
                let head = (answer.served_from, answer.distance, answer.map);
                Ok(peer::ReadAnswer::new(&asked, vec![answer.bytes], head.0, head.1, head.2))
            }
        });
    }
    let mut readers = tokio::task::JoinSet::new();
    for at in 0..NODES * READS {
        let (own, map) = (at % NODES, at as u64 / 7);
        let client = clients[own][(own + 1 + at / NODES % 2) % NODES].clone();
        let request = ReadRequest { map, ..part(ReadRole::Rank) };
        readers.spawn(async move {
            let answer = client.read(&request, SOON * 6).await.flatten().expect("it goes on");
            assert!(answer.bytes == bytes_at(request.range));
        });
    }
    let mut done = 0;
    while let Some(reader) = readers.join_next().await {
        reader.expect("no panic");
        done += 1;
    }
    assert_eq!((done, origin_reads.load(Ordering::Relaxed)), (NODES * READS, NODES * READS));
    // What was handed on too often goes no further.
    let circle = ReadRequest { hops: 3, ..part(ReadRole::Rank) };
    let error = clients[0][1].read(&circle, SOON).await.flatten().expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_budget_for_both_roles_would_stop_them() {
    // What the test above would see without the second budget: the same calls, all in one role.
    let authority = authority();
    let a = TestNode::start(identity(&authority, 1), one_part()).await;
    let b = TestNode::start(identity(&authority, 2), one_part()).await;
    let both = Arc::new(Barrier::new(2));
    for (node, other) in [(&a, &b), (&b, &a)] {
        let (other, both) = (other.client(&node.us), both.clone());
        node.service.read_by(move |_, request| {
            let (other, both) = (other.clone(), both.clone());
            async move {
                if request.hops == 2 {
                    return Ok(good_answer(&request));
                }
                both.wait().await;
                let asked = ReadRequest { hops: 2, ..request.clone() };
                other.read(&asked, Duration::from_secs(1)).await.flatten()?;
                Ok(good_answer(&request))
            }
        });
    }
    let (to_a, to_b) = (a.client(&b.us), b.client(&a.us));
    let request = part(ReadRole::Rank);
    let (one, other) = tokio::join!(
        to_a.read(&request, Duration::from_secs(2)),
        to_b.read(&request, Duration::from_secs(2))
    );
    let (one, other) = (one.flatten(), other.flatten());
    assert!(
        one.is_err() || other.is_err(),
        "the budgets hold more than one part: the other test shows nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_cannot_use_up_the_bytes_of_the_others() {
    let authority = authority();
    let config = PeerServerConfig { rank_bytes: 4 * PART, ..one() };
    let node = TestNode::start(identity(&authority, 3), config).await;
    let (greedy, modest) = (node.client(&identity(&authority, 1)), node.client(&identity(&authority, 2)));
    node.service.read_by(|from, request| async move {
        if from.node == types::NodeId(1) {
            std::future::pending().await
        }
        Ok(good_answer(&request))
    });
    let reads: Vec<_> = (0..40)
        .map(|_| {
            let greedy = greedy.clone();
            tokio::spawn(
                async move { greedy.read(&part(ReadRole::Rank), SOON * 10).await.flatten().map(drop) },
            )
        })
        .collect();
    eventually("it holds what it gets", || (node.in_flight)(ReadRole::Rank) >= PART as usize).await;
    for _ in 0..5 {
        modest.read(&part(ReadRole::Rank), SOON).await.flatten().expect("there is room for others");
    }
    assert!((node.in_flight)(ReadRole::Rank) <= 2 * PART as usize);
    reads.iter().for_each(|read| read.abort());
    eventually("all of it is given back", || (node.in_flight)(ReadRole::Rank) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_node_are_bounded_and_the_surplus_is_told_to_come_later() {
    let authority = authority();
    let node =
        TestNode::start(identity(&authority, 3), PeerServerConfig { calls_per_peer: 3, ..one() }).await;
    let client = node.client(&identity(&authority, 1));
    node.service.read_by(|_, _| std::future::pending());
    let reads: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.read(&small_part(), SOON * 10).await.flatten().map(drop) })
        })
        .collect();
    eventually("three calls run", || node.service.reads.load(Ordering::Relaxed) == 3).await;
    assert_eq!(
        client.read(&small_part(), SOON).await.flatten().expect_err("the fourth").kind(),
        ErrorKind::Busy
    );
    let other = node.client(&identity(&authority, 2));
    node.service.read_by(|_, request| async move { Ok(good_answer(&request)) });
    other.read(&small_part(), SOON).await.flatten().expect("another node has places of its own");
    client
        .read(&read_of(small_part().range, ReadRole::Primary), SOON)
        .await
        .flatten()
        .expect("so has the other role");
    reads.iter().for_each(|read| read.abort());
}
