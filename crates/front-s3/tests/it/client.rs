//! A client that can send anything, over one connection per request.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::served::REGION;
use crate::sign::{Request, Signer, date_in, sha256};

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub signer: Signer,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// All texts of this XML element.
    pub fn all(&self, element: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        let parts = text.split(&open).skip(1).filter_map(|part| part.split_once(&close));
        parts.map(|(value, _)| unescape(value)).collect()
    }

    pub fn code(&self) -> String {
        self.all("Code").into_iter().next().unwrap_or_default()
    }

    #[track_caller]
    pub fn ok(self) -> Answer {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        self
    }

    pub fn etag(&self) -> String {
        self.header("etag").unwrap_or_default().trim_matches('"').to_owned()
    }
}

fn unescape(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#34;", "\""),
        ("&#13;", "\r"),
        ("&amp;", "&"),
    ];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

impl Client {
    pub fn new(address: SocketAddr, id: &str, secret: &str) -> Client {
        let signer = Signer {
            id: id.to_owned(),
            secret: secret.to_owned(),
            region: REGION.to_owned(),
            date: date_in(0),
        };
        Client { address, signer }
    }

    /// Signed by its header, with the hash of its body.
    pub async fn send(&self, mut request: Request) -> Answer {
        request.set("host", &self.address.to_string());
        let hash = sha256(&request.body);
        self.signer.sign(&mut request, &hash);
        self.send_raw(&request).await
    }

    /// As it is.
    pub async fn send_raw(&self, request: &Request) -> Answer {
        self.try_send(request).await.expect("an answer")
    }

    pub async fn try_send(&self, request: &Request) -> Option<Answer> {
        self.exchange(&bytes_of(request), request.method == "HEAD").await
    }

    /// Any bytes; `None`: no answer came.
    pub async fn exchange(&self, bytes: &[u8], is_head: bool) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        // It may close in the middle of what it does not want.
        let _ = stream.write_all(bytes).await;
        let mut all = Vec::new();
        let read = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut all));
        let _ = read.await.expect("in time");
        parse(&all, is_head)
    }

    pub async fn try_send_signed(&self, mut request: Request) -> Option<Answer> {
        request.set("host", &self.address.to_string());
        let hash = sha256(&request.body);
        self.signer.sign(&mut request, &hash);
        self.try_send(&request).await
    }

    /// As `exchange`, and says that nothing more will come.
    pub async fn exchange_half(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut all = Vec::new();
        let read = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut all));
        let _ = read.await.expect("in time");
        let end = all.windows(4).position(|window| window == b"\r\n\r\n")?;
        // Its body may be of any kind, or of several answers.
        parse(&all[..end + 4], true)
    }

    pub async fn put(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.send(Request::new("PUT", path).body(body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::new("GET", path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Request::new("DELETE", path)).await
    }
}

pub fn bytes_of(request: &Request) -> Vec<u8> {
    let query: Vec<_> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let mut head = format!("{} {}{query} HTTP/1.1\r\n", request.method, request.path);
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if request.get("content-length").is_none() {
        head.push_str(&format!("content-length: {}\r\n", request.body.len()));
    }
    head.push_str("connection: close\r\n\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&request.body);
    bytes
}

pub fn parse(bytes: &[u8], is_head: bool) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    if status == 100 {
        return parse(&bytes[end + 4..], is_head);
    }
    let mut answer = Answer { status, headers, body: bytes[end + 4..].to_vec() };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = unchunked(&answer.body);
    } else if let Some(length) = answer.header("content-length").filter(|_| !is_head && status != 304) {
        assert_eq!(length, answer.body.len().to_string(), "{head}");
    }
    Some(answer)
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size =
            usize::from_str_radix(&String::from_utf8_lossy(&bytes[..end]), 16).expect("a chunk's size");
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 2 + size + 2..];
        if size == 0 {
            break;
        }
    }
    body
}
