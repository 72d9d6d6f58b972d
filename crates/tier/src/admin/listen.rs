//! Connections to the operator's interface: by the Unix socket, by TCP, and by the listener of metrics. Each kind has its own
//! bound, and when that is reached the least active connection of who has most is closed for a new one, so that nobody can
//! lock the operator out; none waits for ever for a request.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use fair::{ConnectionSlot, ConnectionSlots, SlotAdmission, SlotLimits};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::{mpsc, watch};
use tower_service::Service;
use tracing::warn;
use types::{Error, ErrorKind, Result};

use super::guard::Peer;
use crate::door::Door;

/// Connections that the system holds until they are accepted.
const BACKLOG: u32 = 1024;
/// Of each kind.
const CONNECTIONS_MAX: usize = 64;
/// The head of a request takes no longer, nor is a connection idle for longer.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Of the head of a request.
const HEAD_MAX: usize = 64 << 10;
/// After a refusal by the system, such as no free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the operator is listened for.
#[derive(Debug)]
pub struct Doors {
    pub tcp: TcpListener,
    pub socket: UnixListener,
    /// Of metrics and health alone.
    pub metrics: Option<TcpListener>,
    /// The socket's place goes when nobody listens any more.
    pub door: Door,
}

/// Takes the address, at which nobody is heard before [`listen_on`]. `option` is how another one is chosen.
pub fn bind(address: SocketAddr, option: &str) -> Result<TcpSocket> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bound().map_err(|e| is_taken(address, option, e))
}

pub fn listen_on(socket: TcpSocket, address: SocketAddr, option: &str) -> Result<TcpListener> {
    socket.listen(BACKLOG).map_err(|e| is_taken(address, option, e))
}

fn is_taken(address: SocketAddr, option: &str, error: std::io::Error) -> Error {
    let message = format!("on {address} (choose another address with {option})");
    Error::new(ErrorKind::Busy, "listen for the operator", message).with_source(error)
}

enum Listening {
    Tcp(TcpListener),
    Socket(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listening {
    async fn next(&self) -> std::io::Result<(Box<dyn Stream>, Peer)> {
        match self {
            Listening::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                let at = stream.local_addr().map_or(IpAddr::from([0, 0, 0, 0]), |at| at.ip());
                Ok((Box::new(stream), Peer::Tcp { from, at }))
            }
            Listening::Socket(listener) => {
                let (stream, _) = listener.accept().await?;
                let of = stream.peer_cred()?;
                let peer = Peer::Socket { uid: of.uid(), pid: of.pid().unwrap_or(0) };
                Ok((Box::new(stream), peer))
            }
        }
    }
}

/// Until `stop`, and then until what was asked is answered.
pub async fn serve(doors: Doors, all: Router, metrics: Router, stop: watch::Receiver<bool>) {
    let of_metrics = async {
        if let Some(listener) = doors.metrics {
            accept(Listening::Tcp(listener), metrics, stop.clone()).await;
        }
    };
    tokio::join!(
        accept(Listening::Tcp(doors.tcp), all.clone(), stop.clone()),
        accept(Listening::Socket(doors.socket), all, stop.clone()),
        of_metrics
    );
    drop(doors.door);
}

async fn accept(listening: Listening, router: Router, mut stop: watch::Receiver<bool>) {
    let slots = ConnectionSlots::new(SlotLimits { all: CONNECTIONS_MAX, client: CONNECTIONS_MAX });
    let ended = stop.clone();
    // Each connection has a sender; when all are gone, so are the connections.
    let (open, mut drained) = mpsc::channel::<()>(1);
    let accepting = async {
        loop {
            match listening.next().await {
                Ok((stream, peer)) => {
                    let SlotAdmission::Taken { slot, .. } = slots.admit(client_of(peer), None) else {
                        continue;
                    };
                    let talking = talk(stream, peer, router.clone(), slot, ended.clone());
                    let open = open.clone();
                    tokio::spawn(async move {
                        talking.await;
                        drop(open);
                    });
                }
                Err(e) => {
                    warn!("accept a connection of the operator: {e}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::select! {
        () = accepting => {}
        () = stopped => {}
    }
    drop(listening); // nobody new
    drop(open);
    let _all_ended = drained.recv().await;
}

/// Whose connections are counted together. A local user is no address: each is one of a network that leads nowhere (RFC 6666).
fn client_of(peer: Peer) -> IpAddr {
    match peer {
        Peer::Tcp { from, .. } => from.ip(),
        Peer::Socket { uid, .. } => {
            let [high, low] = [(uid >> 16) as u16, uid as u16];
            IpAddr::from(Ipv6Addr::new(0x100, 0, high, low, 0, 0, 0, 0))
        }
    }
}

async fn talk(
    stream: Box<dyn Stream>,
    peer: Peer,
    router: Router,
    slot: ConnectionSlot,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // What is wrong with a connection is its client's matter.
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = slot.closed() => return,
        () = stopped => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn nobody_is_heard_at_an_address_that_was_taken_before_it_is_listened_on() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let socket = bind(any, "--admin").expect("free");
        let address = socket.local_addr().expect("bound");
        assert!(TcpStream::connect(address).is_err());
        let _listener = listen_on(socket, any, "--admin").expect("listens");
        assert!(TcpStream::connect(address).is_ok());
        assert_eq!(bind(address, "--admin").expect_err("it is taken").kind(), ErrorKind::Busy);
    }
}
