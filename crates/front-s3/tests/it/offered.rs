//! What is not offered changes nothing.

use crate::served::serve;
use crate::sign::Request;

/// A DELETE of an annotation removed the object, and one of a bucket's metadata configuration an empty bucket.
#[tokio::test]
async fn a_request_for_what_is_not_known_changes_and_deletes_nothing() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    client.send(Request::new("PUT", "/empty")).await.ok();
    let names = [
        "acl",
        "annotation",
        "retention",
        "legal-hold",
        "metadataConfiguration",
        "policy",
        "torrent",
        "of-tomorrow",
    ];
    for name in names {
        for method in ["DELETE", "PUT", "POST"] {
            for path in ["/data/x", "/empty", "/data"] {
                let answer = client.send(Request::new(method, path).query(name, "")).await;
                let told = (answer.status, answer.code());
                assert_eq!(told, (501, "NotImplemented".to_owned()), "{method} {path}?{name}");
            }
        }
        assert_eq!(client.send(Request::new("HEAD", "/data/x").query(name, "")).await.status, 501, "{name}");
    }
    assert_eq!(
        client.send(Request::new("DELETE", "/data/x").query("uploadId", "1").query("acl", "")).await.status,
        501
    );
    assert_eq!(client.get("/data/x").await.ok().text(), "bytes");
    assert_eq!(client.send(Request::new("HEAD", "/empty")).await.status, 200);
}

#[tokio::test]
async fn a_setting_that_no_bucket_has_is_told_as_not_there() {
    let served = serve().await;
    let client = served.client();
    let code = async |path: &str, name: &str| {
        let answer = client.send(Request::new("GET", path).query(name, "")).await;
        (answer.status, answer.code())
    };
    assert_eq!(code("/data", "policy").await, (404, "NoSuchBucketPolicy".to_owned()));
    assert_eq!(code("/data", "tagging").await, (404, "NoSuchTagSet".to_owned()));
    assert_eq!(code("/none", "policy").await, (404, "NoSuchBucket".to_owned()));
    let other = served.reader().send(Request::new("GET", "/none").query("policy", "")).await;
    assert_eq!(other.code(), "AccessDenied", "whose key may not read it");
}

#[tokio::test]
async fn tags_are_kept_with_the_object_and_go_with_it() {
    let served = serve().await;
    let client = served.client();
    client.send(Request::new("PUT", "/data/x").header("x-amz-tagging", "a=b%20c&d=").body("x")).await.ok();
    let tags = async |path: &str| {
        let answer = client.send(Request::new("GET", path).query("tagging", "")).await.ok();
        (answer.all("Key"), answer.all("Value"))
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(tags("/data/x").await, (texts(&["a", "d"]), texts(&["b c", ""])));
    let head = client.send(Request::new("HEAD", "/data/x")).await.ok();
    assert_eq!(head.header("x-amz-tagging-count"), Some("2"));
    client.send(Request::new("PUT", "/data/copy").header("x-amz-copy-source", "/data/x")).await.ok();
    assert_eq!(tags("/data/copy").await.0, texts(&["a", "d"]));
    let body = "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>";
    client.send(Request::new("PUT", "/data/x").query("tagging", "").body(body)).await.ok();
    assert_eq!(tags("/data/x").await, (texts(&["k"]), texts(&["v"])));
    let read = client.get("/data/x").await.ok();
    assert_eq!((read.text().as_str(), read.etag()), ("x", head.etag()), "its bytes stay");
    assert_eq!(client.send(Request::new("DELETE", "/data/x").query("tagging", "")).await.status, 204);
    assert_eq!(tags("/data/x").await.0, texts(&[]));
    assert_eq!(client.get("/data/x").await.ok().text(), "x", "the object stays");
    client.put("/data/copy", "new").await.ok();
    assert_eq!(tags("/data/copy").await.0, texts(&[]), "another object has none");
    let wrong = Request::new("PUT", "/data/y").header("x-amz-tagging", "a=1&a=2").body("y");
    assert_eq!(client.send(wrong).await.code(), "InvalidTag");
    assert_eq!(
        client.send(Request::new("PUT", "/data/none").query("tagging", "").body(body)).await.code(),
        "NoSuchKey"
    );
}

/// No answer came at all.
#[tokio::test]
async fn a_body_longer_than_any_file_is_refused() {
    let served = serve().await;
    let client = served.client();
    for length in ["9223372036854775808", "18446744073709551613"] {
        let mut request = Request::new("PUT", "/data/x");
        request.set("host", &client.address.to_string());
        client.signer.sign(&mut request, "UNSIGNED-PAYLOAD");
        request.set("content-length", length);
        let answer = client.try_send(&request).await.expect("an answer");
        assert_eq!((answer.status, answer.code().as_str()), (400, "EntityTooLarge"), "{length}");
    }
}
