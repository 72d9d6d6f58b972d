//! One client cannot use up what all share.

use std::time::Duration;

use fair::{Common, Offence};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::bytes_of;
use crate::served::{Served, serve_with};
use crate::sign::Request;

const HOSTILE: [u8; 4] = [127, 0, 0, 66];
const MIB: usize = 1 << 20;

async fn connect(served: &Served, host: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((host, 0).into()).expect("all of 127.0.0.0/8 is here");
    socket.connect(served.address).await.expect("connected")
}

fn named(host: [u8; 4], common: &Common, offence: Offence) -> u64 {
    let recent = common.offenders.recent();
    let of_host = recent.iter().filter(|o| o.address == std::net::IpAddr::from(host) && o.offence == offence);
    of_host.map(|o| o.count).sum()
}

fn signed(served: &Served, mut request: Request) -> Vec<u8> {
    let client = served.client();
    request.set("host", &client.address.to_string());
    client.signer.sign(&mut request, "UNSIGNED-PAYLOAD");
    bytes_of(&request)
}

#[tokio::test]
async fn idle_connections_do_not_shut_others_out() {
    let common = Common::default();
    let shared = common.clone();
    let served = serve_with(
        |_| {},
        |config| {
            (config.connections_max, config.common) = (8, shared);
        },
    )
    .await;
    served.client().put("/data/x", "here").await.ok();
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(connect(&served, HOSTILE).await);
    }
    assert_eq!(served.client().get("/data/x").await.ok().text(), "here");
    assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0, "the least active of who has most is closed");
    assert!(named(HOSTILE, &common, Offence::TooManyConnections) > 0);
}

#[tokio::test]
async fn a_body_that_is_only_announced_holds_nothing_of_the_others() {
    let common = Common::with_bytes(32 * MIB, 32 * MIB);
    let shared = common.clone();
    let served = serve_with(|_| {}, |config| config.common = shared).await;
    let client = served.client();
    client.put("/data/x", "here").await.ok();
    let mut held = Vec::new();
    for _ in 0..30 {
        let request = Request::new("POST", "/data").query("delete", "").header("content-length", "8388608");
        let mut stream = connect(&served, HOSTILE).await;
        stream.write_all(&signed(&served, request)).await.expect("sent");
        stream.write_all(b"<").await.expect("sent");
        held.push(stream);
    }
    let delete = Request::new("POST", "/data").query("delete", "");
    let body = "<Delete><Object><Key>x</Key></Object></Delete>";
    assert_eq!(client.send(delete.body(body)).await.ok().all("Key"), ["x"]);
    assert!(common.requests.used() <= 4 * MIB, "{} bytes", common.requests.used());
    // Each ends by its deadline, and it is told whose it was.
    for stream in &mut held {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert_eq!(named(HOSTILE, &common, Offence::Unfinished), 30);
}

#[tokio::test]
async fn answers_that_are_not_taken_stay_within_a_quarter_of_the_budget() {
    let common = Common::with_bytes(16 * MIB, 16 * MIB);
    let shared = common.clone();
    let served = serve_with(
        |_| {},
        |config| {
            (config.common, config.stall_timeout) = (shared, Duration::from_secs(20));
        },
    )
    .await;
    let client = served.client();
    client.put("/data/big", vec![7; 24 * MIB]).await.ok();
    client.put("/data/x", "here").await.ok();
    let mut held = Vec::new();
    for i in 0..20 {
        // Half of them by the way that only hyper takes.
        let request = Request::new("GET", "/data/big");
        let request = if i % 2 == 0 { request } else { request.query("response-content-type", "a") };
        let mut stream = connect(&served, HOSTILE).await;
        stream.write_all(&signed(&served, request)).await.expect("sent");
        held.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(client.get("/data/x").await.ok().text(), "here");
        assert_eq!(client.send(Request::new("GET", "/data")).await.ok().all("Key"), ["big", "x"]);
        assert!(common.replies.used() <= 5 * MIB, "{} bytes", common.replies.used());
    }
}

#[tokio::test]
async fn a_body_in_chunks_of_one_byte_is_gathered() {
    let served = serve_with(|_| {}, |_| {}).await;
    let mut request = Request::new("PUT", "/data/x").header("x-amz-decoded-content-length", "2000");
    request.set("content-encoding", "aws-chunked");
    request.set("host", &served.address.to_string());
    let body = format!("{}0\r\n\r\n", "1\r\nz\r\n".repeat(2000));
    let mut request = request.body(body);
    served.client().signer.sign(&mut request, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let mut stream = connect(&served, HOSTILE).await;
    stream.write_all(&bytes_of(&request)).await.expect("sent");
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(served.client().get("/data/x").await.ok().body, vec![b'z'; 2000]);
}
