//! One client cannot use up what all share.

use std::sync::Arc;
use std::time::Duration;

use fair::{Offence, SharedBudgets};
use front_s3::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{self, RootCertStore};

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

fn named(host: [u8; 4], shared_budgets: &SharedBudgets, offence: Offence) -> u64 {
    let recent = shared_budgets.offenders.recent();
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
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let served = serve_with(
        |_| {},
        |config| {
            (config.connections_max, config.shared_budgets) = (8, shared);
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
    assert!(named(HOSTILE, &shared_budgets, Offence::TooManyConnections) > 0);
}

#[tokio::test]
async fn a_body_that_is_only_announced_holds_nothing_of_the_others() {
    let shared_budgets = SharedBudgets::with_bytes(32 * MIB, 32 * MIB);
    let shared = shared_budgets.clone();
    let served = serve_with(|_| {}, |config| config.shared_budgets = shared).await;
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
    assert!(shared_budgets.requests.used() <= 4 * MIB, "{} bytes", shared_budgets.requests.used());
    // Each ends by its deadline, and it is told whose it was.
    for stream in &mut held {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert_eq!(named(HOSTILE, &shared_budgets, Offence::Unfinished), 30);
}

#[tokio::test]
async fn answers_that_are_not_taken_stay_within_a_quarter_of_the_budget() {
    let shared_budgets = SharedBudgets::with_bytes(16 * MIB, 16 * MIB);
    let shared = shared_budgets.clone();
    let served = serve_with(
        |_| {},
        |config| {
            (config.shared_budgets, config.stall_timeout) = (shared, Duration::from_secs(20));
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
        assert!(shared_budgets.replies.used() <= 5 * MIB, "{} bytes", shared_budgets.replies.used());
    }
}

/// A PUT whose body comes in so many chunks of one byte.
fn in_tiny_chunks(served: &Served, chunks: usize) -> Vec<u8> {
    let mut request =
        Request::new("PUT", "/data/x").header("x-amz-decoded-content-length", &chunks.to_string());
    request.set("content-encoding", "aws-chunked");
    request.set("host", &served.address.to_string());
    let body = format!("{}0\r\n\r\n", "1\r\nz\r\n".repeat(chunks));
    let mut request = request.body(body);
    served.client().signer.sign(&mut request, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    bytes_of(&request)
}

#[tokio::test]
async fn a_body_in_chunks_of_one_byte_is_gathered() {
    let served = serve_with(|_| {}, |_| {}).await;
    let mut stream = connect(&served, HOSTILE).await;
    stream.write_all(&in_tiny_chunks(&served, 1000)).await.expect("sent");
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(served.client().get("/data/x").await.ok().body, vec![b'z'; 1000]);
}

#[tokio::test]
async fn a_body_in_too_many_tiny_chunks_is_refused_and_its_connection_closed() {
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let served = serve_with(|_| {}, |config| config.shared_budgets = shared).await;
    let mut stream = connect(&served, HOSTILE).await;
    stream.write_all(&in_tiny_chunks(&served, 20_000)).await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer, and the end of the connection");
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("<Code>InvalidChunkSizeError</Code>"),
        "{answer}"
    );
    assert_eq!(served.client().get("/data/x").await.status, 404);
    assert_eq!(named(HOSTILE, &shared_budgets, Offence::Malformed), 1);
}

#[tokio::test]
async fn a_put_that_has_only_begun_holds_nothing_of_the_others() {
    let shared_budgets = SharedBudgets::with_bytes(32 * MIB, 32 * MIB);
    let shared = shared_budgets.clone();
    let served = serve_with(|_| {}, |config| config.shared_budgets = shared).await;
    let mut held = Vec::new();
    for sent in (0..20).map(|i| i * 500) {
        let request = Request::new("PUT", "/data/x").header("content-length", "1073741824");
        let mut stream = connect(&served, HOSTILE).await;
        stream.write_all(&signed(&served, request)).await.expect("sent");
        stream.write_all(&vec![7; sent]).await.expect("sent");
        held.push(stream);
    }
    for _ in 0..10 {
        served.client().put("/data/y", vec![7; 2 * MIB]).await.ok();
        assert!(shared_budgets.requests.used() <= MIB, "{} bytes", shared_budgets.requests.used());
    }
}

/// A certificate for `localhost` and its key; `None`: there is no openssl here.
fn certificate(dir: &std::path::Path) -> Option<Certificate> {
    let (chain, key) = (dir.join("tls.crt"), dir.join("tls.key"));
    let mut made = std::process::Command::new("openssl");
    made.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    made.args(["-subj", "/CN=localhost", "-days", "2", "-addext", "subjectAltName=DNS:localhost"]);
    made.args(["-addext", "basicConstraints=critical,CA:FALSE", "-out"]).arg(&chain).arg("-keyout").arg(&key);
    made.output().ok()?.status.success().then_some(Certificate { chain, key })
}

#[tokio::test]
async fn beside_connections_that_agree_on_no_tls_another_one_does() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(certificate) = certificate(dir.path()) else {
        testkit::lab::not_run("beside_connections_that_agree_on_no_tls_another_one_does", "it needs openssl");
        return;
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate.chain).expect("a certificate")).expect("added");
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let served = serve_with(
        |_| {},
        |config| {
            (config.certificate, config.shared_budgets) = (Some(certificate), shared);
        },
    )
    .await;
    let mut half_open = Vec::new();
    for i in 0..70 {
        for host in 33..38 {
            let mut stream = connect(&served, [127, 0, 0, host]).await;
            let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await;
            half_open.push((i, stream));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("known");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let stream = connect(&served, [127, 0, 0, 1]).await;
    let agreed = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    assert!(agreed.is_ok(), "{:?}", agreed.err());
    // Of one client the last ones, and of all together some, had no place.
    assert!((33..38).all(|host| named([127, 0, 0, host], &shared_budgets, Offence::Handshake) >= 6));
    assert_eq!(named([127, 0, 0, 1], &shared_budgets, Offence::Handshake), 0);
}
