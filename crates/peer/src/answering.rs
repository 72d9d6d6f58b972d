//! One call of another node, from its head to the body of its answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fair::{MemoryPermit, Offence};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use types::{Error, ErrorKind, Result};

use crate::admission::KnownPeer;
use crate::inbound::InboundConnection;
use crate::lane::CallLane;
use crate::message::{
    CALLED_NODE, CLAIMED_CLUSTER, CLAIMED_NODE, CallKind, Heartbeat, PeerCall, ReadRequest, SMALL_BODY_MAX,
    deadline_of, encode_refusal,
};
use crate::peer_name::PeerName;
use crate::service::PeerCaller;

pub async fn answer(connection: &InboundConnection, request: Request<Incoming>) -> Response<AnswerBody> {
    let arrived = Instant::now();
    let (parts, body) = request.into_parts();
    let mut answer = match in_time(connection, arrived, &parts, body).await {
        Ok(answer) => answer,
        Err(e) => encode_refusal(&e).map(|text| AnswerBody::new(vec![text])),
    };
    let identity = &connection.port.identity;
    if !identity.is_secure() {
        let headers = answer.headers_mut();
        for (name, text) in
            [(CLAIMED_NODE, identity.node().to_string()), (CLAIMED_CLUSTER, identity.cluster().into())]
        {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
    }
    if connection.is_cut() {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Drops the call when its deadline has passed: its caller does not wait any more.
async fn in_time(
    connection: &InboundConnection,
    arrived: Instant,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<AnswerBody>> {
    let peer = caller(connection, parts)?;
    connection.touch();
    let from = PeerCaller { node: peer.node, deadline: arrived + deadline_of(parts)? };
    let done = timeout_at(from.deadline, carry_out(connection, peer, from, parts, body)).await;
    done.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, "answer a node:", "the deadline of its call has passed"))
    })
}

/// Who calls. Without certificates that is what the call claims.
fn caller<'a>(connection: &'a InboundConnection, parts: &Parts) -> Result<&'a Arc<KnownPeer>> {
    if !connection.port.identity.is_secure() && connection.refused().is_none() {
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let claimed = text(CLAIMED_CLUSTER).zip(text(CLAIMED_NODE).and_then(|node| node.parse().ok()));
        let claimed = claimed.map(|(cluster, node)| PeerName { cluster: cluster.to_owned(), node });
        let missing =
            || Error::new(ErrorKind::AccessDenied, "know a peer:", "it does not say which node it is");
        let is_ours = |called: &str| called == connection.port.identity.node().to_string();
        let other = |called| {
            Error::new(ErrorKind::AccessDenied, "know a peer:", format!("it calls node {called:.16}"))
        };
        let called = text(CALLED_NODE).filter(|called| !is_ours(called)).map(other);
        let admitted = claimed.ok_or_else(missing).and_then(|name| connection.belongs_to(&name));
        if let Some(e) = called.or(admitted.err()) {
            connection.refuse(e);
        }
    }
    if let Some(refused) = connection.refused() {
        return Err(refused.clone());
    }
    let known = connection.known().map(|known| &known.peer);
    known.ok_or_else(|| Error::new(ErrorKind::AccessDenied, "know a peer:", "nobody knows which node it is"))
}

async fn carry_out(
    connection: &InboundConnection,
    peer: &Arc<KnownPeer>,
    from: PeerCaller,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<AnswerBody>> {
    let kind = CallKind::of(parts)?;
    let service = &connection.port.service;
    if matches!(kind, CallKind::Read | CallKind::Have) && !body.is_end_stream() {
        connection.record_offence(Offence::Malformed);
        return Err(Error::new(ErrorKind::InvalidArgument, "answer a node:", "a question has no body"));
    }
    if kind == CallKind::Read {
        let PeerCall::Read(read) = PeerCall::decode(parts, &[])? else {
            return Err(Error::new(ErrorKind::NotSupported, "answer a node:", "this is no READ"));
        };
        return bytes_of(connection, peer, from, &read).await;
    }
    let lane = if kind == CallKind::Ping { CallLane::Heartbeat } else { CallLane::Small };
    let _place = place(peer, lane)?;
    let body = collect(connection, body).await?;
    let done = match PeerCall::decode(parts, &body)? {
        PeerCall::Ping(beat) => {
            demand_own(&beat, from)?;
            return Ok(json(service.ping(from, &beat).await?.encode()?));
        }
        PeerCall::Have(have) => return Ok(json(service.have(from, &have).await?.encode(&have)?)),
        PeerCall::Path(path) => return Ok(json(service.path(from, &path).await?.encode()?)),
        PeerCall::Notice(notice) => service.notice(from, &notice).await,
        PeerCall::Feed(feed) => service.feed(from, &feed).await,
        PeerCall::Corrupt(report) => service.corrupt(from, &report).await,
        PeerCall::Read(_) => {
            Err(Error::new(ErrorKind::NotSupported, "answer a node:", "a READ is no small call"))
        }
    };
    done.map(|()| {
        let mut answer = Response::new(AnswerBody::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        answer
    })
}

/// Refuses a heartbeat that speaks of another node than the one that sent it.
fn demand_own(beat: &Heartbeat, from: PeerCaller) -> Result<()> {
    if beat.node == from.node {
        return Ok(());
    }
    let why = format!("node {} sends a heartbeat of node {}", from.node, beat.node);
    Err(Error::new(ErrorKind::AccessDenied, "answer a node:", why))
}

/// A READ: room in the budget of its role first, then the bytes; both are held until the last byte is sent.
async fn bytes_of(
    connection: &InboundConnection,
    peer: &Arc<KnownPeer>,
    from: PeerCaller,
    read: &ReadRequest,
) -> Result<Response<AnswerBody>> {
    let call = place(peer, CallLane::of_role(read.role))?;
    let memory = peer.share(read.role).acquire(read.range.length as usize).await;
    let held = Arc::new(HeldForAnswer { _memory: memory, _call: call });
    let answer = connection.port.service.read(from, read).await?;
    let length: u64 = answer.bytes.iter().map(|piece| piece.len() as u64).sum();
    if length != read.range.length || answer.head.checksums.len() != read.range.blocks().count() {
        let why = format!("{length} bytes were found for a READ of {}", read.range.length);
        return Err(Error::new(ErrorKind::Io, "answer a node:", why));
    }
    let pieces = answer.bytes.into_iter().filter(|piece| !piece.is_empty());
    let pieces = pieces.map(|bytes| Bytes::from_owner(HeldBytes { bytes, _held: held.clone() }));
    let response = answer.head.encode(read).body(AnswerBody::new(pieces.collect()));
    response.map_err(|e| Error::new(ErrorKind::Io, "answer a node:", e))
}

/// A place among the node's calls in flight.
fn place(peer: &KnownPeer, lane: CallLane) -> Result<OwnedSemaphorePermit> {
    peer.calls(lane).clone().try_acquire_owned().map_err(|_| {
        let why = format!("too many calls of node {} are in flight", peer.node);
        Error::new(ErrorKind::Busy, "answer a node:", why)
    })
}

/// The body of a small call. One that claims or brings more than that ends its connection.
async fn collect(connection: &InboundConnection, body: Incoming) -> Result<Bytes> {
    let refuse = |offence, why: String| {
        connection.record_offence(offence);
        Err(Error::new(ErrorKind::InvalidArgument, "take a call of a node:", why))
    };
    let told = body.size_hint().lower();
    if told > SMALL_BODY_MAX as u64 {
        return refuse(Offence::Malformed, format!("its body is of {told} bytes"));
    }
    match timeout(connection.port.config.stall_timeout, Limited::new(body, SMALL_BODY_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(e)) => refuse(Offence::Malformed, format!("its body: {e}")),
        Err(_) => refuse(Offence::Unfinished, "its body does not arrive".to_owned()),
    }
}

fn json(body: Bytes) -> Response<AnswerBody> {
    let mut answer = Response::new(AnswerBody::new(vec![body]));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// What a READ holds until the last of its bytes is sent.
struct HeldForAnswer {
    _memory: MemoryPermit,
    _call: OwnedSemaphorePermit,
}

struct HeldBytes {
    bytes: Bytes,
    _held: Arc<HeldForAnswer>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Pieces that are there already.
#[derive(Default)]
pub struct AnswerBody {
    pieces: VecDeque<Bytes>,
    length: u64,
}

impl AnswerBody {
    fn new(pieces: Vec<Bytes>) -> AnswerBody {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        AnswerBody { pieces: pieces.into(), length }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.length -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
