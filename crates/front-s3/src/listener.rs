//! The TCP listener: it accepts connections, gives each a slot, and drains them at the end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fair::{
    ConnectionSlots, MemoryBudget, Offence, Offenders, SlotAdmission, SlotLimits, WriteTimeoutStream,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::service::S3Service;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};
use types::{Error, ErrorKind, Result};
use vfs::Vfs;

use crate::metadata_store::MetadataStore;
use crate::metrics::Metrics;
use crate::ops::{HELD_PART_BYTES_MAX, HELD_PARTS_BYTES};
use crate::peer::{FRONT, S3Peer};
use crate::rewind::Rewind;
use crate::unique_ids::UniqueIds;
use crate::{Config, S3State, protocol, request_gate, tls, zero_copy_get};

/// The pause after a failed accept (no descriptors left): other tasks may close theirs meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The largest head of a request, which is also the most that is read ahead of one.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// The time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The most connections with an incomplete TLS handshake: of all clients, and of one.
const HANDSHAKES: SlotLimits = SlotLimits { all: 256, client: 64 };

pub struct S3Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<S3State>,
}

impl S3Server {
    pub async fn bind(config: Config, vfs: Arc<Vfs>) -> Result<S3Server> {
        let refuse = |why: String| Error::new(ErrorKind::Config, "serve S3", why);
        if config.keys.is_empty() {
            return Err(refuse("no access key is configured; name one in a [[s3.key]] table".to_owned()));
        }
        let tls = config.certificate.as_ref().map(tls::acceptor).transpose()?;
        let listener = TcpListener::bind(config.listen).await.map_err(|e| {
            let message = format!("on {} (choose another address with --s3)", config.listen);
            Error::new(ErrorKind::Busy, "serve S3", message).with_source(e)
        })?;
        let shared = Arc::new(S3State {
            vfs,
            metadata: MetadataStore::open(&config.metadata_db)?,
            dates: Default::default(),
            ids: UniqueIds::new()?,
            locks: Default::default(),
            uploads: Default::default(),
            parts: MemoryBudget::new(HELD_PARTS_BYTES, HELD_PART_BYTES_MAX),
            metrics: Arc::new(Metrics::default()),
            slots: ConnectionSlots::new(limits(&config)),
            handshakes: ConnectionSlots::new(HANDSHAKES),
            refusals: Offenders::default(),
            config,
        });
        Ok(S3Server { listener, tls, shared })
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| Error::io("ask for the address of", "the S3 listener", e))
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.shared.metrics.register(registry);
    }

    /// The number of open connections, kept current.
    pub fn connections(&self) -> impl Fn() -> i64 + Send + Sync + 'static {
        let gauge = self.shared.metrics.connections.clone();
        move || gauge.get()
    }

    /// Serves until `stop` is true; then answers the requests that have arrived, and returns.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let protocol = protocol(&self.shared);
        // Each connection holds a sender: when the channel is closed, no connection is left.
        let (open, mut drained) = mpsc::channel::<()>(1);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, address)) => {
                    let Some(peer) = self.admit(address) else { continue };
                    socket_options::for_client(&stream);
                    let (shared, stop, open) = (self.shared.clone(), stop.clone(), open.clone());
                    let (protocol, tls) = (protocol.clone(), self.tls.clone());
                    tokio::spawn(async move {
                        shared.metrics.connections.inc();
                        tokio::select! {
                            () = run(&shared, &peer, protocol, tls, stream, stop) => {}
                            () = peer.slot.closed() => {}
                        }
                        shared.metrics.connections.dec();
                        debug!(%address, "connection closed");
                        drop((peer, open));
                    });
                }
                Err(e) => {
                    warn!("accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((self.listener, open));
        let _all_gone = drained.recv().await;
        self.shared.metadata.sync();
    }

    /// `None`: the client has no slot left, and the connection is closed at once.
    fn admit(&self, address: SocketAddr) -> Option<Arc<S3Peer>> {
        let shared_budgets = &self.shared.config.shared_budgets;
        let too_many =
            |client: IpAddr| shared_budgets.offenders.record(FRONT, client, Offence::TooManyConnections);
        match self.shared.slots.admit(address.ip(), None) {
            SlotAdmission::Taken { slot, closed } => {
                closed.map(too_many);
                Some(Arc::new(S3Peer::new(shared_budgets, &self.shared.parts, address.ip(), slot)))
            }
            SlotAdmission::Refused => {
                too_many(address.ip());
                None
            }
        }
    }
}

fn limits(config: &Config) -> SlotLimits {
    let (all, client) = (config.connections_max.max(1), config.connections_per_client.max(1));
    SlotLimits { all, client }
}

async fn run(
    shared: &Arc<S3State>,
    peer: &Arc<S3Peer>,
    protocol: S3Service,
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    mut stop: watch::Receiver<bool>,
) {
    match tls {
        Some(tls) => {
            if let Some(stream) = agree(shared, peer, tls, stream).await {
                by_hyper(shared, peer, protocol, stream, stop).await;
            }
        }
        None => {
            if let Some((read, stream)) = zero_copy_get::serve(shared, peer, stream, &mut stop).await {
                by_hyper(shared, peer, protocol, Rewind::new(read, stream), stop).await;
            }
        }
    }
}

/// Completes the TLS handshake. Connections in a handshake have slots of their own, few of them and for a short
/// time, so that they cannot take those of clients that work.
async fn agree(
    shared: &S3State,
    peer: &S3Peer,
    tls: TlsAcceptor,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let slot = match shared.handshakes.admit(peer.address, None) {
        SlotAdmission::Taken { slot, closed } => {
            if let Some(client) = closed {
                shared.config.shared_budgets.offenders.record(FRONT, client, Offence::Handshake);
            }
            slot
        }
        SlotAdmission::Refused => {
            peer.record_offence(Offence::Handshake);
            return None;
        }
    };
    let wait = HANDSHAKE.min(shared.config.head_timeout);
    let agreed = tokio::select! {
        agreed = timeout(wait, tls.accept(stream)) => agreed,
        () = slot.closed() => return None, // told of already
    };
    match agreed {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(e)) => debug!("no TLS: {e}"),
        Err(_) => debug!("no TLS in time"),
    }
    peer.record_offence(Offence::Handshake);
    None
}

async fn by_hyper(
    shared: &Arc<S3State>,
    peer: &Arc<S3Peer>,
    protocol: S3Service,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut stop: watch::Receiver<bool>,
) {
    let answer = service_fn(|request| {
        let (shared, peer, protocol) = (shared.clone(), peer.clone(), protocol.clone());
        async move {
            Ok::<_, std::convert::Infallible>(request_gate::handle(&shared, &peer, &protocol, request).await)
        }
    });
    let stream = WriteTimeoutStream::new(stream, peer.clone(), shared.config.stall_timeout);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended {
        debug!("connection dropped: {e}");
    }
}
