//! Bodies that are not what was said of them, their checksums, and requests that are answered before their body.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{bytes_of, parse};
use crate::served::serve;
use crate::sign::{Request, Signer, sha256};

#[tokio::test]
async fn a_body_that_is_not_what_was_said_changes_nothing() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "old").await.ok();
    let wrong = [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==", "BadDigest"),
        ("content-md5", "nonsense", "InvalidDigest"),
        ("x-amz-checksum-crc32", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-crc32c", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=", "BadDigest"),
        ("x-amz-checksum-sha1", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BadDigest"),
        ("x-amz-checksum-sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BadDigest"),
        ("x-amz-checksum-sha512", "AAAA", "BadDigest"),
        ("x-amz-checksum-md5", "AAAAAAAAAAAAAAAAAAAAAA==", "BadDigest"),
    ];
    for (name, value, code) in wrong {
        let answer = client.send(Request::new("PUT", "/data/x").header(name, value).body("new")).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{name}");
    }
    // Signed for another body.
    let mut request = Request::new("PUT", "/data/x").body("new");
    request.set("host", &client.address.to_string());
    client.signer.sign(&mut request, &sha256(b"neW"));
    assert_eq!(client.send_raw(&request).await.code(), "XAmzContentSHA256Mismatch");
    // Cut off.
    let mut request = Request::new("PUT", "/data/x").header("content-length", "10").body("new");
    request.set("host", &client.address.to_string());
    client.signer.sign(&mut request, "UNSIGNED-PAYLOAD");
    assert!(client.try_send(&request).await.is_none_or(|answer| answer.status >= 400));
    assert_eq!(client.get("/data/x").await.ok().text(), "old");
    let root = types::Caller::root();
    let dir = served.vfs.resolve(b"/data").await.expect("there").id;
    let names = served.vfs.readdir(&root, dir, 0, 100);
    let names: Vec<_> = names.await.expect("listed").items.into_iter().map(|item| item.name).collect();
    assert_eq!(names.len(), 3, "nothing is left behind: {names:?}");
}

#[tokio::test]
async fn checksums_that_are_right_are_taken_and_told() {
    let served = serve().await;
    let client = served.client();
    let request =
        Request::new("PUT", "/data/x").header("x-amz-checksum-crc32", "DUoRhQ==").body("hello world");
    assert_eq!(client.send(request).await.ok().header("x-amz-checksum-crc32"), Some("DUoRhQ=="));
    let request = Request::new("GET", "/data/x").header("x-amz-checksum-mode", "ENABLED");
    assert_eq!(client.send(request).await.ok().header("x-amz-checksum-crc32"), Some("DUoRhQ=="));
    for (chunk, body) in [(3, "hello world"), (100, "hello world")] {
        let mut request = Request::new("PUT", "/data/y").body(body);
        request.set("host", &client.address.to_string());
        client.signer.stream(&mut request, chunk, Some(("x-amz-checksum-crc32", "DUoRhQ==")));
        client.send_raw(&request).await.ok();
        let mut request = Request::new("PUT", "/data/z").body(body);
        request.set("host", &client.address.to_string());
        client.signer.stream_unsigned(&mut request, chunk, ("x-amz-checksum-crc32", "DUoRhQ=="));
        client.send_raw(&request).await.ok();
        for is_signed in [true, false] {
            let mut request = Request::new("PUT", "/data/go").body(body);
            request.set("host", &client.address.to_string());
            let trailer = ("x-amz-checksum-crc32", "DUoRhQ==");
            match is_signed {
                true => client.signer.stream(&mut request, chunk, Some(trailer)),
                false => client.signer.stream_unsigned(&mut request, chunk, trailer),
            }
            Signer::frame_as_minio_go(&mut request, trailer);
            client.send_raw(&request).await.ok();
            // What comes behind it is no part of it.
            request.body.extend_from_slice(b"\r\n");
            assert_eq!(client.send_raw(&request).await.code(), "InvalidRequest", "signed: {is_signed}");
        }
        let mut request = Request::new("PUT", "/data/z2").body(body);
        request.set("host", &client.address.to_string());
        client.signer.stream_unsigned(&mut request, chunk, ("x-amz-checksum-crc32", "DUoRhA=="));
        assert_eq!(client.send_raw(&request).await.code(), "BadDigest");
    }
    assert_eq!(client.get("/data/y").await.ok().text(), "hello world");
    assert_eq!(client.get("/data/z").await.ok().text(), "hello world");
    assert_eq!(client.get("/data/z2").await.status, 404);
}

/// Some versions of botocore send nothing any more on a connection that has answered so.
#[tokio::test]
async fn an_empty_put_that_expects_to_be_told_to_go_on_is_answered_and_its_connection_closed() {
    let served = serve().await;
    let client = served.client();
    for (length, is_closed) in [(0, true), (3, false)] {
        let mut request =
            Request::new("PUT", "/data/x").header("expect", "100-continue").body(vec![b'x'; length]);
        request.set("host", &client.address.to_string());
        let hash = sha256(&request.body);
        client.signer.sign(&mut request, &hash);
        let text = String::from_utf8(bytes_of(&request)).expect("text");
        let kept = text.replace("connection: close\r\n", "");
        let mut stream = TcpStream::connect(served.address).await.expect("it listens");
        stream.write_all(kept.as_bytes()).await.expect("taken");
        let mut all = Vec::new();
        let answer = loop {
            assert!(stream.read_buf(&mut all).await.expect("read") > 0, "{}", String::from_utf8_lossy(&all));
            if let Some(answer) = parse(&all, true) {
                break answer;
            }
        };
        assert_eq!(
            (answer.status, answer.header("connection") == Some("close")),
            (200, is_closed),
            "{length}"
        );
        if is_closed {
            let end = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all));
            end.await.expect("closed in time").expect("closed");
        }
    }
}

/// Its body will not be read, so the connection ends: a client that is not told may send its next request over it.
#[tokio::test]
async fn who_is_refused_before_its_body_is_read_is_told_that_the_connection_is_closed() {
    let served = serve().await;
    let client = served.client();
    let request = Request::new("PUT", "/data/x").header("x-amz-storage-class", "GLACIER");
    // One sends nothing before it is told to go on, the other more than is taken in.
    let long = vec![b'x'; 24 << 20];
    for (mut request, sends) in [(request.clone().header("expect", "100-continue"), false), (request, true)] {
        request.body = long.clone();
        request.set("host", &client.address.to_string());
        let hash = sha256(&request.body);
        client.signer.sign(&mut request, &hash);
        let bytes = bytes_of(&request);
        let (head, body) = bytes.split_at(bytes.len() - long.len());
        let head = String::from_utf8(head.to_vec()).expect("text").replace("connection: close\r\n", "");
        let (mut answers, mut asks) =
            TcpStream::connect(served.address).await.expect("it listens").into_split();
        asks.write_all(head.as_bytes()).await.expect("taken");
        let sending = async {
            if sends {
                let _ = asks.write_all(body).await; // until it is closed
            }
            std::future::pending::<()>().await;
        };
        let mut told = Vec::new();
        let answering = async {
            while !told.ends_with(b"\r\n\r\n") {
                told.push(answers.read_u8().await.expect("an answer before the connection is closed"));
            }
        };
        tokio::select! {
            () = sending => unreachable!(),
            () = answering => {}
        }
        let told = String::from_utf8_lossy(&told);
        assert!(
            told.starts_with("HTTP/1.1 400 ") && told.contains("connection: close\r\n"),
            "{sends}: {told}"
        );
    }
}

#[tokio::test]
async fn a_checksum_that_cannot_be_checked_is_refused() {
    let served = serve().await;
    let client = served.client();
    for algorithm in ["xxhash64", "xxhash3", "xxhash128", "of-tomorrow"] {
        let name = format!("x-amz-checksum-{algorithm}");
        let in_header = Request::new("PUT", "/data/x").header(&name, "AAAAAAAAAAA=").body("new");
        let mut in_trailer = Request::new("PUT", "/data/x").body("new");
        in_trailer.set("host", &client.address.to_string());
        client.signer.stream_unsigned(&mut in_trailer, 100, (&name, "AAAAAAAAAAA="));
        for answer in [client.send(in_header).await, client.send_raw(&in_trailer).await] {
            assert_eq!((answer.status, answer.code().as_str()), (501, "NotImplemented"), "{algorithm}");
            assert!(
                answer.text().contains(algorithm) || answer.text().contains("crc32"),
                "{}",
                answer.text()
            );
        }
    }
    // One that nobody computed, as it was not announced.
    let mut request = Request::new("PUT", "/data/x").body("hello world");
    request.set("host", &client.address.to_string());
    client.signer.stream_unsigned(&mut request, 100, ("x-amz-checksum-crc32", "DUoRhQ=="));
    request.body.truncate(request.body.len() - 2);
    request.body.extend_from_slice(b"x-amz-checksum-sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n");
    assert_eq!(client.send_raw(&request).await.code(), "InvalidRequest");
    assert_eq!(client.get("/data/x").await.status, 404);
}
