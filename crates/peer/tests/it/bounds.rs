//! Connections: one node cannot use them up.

use std::time::Duration;

use peer::PeerServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::nodes::*;

async fn from(local: &str, to: std::net::SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{local}:0").parse().expect("an address")).expect("bound");
    socket.connect(to).await.expect("connected")
}

/// A connection on which `node` has made a call.
async fn connection_of(node: u64, local: &str, to: std::net::SocketAddr) -> TcpStream {
    let mut stream = from(local, to).await;
    let head = format!(
        "GET / HTTP/1.1\r\nforebay-node: {node:016x}\r\nforebay-cluster: test\r\nforebay-deadline-ms: 9\r\n\r\n"
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = [0; 1024];
    let _ = stream.read(&mut answer).await;
    stream
}

async fn is_open(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await;
    read.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_cannot_use_up_the_connections_of_the_others() {
    let config = PeerServerConfig { connections_max: 8, connections_per_peer: 6, ..one() };
    let node = TestNode::start(insecure(9), config).await;
    let to = node.addresses[0];
    let mut greedy = Vec::new();
    // From many addresses: its connections are counted together all the same.
    for at in 0..20 {
        greedy.push(connection_of(1, &format!("127.0.0.{}", 10 + at), to).await);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let client = node.client(&insecure(2));
    for _ in 0..5 {
        client.ping(SOON).await.expect("a newcomer finds a place");
        client.read(&small_part(), SOON).await.flatten().expect("and keeps it");
    }
    let mut open = 0;
    for stream in &mut greedy {
        open += usize::from(is_open(stream).await);
    }
    assert!((1..=6).contains(&open), "{open} connections of one node are open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_do_not_keep_others_out() {
    let authority = authority();
    let config = PeerServerConfig { connections_max: 10, connections_per_peer: 6, ..one() };
    let node = TestNode::start(identity(&authority, 9), config).await;
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(from("127.0.0.66", node.addresses[0]).await);
    }
    let client = node.client(&identity(&authority, 2));
    client.ping(SOON).await.expect("a node finds a place");
    client.read(&small_part(), SOON).await.flatten().expect("and keeps it");
}
