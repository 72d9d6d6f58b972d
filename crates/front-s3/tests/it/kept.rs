//! Connections that are kept: what is answered straight from the cached file is what everything else would be answered.

use origin::memory::generated;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{ByteRange, ErrorKind};

use crate::client::{Answer, Client, bytes_of, parse};
use crate::served::{Served, serve_with};
use crate::sign::{Request, sha256};

const SIZE: u64 = 5_000_001;

async fn served() -> Served {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"data").expect("made");
            origin.generate_file(b"data/big", 7, SIZE).expect("made");
        },
        |_| {},
    )
    .await;
    let small = Request::new("PUT", "/data/dir/small +%")
        .header("content-type", "text/x")
        .header("x-amz-meta-a", "b");
    served.client().send(small.header("x-amz-checksum-crc32", "DUoRhQ==").body("hello world")).await.ok();
    served.client().put("/data/empty", "").await.ok();
    served
}

fn signed(client: &Client, mut request: Request) -> Request {
    request.set("host", &client.address.to_string());
    client.signer.sign(&mut request, &sha256(b""));
    request
}

/// Over one connection, one after the other; several may be sent before the first is answered.
async fn kept(stream: &mut TcpStream, requests: &[&Request]) -> Vec<Answer> {
    let closing = b"connection: close\r\n";
    for request in requests {
        let bytes = bytes_of(request);
        let at = bytes.windows(closing.len()).position(|window| window == closing).expect("it is there");
        stream.write_all(&[&bytes[..at], &bytes[at + closing.len()..]].concat()).await.expect("sent");
    }
    let mut answers = Vec::new();
    let mut read = Vec::new();
    for request in requests {
        let has_no_body = request.method == "HEAD";
        let mut head = None;
        loop {
            head = head.or_else(|| read.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4));
            if let Some(head) = head {
                let told = parse(&read[..head], true).expect("a head");
                let length =
                    told.header("content-length").map_or(0, |length| length.parse().expect("a number"));
                let whole = if has_no_body || told.status == 304 { head } else { head + length };
                if read.len() >= whole {
                    let rest = read.split_off(whole);
                    let answer = parse(&std::mem::replace(&mut read, rest), has_no_body);
                    answers.push(answer.expect("an answer"));
                    break;
                }
            }
            assert!(stream.read_buf(&mut read).await.expect("it goes on") > 0, "it ended in the middle");
        }
    }
    answers
}

fn told(answer: &Answer) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let of_the_moment = ["date", "x-amz-request-id", "connection"];
    let mut headers: Vec<_> =
        answer.headers.iter().filter(|(name, _)| !of_the_moment.contains(&name.as_str())).cloned().collect();
    headers.sort();
    let mut text = answer.body.clone();
    if let Some(id) = answer.header("x-amz-request-id")
        && let Some(at) = text.windows(id.len()).position(|part| part == id.as_bytes())
    {
        text.drain(at..at + id.len()); // an error's body has it too
    }
    (answer.status, headers, text)
}

#[tokio::test]
async fn a_kept_connection_is_answered_as_any_other() {
    let served = served().await;
    let client = served.client();
    let small = "/data/dir/small +%";
    let last = format!("bytes={}-", SIZE - 100);
    let mut requests = vec![
        Request::new("GET", small),
        Request::new("HEAD", small),
        Request::new("GET", small).header("x-amz-checksum-mode", "ENABLED"),
        Request::new("GET", small).header("range", "bytes=2-4"),
        Request::new("HEAD", small).header("range", "bytes=2-4"),
        Request::new("GET", small).header("range", "bytes=-4"),
        Request::new("GET", small).header("range", "bytes=0-1,3-4"),
        Request::new("GET", small).query("x-id", "GetObject"),
        Request::new("GET", "/data/empty"),
        Request::new("GET", "/data/big"),
        Request::new("GET", "/data/big").header("range", "bytes=1000000-3999999"),
        Request::new("GET", "/data/big").header("range", &last),
        // Those that are for others, each of which is followed by one that is not.
        Request::new("GET", "/data/none"),
        Request::new("GET", "/data/dir/"),
        Request::new("GET", "/data"),
        Request::new("GET", small).header("if-none-match", "*"),
        Request::new("GET", small).header("range", "bytes=99-"),
        Request::new("GET", small).query("response-content-type", "image/png"),
        Request::new("GET", "/data/a//b"),
        Request::new("DELETE", "/data/none"),
    ];
    requests = requests.into_iter().map(|request| signed(&client, request)).collect();
    let mut presigned = Request::new("GET", small);
    presigned.set("host", &client.address.to_string());
    client.signer.presign(&mut presigned, 60);
    requests.insert(3, presigned);
    let mut wrong = signed(&client, Request::new("GET", small));
    wrong.set("range", "bytes=0-0");
    requests.push(wrong);
    // Twice: the second time everything lies in the cache.
    for _ in 0..2 {
        for request in &requests {
            let expected = told(&client.send_raw(request).await);
            let mut stream = TcpStream::connect(client.address).await.expect("it listens");
            let answers = kept(&mut stream, &[&requests[0], request, &requests[1]]).await;
            assert!(
                told(&answers[1]) == expected,
                "{request:?}: {:?} and not {:?}",
                answers[1].headers,
                expected.1
            );
            assert_eq!((answers[0].status, answers[2].status), (200, 200), "{request:?}");
        }
    }
    let mut stream = TcpStream::connect(client.address).await.expect("it listens");
    let big = signed(&client, Request::new("GET", "/data/big"));
    for answer in kept(&mut stream, &[&big, &big]).await {
        assert!(answer.body == generated(7, ByteRange::new(0, SIZE)));
    }
    assert!(served.metric("forebay_s3_read_lent_bytes_total") > SIZE, "the kernel has sent it");
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_read_as_any_other() {
    let served = served().await;
    let client = served.client();
    let bytes = bytes_of(&signed(&client, Request::new("GET", "/data/dir/small +%")));
    let mut stream = TcpStream::connect(client.address).await.expect("it listens");
    stream.set_nodelay(true).expect("set");
    for part in bytes.chunks(7) {
        stream.write_all(part).await.expect("sent");
        tokio::task::yield_now().await;
    }
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("it ends: it was asked to");
    assert_eq!(parse(&all, false).expect("an answer").ok().text(), "hello world");
}

#[tokio::test]
async fn altered_requests_are_refused_over_a_kept_connection_too() {
    let served = served().await;
    let client = served.client();
    let right = signed(&client, Request::new("GET", "/data/dir/small +%").header("range", "bytes=0-4"));
    let altered = |change: &dyn Fn(&mut Request)| {
        let mut request = right.clone();
        change(&mut request);
        request
    };
    for request in [
        altered(&|request| request.path.push('x')),
        altered(&|request| request.path = request.path.replace("/dir/", "/dir/../dir/")),
        altered(&|request| request.path = request.path.replace("dir", "./dir")),
        altered(&|request| request.method = "HEAD".to_owned()),
        altered(&|request| request.set("range", "bytes=0-5")),
        altered(&|request| request.set("x-amz-date", "20200101T000000Z")),
        altered(&|request| request.set("host", "elsewhere")),
        altered(&|request| request.set("x-amz-checksum-mode", "ENABLED")),
        altered(&|request| request.query.push(("x-id".to_owned(), "GetObject".to_owned()))),
        altered(&|request| request.set("x-amz-content-sha256", "UNSIGNED-PAYLOAD")),
        altered(&|request| request.headers.retain(|(name, _)| name != "authorization")),
    ] {
        let mut stream = TcpStream::connect(client.address).await.expect("it listens");
        let answers = kept(&mut stream, &[&right, &request]).await;
        assert_eq!((answers[0].status, answers[1].status / 100), (206, 4), "{request:?}");
    }
    let denied = signed(&served.reader(), Request::new("GET", "/other/x"));
    let mut stream = TcpStream::connect(client.address).await.expect("it listens");
    assert_eq!(kept(&mut stream, &[&denied]).await[0].status, 403);
}

/// A head that ends in bare line feeds ends before the next one's: what lies between is a request, and no part of this one.
#[tokio::test]
async fn a_request_behind_a_head_of_bare_line_feeds_is_answered_too() {
    let served = served().await;
    let client = served.client();
    let small = signed(&client, Request::new("GET", "/data/dir/small +%"));
    let head = bytes_of(&Request { method: "HEAD".to_owned(), ..small.clone() });
    let first = String::from_utf8(bytes_of(&small)).expect("text").replace("connection: close\r\n", "");
    for first in [first.replace("\r\n", "\n"), first.replace("\r\n\r\n", "\r\n\n")] {
        let mut stream = TcpStream::connect(client.address).await.expect("it listens");
        stream.write_all(&[first.as_bytes(), &head].concat()).await.expect("sent");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("it ends: it was asked to");
        let answers = String::from_utf8_lossy(&all).matches("HTTP/1.1 ").count();
        assert_eq!(answers, 2, "{}", String::from_utf8_lossy(&all));
    }
}

/// By the fast path, and by the other.
fn both(path: &str) -> [Request; 2] {
    [Request::new("GET", path), Request::new("GET", path).header("if-none-match", "\"another\"")]
}

/// Its head had said that all was well.
#[tokio::test]
async fn a_get_whose_first_bytes_cannot_be_read_is_told_so() {
    let served = served().await;
    let client = served.client();
    let tells = [(ErrorKind::Unavailable, 503, "ServiceUnavailable"), (ErrorKind::Busy, 503, "SlowDown")];
    for (kind, status, code) in tells {
        for request in both("/data/big") {
            client.send(Request::new("HEAD", "/data/big")).await.ok();
            served.far.fail("read", kind, 1000);
            let answer = client.send(request).await;
            assert_eq!((answer.status, answer.code().as_str()), (status, code));
        }
    }
    served.far.fail("read", ErrorKind::Unavailable, 0);
    for request in both("/data/big") {
        assert!(client.send(request).await.ok().body == generated(7, ByteRange::new(0, SIZE)));
    }
    assert_eq!(served.metric("forebay_s3_aborted_total"), 0);
}

#[tokio::test]
async fn a_get_of_a_version_that_is_gone_is_answered_with_the_new_one() {
    let served = served().await;
    let client = served.client();
    for (seed, request) in (8..).zip(both("/data/big")) {
        served.vfs.evict(b"/data/big").await.expect("evicted");
        client.send(Request::new("HEAD", "/data/big")).await.ok();
        let origin = served.origin.clone();
        let size = SIZE + seed;
        served.far.before("read", move || origin.generate_file(b"data/big", seed, size).expect("replaced"));
        let answer = client.send(request).await.ok();
        assert!(answer.body == generated(seed, ByteRange::new(0, size)), "{} bytes", answer.body.len());
    }
}
