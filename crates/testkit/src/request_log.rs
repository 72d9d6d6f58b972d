//! A way to a store by which each request is written down: what a test wants to count is what travels.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct RequestLog {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<StoreCall>>>,
}

/// A request as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCall {
    pub method: String,
    /// With its query.
    pub target: String,
    /// It names a source whose bytes the store is to take.
    pub copies: bool,
    /// It names a range of that source, at an S3 store.
    pub copies_range: bool,
    /// The mark of the write that makes the object, where the store takes it as a header.
    pub mark: Option<String>,
}

impl StoreCall {
    fn parse(head: &str) -> StoreCall {
        let mut first = head.lines().next().unwrap_or_default().split(' ');
        let mut next = || first.next().unwrap_or_default().to_owned();
        let (method, target) = (next(), next());
        let head = head.to_ascii_lowercase();
        let copies =
            head.contains("copy-source") || target.contains("/rewriteTo/") || target.contains("/copyTo/");
        let copies_range = head.contains("copy-source-range");
        let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let is_mark = |name: &str| name.ends_with("-forebay-draft") || name.ends_with("-forebay_draft");
        let mark = fields.into_iter().find(|(name, _)| is_mark(name)).map(|(_, mark)| mark.trim().to_owned());
        StoreCall { method, target, copies, copies_range, mark }
    }

    /// Whether it is this one, sent once more because no answer came: of the same write, or of the same part of an upload.
    pub fn repeats(&self, other: &StoreCall) -> bool {
        let parts = ["partNumber=", "blockid=", "comp=blocklist"];
        let is_one = self.mark.is_some() || parts.iter().any(|part| self.target.contains(part));
        is_one && self == other
    }

    /// Whether it changes something.
    pub fn is_change(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD")
    }
}

impl RequestLog {
    pub async fn before(store: SocketAddr) -> RequestLog {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(store).await else { continue };
                tokio::spawn(carry(client, server, log.clone()));
            }
        });
        RequestLog { address, requests }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests since the last call.
    pub fn take(&self) -> Vec<StoreCall> {
        std::mem::take(&mut *self.requests.lock().expect("no panic holds it"))
    }
}

async fn carry(client: TcpStream, server: TcpStream, log: Arc<Mutex<Vec<StoreCall>>>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let answers = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let (mut pending, mut body, mut piece) = (Vec::new(), 0, vec![0; 64 << 10]);
    while let Ok(length @ 1..) = from_client.read(&mut piece).await {
        pending.extend_from_slice(&piece[..length]);
        loop {
            let of_body = body.min(pending.len());
            pending.drain(..of_body);
            body -= of_body;
            let Some(end) = pending.windows(4).position(|window| window == b"\r\n\r\n") else { break };
            let head = String::from_utf8_lossy(&pending[..end]).into_owned();
            pending.drain(..end + 4);
            body = length_of_body(&head);
            log.lock().expect("no panic holds it").push(StoreCall::parse(&head));
        }
        if to_server.write_all(&piece[..length]).await.is_err() {
            break;
        }
    }
    let _ = to_server.shutdown().await;
    let _ = answers.await;
}

fn length_of_body(head: &str) -> usize {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut length = 0;
    for (name, value) in fields {
        assert!(!name.eq_ignore_ascii_case("transfer-encoding"), "a body without a length cannot be skipped");
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().expect("a length");
        }
    }
    length
}
