//! Anything may come over the wire. The server says no, or hangs up, and lives on.

use std::time::{Duration, Instant};

use fair::SharedBudgets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::bytes_of;
use crate::model::{Random, seed};
use crate::served::{serve, serve_with};
use crate::sign::Request;

#[tokio::test]
async fn malformed_bytes_are_refused_and_the_server_lives_on() {
    let mut random = Random(seed());
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "still here").await.ok();
    for _ in 0..400 {
        let method = *random.of(&["GET", "PUT", "POST", "DELETE"]);
        let mut request = Request::new(method, "/data/y").body("body");
        request = request.query("uploads", "").header("range", "bytes=0-1");
        request.set("host", &client.address.to_string());
        if random.below(2) == 0 {
            client.signer.stream(&mut request, 2, None);
        } else {
            client.signer.sign(&mut request, "UNSIGNED-PAYLOAD");
        }
        let mut bytes = bytes_of(&request);
        for _ in 0..=random.below(6) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.next() as u8),
            }
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        let _ = client.exchange_half(&bytes).await;
    }
    for garbage in
        [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0", b"PRI * HTTP/2.0\r\n\r\n"]
    {
        let _ = client.exchange_half(garbage).await;
    }
    assert_eq!(client.get("/data/x").await.ok().text(), "still here");
}

#[tokio::test]
async fn what_is_not_offered_is_refused_before_anything_is_read() {
    let served = serve().await;
    let client = served.client();
    let mut form =
        Request::new("POST", "/data").header("content-type", "multipart/form-data; boundary=x").body("--x--");
    form.set("host", &client.address.to_string());
    assert_eq!(client.send_raw(&form).await.status, 501);
    let mut old =
        Request::new("GET", "/data/x").header("authorization", "AWS AKTESTTESTTESTTEST01:c2lnbmF0dXJl");
    old.set("host", &client.address.to_string());
    assert_eq!(client.send_raw(&old).await.status, 400);
    let old = Request::new("GET", "/data/x").query("AWSAccessKeyId", "AKTESTTESTTESTTEST01");
    let mut old = old.query("Signature", "c2ln").query("Expires", "9999999999");
    old.set("host", &client.address.to_string());
    assert_eq!(client.send_raw(&old).await.status, 400);
    let mut long = Request::new("GET", "/data/x");
    long.set("host", &client.address.to_string());
    client.signer.presign(&mut long, 7 * 24 * 3600 + 1);
    assert_eq!(client.send_raw(&long).await.status, 400);
}

#[tokio::test]
async fn large_heads_and_bodies_are_refused() {
    let served = serve().await;
    let client = served.client();
    let large = Request::new("GET", "/data/x").header("x-large", &"x".repeat(300_000));
    assert_eq!(client.send(large).await.status, 431);
    let mut many = Request::new("GET", "/data/x");
    for number in 0..150 {
        many = many.header(&format!("x-{number}"), "x");
    }
    assert_eq!(client.send(many).await.status, 431);
    let xml = Request::new("POST", "/data").query("delete", "").body(vec![b' '; 9 << 20]);
    assert!(client.try_send_signed(xml).await.is_none_or(|answer| answer.status == 400));
    let huge = Request::new("PUT", "/data/x").header("content-length", "99999999999999");
    let mut huge = huge;
    huge.set("host", &client.address.to_string());
    client.signer.sign(&mut huge, "UNSIGNED-PAYLOAD");
    assert_eq!(client.exchange_half(&bytes_of(&huge)).await.map(|answer| answer.status), Some(400));
}

#[tokio::test]
async fn nobody_keeps_a_connection_by_sending_slowly() {
    let served = serve_with(
        |_| {},
        |config| {
            config.head_timeout = Duration::from_secs(1);
            config.stall_timeout = Duration::from_secs(1);
        },
    )
    .await;
    let client = served.client();
    let mut request = Request::new("PUT", "/data/x").body(vec![0; 1000]);
    request.set("host", &client.address.to_string());
    client.signer.sign(&mut request, "UNSIGNED-PAYLOAD");
    let whole = bytes_of(&request);
    // Nothing, half a head, half a body.
    for length in [0, 40, whole.len() - 500] {
        let mut stream = tokio::net::TcpStream::connect(client.address).await.expect("it listens");
        stream.write_all(&whole[..length]).await.expect("sent");
        let begun = Instant::now();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{length}");
        assert!(!all.starts_with(b"HTTP/1.1 2"), "{length}: {}", String::from_utf8_lossy(&all));
    }
    assert_eq!(client.get("/data/x").await.status, 404);
}

/// A connection that was closed in the midst of a body told its client of a broken pipe, and of nothing else.
#[tokio::test]
async fn who_is_refused_in_the_midst_of_a_long_body_is_told_why() {
    let served = serve().await;
    let client = served.client();
    for (path, status) in [("/data/x", 400), ("/nowhere/x", 404)] {
        let mut request = Request::new("PUT", path).body(vec![7; 12 << 20]);
        request.set("host", &client.address.to_string());
        client.signer.sign(&mut request, "UNSIGNED-PAYLOAD");
        if status == 400 {
            request.set("x-amz-date", "20200101T000000Z");
        }
        let mut stream = TcpStream::connect(client.address).await.expect("it listens");
        stream.write_all(&bytes_of(&request)).await.expect("all of it is taken");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("an answer");
        assert_eq!(&head, format!("HTTP/1.1 {status}").as_bytes());
    }
}

/// Taken for a PUT of the object, it would leave the object with what was meant for something else of it.
#[tokio::test]
async fn a_put_of_what_is_not_offered_of_an_object_leaves_its_bytes() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    for name in ["acl", "restore", "retention", "legal-hold", "encryption", "renameObject", "versionId"] {
        let answer = client.send(Request::new("PUT", "/data/x").query(name, "").body("<x/>")).await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "NotImplemented"), "{name}");
    }
    assert_eq!(client.get("/data/x").await.ok().text(), "bytes");
}

/// What was read of them lies in memory until they are answered.
#[tokio::test]
async fn bodies_that_are_worked_on_take_the_room_that_there_is_for_them() {
    let shared_budgets = SharedBudgets::with_bytes(32 << 20, 32 << 20);
    let shared = shared_budgets.clone();
    let served = serve_with(|_| {}, |config| config.shared_budgets = shared).await;
    let client = served.client();
    client.put("/data/x", "x").await.ok();
    // A client has a quarter, 8 MiB.
    let space = " ".repeat(6 << 20);
    let send = |request: Request, body: &str| {
        let (client, body) = (client.clone(), body.replace("...", &space));
        tokio::spawn(async move { client.send(request.body(body)).await })
    };
    let delete = || Request::new("POST", "/data").query("delete", "");
    let held = served.far.gate.write().await;
    let calls = served.far.calls_of_all_kinds();
    let first = send(delete(), "<Delete>...<Object><Key>x</Key></Object></Delete>");
    while served.far.calls_of_all_kinds() == calls {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for other in [send(delete(), "<Delete>...</Delete>"), send(Request::new("PUT", "/other"), "<Other>...")] {
        let answer = other.await.expect("no panic");
        assert_eq!((answer.status, answer.code().as_str()), (503, "SlowDown"));
    }
    drop(held);
    assert_eq!(first.await.expect("no panic").ok().all("Key"), ["x"]);
    assert_eq!(send(delete(), "<Delete>...</Delete>").await.expect("no panic").code(), "MalformedXML");
}
