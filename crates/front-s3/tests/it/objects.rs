//! Single objects: written, read in parts, copied, deleted.

use crate::served::{serve, serve_with};
use crate::sign::{Request, sha256};

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
