//! Uploads in parts: asked for twice, their checksums, their parts.

use crate::client::{Answer, Client};
use crate::served::serve;
use crate::sign::Request;

const MIB: usize = 1 << 20;

async fn begin(client: &Client, headers: &[(&str, &str)]) -> Answer {
    let request = Request::new("POST", "/data/x").query("uploads", "");
    client.send(headers.iter().fold(request, |request, (name, value)| request.header(name, value))).await
}

async fn part(client: &Client, id: &str, number: u32, body: &[u8]) -> Answer {
    let request = Request::new("PUT", "/data/x").query("partNumber", &number.to_string());
    client.send(request.query("uploadId", id).body(body)).await
}

fn completion(id: &str, parts: &[(u32, &Answer, &str)]) -> Request {
    let parts: String = parts
        .iter()
        .map(|(number, answer, more)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag>{more}</Part>", answer.etag())
        })
        .collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    Request::new("POST", "/data/x").query("uploadId", id).body(body)
}

fn id_of(answer: &Answer) -> String {
    answer.all("UploadId").remove(0)
}

/// SDKs repeat it when the answer was lost.
#[tokio::test]
async fn a_completion_that_is_sent_again_gets_the_same_answer() {
    let served = serve().await;
    let client = served.client();
    let id = id_of(&begin(&client, &[]).await.ok());
    let one = part(&client, &id, 1, b"one").await.ok();
    let done = completion(&id, &[(1, &one, "")]);
    let first = client.send(done.clone().header("if-none-match", "*")).await.ok();
    let again = client.send(done.clone().header("if-none-match", "*")).await.ok();
    assert_eq!(again.text(), first.text());
    client.put("/data/x", "newer").await.ok();
    assert_eq!(client.send(done.clone()).await.ok().all("ETag"), first.all("ETag"));
    assert_eq!(client.get("/data/x").await.ok().text(), "newer", "it changes nothing");
    let other = completion(&id, &[(1, &client.put("/data/y", "two").await.ok(), "")]);
    assert_eq!(client.send(other).await.code(), "NoSuchUpload", "of other parts");
    let mut elsewhere = done;
    elsewhere.path = "/data/y".to_owned();
    assert_eq!(client.send(elsewhere).await.code(), "NoSuchUpload", "of another key");
    let aborted = id_of(&begin(&client, &[]).await.ok());
    let one = part(&client, &aborted, 1, b"one").await.ok();
    client.send(Request::new("DELETE", "/data/x").query("uploadId", &aborted)).await.ok();
    assert_eq!(client.send(completion(&aborted, &[(1, &one, "")])).await.code(), "NoSuchUpload");
}

#[tokio::test]
async fn a_wrong_checksum_of_a_part_in_the_list_is_refused() {
    let served = serve().await;
    let client = served.client();
    let id = id_of(&begin(&client, &[("x-amz-checksum-algorithm", "CRC32")]).await.ok());
    let one = part(&client, &id, 1, b"hello world").await.ok();
    assert_eq!(one.header("x-amz-checksum-crc32"), Some("DUoRhQ=="), "computed though it was not sent");
    for wrong in ["<ChecksumCRC32>AAAAAA==</ChecksumCRC32>", "<ChecksumCRC32C>yZRlqg==</ChecksumCRC32C>"] {
        let refused = client.send(completion(&id, &[(1, &one, wrong)])).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidPart"), "{wrong}");
    }
    let right = completion(&id, &[(1, &one, "<ChecksumCRC32>DUoRhQ==</ChecksumCRC32>")]);
    let wrong = right.clone().header("x-amz-checksum-crc32", "AAAAAA==-1");
    assert_eq!(client.send(wrong).await.code(), "BadDigest", "of the whole");
    let done = client.send(right).await.ok();
    assert!(done.all("ChecksumCRC32")[0].ends_with("-1"), "{}", done.text());
    assert_eq!(client.get("/data/x").await.ok().text(), "hello world");
}

#[tokio::test]
async fn checksums_of_an_upload_in_parts_are_kept_and_told() {
    let served = serve().await;
    let client = served.client();
    let (first, second) = (vec![7; 5 * MIB], b"the rest".to_vec());
    let whole = [first.as_slice(), &second].concat();
    for algorithm in ["crc32", "crc32c", "crc64nvme"] {
        let header = format!("x-amz-checksum-{algorithm}");
        // What a PUT of the same bytes computes: by an upload of one part.
        let begun = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", "FULL_OBJECT")];
        let id = id_of(&begin(&client, &begun).await.ok());
        let one = part(&client, &id, 1, &whole).await.ok();
        let expected = one.header(&header).expect("computed").to_owned();
        client.send(completion(&id, &[(1, &one, "")])).await.ok();
        let id = id_of(&begin(&client, &begun).await.ok());
        let one = part(&client, &id, 1, &first).await.ok();
        let two = part(&client, &id, 2, &second).await.ok();
        let done = completion(&id, &[(1, &one, ""), (2, &two, "")]).header(&header, &expected);
        client.send(done.header("x-amz-checksum-type", "FULL_OBJECT")).await.ok();
        let head =
            client.send(Request::new("HEAD", "/data/x").header("x-amz-checksum-mode", "ENABLED")).await.ok();
        assert_eq!(head.header(&header), Some(expected.as_str()), "{algorithm}");
        assert_eq!(head.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
        assert!(!head.headers.iter().any(|(name, _)| name.starts_with("x-forebay-")), "{head:?}");
    }
    let id = id_of(&begin(&client, &[("x-amz-checksum-algorithm", "SHA256")]).await.ok());
    let one = part(&client, &id, 1, &first).await.ok();
    let two = part(&client, &id, 2, &second).await.ok();
    client.send(completion(&id, &[(1, &one, ""), (2, &two, "")])).await.ok();
    let head =
        client.send(Request::new("HEAD", "/data/x").header("x-amz-checksum-mode", "ENABLED")).await.ok();
    assert!(head.header("x-amz-checksum-sha256").is_some_and(|sum| sum.ends_with("-2")), "{head:?}");
    assert_eq!(head.header("x-amz-checksum-type"), Some("COMPOSITE"));
    let wanted = "ETag,Checksum,ObjectParts,ObjectSize,StorageClass";
    let request =
        Request::new("GET", "/data/x").query("attributes", "").header("x-amz-object-attributes", wanted);
    let told = client.send(request).await.ok();
    assert_eq!(told.all("Size"), [(5 * MIB).to_string(), "8".to_owned()]);
    assert_eq!(told.all("PartsCount"), ["2"]);
    assert_eq!(told.all("ObjectSize"), [(5 * MIB + 8).to_string()]);
    assert_eq!(told.all("ChecksumSHA256").len(), 3, "of the whole and of each part: {}", told.text());
    // A copy is in one part: what was made of the parts is not true of it.
    client.send(Request::new("PUT", "/data/y").header("x-amz-copy-source", "/data/x")).await.ok();
    let copy =
        client.send(Request::new("HEAD", "/data/y").header("x-amz-checksum-mode", "ENABLED")).await.ok();
    assert!(!copy.headers.iter().any(|(name, _)| name.starts_with("x-amz-checksum-")), "{copy:?}");
    for refused in [("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), ("XXHASH64", "FULL_OBJECT")] {
        let headers = [("x-amz-checksum-algorithm", refused.0), ("x-amz-checksum-type", refused.1)];
        assert!(begin(&client, &headers).await.status >= 400, "{refused:?}");
    }
}

/// It was cut at the end of the source in silence: another object than its client made.
#[tokio::test]
async fn a_part_is_copied_from_a_range_that_is_in_its_source_or_not_at_all() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/source", "0123456789").await.ok();
    let id = id_of(&begin(&client, &[]).await.ok());
    let copy = async |range: &str| {
        let request = Request::new("PUT", "/data/x").query("partNumber", "1").query("uploadId", &id);
        let request = request.header("x-amz-copy-source", "data/source");
        client.send(request.header("x-amz-copy-source-range", range)).await
    };
    for range in ["bytes=0-10", "bytes=10-10", "bytes=5-18446744073709551615", "bytes=-3", "bytes=2-", "0-3"]
    {
        let answer = copy(range).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidArgument"), "{range}");
    }
    copy("bytes=0-9").await.ok();
}

#[tokio::test]
async fn a_part_of_an_object_can_be_read_by_its_number() {
    let served = serve().await;
    let client = served.client();
    let id = id_of(&begin(&client, &[]).await.ok());
    let one = part(&client, &id, 1, &vec![1; 5 * MIB]).await.ok();
    let two = part(&client, &id, 7, b"the rest").await.ok();
    client.send(completion(&id, &[(1, &one, ""), (7, &two, "")])).await.ok();
    client.put("/data/single", "whole").await.ok();
    client.put("/data/empty", "").await.ok();
    let size = 5 * MIB + 8;
    for (path, number, status, length, range, count) in [
        ("/data/x", "1", 206, 5 * MIB, format!("bytes 0-{}/{size}", 5 * MIB - 1), "2"),
        ("/data/x", "2", 206, 8, format!("bytes {}-{}/{size}", 5 * MIB, size - 1), "2"),
        ("/data/single", "1", 206, 5, "bytes 0-4/5".to_owned(), "1"),
        ("/data/empty", "1", 200, 0, String::new(), "1"),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = client.send(Request::new(method, path).query("partNumber", number)).await;
            let told = (answer.status, answer.header("content-length"), answer.header("content-range"));
            let length = length.to_string();
            let range = Some(range.as_str()).filter(|range| !range.is_empty());
            assert_eq!(told, (status, Some(length.as_str()), range), "{method} {path} {number}");
            assert_eq!(answer.header("x-amz-mp-parts-count"), Some(count), "{method} {path} {number}");
        }
    }
    let read = client.send(Request::new("GET", "/data/x").query("partNumber", "2")).await.ok();
    assert_eq!(read.text(), "the rest");
    for (path, number) in [("/data/x", "3"), ("/data/x", "7"), ("/data/single", "2")] {
        let answer = client.send(Request::new("GET", path).query("partNumber", number)).await;
        assert_eq!((answer.status, answer.code().as_str()), (416, "InvalidPartNumber"), "{path} {number}");
    }
}
