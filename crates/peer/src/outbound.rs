//! A connection to another node: dialled, its other end known by its certificate, and one call at a time on it.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use types::{Error, ErrorKind, NodeId, Result};

use crate::client_config::PeerClientConfig;
use crate::identity::{PeerIdentity, explain};
use crate::message::{CALLED_NODE, CLAIMED_CLUSTER, CLAIMED_NODE};
use crate::path::PeerPath;
use crate::peer_name::PeerName;

const HEADERS_MAX: usize = 64;
/// The most that is read at once; an answer's head is shorter.
const READ_BUFFER: usize = 256 << 10;
/// How long a connection that has failed may take to say why.
const LAST_WORD: Duration = Duration::from_millis(100);

pub struct OutboundConnection {
    sender: SendRequest<Full<Bytes>>,
    /// Carries the connection. It ends when the sender is dropped, or the other end closes.
    driver: JoinHandle<hyper::Result<()>>,
}

/// What a call on a connection came to.
pub enum Exchange {
    Answered(Parts, Bytes),
    /// The connection ended before an answer began: perhaps it was closed, as idle, while the call was sent.
    Closed(Error),
    Failed(Error),
}

/// Who calls whom.
pub struct Correspondents {
    pub us: PeerIdentity,
    pub node: NodeId,
}

impl Correspondents {
    pub fn unavailable(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Unavailable, "call a node:", format!("node {}: {why}", self.node))
    }

    pub async fn dial(&self, path: PeerPath, config: &PeerClientConfig) -> Result<OutboundConnection> {
        let PeerPath { remote, .. } = path;
        let late = || self.unavailable(format!("{remote} takes no connection in time"));
        let connected = timeout(config.connect_timeout, connect(path)).await.map_err(|_| late())?;
        let stream = connected.map_err(|e| self.unavailable(format!("{remote}: {e}")))?;
        socket_options::for_node(&stream, config.dead_after);
        match self.us.connector() {
            None => self.begin(stream, remote).await,
            Some(tls) => {
                let agreed = tls.connect(self.us.server_name(self.node)?, stream);
                let stream = timeout(config.stall_timeout, agreed).await.map_err(|_| late())?;
                let stream = stream.map_err(|e| self.broken(remote, &e))?;
                let name = PeerName::of_certificates(stream.get_ref().1.peer_certificates())?;
                self.us.demand_node(&name, self.node)?;
                self.begin(stream, remote).await
            }
        }
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        remote: SocketAddr,
    ) -> Result<OutboundConnection> {
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_BUFFER).max_headers(HEADERS_MAX);
        let (sender, connection) =
            http.handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(remote, &e))?;
        Ok(OutboundConnection { sender, driver: tokio::spawn(connection) })
    }

    /// An error of a connection. What it says of certificates is told in a sentence, and is no outage.
    fn broken(&self, remote: SocketAddr, failed: &(dyn StdError + 'static)) -> Error {
        let mut text = format!("{remote}: {failed}");
        let mut cause = Some(failed);
        while let Some(error) = cause {
            if let Some(why) = error.downcast_ref::<std::io::Error>().and_then(explain) {
                let why = format!("node {} at {remote}: {why}", self.node);
                return Error::new(ErrorKind::AccessDenied, "know a peer:", why);
            }
            cause = error.source();
            if let Some(cause) = cause {
                text.push_str(&format!(": {cause}"));
            }
        }
        self.unavailable(text)
    }

    /// Sends one call and takes its answer, whose body is of `body_max` bytes at most. After anything but an answer the
    /// connection is of no use any more.
    pub async fn exchange(
        &self,
        connection: &mut OutboundConnection,
        path: PeerPath,
        mut request: Request<Bytes>,
        body_max: usize,
        stall: Duration,
    ) -> Exchange {
        let headers = request.headers_mut();
        let mut set = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        set(header::HOST, &path.remote.to_string());
        if !self.us.is_secure() {
            set(CLAIMED_NODE, &self.us.node().to_string());
            set(CLAIMED_CLUSTER, self.us.cluster());
            set(CALLED_NODE, &self.node.to_string());
        }
        let sent = async {
            connection.sender.ready().await?;
            connection.sender.send_request(request.map(Full::new)).await
        };
        let answer = match sent.await {
            Ok(answer) => answer,
            Err(e) => return Exchange::Closed(self.end_of(connection, path.remote, &e).await),
        };
        let (parts, body) = answer.into_parts();
        if let Err(e) = self.demand_claim(&parts) {
            return Exchange::Failed(e);
        }
        match self.collect(body, body_max, path.remote, stall).await {
            Ok(body) => Exchange::Answered(parts, body),
            Err(e) => Exchange::Failed(e),
        }
    }

    /// Why a connection ended before there was an answer. What the other end said last, such as that it refuses our
    /// certificate, may be known to the driver alone.
    async fn end_of(
        &self,
        connection: &mut OutboundConnection,
        remote: SocketAddr,
        failed: &hyper::Error,
    ) -> Error {
        let error = self.broken(remote, failed);
        if error.kind() == ErrorKind::AccessDenied {
            return error;
        }
        match timeout(LAST_WORD, &mut connection.driver).await {
            Ok(Ok(Err(last))) => self.broken(remote, &last),
            _ => error,
        }
    }

    /// Without certificates, an answer says whose it is.
    fn demand_claim(&self, answer: &Parts) -> Result<()> {
        if self.us.is_secure() {
            return Ok(());
        }
        let text = |name| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let name = text(CLAIMED_CLUSTER).zip(text(CLAIMED_NODE).and_then(|node| node.parse().ok()));
        let name = name.map(|(cluster, node)| PeerName { cluster: cluster.to_owned(), node });
        let silent = || self.unavailable("what answers does not say which node it is");
        self.us.demand_node(&name.ok_or_else(silent)?, self.node)
    }

    async fn collect(
        &self,
        mut body: Incoming,
        most: usize,
        remote: SocketAddr,
        stall: Duration,
    ) -> Result<Bytes> {
        let too_long = || {
            let why = format!("node {} at {remote} answers with more than {most} bytes", self.node);
            Error::new(ErrorKind::Corrupt, "call a node:", why)
        };
        let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if told > most {
            return Err(too_long());
        }
        let mut whole = BytesMut::with_capacity(told);
        loop {
            let frame = timeout(stall, body.frame()).await;
            let frame = frame.map_err(|_| self.unavailable(format!("nothing moves from {remote}")))?;
            let Some(frame) = frame else { return Ok(whole.freeze()) };
            let Ok(data) = frame.map_err(|e| self.broken(remote, &e))?.into_data() else { continue };
            if whole.len() + data.len() > most {
                return Err(too_long());
            }
            // A body of one frame is not copied.
            if whole.is_empty() && data.len() == told && body.is_end_stream() {
                return Ok(data);
            }
            whole.extend_from_slice(&data);
        }
    }
}

impl OutboundConnection {
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

async fn connect(path: PeerPath) -> std::io::Result<TcpStream> {
    let socket = if path.remote.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(local) = path.local {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    socket.connect(path.remote).await
}
