//! Buckets in the name of the host.

use crate::client::{Answer, Client, bytes_of, parse};
use crate::served::{Served, serve_with};
use crate::sign::{Request, sha256};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn served() -> Served {
    serve_with(|_| {}, |config| config.domain = Some("s3.example".to_owned())).await
}

fn signed(client: &Client, host: &str, mut request: Request) -> Request {
    request.set("host", host);
    let hash = sha256(&request.body);
    client.signer.sign(&mut request, &hash);
    request
}

async fn send(client: &Client, host: &str, request: Request) -> Answer {
    client.send_raw(&signed(client, host, request)).await
}

#[tokio::test]
async fn a_host_below_the_domain_names_the_bucket_for_every_method() {
    let served = served().await;
    let client = served.client();
    let host = "data.s3.example:9000";
    send(&client, host, Request::new("PUT", "/dir/x").body("bytes")).await.ok();
    assert_eq!(client.get("/data/dir/x").await.ok().text(), "bytes", "the path names it too");
    assert_eq!(send(&client, host, Request::new("GET", "/dir/x")).await.ok().text(), "bytes");
    let head = send(&client, host, Request::new("HEAD", "/dir/x")).await.ok();
    assert_eq!(head.header("content-length"), Some("5"));
    let listed = send(&client, host, Request::new("GET", "/").query("list-type", "2")).await.ok();
    assert_eq!((listed.all("Name"), listed.all("Key")), (vec!["data".to_owned()], vec!["dir/x".to_owned()]));
    let copy = Request::new("PUT", "/copy").header("x-amz-copy-source", "/data/dir/x");
    send(&client, host, copy).await.ok();
    let begun = send(&client, host, Request::new("POST", "/m").query("uploads", "")).await.ok();
    let id = begun.all("UploadId").remove(0);
    let part = Request::new("PUT", "/m").query("partNumber", "1").query("uploadId", &id).body("part");
    let etag = send(&client, host, part).await.ok().etag();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    send(&client, host, Request::new("POST", "/m").query("uploadId", &id).body(list)).await.ok();
    let many = "<Delete><Object><Key>m</Key></Object></Delete>";
    send(&client, host, Request::new("POST", "/").query("delete", "").body(many)).await.ok();
    assert_eq!(send(&client, host, Request::new("DELETE", "/copy")).await.status, 204);
    assert_eq!(client.get("/data").await.ok().all("Key"), ["dir/x"]);
    let other = "fresh.s3.example";
    send(&client, other, Request::new("PUT", "/")).await.ok();
    assert_eq!(
        send(&client, other, Request::new("GET", "/policy").query("x-id", "1")).await.code(),
        "NoSuchKey"
    );
    assert_eq!(
        send(&client, other, Request::new("GET", "/").query("policy", "")).await.code(),
        "NoSuchBucketPolicy"
    );
    assert_eq!(send(&client, other, Request::new("DELETE", "/")).await.status, 204);
    assert_eq!(send(&client, other, Request::new("GET", "/")).await.code(), "NoSuchBucket");
}

#[tokio::test]
async fn the_domain_itself_and_other_hosts_are_addressed_by_path() {
    let served = served().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    for host in ["s3.example", "s3.example:9000", "data.elsewhere.example", "127.0.0.1:1"] {
        assert_eq!(send(&client, host, Request::new("GET", "/data/x")).await.ok().text(), "bytes", "{host}");
        assert!(
            !send(&client, host, Request::new("GET", "/")).await.ok().all("Buckets").is_empty(),
            "{host}"
        );
    }
    let without = serve_with(|_| {}, |_| {}).await;
    let client = without.client();
    client.put("/data/x", "bytes").await.ok();
    assert_eq!(send(&client, "data.s3.example", Request::new("GET", "/data/x")).await.ok().text(), "bytes");
}

/// The signature is of the path as it was sent, and of the host.
#[tokio::test]
async fn a_request_that_was_signed_for_one_bucket_is_none_for_another() {
    let served = served().await;
    let client = served.client();
    client.send(Request::new("PUT", "/other")).await.ok();
    client.put("/data/x", "bytes").await.ok();
    client.put("/other/x", "others").await.ok();
    let mut request = signed(&client, "data.s3.example", Request::new("GET", "/x"));
    request.set("host", "other.s3.example");
    assert_eq!(client.send_raw(&request).await.code(), "SignatureDoesNotMatch");
    let mut request = signed(&client, "s3.example", Request::new("GET", "/data/x"));
    request.set("host", "data.s3.example");
    assert_eq!(client.send_raw(&request).await.code(), "SignatureDoesNotMatch");
}

/// Answered by the shorter way, which kept connections on plain HTTP take.
#[tokio::test]
async fn a_kept_connection_may_ask_for_several_buckets() {
    let served = served().await;
    let client = served.client();
    client.send(Request::new("PUT", "/other")).await.ok();
    client.put("/data/x", "of data").await.ok();
    client.put("/other/x", "of other").await.ok();
    let mut stream = TcpStream::connect(served.address).await.expect("it listens");
    for (host, expected) in
        [("data.s3.example", "of data"), ("other.s3.example", "of other"), ("s3.example", "")]
    {
        let path = if expected.is_empty() { "/data/x" } else { "/x" };
        let expected = if expected.is_empty() { "of data" } else { expected };
        let bytes = bytes_of(&signed(&client, host, Request::new("GET", path)));
        let text = String::from_utf8(bytes).expect("text").replace("connection: close\r\n", "");
        stream.write_all(text.as_bytes()).await.expect("taken");
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).ends_with(expected) {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).await.expect("read");
            assert!(length > 0, "{}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..length]);
        }
        assert_eq!(parse(&all, false).expect("an answer").text(), expected, "{host}");
    }
}
