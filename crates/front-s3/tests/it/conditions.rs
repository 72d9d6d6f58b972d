//! Reads, writes and deletes that are bound to conditions.

use crate::served::serve;
use crate::sign::Request;

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
