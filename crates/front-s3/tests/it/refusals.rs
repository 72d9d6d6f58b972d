//! What a client reads of a refusal, and what the operator does.

use crate::client::Client;
use crate::served::{KEY, SECRET, serve};
use crate::sign::{Request, sha256};
use crate::signatures::Log;

#[tokio::test]
async fn an_error_has_a_code_a_message_and_the_id_of_its_request() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    let wrong = Client::new(client.address, KEY, "another secret, of the same kind");
    let answers = [
        client.get("/data/none").await,
        client.get("/none").await,
        client.get("/data//x").await,
        client.delete("/data").await,
        client.send(Request::new("PUT", "/data/x").query("acl", "")).await,
        client.send(Request::new("GET", "/data/x").header("if-match", "\"0\"")).await,
        client.send(Request::new("GET", "/data").query("max-keys", "many")).await,
        client.send(Request::new("POST", "/data").query("delete", "").body("<Delete>")).await,
        client.send(Request::new("DELETE", "/data/x").query("uploadId", "1")).await,
        wrong.get("/data/x").await,
    ];
    for answer in answers {
        let text = answer.text();
        assert!(answer.status >= 400 && !answer.code().is_empty(), "{text}");
        assert!(answer.all("Message").first().is_some_and(|message| message.len() > 5), "{text}");
        let id = answer.header("x-amz-request-id").expect("an id").to_owned();
        assert_eq!(answer.all("RequestId"), [id], "{text}");
    }
    let many = "<Delete><Object><Key>x</Key><VersionId>1</VersionId></Object></Delete>";
    let answer = client.send(Request::new("POST", "/data").query("delete", "").body(many)).await.ok();
    assert_eq!(
        (answer.code().as_str(), answer.all("Message").len()),
        ("NoSuchVersion", 1),
        "of each of many"
    );
}

/// It has no body that could say it.
#[tokio::test]
async fn a_head_tells_the_code_of_its_error() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    let code = async |request: Request| {
        let answer = client.send(request).await;
        assert!(
            answer.header("x-minio-error-code").is_none() || answer.header("x-minio-error-desc").is_some()
        );
        (answer.status, answer.header("x-minio-error-code").unwrap_or_default().to_owned())
    };
    let head = |path: &str| Request::new("HEAD", path);
    assert_eq!(code(head("/data/none")).await, (404, "NoSuchKey".to_owned()));
    assert_eq!(code(head("/none")).await, (404, "NoSuchBucket".to_owned()));
    assert_eq!(code(head("/data/x").query("versionId", "7")).await, (404, "NoSuchVersion".to_owned()));
    assert_eq!(
        code(head("/data/x").header("if-match", "\"0\"")).await,
        (412, "PreconditionFailed".to_owned())
    );
    assert_eq!(code(head("/data/x")).await, (200, String::new()));
}

#[tokio::test]
async fn who_signs_wrongly_is_in_the_log_once_with_the_reason() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let served = serve().await;
    let client = served.client();
    let wrong = Client::new(client.address, KEY, "another secret, of the same kind");
    for _ in 0..23 {
        assert_eq!(wrong.get("/data/x").await.code(), "SignatureDoesNotMatch");
    }
    let unknown = Client::new(client.address, "AKNOBODY", SECRET);
    assert_eq!(unknown.get("/data/x").await.code(), "InvalidAccessKeyId");
    let text = log.text();
    let lines = |reason: &str| text.lines().filter(|line| line.contains(reason)).collect::<Vec<_>>();
    assert_eq!(lines("wrong_signature").len(), 1, "{text}");
    assert!(lines("wrong_signature")[0].contains("127.0.0.1"), "{text}");
    assert_eq!(lines("unknown_key").len(), 1, "{text}");
    assert!(!text.contains(SECRET));
}

#[tokio::test]
async fn a_security_token_with_a_key_that_has_none_is_refused() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let request = Request::new(method, "/data/x").header("x-amz-security-token", "FwoGZXIvYXdz");
        let answer = client.send(request).await;
        assert_eq!(answer.status, 400, "{method}");
        assert!(method == "HEAD" || answer.code() == "InvalidToken", "{}", answer.text());
    }
    let mut presigned = Request::new("GET", "/data/x").query("X-Amz-Security-Token", "FwoGZXIvYXdz");
    presigned.set("host", &client.address.to_string());
    client.signer.presign(&mut presigned, 60);
    assert_eq!(client.send_raw(&presigned).await.code(), "InvalidToken");
    let empty = Request::new("GET", "/data/x").header("x-amz-security-token", "");
    assert_eq!(client.send(empty).await.ok().text(), "bytes", "a client without one");
}

/// Amazon's SDK for Go signs it as it is, botocore and MinIO's SDKs as a space.
#[tokio::test]
async fn a_metadata_value_with_a_tab_is_taken_however_it_was_signed() {
    let served = serve().await;
    let client = served.client();
    for (signed, key) in [("a\tb", "/data/as-it-is"), ("a b", "/data/as-a-space")] {
        let mut request = Request::new("PUT", key).header("x-amz-meta-note", signed).body("bytes");
        request.set("host", &client.address.to_string());
        let hash = sha256(&request.body);
        client.signer.sign(&mut request, &hash);
        request.set("x-amz-meta-note", "a\tb");
        client.send_raw(&request).await.ok();
        let head = client.send(Request::new("HEAD", key)).await.ok();
        assert_eq!(head.header("x-amz-meta-note"), Some("a\tb"));
    }
    let mut other = Request::new("PUT", "/data/x").header("x-amz-meta-note", "a b").body("bytes");
    other.set("host", &client.address.to_string());
    client.signer.sign(&mut other, "UNSIGNED-PAYLOAD");
    other.set("x-amz-meta-note", "a\tc");
    assert_eq!(client.send_raw(&other).await.code(), "SignatureDoesNotMatch");
}

#[tokio::test]
async fn the_owner_that_a_client_expects_is_the_one_that_is_told_or_nothing_happens() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    let owner = client.get("/").await.ok().all("ID").remove(0);
    let requests = || {
        [
            Request::new("GET", "/data"),
            Request::new("GET", "/data/x"),
            Request::new("HEAD", "/data/x"),
            Request::new("PUT", "/data/y").body("y"),
            Request::new("PUT", "/data/z").header("x-amz-copy-source", "/data/x"),
            Request::new("POST", "/data/m").query("uploads", ""),
            Request::new("DELETE", "/data/y"),
        ]
    };
    let header = "x-amz-expected-bucket-owner";
    for request in requests() {
        let answer = client.send(request.clone().header(header, "111122223333")).await;
        assert_eq!(answer.status, 403, "{request:?}");
    }
    let copy = Request::new("PUT", "/data/z").header("x-amz-copy-source", "/data/x");
    let answer = client.send(copy.header("x-amz-source-expected-bucket-owner", "111122223333")).await;
    assert_eq!(answer.code(), "AccessDenied");
    assert_eq!(client.get("/data").await.ok().all("Key"), ["x"]);
    for request in requests() {
        client.send(request.header(header, &owner)).await.ok();
    }
}

#[tokio::test]
async fn another_storage_class_than_the_only_one_is_refused() {
    let served = serve().await;
    let client = served.client();
    client.put("/data/x", "bytes").await.ok();
    let requests = || {
        [
            Request::new("PUT", "/data/y").body("y"),
            Request::new("PUT", "/data/z").header("x-amz-copy-source", "/data/x"),
            Request::new("POST", "/data/m").query("uploads", ""),
        ]
    };
    for class in ["GLACIER", "standard", "NONE-OF-THESE", ""] {
        for request in requests() {
            let answer = client.send(request.header("x-amz-storage-class", class)).await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidStorageClass"), "{class:?}");
        }
    }
    for request in requests() {
        client.send(request.header("x-amz-storage-class", "STANDARD")).await.ok();
    }
}
