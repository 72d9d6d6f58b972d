//! Signatures: right ones are taken, whatever is altered is refused and changes nothing, and no log tells a secret.

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::client::Client;
use crate::model::{Random, seed};
use crate::served::{KEY, SECRET, Served, serve};
use crate::sign::{Request, Signer, date_in, sha256};

const REQUESTS: usize = 1_050;

/// All that is logged, at every level.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How a request is signed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Header,
    Presigned,
    Chunks,
    ChunksAndTrailer,
}

/// A request that would be answered, and does something where it can.
fn request(random: &mut Random, client: &Client, how: How) -> Request {
    let mut request = match how {
        How::Chunks | How::ChunksAndTrailer => Request::new("PUT", "/data/dir/target"),
        _ => match random.below(6) {
            0 => Request::new("GET", "/data/dir/kept"),
            1 => Request::new("GET", "/data").query("list-type", "2").query("prefix", "dir/"),
            2 => Request::new("DELETE", "/data/dir/target"),
            3 => Request::new("PUT", "/data/dir/target").header("x-amz-copy-source", "/data/dir/kept"),
            4 => Request::new("HEAD", "/data/dir/kept").header("range", "bytes=1-2"),
            _ => Request::new("PUT", "/data/dir/target"),
        },
    };
    if request.method == "PUT" && request.get("x-amz-copy-source").is_none() {
        request.body = random.bytes(300);
        request.body.push(b'!');
        request = request.header("x-amz-meta-color", "blue");
    }
    request.set("host", &client.address.to_string());
    request
}

fn sign(request: &mut Request, signer: &Signer, how: How) {
    match how {
        How::Header => {
            let hash = sha256(&request.body);
            signer.sign(request, &hash);
        }
        How::Presigned => signer.presign(request, 600),
        How::Chunks => signer.stream(request, 100, None),
        How::ChunksAndTrailer => {
            use hmac::digest::Digest;
            let sum = base64(&sha2::Sha256::digest(&request.body));
            signer.stream(request, 100, Some(("x-amz-checksum-sha256", &sum)));
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let word = (0..3).fold(0_u32, |word, at| word << 8 | u32::from(*part.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = char::from(digits[(word >> (18 - 6 * at) & 63) as usize]);
            text.push(if at <= part.len() { digit } else { '=' });
        }
    }
    text
}

/// Changes a signed request in a way that gives it another meaning; what was changed.
fn alter(random: &mut Random, request: &mut Request, how: How) -> &'static str {
    loop {
        match random.below(12) {
            0 => {
                let other = *random.of(&["PUT", "DELETE", "GET", "HEAD", "POST"]);
                if other != request.method {
                    request.method = other.to_owned();
                    return "method";
                }
            }
            1 => {
                request.path.push_str("-other");
                return "path";
            }
            2 => {
                request.path = request.path.replacen("/data", "/other", 1);
                return "bucket";
            }
            3 => {
                let dotted = *random.of(&["/./data", "/data/.", "/x/../data", "//data"]);
                request.path = request.path.replacen("/data", dotted, 1);
                return "dot segments";
            }
            4 => {
                let added = *random.of(&["acl", "uploads", "delete", "tagging", "versionId", "partNumber"]);
                request.query.push((added.to_owned(), "1".to_owned()));
                return "query";
            }
            5 => {
                let value = *random.of(&["/data/dir/other", "/other/x", "/data/dir/../dir/kept"]);
                let was = request.get("x-amz-copy-source") == Some(value);
                request.set("x-amz-copy-source", value);
                if !was {
                    return "copy source";
                }
            }
            6 => {
                let name =
                    *random.of(&["x-amz-meta-color", "x-amz-acl", "x-amz-date", "x-amz-security-token"]);
                request.set(name, "altered");
                return "header";
            }
            7 if request.get("range").is_some() => {
                request.set("range", "bytes=0-9999");
                return "range";
            }
            // Presigned, the body is nobody's promise.
            8 if !request.body.is_empty() && how != How::Presigned => {
                let start = if how == How::Header { 0 } else { 90 };
                let at = start + random.below(request.body.len().saturating_sub(start).clamp(1, 10));
                let at = at.min(request.body.len() - 1);
                request.body[at] ^= 1 << random.below(7);
                return "body";
            }
            9 => {
                let signature = |text: &str| {
                    let at = text.find("ignature=").map(|at| at + 9)?;
                    let other = if text.as_bytes().get(at) == Some(&b'0') { "1" } else { "0" };
                    Some(format!("{}{other}{}", &text[..at], &text[at + 1..]))
                };
                if let Some(altered) = request.get("authorization").and_then(signature) {
                    request.set("authorization", &altered);
                } else if let Some((_, value)) =
                    request.query.iter_mut().find(|(name, _)| name == "X-Amz-Signature")
                {
                    let other = if value.starts_with('0') { "1" } else { "0" };
                    value.replace_range(..1, other);
                }
                return "signature";
            }
            10 => {
                request.set("host", "elsewhere.example");
                return "host";
            }
            11 => {
                let scoped = |text: &str| {
                    let to = ["/us-east-1/", "/eu-test-1x/"];
                    text.replace("/eu-test-1/", to[0]).replace("%2Feu-test-1%2F", "%2Fus-east-1%2F")
                };
                if let Some(altered) = request.get("authorization").map(scoped) {
                    request.set("authorization", &altered);
                }
                for (_, value) in &mut request.query {
                    *value = scoped(value);
                }
                return "scope";
            }
            _ => {}
        }
    }
}

/// All objects, and their bytes.
async fn state(served: &Served) -> Vec<(String, Vec<u8>, String)> {
    let client = served.client();
    let mut state = Vec::new();
    for bucket in client.get("/").await.ok().all("Name") {
        for key in client.get(&format!("/{bucket}")).await.ok().all("Key") {
            let read = client.get(&format!("/{bucket}/{key}")).await.ok();
            let color = read.header("x-amz-meta-color").unwrap_or_default().to_owned();
            state.push((format!("{bucket}/{key}"), read.body, color));
        }
    }
    state
}

#[tokio::test]
async fn whatever_is_altered_is_refused_and_changes_nothing_and_no_log_tells_a_secret() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // For the tests beside this one too: none of them may tell a secret.
    tracing::subscriber::set_global_default(subscriber).expect("nobody else in this process has one");
    let mut right_ones = Vec::new();
    {
        let served = serve().await;
        let client = served.client();
        client.put("/data/dir/kept", "kept as it is").await.ok();
        client.put("/data/dir/target", "target").await.ok();
        let mut random = Random(seed());
        let mut before = state(&served).await;
        let hows = [How::Header, How::Presigned, How::Chunks, How::ChunksAndTrailer];
        for number in 0..REQUESTS {
            let how = hows[number % hows.len()];
            let mut right = request(&mut random, &client, how);
            let plain = right.clone();
            sign(&mut right, &client.signer, how);
            let mut altered = right.clone();
            let what = alter(&mut random, &mut altered, how);
            // The server computed what would have been right for this: it must not say so anywhere.
            let mut resigned = altered.clone();
            if matches!(how, How::Header) {
                let hash = right.get("x-amz-content-sha256").unwrap_or_default().to_owned();
                right_ones.push(client.signer.sign(&mut resigned, &hash));
            }
            let answer = client.try_send(&altered).await;
            let refused = answer.as_ref().is_none_or(|answer| (400..500).contains(&answer.status));
            assert!(refused, "number {number}, {how:?}, {what}: {altered:?} gave {answer:?}");
            if number % 25 == 24 {
                let after = state(&served).await;
                assert!(before == after, "number {number}, {how:?}, {what} changed what is stored");
                // Right ones are taken still.
                let answer = client.send_raw(&right).await;
                assert!(
                    answer.status < 300 || answer.status == 404,
                    "{how:?} {plain:?}: {} {}",
                    answer.status,
                    answer.text()
                );
                client.put("/data/dir/target", "target").await.ok();
                before = state(&served).await;
            }
        }
        // All of the body is taken away.
        for how in [How::Header, How::Chunks, How::ChunksAndTrailer] {
            let mut request = Request::new("PUT", "/data/dir/target").body("all of it");
            request.set("host", &client.address.to_string());
            sign(&mut request, &client.signer, how);
            request.body.clear();
            assert_eq!(client.send_raw(&request).await.status, 400, "{how:?}");
        }
        assert!(before == state(&served).await);
        for shift in [-3600, 3600] {
            let late = Signer { date: date_in(shift), ..client.signer.clone() };
            let mut request = Request::new("GET", "/data/dir/kept");
            request.set("host", &client.address.to_string());
            late.sign(&mut request, &sha256(b""));
            assert_eq!(client.send_raw(&request).await.code(), "RequestTimeTooSkewed");
        }
        let mut expired = Request::new("GET", "/data/dir/kept");
        expired.set("host", &client.address.to_string());
        Signer { date: date_in(-100), ..client.signer.clone() }.presign(&mut expired, 60);
        assert_eq!(client.send_raw(&expired).await.status, 403);
        let wrong = Client::new(client.address, KEY, "another secret, of the same kind");
        assert_eq!(wrong.get("/data/dir/kept").await.code(), "SignatureDoesNotMatch");
        let unknown = Client::new(client.address, "AKNOBODY", SECRET);
        assert_eq!(unknown.get("/data/dir/kept").await.code(), "InvalidAccessKeyId");
        let mut anonymous = Request::new("GET", "/data/dir/kept");
        anonymous.set("host", &client.address.to_string());
        assert_eq!(client.send_raw(&anonymous).await.code(), "AccessDenied");
    }
    let log = log.text();
    assert!(log.contains("s3s") || log.len() > 1000, "something was logged");
    assert!(!log.contains(SECRET));
    for right in right_ones {
        assert!(!log.contains(&right), "a signature that would have been right is in the log");
    }
}

/// Clients move headers into the query of a URL that they sign: there is nobody to send them.
#[tokio::test]
async fn headers_in_the_query_of_a_presigned_url_count_as_headers() {
    let served = serve().await;
    let client = served.client();
    let put = |parameters: &[(&str, &str)], body: Vec<u8>| {
        let request = Request::new("PUT", "/data/x").body(body);
        let mut request =
            parameters.iter().fold(request, |request, (name, value)| request.query(name, value));
        request.set("host", &client.address.to_string());
        client.signer.presign(&mut request, 600);
        request
    };
    // More than is taken of a body that is XML.
    let body = vec![7; 9 << 20];
    let parameters = [
        ("x-amz-acl", "private"),
        ("X-Amz-Storage-Class", "STANDARD"),
        ("X-Amz-Meta-Color", "light blue"),
        // As JavaScript's client does, which knows no bytes yet: that of none.
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-sdk-checksum-algorithm", "CRC32"),
        ("x-id", "PutObject"),
        ("x-unknown", "x"),
    ];
    client.send_raw(&put(&parameters, body.clone())).await.ok();
    let read = client.get("/data/x").await.ok();
    assert!(read.body == body);
    assert_eq!(read.header("x-amz-meta-color"), Some("light blue"));
    assert_eq!(read.header("x-amz-checksum-crc32"), None);
    let mut altered = put(&parameters, body);
    altered
        .query
        .iter_mut()
        .filter(|(name, _)| name == "X-Amz-Meta-Color")
        .for_each(|it| it.1 = "red".into());
    assert_eq!(client.send_raw(&altered).await.code(), "SignatureDoesNotMatch");
    let mut twice = Request::new("PUT", "/data/x").query("x-amz-meta-color", "red").body("y");
    twice.set("host", &client.address.to_string());
    twice.set("x-amz-meta-color", "blue");
    client.signer.presign(&mut twice, 600);
    assert_eq!(client.send_raw(&twice).await.code(), "InvalidArgument");
    // One that says what is asked for.
    let copy = put(&[("x-amz-copy-source", "/data/none")], Vec::new());
    assert_eq!(client.send_raw(&copy).await.code(), "NoSuchKey");
    assert_eq!(client.get("/data/x").await.ok().header("x-amz-meta-color"), Some("light blue"));
}
