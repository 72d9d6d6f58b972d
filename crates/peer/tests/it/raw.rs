//! What arrives at the port of a node and is no call of a node.

use std::sync::atomic::Ordering;
use std::time::Duration;

use peer::PeerServerConfig;
use peer::message::ReadRole;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use types::ErrorKind;

use crate::nodes::*;

const CLAIM: &str =
    "forebay-node: 0000000000000001\r\nforebay-cluster: test\r\nforebay-deadline-ms: 60000\r\n";

/// Sends `bytes` and returns what comes until the node closes the connection. `None`: it does not.
async fn sent(node: &TestNode, bytes: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(node.addresses[0]).await.expect("connected");
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let ended = timeout(Duration::from_secs(3), stream.read_to_end(&mut answer)).await;
    ended.is_ok().then(|| String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_or_a_body_that_claims_too_much_ends_its_connection() {
    let node = TestNode::start(insecure(2), one()).await;
    let long =
        format!("GET /v1/bytes/a/b HTTP/1.1\r\n{CLAIM}forebay-reference: {}\r\n\r\n", "A".repeat(200_000));
    let answer = sent(&node, long.as_bytes()).await.expect("the connection ends");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let huge = format!("POST /v1/notice HTTP/1.1\r\n{CLAIM}content-length: 9999999999\r\n\r\n{{");
    let answer = sent(&node, huge.as_bytes()).await.expect("the connection ends");
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("its body is of 9999999999 bytes"),
        "{answer}"
    );
    let endless = format!("POST /v1/feed HTTP/1.1\r\n{CLAIM}transfer-encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, "x".repeat(64 << 10));
    let answer = sent(&node, format!("{endless}{}", chunk.repeat(20)).as_bytes()).await;
    assert!(answer.is_some(), "the connection ends");
    let asked = format!("GET /v1/have/a/b HTTP/1.1\r\n{CLAIM}content-length: 9999999999\r\n\r\n");
    let answer = sent(&node, asked.as_bytes()).await.expect("the connection ends");
    assert!(answer.contains("a question has no body"), "{answer}");
    let many = format!("GET /v1/have/a/b HTTP/1.1\r\n{CLAIM}{}\r\n", "x: y\r\n".repeat(100));
    assert!(sent(&node, many.as_bytes()).await.is_some(), "the connection ends");
    node.client(&insecure(1)).ping(SOON).await.expect("others are heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_makes_no_sense_is_refused_and_the_connection_stays() {
    let node = TestNode::start(insecure(2), one()).await;
    let mut stream = TcpStream::connect(node.addresses[0]).await.expect("connected");
    for (line, status) in [
        ("GET /", "501"),
        ("DELETE /v1/bytes/a/b", "501"),
        ("GET /v1/bytes/a/b", "400"),
        ("POST /v1/ping", "400"),
    ] {
        let head = format!("{line} HTTP/1.1\r\n{CLAIM}content-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = vec![0; 4096];
        let bytes = timeout(SOON, stream.read(&mut answer)).await.expect("in time").expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
    }
    let nobody = sent(&node, b"POST /v1/ping HTTP/1.1\r\nforebay-deadline-ms: 9\r\n\r\n").await;
    assert!(nobody.expect("the connection ends").contains("it does not say which node it is"));
    let two =
        format!("GET / HTTP/1.1\r\n{CLAIM}\r\nGET / HTTP/1.1\r\n{}\r\n", CLAIM.replace("01\r\n", "03\r\n"));
    let answer = sent(&node, two.as_bytes()).await.expect("the connection ends");
    assert!(answer.contains("a connection of node 0000000000000001 is now one of node"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_at_the_port_hurt_nobody() {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let seed = match std::env::var("FOREBAY_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => time.as_nanos() as u64 | 1,
    };
    println!("FOREBAY_SEED={seed}");
    let mut state = seed;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let authority = authority();
    let quick = Duration::from_millis(300);
    let config = || PeerServerConfig { idle_timeout: quick, stall_timeout: quick, ..one() };
    let secure = TestNode::start(identity(&authority, 2), config()).await;
    let plain = TestNode::start(insecure(2), config()).await;
    let good = format!(
        "GET /v1/bytes/{FILE}/{VERSION} HTTP/1.1\r\n{CLAIM}range: bytes=0-65535\r\nforebay-size: {SIZE}\r\n\
         forebay-junction: 3\r\nforebay-reference: AAAA\r\nforebay-role: rank\r\nforebay-hops: 0\r\n\
         forebay-urgency: demand\r\nforebay-map: 1\r\nconnection: close\r\n\r\n"
    );
    for round in 0..200 {
        let node = if round % 4 == 0 { &secure } else { &plain };
        let mut bytes = match next() % 3 {
            0 => (0..next() % 3000).map(|_| next() as u8).collect(),
            _ => good.clone().into_bytes(),
        };
        if !bytes.is_empty() {
            let at = (next() % bytes.len() as u64) as usize;
            match next() % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at] = next() as u8,
                _ => bytes
                    .splice(at..at, (0..next() % 9).map(|_| next() as u8).collect::<Vec<_>>())
                    .for_each(drop),
            }
        }
        let mut stream = TcpStream::connect(node.addresses[0]).await.expect("connected");
        let _ = stream.write_all(&bytes).await;
        if next() % 2 == 0 {
            let _ = stream.shutdown().await;
        }
        let mut answer = Vec::new();
        // Where nothing was sent, a handshake is waited for as long as `SOON`.
        let ended = timeout(2 * SOON, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "round {round}: a connection without a call stays");
    }
    assert!(plain.service.reads.load(Ordering::Relaxed) > 0, "none of them was a call: this shows nothing");
    secure
        .client(&identity(&authority, 1))
        .read(&small_part(), SOON)
        .await
        .flatten()
        .expect("others are served");
    plain.client(&insecure(1)).read(&small_part(), SOON).await.flatten().expect("others are served");
    eventually("nothing is held", || (plain.in_flight)(ReadRole::Rank) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_take_its_answer_or_does_not_send_on_is_cut() {
    let stall_timeout = Duration::from_millis(600);
    let config = PeerServerConfig { stall_timeout, idle_timeout: stall_timeout * 2, ..one() };
    let node = TestNode::start(insecure(2), config).await;
    let last = PART - 1;
    let head = format!(
        "GET /v1/bytes/{FILE}/{VERSION} HTTP/1.1\r\n{CLAIM}range: bytes=0-{last}\r\nforebay-size: {SIZE}\r\n\
         forebay-junction: 3\r\nforebay-reference: AAAA\r\nforebay-role: primary\r\nforebay-hops: 0\r\n\
         forebay-urgency: demand\r\nforebay-map: 1\r\n\r\n"
    );
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(8 << 10).expect("set");
    let mut slow = socket.connect(node.addresses[0]).await.expect("connected");
    // More than the kernel keeps for it.
    slow.write_all(head.repeat(8).as_bytes()).await.expect("sent");
    eventually("its bytes are held", || (node.in_flight)(ReadRole::Primary) > 0).await;
    let begun = std::time::Instant::now();
    eventually("it is cut", || (node.in_flight)(ReadRole::Primary) == 0).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "the kernel cut it, and not the node");
    let unfinished = format!("POST /v1/ping HTTP/1.1\r\n{CLAIM}content-length: 100\r\n\r\n{{");
    let answer = sent(&node, unfinished.as_bytes()).await.expect("it is cut");
    assert!(answer.contains("its body does not arrive"), "{answer}");
    sent(&node, b"POST /v1/ping HT").await.expect("a head that is never whole");
    sent(&node, b"").await.expect("a connection without any call");
}

/// Something that is no node answers each call with `answer`.
async fn impostor(answer: String) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut call = vec![0; 4096];
                let _ = stream.read(&mut call).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = timeout(SOON, stream.read(&mut call)).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_claims_too_much_or_makes_no_sense_is_refused() {
    let claim = "forebay-node: 0000000000000002\r\nforebay-cluster: test\r\n";
    let range = format!("content-range: bytes 0-65535/{SIZE}\r\nforebay-source: hit\r\nforebay-map: 1\r\n");
    let cases = [
        (format!("HTTP/1.1 206 OK\r\n{claim}content-length: 999999999999\r\n\r\n"), ErrorKind::Corrupt),
        (format!("HTTP/1.1 206 OK\r\n{claim}{range}content-length: 3\r\n\r\nabc"), ErrorKind::Corrupt),
        (format!("HTTP/1.1 404 No\r\n{claim}content-length: 0\r\n\r\n"), ErrorKind::Unavailable),
        (format!("HTTP/1.1 200 OK\r\n{claim}content-length: 2\r\n\r\n{{}}"), ErrorKind::Unavailable),
        ("HTTP/1.1 206 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), ErrorKind::Unavailable),
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), ErrorKind::Unavailable),
        (format!("HTTP/1.1 206 OK\r\n{}", "x: y\r\n".repeat(1000)), ErrorKind::Unavailable),
    ];
    for (answer, kind) in cases {
        let address = impostor(answer.clone()).await;
        let client = client_to(types::NodeId(2), &[address], &insecure(1), Default::default());
        let error = client.read(&small_part(), SOON).await.flatten().expect_err("no bytes");
        assert_eq!(error.kind(), kind, "{error}\n{answer:.100}");
    }
}
