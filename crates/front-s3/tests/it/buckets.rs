//! Listing, naming and removing buckets.

use crate::client::Client;
use crate::served::{Served, serve, serve_with};
use crate::sign::Request;

async fn begin(client: &Client, path: &str) -> String {
    client.send(Request::new("POST", path).query("uploads", "")).await.ok().all("UploadId").remove(0)
}

async fn put_part(client: &Client, path: &str, id: &str, number: u32) -> crate::client::Answer {
    let request = Request::new("PUT", path).query("partNumber", &number.to_string()).query("uploadId", id);
    client.send(request.body("part")).await
}

async fn make(client: &Client, bucket: &str) {
    client.send(Request::new("PUT", &format!("/{bucket}"))).await.ok();
}

#[tokio::test]
async fn buckets_are_listed_in_pages_and_by_prefix() {
    let served = serve().await;
    let client = served.client();
    let mut expected = vec!["data".to_owned()];
    for name in ["shot-3", "shot-1", "archive", "shot-2", "zzz"] {
        make(&client, name).await;
        expected.push(name.to_owned());
    }
    expected.sort();
    let all = client.get("/").await.ok();
    assert_eq!(all.all("Name"), expected);
    assert!(all.all("ContinuationToken").is_empty() && all.all("BucketRegion").is_empty());
    for size in [1, 2, 5, 6, 7] {
        let (mut told, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut request = Request::new("GET", "/").query("max-buckets", &size.to_string());
            if let Some(token) = &token {
                request = request.query("continuation-token", token);
            }
            let page = client.send(request).await.ok();
            assert!(page.all("Name").len() <= size);
            assert_eq!(page.all("BucketRegion").len(), page.all("Name").len());
            told.extend(page.all("Name"));
            token = page.all("ContinuationToken").pop();
            if token.is_none() {
                break;
            }
        }
        assert_eq!(told, expected, "{size} at a time");
    }
    let of = async |name: &str, value: &str| {
        client.send(Request::new("GET", "/").query(name, value)).await.ok().all("Name")
    };
    assert_eq!(of("prefix", "shot-").await, ["shot-1", "shot-2", "shot-3"]);
    assert!(of("bucket-region", "elsewhere-1").await.is_empty());
    assert_eq!(of("bucket-region", crate::served::REGION).await.len(), 6);
    for (name, value) in [("max-buckets", "0"), ("max-buckets", "10001"), ("continuation-token", "xyz")] {
        assert_eq!(client.send(Request::new("GET", "/").query(name, value)).await.status, 400, "{name}");
    }
    assert_eq!(served.reader().get("/").await.ok().all("Name"), ["data"], "those that a key sees");
}

#[tokio::test]
async fn a_name_with_a_hyphen_beside_a_period_is_no_buckets() {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"foo.-bar").expect("made");
            origin.write_file(b"foo.-bar/x", b"x").expect("written");
        },
        |_| {},
    )
    .await;
    let client = served.client();
    for name in ["foo-.bar", "foo.-bar", "foo..bar"] {
        for (method, path) in
            [("PUT", ""), ("GET", ""), ("HEAD", ""), ("DELETE", ""), ("GET", "/x"), ("PUT", "/x")]
        {
            let answer = client.send(Request::new(method, &format!("/{name}{path}"))).await;
            assert_eq!(answer.status, 400, "{method} {name}{path}");
            if method != "HEAD" {
                assert_eq!(answer.code(), "InvalidBucketName", "{method} {name}{path}");
            }
        }
    }
    assert_eq!(client.get("/").await.ok().all("Name"), ["data"]);
    assert_eq!(client.send(Request::new("PUT", "/foo.bar-1")).await.status, 200);
}

/// An upload's clean-up goes on after its end was answered.
#[tokio::test]
async fn a_bucket_goes_as_soon_as_its_uploads_have_ended() {
    let served = serve().await;
    let client = served.client();
    for is_aborted in [true, false] {
        make(&client, "short").await;
        let id = begin(&client, "/short/x").await;
        let mut list = String::new();
        for number in 1..=(if is_aborted { 20 } else { 1 }) {
            let etag = put_part(&client, "/short/x", &id, number).await.ok().etag();
            list.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
        }
        if is_aborted {
            let request = Request::new("DELETE", "/short/x").query("uploadId", &id);
            assert_eq!(client.send(request).await.status, 204);
        } else {
            let body = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
            client.send(Request::new("POST", "/short/x").query("uploadId", &id).body(body)).await.ok();
            assert_eq!(client.delete("/short").await.code(), "BucketNotEmpty", "the object is there");
            assert_eq!(client.delete("/short/x").await.status, 204);
        }
        assert_eq!(client.delete("/short").await.status, 204, "aborted: {is_aborted}");
        assert_eq!(client.get("/short").await.code(), "NoSuchBucket");
    }
    client.put("/data/x", "others stay").await.ok();
}

async fn has(served: &Served, path: &str) -> bool {
    served.vfs.resolve(path.as_bytes()).await.is_ok()
}

#[tokio::test]
async fn what_no_listing_of_objects_tells_goes_with_its_bucket_and_stays_with_objects() {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"short").expect("made");
            origin.write_file(b"short/.forebay-put-0123", b"a killed tier left it").expect("written");
        },
        |_| {},
    )
    .await;
    let client = served.client();
    let id = begin(&client, "/short/x").await;
    put_part(&client, "/short/x", &id, 1).await.ok();
    client.put("/short/dir/object", "bytes").await.ok();
    assert_eq!(client.delete("/short").await.code(), "BucketNotEmpty");
    put_part(&client, "/short/x", &id, 2).await.ok();
    assert!(has(&served, "short/.forebay-put-0123").await);
    let parts = client.send(Request::new("GET", "/short/x").query("uploadId", &id)).await.ok();
    assert_eq!(parts.all("PartNumber"), ["1", "2"], "a refusal takes nothing");
    client.delete("/short/dir/object").await.ok();
    assert_eq!(client.delete("/short").await.status, 204);
    assert!(!has(&served, "short").await);
    assert_eq!(put_part(&client, "/short/x", &id, 3).await.code(), "NoSuchBucket");
    make(&client, "short").await;
    assert_eq!(put_part(&client, "/short/x", &id, 3).await.code(), "NoSuchUpload");
}

#[tokio::test]
async fn the_uploads_of_a_key_are_listed_as_they_began() {
    let served = serve().await;
    let client = served.client();
    let mut begun = Vec::new();
    for _ in 0..12 {
        begun.push(begin(&client, "/data/x").await);
    }
    let first = begin(&client, "/data/a").await;
    let (mut told, mut marker) = (Vec::new(), None::<(String, String)>);
    loop {
        let mut request = Request::new("GET", "/data").query("uploads", "").query("max-uploads", "5");
        if let Some((key, id)) = &marker {
            request = request.query("key-marker", key).query("upload-id-marker", id);
        }
        let page = client.send(request).await.ok();
        told.extend(page.all("UploadId"));
        assert_eq!(page.all("Initiator").len(), page.all("UploadId").len());
        assert_eq!(page.all("Owner").len(), page.all("UploadId").len());
        if page.all("IsTruncated") != ["true"] {
            break;
        }
        marker = Some((page.all("NextKeyMarker").remove(0), page.all("NextUploadIdMarker").remove(0)));
    }
    begun.insert(0, first);
    assert_eq!(told, begun);
}
