//! What passes between a connection and those who carry out its calls: a call, a reply, and the client.

use std::net::SocketAddr;

use bytes::Bytes;
use fair::{ClientBudget, MemoryPermit};
use rpc_nfs3::XdrEncoder;
use rpc_nfs3::rpc::{ReplyHeader, ReplyStatus};
use tokio::sync::OwnedSemaphorePermit;
use vfs::Piece;

/// A call as it arrived.
pub struct IncomingCall {
    pub record: Bytes,
    /// The memory that it holds until it is carried out.
    pub permit: MemoryPermit,
}

/// A reply to send, with the memory that it holds.
pub struct NfsReply {
    pub head: Bytes,
    /// The payload and padding of a READ.
    pub body: Vec<Piece>,
    /// Released when the reply is in the socket, like the call's permit.
    pub permit: MemoryPermit,
    pub call_permit: Option<OwnedSemaphorePermit>,
}

impl NfsReply {
    /// A reply without a payload.
    pub fn new(head: Bytes) -> NfsReply {
        NfsReply { head, body: Vec::new(), permit: MemoryPermit::default(), call_permit: None }
    }
}

/// The client of a connection, as its calls see it.
#[derive(Clone)]
pub struct NfsPeer {
    pub address: SocketAddr,
    /// The client's share of the memory for replies.
    pub replies: ClientBudget,
}

/// An encoder that begins with the header of a successful reply.
pub fn success_header(xid: u32) -> XdrEncoder {
    let mut encoder = XdrEncoder::with_capacity(256);
    ReplyHeader { xid, status: ReplyStatus::Success }.encode(&mut encoder);
    encoder
}

/// A reply that consists of its header.
pub fn header_only(xid: u32, status: ReplyStatus) -> NfsReply {
    let mut encoder = XdrEncoder::with_capacity(64);
    ReplyHeader { xid, status }.encode(&mut encoder);
    NfsReply::new(encoder.finish())
}
