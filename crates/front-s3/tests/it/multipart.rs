//! Uploads in parts.

use std::time::Duration;

use origin::{DirCursor, Origin as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{ErrorKind, Name};

use crate::client::{Answer, Client, bytes_of, parse};
use crate::served::{Served, serve};
use crate::sign::Request;

const MIB: usize = 1 << 20;

pub async fn begin(client: &Client, path: &str) -> String {
    let request = Request::new("POST", path).query("uploads", "").header("content-type", "text/x-parts");
    client.send(request).await.ok().all("UploadId").remove(0)
}

pub async fn part(client: &Client, path: &str, id: &str, number: u32, body: Vec<u8>) -> Answer {
    let request = Request::new("PUT", path).query("partNumber", &number.to_string()).query("uploadId", id);
    client.send(request.body(body)).await
}

pub async fn complete(client: &Client, path: &str, id: &str, parts: &[(u32, String)]) -> Answer {
    client.send(completion(path, id, parts)).await
}

pub fn completion(path: &str, id: &str, parts: &[(u32, String)]) -> Request {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etag}&quot;</ETag></Part>")
        })
        .collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    Request::new("POST", path).query("uploadId", id).body(body)
}

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 253) as u8 ^ seed).collect()
}

/// Nothing is left of an upload that ended; removing takes a moment.
async fn gone(served: &Served) {
    for _ in 0..200 {
        if served.vfs.resolve(b"/data/.forebay-s3").await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("something is left of the upload");
}

#[tokio::test]
async fn parts_in_any_order_and_of_any_size_become_one_object() {
    let served = serve().await;
    let client = served.client();
    // Sizes by number, and the order in which they come; the fourth comes twice.
    for (sizes, order) in [
        (vec![5 * MIB, 5 * MIB, 5 * MIB, 17], vec![1, 2, 3, 4]),
        (vec![5 * MIB, 5 * MIB, 5 * MIB, 17], vec![4, 2, 3, 1]),
        (vec![5 * MIB, 6 * MIB, 5 * MIB, 17], vec![1, 2, 3, 4]),
        (vec![6 * MIB, 5 * MIB, 5 * MIB, 17], vec![3, 1, 2, 4, 4]),
        (vec![3], vec![1]),
        (vec![0], vec![1]),
    ] {
        let id = begin(&client, "/data/big/one").await;
        let mut whole = Vec::new();
        let mut etags = Vec::new();
        for (number, size) in (1..).zip(&sizes) {
            whole.extend(bytes(number as u8, *size));
            etags.push((number, String::new()));
        }
        for number in &order {
            let at = *number as usize - 1;
            let body = bytes(*number as u8, sizes[at]);
            etags[at].1 = part(&client, "/data/big/one", &id, *number, body).await.ok().etag();
        }
        let listed = client.send(Request::new("GET", "/data/big/one").query("uploadId", &id)).await.ok();
        let numbers: Vec<_> = (1..=sizes.len()).map(|number| number.to_string()).collect();
        assert_eq!(listed.all("PartNumber"), numbers);
        assert!(
            client.get("/data").await.ok().all("Key").iter().all(|key| key == "big/one"),
            "nothing shows yet"
        );
        let done = complete(&client, "/data/big/one", &id, &etags).await.ok();
        let told = done.all("ETag").remove(0);
        assert!(told.trim_matches('"').ends_with(&format!("-{}", sizes.len())), "{told}");
        let read = client.get("/data/big/one").await.ok();
        assert!(read.body == whole, "{sizes:?} {order:?}");
        assert_eq!(read.etag(), told.trim_matches('"'));
        assert_eq!(read.header("content-type"), Some("text/x-parts"));
        gone(&served).await;
    }
}

#[tokio::test]
async fn a_part_that_comes_again_replaces_the_first_one_and_a_failed_one_does_not() {
    let served = serve().await;
    let client = served.client();
    let id = begin(&client, "/data/x").await;
    let first = part(&client, "/data/x", &id, 1, b"first".to_vec()).await.ok().etag();
    let second = part(&client, "/data/x", &id, 1, b"second!".to_vec()).await.ok().etag();
    let broken = Request::new("PUT", "/data/x").query("partNumber", "1").query("uploadId", &id);
    let broken = broken.header("x-amz-checksum-crc32", "AAAAAA==").body("broken");
    assert_eq!(client.send(broken).await.code(), "BadDigest");
    assert_eq!(complete(&client, "/data/x", &id, &[(1, first)]).await.code(), "InvalidPart");
    complete(&client, "/data/x", &id, &[(1, second)]).await.ok();
    assert_eq!(client.get("/data/x").await.ok().text(), "second!");
    gone(&served).await;
}

#[tokio::test]
async fn what_cannot_be_completed_is_refused_and_stays() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "old").await.ok();
    let id = begin(&client, "/data/x").await;
    let one = part(&client, "/data/x", &id, 1, vec![1; 10]).await.ok().etag();
    let two = part(&client, "/data/x", &id, 2, vec![2; 10]).await.ok().etag();
    let refused = async |parts: &[(u32, String)]| complete(&client, "/data/x", &id, parts).await.code();
    assert_eq!(refused(&[(1, one.clone()), (2, two.clone())]).await, "EntityTooSmall");
    assert_eq!(refused(&[(2, two.clone()), (1, one.clone())]).await, "InvalidPartOrder");
    assert_eq!(refused(&[(1, two.clone())]).await, "InvalidPart");
    assert_eq!(refused(&[(3, two.clone())]).await, "InvalidPart");
    assert_eq!(part(&client, "/data/x", &id, 0, vec![]).await.status, 400);
    assert_eq!(part(&client, "/data/x", &id, 10_001, vec![]).await.status, 400);
    assert_eq!(part(&client, "/data/y", &id, 1, vec![]).await.code(), "NoSuchUpload", "of another key");
    for unknown in ["0123456789abcdef0123456789abcdef", "..", "../../data", "x"] {
        assert_eq!(part(&client, "/data/x", unknown, 1, vec![]).await.code(), "NoSuchUpload", "{unknown}");
    }
    let uploads = client.send(Request::new("GET", "/data").query("uploads", "")).await.ok();
    assert_eq!((uploads.all("UploadId"), uploads.all("Key")), (vec![id.clone()], vec!["x".to_owned()]));
    // A part that is not named in the end is not in the object.
    complete(&client, "/data/x", &id, &[(1, one)]).await.ok();
    assert_eq!(client.get("/data/x").await.ok().body, [1; 10]);
    gone(&served).await;
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let served = serve().await;
    let client = served.client();
    let id = begin(&client, "/data/x").await;
    part(&client, "/data/x", &id, 1, vec![1; 10]).await.ok();
    let abort = Request::new("DELETE", "/data/x").query("uploadId", &id);
    assert_eq!(client.send(abort.clone()).await.status, 204);
    assert_eq!(client.send(abort).await.code(), "NoSuchUpload");
    assert_eq!(part(&client, "/data/x", &id, 2, vec![1; 10]).await.code(), "NoSuchUpload");
    assert_eq!(client.get("/data/x").await.status, 404);
    gone(&served).await;
}

#[tokio::test]
async fn parts_are_copied_from_objects() {
    let served = serve().await;
    let client = served.client();
    let source = bytes(9, 6 * MIB);
    client.put("/data/source", source.clone()).await.ok();
    let id = begin(&client, "/data/x").await;
    let copy = |number: u32, range: Option<&str>| {
        let request = Request::new("PUT", "/data/x").query("partNumber", &number.to_string());
        let request = request.query("uploadId", &id).header("x-amz-copy-source", "data/source");
        let request = match range {
            Some(range) => request.header("x-amz-copy-source-range", range),
            None => request,
        };
        client.send(request)
    };
    let mut etags = Vec::new();
    for (number, range) in [(1, None), (2, Some("bytes=5-14"))] {
        let etag = copy(number, range).await.ok().all("ETag").remove(0);
        etags.push((number, etag.trim_matches('"').to_owned()));
    }
    complete(&client, "/data/x", &id, &etags).await.ok();
    let expected = [source.as_slice(), &source[5..15]].concat();
    assert!(client.get("/data/x").await.ok().body == expected);
}

#[tokio::test]
async fn an_upload_goes_on_at_a_server_that_remembers_nothing() {
    let served = serve().await;
    let client = served.client();
    let id = begin(&client, "/data/x").await;
    let one = part(&client, "/data/x", &id, 2, bytes(2, 5 * MIB)).await.ok().etag();
    let (other, _running) = served.another().await;
    let two = part(&other, "/data/x", &id, 1, bytes(1, 5 * MIB)).await.ok().etag();
    complete(&other, "/data/x", &id, &[(1, two), (2, one)]).await.ok();
    let read = other.get("/data/x").await.ok();
    assert!(read.body == [bytes(1, 5 * MIB), bytes(2, 5 * MIB)].concat());
    assert_eq!(read.header("content-type"), Some("text/x-parts"));
    gone(&served).await;
}

/// minio-go and boto3 send one. It was taken for that of the list of parts.
#[tokio::test]
async fn a_checksum_that_comes_with_a_completion_is_of_the_object() {
    let served = serve().await;
    let client = served.client();
    let id = begin(&client, "/data/x").await;
    let etag = part(&client, "/data/x", &id, 1, b"hello world".to_vec()).await.ok().etag();
    let done = completion("/data/x", &id, &[(1, etag)]);
    // This one is of the list of parts, and of another one.
    let other = done.clone().header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    assert_eq!(client.send(other).await.code(), "BadDigest");
    let done = done.header("x-amz-checksum-crc32", "DUoRhQ==").header("x-amz-checksum-type", "FULL_OBJECT");
    client.send(done).await.ok();
    assert_eq!(client.get("/data/x").await.ok().text(), "hello world");
}

#[tokio::test]
async fn an_upload_whose_client_says_another_size_is_not_completed() {
    let served = serve().await;
    let client = served.client();
    let id = begin(&client, "/data/x").await;
    let etag = part(&client, "/data/x", &id, 1, b"hello world".to_vec()).await.ok().etag();
    let done = completion("/data/x", &id, &[(1, etag)]);
    let shorter = done.clone().header("x-amz-mp-object-size", "10");
    assert_eq!(client.send(shorter).await.code(), "InvalidRequest");
    assert_eq!(client.get("/data/x").await.status, 404);
    client.send(done.header("x-amz-mp-object-size", "11")).await.ok();
    assert_eq!(client.get("/data/x").await.ok().text(), "hello world");
}

/// Its bytes went where the object had become.
#[tokio::test]
async fn a_part_that_is_under_way_when_its_upload_ends_is_refused_and_writes_no_more() {
    let served = serve().await;
    let client = served.client();
    for ends_well in [true, false] {
        let path = if ends_well { "/data/completed" } else { "/data/aborted" };
        let id = begin(&client, path).await;
        let one = part(&client, path, &id, 1, bytes(1, 5 * MIB)).await.ok().etag();
        let late = Request::new("PUT", path).query("partNumber", "2").query("uploadId", &id);
        let mut late = late.body(bytes(2, 5 * MIB));
        late.set("host", &client.address.to_string());
        client.signer.sign(&mut late, "UNSIGNED-PAYLOAD");
        let late = bytes_of(&late);
        let (sent, rest) = late.split_at(3 * MIB);
        let mut stream = TcpStream::connect(client.address).await.expect("it listens");
        stream.write_all(sent).await.expect("sent");
        let data = format!("/data/.forebay-s3/{id}/data");
        while served.vfs.resolve(data.as_bytes()).await.expect("there").attr.size < 7 * MIB as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if ends_well {
            complete(&client, path, &id, &[(1, one)]).await.ok();
        } else {
            client.send(Request::new("DELETE", path).query("uploadId", &id)).await.ok();
        }
        let _ = stream.write_all(rest).await;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("it ends: it was asked to");
        assert_eq!(parse(&all, false).expect("an answer").code(), "NoSuchUpload");
        if ends_well {
            let read = client.get(path).await.ok();
            assert!(read.body == bytes(1, 5 * MIB), "{} bytes", read.body.len());
        }
        gone(&served).await;
    }
}

/// Its file was cut before it was known whether the object may be made, and what lay behind came back as zeros.
#[tokio::test]
async fn a_completion_that_is_refused_takes_nothing_from_the_parts() {
    let served = serve().await;
    let client = served.client();
    let path = "/data/there";
    client.put(path, b"something").await.ok();
    let id = begin(&client, path).await;
    let (mut parts, mut whole) = (Vec::new(), Vec::new());
    for number in 1..=4 {
        let body = bytes(number as u8, 5 * MIB);
        whole.extend_from_slice(&body);
        parts.push((number, part(&client, path, &id, number, body).await.ok().etag()));
    }
    for wanted in [&parts[..2], &parts[1..3]] {
        let refused = completion(path, &id, wanted).header("if-none-match", "*");
        assert_eq!(client.send(refused).await.code(), "PreconditionFailed");
    }
    let mut dir = served.origin.root().await.expect("told").reference;
    for name in ["data", ".forebay-s3", &id] {
        let name = Name::new(name.as_bytes().to_vec()).expect("a name");
        dir = served.origin.lookup(&dir, &name).await.expect("there").reference;
    }
    let left = served.origin.readdir(&dir, DirCursor::default()).await.expect("listed").entries;
    assert!(!left.iter().any(|entry| entry.name.to_string().contains("whole")), "{left:?}");
    complete(&client, path, &id, &parts).await.ok();
    assert!(client.get(path).await.ok().body == whole);
    gone(&served).await;
    // Nor does it leave the directories of a key that nobody has.
    let path = "/data/a/b/c";
    let id = begin(&client, path).await;
    let one = part(&client, path, &id, 1, b"one".to_vec()).await.ok().etag();
    let refused = completion(path, &id, &[(1, one.clone())]).header("if-match", "\"0123456789abcdef\"");
    assert_eq!(client.send(refused).await.code(), "NoSuchKey");
    assert_eq!(served.vfs.resolve(b"/data/a").await.expect_err("never made").kind(), ErrorKind::NotFound);
    complete(&client, path, &id, &[(1, one)]).await.ok();
}

/// Its type was forgotten, and the client told that all is well.
#[tokio::test]
async fn an_object_that_cannot_be_looked_at_after_it_was_put_keeps_what_came_with_it() {
    let served = serve().await;
    let client = served.client();
    served.far.be_silent();
    served.far.fail("getattr", ErrorKind::Unavailable, 1);
    let put = Request::new("PUT", "/data/page").header("content-type", "text/html").body("hello");
    let etag = client.send(put).await.ok().etag();
    let read = client.get("/data/page").await.ok();
    assert_eq!((read.header("content-type"), read.etag()), (Some("text/html"), etag));
}

/// Who put it is not told that it was never there.
#[tokio::test]
async fn an_object_that_is_removed_as_soon_as_it_is_there_was_put() {
    let served = serve().await;
    let client = served.client();
    served.far.be_silent();
    let id = begin(&client, "/data/x").await;
    let one = part(&client, "/data/x", &id, 1, b"hello".to_vec()).await.ok().etag();
    let gone_at_once = || {
        let origin = served.origin.clone();
        served.far.before("getattr", move || origin.remove(b"data/x").expect("removed"));
    };
    gone_at_once();
    complete(&client, "/data/x", &id, &[(1, one)]).await.ok();
    gone_at_once();
    client.put("/data/x", "hello").await.ok();
    assert_eq!(client.get("/data/x").await.status, 404);
    gone(&served).await;
}

/// A directory goes with its last object, and this may be just before the next one comes.
#[tokio::test]
async fn an_upload_is_completed_beside_a_delete_of_the_last_object_of_its_directory() {
    let served = serve().await;
    let client = served.client();
    served.far.answer_late(Duration::from_millis(2));
    for round in 0..40 {
        client.put("/data/dir/other", "x").await.ok();
        let id = begin(&client, "/data/dir/x").await;
        let one = part(&client, "/data/dir/x", &id, 1, b"hello".to_vec()).await.ok().etag();
        let parts = [(1, one)];
        let late = async {
            tokio::time::sleep(Duration::from_millis(round % 10)).await;
            complete(&client, "/data/dir/x", &id, &parts).await
        };
        let (done, deleted) = tokio::join!(late, client.delete("/data/dir/other"));
        assert_eq!((done.status, deleted.status), (200, 204), "round {round}: {}", done.text());
        assert_eq!(client.get("/data/dir/x").await.ok().text(), "hello");
        client.delete("/data/dir/x").await.ok();
    }
}
