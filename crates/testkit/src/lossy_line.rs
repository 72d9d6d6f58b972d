//! A way to a store that loses answers to changes which the store has made.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Whether the head of a request, in lower case, is one whose answer is lost.
pub type IsLost = fn(&str) -> bool;

/// Hands on everything, but for the answers that it is told to lose: it cuts the connection in their place.
pub struct LossyLine {
    pub address: SocketAddr,
    loses: Arc<Mutex<Losses>>,
}

#[derive(Clone, Copy, Default)]
struct Losses {
    what: Option<IsLost>,
    once: bool,
}

impl LossyLine {
    pub async fn to(store: SocketAddr) -> LossyLine {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let loses = Arc::<Mutex<Losses>>::default();
        let shared = loses.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(store).await else { continue };
                tokio::spawn(carry(client, server, shared.clone()));
            }
        });
        LossyLine { address, loses }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Loses the next answer of this kind.
    pub fn lose_next(&self, what: IsLost) {
        self.set(Losses { what: Some(what), once: true });
    }

    /// Loses all answers of this kind, until `heal`.
    pub fn lose_all(&self, what: IsLost) {
        self.set(Losses { what: Some(what), once: false });
    }

    pub fn heal(&self) {
        self.set(Losses::default());
    }

    fn set(&self, losses: Losses) {
        *self.loses.lock().expect("no panic holds it") = losses;
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

/// The end of an upload at an S3 store.
pub fn is_abort(head: &str) -> bool {
    head.starts_with("delete ") && head.contains("uploadid=")
}

fn is_to_lose(losses: &Mutex<Losses>, head: &str) -> bool {
    let mut losses = losses.lock().expect("no panic holds it");
    let is_lost = losses.what.is_some_and(|what| what(head));
    if is_lost && losses.once {
        *losses = Losses::default();
    }
    is_lost
}

async fn carry(mut client: TcpStream, mut server: TcpStream, losses: Arc<Mutex<Losses>>) {
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut lose = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                // A client sends its next request when it has the answer: each begins a piece of its own.
                let text = String::from_utf8_lossy(&up[..length.min(8192)]).to_ascii_lowercase();
                lose |= is_to_lose(&losses, &text);
                if server.write_all(&up[..length]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(length @ 1..) = read else { return };
                if lose || client.write_all(&down[..length]).await.is_err() { return }
            }
        }
    }
}
