//! Single objects: written, read in parts and under conditions, copied, deleted.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{bytes_of, parse};
use crate::served::{serve, serve_with};
use crate::sign::{Request, Signer, sha256};

#[tokio::test]
async fn what_is_put_is_read_and_is_a_file_at_the_origin() {
    let served = serve().await;
    let client = served.client();
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let request = Request::new("PUT", "/data/a/b c/ä+%.bin").body(body.clone());
    let request = request.header("content-type", "text/x-test").header("x-amz-meta-color", "blue");
    let put = client.send(request).await.ok();
    let read = client.get("/data/a/b c/ä+%.bin").await.ok();
    assert_eq!(read.body, body);
    assert_eq!(read.header("content-type"), Some("text/x-test"));
    assert_eq!(read.header("x-amz-meta-color"), Some("blue"));
    assert_eq!(read.etag(), put.etag());
    assert_eq!(put.etag().len(), 32);
    let path = served.vfs.resolve("/data/a/b c/ä+%.bin".as_bytes()).await.expect("a file");
    assert_eq!(path.attr.size, 3_000_000);
    let head = client.send(Request::new("HEAD", "/data/a/b c/ä+%.bin")).await.ok();
    assert_eq!(head.header("content-length"), Some("3000000"));
    assert!(head.body.is_empty());
}

#[tokio::test]
async fn the_etag_of_a_put_is_the_md5_and_that_of_another_file_is_none() {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"data").expect("made");
            origin.write_file(b"data/old", b"came another way").expect("written");
        },
        |_| {},
    )
    .await;
    let client = served.client();
    let put = client.put("/data/new", "hello world").await.ok();
    assert_eq!(put.etag(), "5eb63bbbe01eeed093cb22bb8f5acdc3");
    let old = client.get("/data/old").await.ok();
    let (digits, parts) = old.etag().split_once('-').map(|(a, b)| (a.len(), b.to_owned())).expect("in parts");
    assert_eq!((digits, parts.as_str()), (32, "1"));
    assert_eq!(client.get("/data/old").await.ok().etag(), old.etag(), "it stays");
}

#[tokio::test]
async fn ranges_are_answered_as_asked() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "0123456789").await.ok();
    client.put("/data/empty", "").await.ok();
    for (range, status, body, said) in [
        ("bytes=0-3", 206, "0123", "bytes 0-3/10"),
        ("bytes=4-", 206, "456789", "bytes 4-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=-30", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=5-500", 206, "56789", "bytes 5-9/10"),
        ("bytes=5-18446744073709551615", 206, "56789", "bytes 5-9/10"),
        ("bytes=5-99999999999999999999999", 206, "56789", "bytes 5-9/10"),
        ("bytes=0-1,4-5", 200, "0123456789", ""),
        ("bytes=5-2", 200, "0123456789", ""),
        ("lines=1-2", 200, "0123456789", ""),
    ] {
        let answer = client.send(Request::new("GET", "/data/x").header("range", range)).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{range}");
        assert_eq!(answer.header("content-range").unwrap_or_default(), said, "{range}");
    }
    for (path, range) in [("/data/x", "bytes=10-"), ("/data/x", "bytes=-0"), ("/data/empty", "bytes=0-0")] {
        let answer = client.send(Request::new("GET", path).header("range", range)).await;
        assert_eq!((answer.status, answer.code().as_str()), (416, "InvalidRange"), "{range}");
    }
    assert_eq!(client.get("/data/empty").await.ok().body, b"");
    let last = client.send(Request::new("GET", "/data/empty").header("range", "bytes=-5")).await;
    assert_eq!((last.status, last.header("content-range")), (200, None), "the last bytes of none are all");
}

#[tokio::test]
async fn conditions_of_reads_are_kept() {
    let served = serve().await;
    let client = served.client();
    let etag = client.put("/data/x", "one").await.ok().etag();
    let (is, other) = (format!("\"{etag}\""), "\"00000000000000000000000000000000\"");
    let (past, future) = ("Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2050 00:00:00 GMT");
    for (headers, status) in [
        (vec![("if-match", is.as_str())], 200),
        (vec![("if-match", other)], 412),
        (vec![("if-none-match", is.as_str())], 304),
        (vec![("if-none-match", other)], 200),
        (vec![("if-modified-since", past)], 200),
        (vec![("if-modified-since", future)], 304),
        (vec![("if-unmodified-since", past)], 412),
        (vec![("if-unmodified-since", future)], 200),
        (vec![("if-match", is.as_str()), ("if-unmodified-since", past)], 200),
        (vec![("if-none-match", other), ("if-modified-since", future)], 200),
    ] {
        for method in ["GET", "HEAD"] {
            let request = Request::new(method, "/data/x");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
            assert_eq!(client.send(request).await.status, status, "{method} {headers:?}");
        }
    }
}

#[tokio::test]
async fn conditions_of_writes_are_kept() {
    let served = serve().await;
    let client = served.client();
    let put = |name: &str, value: &str, body: &str| {
        let request = Request::new("PUT", "/data/x").header(name, value).body(body);
        let client = client.clone();
        async move { client.send(request).await }
    };
    assert_eq!(put("if-match", "\"0\"", "no").await.status, 404);
    let first = put("if-none-match", "*", "one").await.ok();
    assert_eq!(put("if-none-match", "*", "two").await.code(), "PreconditionFailed");
    assert_eq!(put("if-match", "\"00000000000000000000000000000000\"", "two").await.status, 412);
    assert_eq!(client.get("/data/x").await.ok().text(), "one");
    put("if-match", &format!("\"{}\"", first.etag()), "two").await.ok();
    assert_eq!(client.get("/data/x").await.ok().text(), "two");
    let many: Vec<_> = (0..16).map(|_| put("if-none-match", "*", "many")).collect();
    client.delete("/data/x").await.ok();
    let mut won = 0;
    for answer in futures_all(many).await {
        won += u32::from(answer.status == 200);
    }
    assert_eq!(won, 1, "one of many makes it");
}

/// Of PUT, copy, CompleteMultipartUpload and DELETE.
#[tokio::test]
async fn writes_and_deletes_take_if_match_and_if_none_match_with_etags() {
    let served = serve().await;
    let client = served.client();
    let of = |etag: &str| format!("\"{etag}\"");
    let other = of("00000000000000000000000000000000");
    let etag = client.put("/data/x", "one").await.ok().etag();
    client.put("/data/source", "copied").await.ok();
    let complete = async |path: &str, name: &str, value: &str| {
        let id =
            client.send(Request::new("POST", path).query("uploads", "")).await.ok().all("UploadId").remove(0);
        let part = Request::new("PUT", path).query("partNumber", "1").query("uploadId", &id).body("parts");
        let part = client.send(part).await.ok().etag();
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let request = Request::new("POST", path).query("uploadId", &id).header(name, value).body(body);
        client.send(request).await.status
    };
    let put = async |path: &str, name: &str, value: &str| {
        client.send(Request::new("PUT", path).header(name, value).body("two")).await.status
    };
    let copy = async |path: &str, name: &str, value: &str| {
        let request = Request::new("PUT", path).header("x-amz-copy-source", "/data/source");
        client.send(request.header(name, value)).await.status
    };
    let delete = async |path: &str, name: &str, value: &str| {
        client.send(Request::new("DELETE", path).header(name, value)).await.status
    };
    // Nothing is written that must not be.
    for (name, value) in
        [("if-match", &other), ("if-none-match", &of(&etag)), ("if-none-match", &"*".to_owned())]
    {
        assert_eq!(put("/data/x", name, value).await, 412, "PUT {name}: {value}");
        assert_eq!(copy("/data/x", name, value).await, 412, "copy {name}: {value}");
        assert_eq!(complete("/data/x", name, value).await, 412, "complete {name}: {value}");
        assert_eq!(delete("/data/x", name, value).await, 412, "DELETE {name}: {value}");
        assert_eq!(client.get("/data/x").await.ok().text(), "one");
    }
    // Of a key that is not there.
    for value in [other.as_str(), "*"] {
        assert_eq!(put("/data/none", "if-match", value).await, 404);
        assert_eq!(copy("/data/none", "if-match", value).await, 404);
        assert_eq!(complete("/data/none", "if-match", value).await, 404);
        assert_eq!(delete("/data/none", "if-match", value).await, 404);
        assert_eq!(delete("/data/none/below", "if-match", value).await, 404);
    }
    assert_eq!(delete("/data/none", "if-none-match", &other).await, 204, "as without it");
    assert_eq!(client.get("/data/none").await.status, 404);
    // What holds.
    assert_eq!(put("/data/fresh", "if-none-match", &other).await, 200);
    assert_eq!(put("/data/x", "if-none-match", &other).await, 200);
    let now = client.get("/data/x").await.ok();
    assert_eq!(now.text(), "two");
    assert_eq!(copy("/data/x", "if-match", &now.etag()).await, 200, "without quotes, as SDKs send it");
    assert_eq!(complete("/data/x", "if-none-match", &other).await, 200);
    let now = client.get("/data/x").await.ok();
    assert_eq!(now.text(), "parts");
    assert_eq!(complete("/data/x", "if-match", &of(&now.etag())).await, 200);
    let now = client.get("/data/x").await.ok();
    assert_eq!(delete("/data/x", "if-match", &of(&now.etag())).await, 204);
    assert_eq!(client.get("/data/x").await.status, 404);
    // A key with a slash at its end.
    assert_eq!(client.put("/data/dir/", "").await.status, 200);
    let refused = Request::new("PUT", "/data/dir/").header("if-none-match", "*");
    assert_eq!(client.send(refused).await.status, 412);
    assert_eq!(put("/data/x", "if-match", "no \" tag").await, 400);
}

async fn futures_all<T: Send + 'static>(all: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let tasks: Vec<_> = all.into_iter().map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.expect("no panic"));
    }
    done
}

#[tokio::test]
async fn a_response_can_be_asked_for_with_other_headers() {
    let served = serve().await;
    let client = served.client();
    client.send(Request::new("PUT", "/data/x").header("content-type", "text/plain").body("x")).await.ok();
    let request = Request::new("GET", "/data/x")
        .query("response-content-type", "image/png")
        .query("response-content-disposition", "attachment; filename=\"y\"");
    let answer = client.send(request).await.ok();
    assert_eq!(answer.header("content-type"), Some("image/png"));
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"y\""));
}

#[tokio::test]
async fn a_key_that_cannot_be_a_path_is_refused_and_makes_nothing() {
    let served = serve().await;
    let client = served.client();
    let long = format!("/data/{}", "n".repeat(256));
    for path in [
        "/data/a//b",
        "/data//a",
        "/data/a/../b",
        "/data/..",
        "/data/./a",
        "/data/a/.",
        "/data/.forebay-x",
        &long,
    ] {
        for method in ["PUT", "GET", "HEAD", "DELETE"] {
            let answer = client.send(Request::new(method, path)).await;
            assert_eq!(answer.status, 400, "{method} {path}");
        }
    }
    let listed = client.send(Request::new("GET", "/data")).await.ok();
    assert!(listed.all("Key").is_empty(), "{}", listed.text());
}

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

#[tokio::test]
async fn a_directory_is_a_key_with_a_slash_and_goes_with_its_last_object() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/d/", "").await.ok();
    assert!(served.vfs.resolve(b"/data/d").await.expect("made").attr.is_dir());
    assert_eq!(client.send(Request::new("HEAD", "/data/d/")).await.ok().header("content-length"), Some("0"));
    assert_eq!(client.get("/data/d").await.status, 404);
    assert_eq!(client.put("/data/d", "x").await.status, 400, "a directory is there");
    client.put("/data/f", "x").await.ok();
    assert_eq!(client.put("/data/f/below", "x").await.status, 400, "a file is there");
    assert_eq!(client.get("/data/f/below").await.status, 404);
    assert_eq!(client.put("/data/e/", "bytes").await.status, 400);
    client.put("/data/d/e/f/x", "x").await.ok();
    assert_eq!(client.delete("/data/d/").await.status, 204, "as a marker it is gone");
    assert_eq!(client.get("/data/d/e/f/x").await.ok().text(), "x");
    client.delete("/data/d/e/f/x").await.ok();
    assert_eq!(served.vfs.resolve(b"/data/d").await.expect_err("gone").kind(), types::ErrorKind::NotFound);
    assert_eq!(client.delete("/data/d/e/f/x").await.status, 204, "again");
}

#[tokio::test]
async fn objects_are_copied_with_their_metadata_or_with_other() {
    let served = serve().await;
    let client = served.client();
    let request = Request::new("PUT", "/data/a b").header("x-amz-meta-k", "v").body(vec![7; 700_000]);
    client.send(request).await.ok();
    let copy = |to: &str| Request::new("PUT", to).header("x-amz-copy-source", "/data/a%20b");
    client.send(copy("/data/c")).await.ok();
    let read = client.get("/data/c").await.ok();
    assert_eq!((read.body.len(), read.header("x-amz-meta-k")), (700_000, Some("v")));
    let replaced = copy("/data/d").header("x-amz-metadata-directive", "REPLACE").header("x-amz-meta-j", "w");
    client.send(replaced).await.ok();
    let read = client.get("/data/d").await.ok();
    assert_eq!((read.header("x-amz-meta-k"), read.header("x-amz-meta-j")), (None, Some("w")));
    assert_eq!(client.send(copy("/data/a b")).await.status, 400, "to itself");
    let tags = client.send(Request::new("GET", "/data/c").query("tagging", "")).await.ok();
    assert!(tags.text().contains("TagSet") && tags.all("Tag").is_empty(), "{}", tags.text());
    let missing = Request::new("PUT", "/data/e").header("x-amz-copy-source", "data/none");
    assert_eq!(client.send(missing).await.code(), "NoSuchKey");
    let conditional =
        copy("/data/e").header("x-amz-copy-source-if-match", "\"00000000000000000000000000000000\"");
    assert_eq!(client.send(conditional).await.code(), "PreconditionFailed");
    assert_eq!(client.get("/data/e").await.status, 404);
}

#[tokio::test]
async fn several_objects_are_deleted_at_once() {
    let served = serve().await;
    let client = served.client();
    for name in ["a", "b/c", "b/d"] {
        client.put(&format!("/data/{name}"), name).await.ok();
    }
    let body = "<Delete><Object><Key>a</Key></Object><Object><Key>b/c</Key></Object>\
        <Object><Key>none</Key></Object><Object><Key>x//y</Key></Object></Delete>";
    let answer = client.send(Request::new("POST", "/data").query("delete", "").body(body)).await.ok();
    let deleted: Vec<_> = answer.all("Key");
    assert_eq!(deleted.len(), 4, "{}", answer.text());
    assert_eq!(answer.all("Code"), ["InvalidArgument"]);
    assert_eq!(client.get("/data/a").await.status, 404);
    assert_eq!(client.get("/data/b/d").await.ok().text(), "b/d");
    let wrong =
        Request::new("POST", "/data").query("delete", "").header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    let answer = client.send(wrong.body("<Delete><Object><Key>b/d</Key></Object></Delete>")).await;
    assert_eq!(answer.code(), "BadDigest");
    assert_eq!(client.get("/data/b/d").await.status, 200);
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
async fn a_key_with_a_slash_at_its_end_has_no_bytes() {
    let served = serve().await;
    let client = served.client();
    let answer = client.put("/data/dir/", "bytes").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidRequest"), "{}", answer.text());
    assert_eq!(client.send(Request::new("POST", "/data/dir/").query("uploads", "")).await.status, 400);
    client.put("/data/x", "bytes").await.ok();
    let copy = Request::new("PUT", "/data/dir/").header("x-amz-copy-source", "/data/x");
    assert_eq!(client.send(copy).await.status, 400);
    assert_eq!(client.get("/data").await.ok().all("Key"), ["x"], "nothing is made");
    client.put("/data/dir/", "").await.ok();
    assert_eq!(client.put("/data/dir/", "bytes").await.status, 400);
    assert_eq!(client.get("/data/dir/").await.ok().text(), "");
}

#[tokio::test]
async fn an_object_beside_objects_below_it_is_refused_and_the_first_stays() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/a/b", "below").await.ok();
    client.put("/data/c", "above").await.ok();
    let list = async |path: &str| {
        let begun = client.send(Request::new("POST", path).query("uploads", "")).await.ok();
        let id = begun.all("UploadId").remove(0);
        let part = Request::new("PUT", path).query("partNumber", "1").query("uploadId", &id).body("part");
        let etag = client.send(part).await.ok().etag();
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        client.send(Request::new("POST", path).query("uploadId", &id).body(body)).await
    };
    for path in ["/data/a", "/data/c/d", "/data/c/d/e"] {
        let copy = Request::new("PUT", path).header("x-amz-copy-source", "/data/c");
        for answer in [client.put(path, "second").await, client.send(copy).await, list(path).await] {
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (400, "InvalidRequest"),
                "{path}: {}",
                answer.text()
            );
        }
    }
    assert_eq!(client.get("/data").await.ok().all("Key"), ["a/b", "c"]);
    assert_eq!(client.get("/data/a/b").await.ok().text(), "below");
    assert_eq!(client.get("/data/c").await.ok().text(), "above");
}

#[tokio::test]
async fn buckets_are_the_directories_at_the_top() {
    let served = serve().await;
    let client = served.client();
    client.send(Request::new("PUT", "/other")).await.ok();
    let listed = client.get("/").await.ok();
    assert_eq!(listed.all("Name"), ["data", "other"]);
    client.send(Request::new("HEAD", "/other")).await.ok();
    assert_eq!(client.send(Request::new("HEAD", "/third")).await.status, 404);
    assert_eq!(client.get("/third/x").await.code(), "NoSuchBucket");
    let place = client.send(Request::new("GET", "/data").query("location", "")).await.ok();
    assert!(place.text().contains("eu-test-1"), "{}", place.text());
    client.put("/other/x", "x").await.ok();
    assert_eq!(client.delete("/other").await.code(), "BucketNotEmpty");
    client.delete("/other/x").await.ok();
    client.delete("/other").await.ok();
    assert_eq!(client.get("/").await.ok().all("Name"), ["data"]);
}

#[tokio::test]
async fn a_key_does_what_it_may_and_no_more() {
    let served = serve().await;
    let (client, reader) = (served.client(), served.reader());
    client.put("/data/x", "x").await.ok();
    client.send(Request::new("PUT", "/other")).await.ok();
    client.put("/other/x", "x").await.ok();
    assert_eq!(reader.get("/data/x").await.ok().text(), "x");
    assert_eq!(reader.get("/").await.ok().all("Name"), ["data"]);
    let copy_in = Request::new("PUT", "/data/y").header("x-amz-copy-source", "/data/x");
    for denied in [
        Request::new("PUT", "/data/x").body("y"),
        Request::new("DELETE", "/data/x"),
        Request::new("POST", "/data")
            .query("delete", "")
            .body("<Delete><Object><Key>x</Key></Object></Delete>"),
        Request::new("POST", "/data/y").query("uploads", ""),
        copy_in,
        Request::new("GET", "/other/x"),
        Request::new("GET", "/other"),
        Request::new("GET", "/unknown"),
        Request::new("PUT", "/third"),
    ] {
        let answer = reader.send(denied.clone()).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "AccessDenied"), "{denied:?}");
    }
    assert_eq!(client.get("/data/x").await.ok().text(), "x");
}

#[tokio::test]
async fn an_object_replaced_during_a_get_is_never_mixed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const SIZE: u64 = 96 << 20;
    let served = serve_with(
        |origin| {
            origin.mkdir(b"data").expect("made");
            origin.generate_file(b"data/x", 1, SIZE).expect("made");
        },
        |_| {},
    )
    .await;
    let client = served.client();
    let mut request = Request::new("GET", "/data/x");
    request.set("host", &client.address.to_string());
    client.signer.sign(&mut request, &sha256(b""));
    let mut stream = tokio::net::TcpStream::connect(client.address).await.expect("it listens");
    stream.write_all(&crate::client::bytes_of(&request)).await.expect("sent");
    let mut got = vec![0; 1 << 20];
    stream.read_exact(&mut got).await.expect("it begins");
    // Larger than what can be on its way: the rest is read after this.
    served.origin.generate_file(b"data/x", 2, SIZE).expect("replaced");
    served.vfs.evict(b"/data/x").await.expect("evicted");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    got.extend(rest);
    let head = got.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let body = &got[head..];
    let old = origin::memory::generated(1, types::ByteRange::new(0, SIZE));
    assert!(*body == old[..body.len()], "bytes of the new one after those of the old one");
    let new = client.get("/data/x").await.ok().body;
    assert!(new == origin::memory::generated(2, types::ByteRange::new(0, SIZE)));
}

#[tokio::test]
async fn what_a_delete_is_bound_to_holds_or_nothing_is_deleted() {
    let served = serve().await;
    let client = served.client();
    let etag = client.put("/data/x", "one").await.ok().etag();
    let delete = || Request::new("DELETE", "/data/x");
    let other = "00000000000000000000000000000000";
    let future = "Sat, 01 Jan 2050 00:00:00 GMT";
    for (request, code) in [
        (delete().query("versionId", "abc"), "NoSuchVersion"),
        (delete().header("if-match", &format!("\"{other}\"")), "PreconditionFailed"),
        (delete().header("x-amz-if-match-size", "4"), "PreconditionFailed"),
        (delete().header("x-amz-if-match-last-modified-time", future), "PreconditionFailed"),
        (Request::new("GET", "/data/x").query("versionId", "abc"), "NoSuchVersion"),
        (Request::new("GET", "/data/x").query("versionId", "abc").query("tagging", ""), "NoSuchVersion"),
    ] {
        assert_eq!(client.send(request.clone()).await.code(), code, "{request:?}");
    }
    let versioned = Request::new("HEAD", "/data/x").query("versionId", "abc");
    assert_eq!(client.send(versioned).await.status, 404);
    let delete_one = |with: &str| {
        let body = format!("<Delete><Object><Key>x</Key>{with}</Object></Delete>");
        client.send(Request::new("POST", "/data").query("delete", "").body(body))
    };
    for (with, code) in [
        ("<VersionId>abc</VersionId>", "NoSuchVersion"),
        (&*format!("<ETag>&quot;{other}&quot;</ETag>"), "PreconditionFailed"),
        ("<Size>4</Size>", "PreconditionFailed"),
        (&*format!("<LastModifiedTime>{future}</LastModifiedTime>"), "PreconditionFailed"),
    ] {
        let answer = delete_one(with).await.ok();
        assert_eq!(answer.code(), code, "{with}: {}", answer.text());
    }
    let read = client.get("/data/x").await.ok();
    assert_eq!(read.text(), "one");
    let time = read.header("last-modified").expect("told").to_owned();
    let is =
        format!("<ETag>&quot;{etag}&quot;</ETag><Size>3</Size><LastModifiedTime>{time}</LastModifiedTime>");
    let answer = delete_one(&is).await.ok();
    assert_eq!((answer.code().as_str(), answer.all("Key")), ("", vec!["x".to_owned()]), "{}", answer.text());
    assert_eq!(client.get("/data/x").await.status, 404);
    client.put("/data/x", "two").await.ok();
    client.send(delete().query("versionId", "null").header("x-amz-if-match-size", "3")).await.ok();
    assert_eq!(client.get("/data/x").await.status, 404);
}

/// It would be lost in silence: bytes that are replaced and not added to, bytes that are not secret, objects that are
/// not kept.
#[tokio::test]
async fn what_a_request_asks_for_and_is_not_offered_is_refused() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "one").await.ok();
    let key = "x-amz-server-side-encryption-customer-algorithm";
    let put = || Request::new("PUT", "/data/x").body("two");
    let copy = || Request::new("PUT", "/data/x").header("x-amz-copy-source", "/data/x");
    for request in [
        put().header("x-amz-write-offset-bytes", "3"),
        put().header(key, "AES256"),
        put().header("x-amz-server-side-encryption", "aws:kms"),
        put().header("x-amz-object-lock-mode", "COMPLIANCE"),
        put().header("x-amz-object-lock-legal-hold", "ON"),
        put().query("partNumber", "1").query("uploadId", "x").header(key, "AES256"),
        copy().header("x-amz-copy-source-server-side-encryption-customer-algorithm", "AES256"),
        Request::new("POST", "/data/x").query("uploads", "").header(key, "AES256"),
        Request::new("GET", "/data/x").header(key, "AES256"),
    ] {
        let answer = client.send(request.clone()).await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "NotImplemented"), "{request:?}");
    }
    assert_eq!(client.get("/data/x").await.ok().text(), "one");
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
