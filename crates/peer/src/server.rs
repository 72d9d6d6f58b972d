//! The port that other nodes call: it listens on several addresses, takes connections, learns whose they are, and drains
//! them at the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fair::{Offence, SlotAdmission, WriteTimeoutStream};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};
use types::{Error, ErrorKind, Result};

use crate::answering;
use crate::identity::{PeerIdentity, explain};
use crate::inbound::{InboundConnection, PeerPort};
use crate::message::{HEAD_MAX, ReadRole};
use crate::peer_name::PeerName;
use crate::server_config::PeerServerConfig;
use crate::service::PeerService;

/// The pause after a failed accept (no descriptors left): other tasks may close theirs meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
const HEADERS_MAX: usize = 64;
/// For how long, and for how many bytes, a refused client is listened to, so that it reads why.
const REFUSED_LINGER: Duration = Duration::from_millis(500);
const REFUSED_BYTES: u64 = 64 << 10;

/// The port for other nodes, listening and not serving yet. [`PeerServer::serve`] takes connections until it is told to stop.
pub struct PeerServer {
    listeners: Vec<TcpListener>,
    shared: Arc<PeerPort>,
}

impl PeerServer {
    /// Listens on each address of the configuration.
    ///
    /// Errors: `Config` without an address; otherwise what the system says of one, such as `AccessDenied`.
    pub async fn bind(
        config: PeerServerConfig,
        identity: PeerIdentity,
        service: Arc<dyn PeerService>,
    ) -> Result<PeerServer> {
        let listeners = PeerServer::listen(&config.listen).await?;
        Ok(PeerServer::over(listeners, config, identity, service))
    }

    /// Listens on each address. Connections wait from now on until a server over these listeners takes them: whoever is about to be
    /// known to the other nodes listens first, or their first calls are refused and they leave the path for a while.
    ///
    /// Errors: as of [`PeerServer::bind`].
    pub async fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>> {
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = TcpListener::bind(address).await;
            listeners.push(listener.map_err(|e| Error::io("listen for other nodes on", address, e))?);
        }
        if listeners.is_empty() {
            let why = "no address to listen on is configured";
            return Err(Error::new(ErrorKind::Config, "listen for other nodes:", why));
        }
        Ok(listeners)
    }

    /// A server over listeners of [`PeerServer::listen`].
    pub fn over(
        listeners: Vec<TcpListener>,
        config: PeerServerConfig,
        identity: PeerIdentity,
        service: Arc<dyn PeerService>,
    ) -> PeerServer {
        if !identity.is_secure() {
            warn!("other nodes are believed what they claim to be: there are no certificates");
        }
        let shared = Arc::new(PeerPort::new(config, identity, service));
        PeerServer { listeners, shared }
    }

    pub fn local_addrs(&self) -> Result<Vec<SocketAddr>> {
        let of = |listener: &TcpListener| {
            listener.local_addr().map_err(|e| Error::io("ask for the address of", "a listener", e))
        };
        self.listeners.iter().map(of).collect()
    }

    /// The bytes in flight that serve others in a role, kept current.
    pub fn bytes_in_flight(&self) -> impl Fn(ReadRole) -> usize + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |role| shared.peers.bytes_in_flight(role)
    }

    /// Serves until `stop` is true; then answers the calls that have arrived, and returns.
    pub async fn serve(self, stop: watch::Receiver<bool>) {
        let mut listening = JoinSet::new();
        for listener in self.listeners {
            listening.spawn(listen(self.shared.clone(), listener, stop.clone()));
        }
        while listening.join_next().await.is_some() {}
    }
}

async fn listen(port: Arc<PeerPort>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        while connections.try_join_next().is_some() {} // those that have ended
        match accepted {
            Ok((stream, address)) => {
                let Some(connection) = port.admit(address) else { continue };
                socket_options::for_node(&stream, port.config.dead_after);
                connections.spawn(run(connection, stream, stop.clone()));
            }
            Err(e) => {
                warn!("accept a connection of a node: {e}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let end = Instant::now() + port.config.drain_timeout;
    while let Ok(Some(_)) = timeout_at(end, connections.join_next()).await {}
    // What has not ended by now is cut with the set.
}

async fn run(connection: Arc<InboundConnection>, stream: TcpStream, stop: watch::Receiver<bool>) {
    let work = async {
        match connection.port.identity.acceptor() {
            None => by_hyper(&connection, stream, stop).await,
            Some(tls) => {
                if let Some(stream) = agree(&connection, tls, stream).await {
                    by_hyper(&connection, stream, stop).await;
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = connection.slot_lost() => {}
    }
}

/// Completes the TLS handshake and learns whose connection it is. Connections in a handshake have slots of their own, few
/// of them and for a short time, so that they cannot take those of nodes that work.
async fn agree(
    connection: &InboundConnection,
    tls: TlsAcceptor,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let slot = match connection.port.handshakes.admit(connection.address, None) {
        SlotAdmission::Taken { slot, .. } => slot,
        SlotAdmission::Refused => {
            connection.record_offence(Offence::Handshake);
            return None;
        }
    };
    let agreed = tokio::select! {
        agreed = timeout(HANDSHAKE, tls.accept(stream).into_fallible()) => agreed,
        () = slot.closed() => return None,
    };
    match agreed {
        Ok(Ok(stream)) => {
            let name = PeerName::of_certificates(stream.get_ref().1.peer_certificates());
            if let Err(e) = name.and_then(|name| connection.belongs_to(&name)) {
                connection.refuse(e);
            }
            return Some(stream);
        }
        Ok(Err((e, stream))) => {
            let why = explain(&e).unwrap_or_else(|| e.to_string());
            debug!(address = %connection.address, "no TLS with a node: {why}");
            linger(stream).await;
        }
        Err(_) => debug!(address = %connection.address, "no TLS with a node in time"),
    }
    connection.record_offence(Offence::Handshake);
    None
}

/// Reads on for a moment: closed with bytes unread, the connection would be reset, and its client not hear why.
async fn linger(mut stream: TcpStream) {
    let rest = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(REFUSED_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(REFUSED_LINGER, rest).await;
}

async fn by_hyper(
    connection: &Arc<InboundConnection>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut stop: watch::Receiver<bool>,
) {
    let answer = service_fn(|request| {
        let connection = connection.clone();
        async move { Ok::<_, std::convert::Infallible>(answering::answer(&connection, request).await) }
    });
    let config = &connection.port.config;
    let stream = WriteTimeoutStream::new(stream, connection.clone(), config.stall_timeout);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.idle_timeout)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    match ended {
        Err(e) if e.is_parse() => {
            debug!(address = %connection.address, "no call of a node: {e}");
            connection.record_offence(Offence::Malformed);
        }
        Err(e) => debug!(address = %connection.address, "connection of a node dropped: {e}"),
        Ok(()) => {}
    }
}
