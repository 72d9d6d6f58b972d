//! A way to a store that loses requests, or answers to what the store has done.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Says by the head of a request, in lower case, whether it is of the kind that suffers.
pub type RequestKind = fn(&str) -> bool;

/// Hands on everything, but for what it is told to lose: it cuts the connection in its place.
pub struct LossyLine {
    pub address: SocketAddr,
    loss: Arc<Mutex<Option<Loss>>>,
}

#[derive(Clone, Copy)]
enum Loss {
    /// Of the next request of this kind.
    Answer(RequestKind),
    /// Every one of this kind.
    Requests(RequestKind),
}

impl LossyLine {
    pub async fn to(store: SocketAddr) -> LossyLine {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let loss = Arc::<Mutex<Option<Loss>>>::default();
        let shared = loss.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(store).await else { continue };
                tokio::spawn(carry(client, server, shared.clone()));
            }
        });
        LossyLine { address, loss }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Loses the answer to the next request of this kind.
    pub fn lose_answer(&self, of: RequestKind) {
        self.set(Some(Loss::Answer(of)));
    }

    /// Loses the requests of this kind, until `heal`.
    pub fn lose_requests(&self, of: RequestKind) {
        self.set(Some(Loss::Requests(of)));
    }

    pub fn heal(&self) {
        self.set(None);
    }

    fn set(&self, loss: Option<Loss>) {
        *self.loss.lock().expect("no panic holds it") = loss;
    }
}

/// A change that has a condition, which is what completes an object.
pub fn is_conditional_change(head: &str) -> bool {
    let changes = head.starts_with("put ") || head.starts_with("post ");
    changes
        && (head.contains("\r\nif-match:")
            || head.contains("\r\nif-none-match:")
            || head.contains("ifgenerationmatch="))
}

/// The completion of an upload at an S3 store.
pub fn is_completion(head: &str) -> bool {
    head.starts_with("post ") && head.contains("uploadid=")
}

/// A part of an upload at an S3 store.
pub fn is_part(head: &str) -> bool {
    head.starts_with("put ") && head.contains("partnumber=")
}

/// The end of an upload at an S3 store.
pub fn is_abort(head: &str) -> bool {
    head.starts_with("delete ") && head.contains("uploadid=")
}

/// What becomes of this request.
fn loss_of(loss: &Mutex<Option<Loss>>, head: &str) -> Option<Loss> {
    let mut loss = loss.lock().expect("no panic holds it");
    match *loss {
        Some(Loss::Answer(of)) if of(head) => loss.take(),
        Some(Loss::Requests(of)) if of(head) => *loss,
        _ => None,
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, loss: Arc<Mutex<Option<Loss>>>) {
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut lose = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                // A client sends its next request when it has the answer: each begins a piece of its own.
                let text = String::from_utf8_lossy(&up[..length.min(8192)]).to_ascii_lowercase();
                match loss_of(&loss, &text) {
                    Some(Loss::Requests(_)) => return,
                    Some(Loss::Answer(_)) => lose = true,
                    None => {}
                }
                if server.write_all(&up[..length]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(length @ 1..) = read else { return };
                if lose || client.write_all(&down[..length]).await.is_err() { return }
            }
        }
    }
}
