//! What one node says to another, as typed calls and answers and their form in HTTP/1.1. Pure: bytes in, values out.
//!
//! The cast:
//! - [`PeerCall`]: any call. `GET /v1/bytes/<file>/<version>` with a `Range` is a [`ReadRequest`] (`read.rs`),
//!   `GET /v1/have/<file>/<version>` a [`HaveRequest`] (`have.rs`); `POST /v1/{ping,path,notice,feed,corrupt}` with
//!   JSON are [`Heartbeat`], [`PathRequest`], [`ChangeNotice`], [`FeedNotice`] and [`CorruptReport`] (`small.rs`).
//! - [`ReadHead`] and [`HaveAnswer`]: what is answered; the other calls are answered with nothing, with a
//!   [`Heartbeat`] or a [`KnownPath`].
//! - [`StripeBlocks`] (`stripe_blocks.rs`): which blocks of a stripe a node holds.
//! - [`ToldCopies`] (`told_copies.rs`): how many copies of a file are wanted, for a node that does not know its path.
//! - `checksum.rs`: the CRC-32C of each block of 64 KiB, bound to file, version and block.
//! - `refusal.rs`: a [`types::Error`] as an answer, and back.
//! - `fields.rs`: the names of headers, and their values.
//!
//! A call goes through [`PeerCall::encode`], is recognised by its head ([`CallKind::of`]) before anything of its body
//! is read, and decoded by [`PeerCall::decode`]. Begin with `read.rs`: the other calls are smaller.
//!
//! Invariants: whatever arrives, decoding ends with a value or an error and never panics; each list and each text has
//! a bound that holds before anything is allocated for it; each call may be repeated without a difference.

pub mod checksum;
mod fields;
mod have;
mod read;
mod refusal;
mod small;
mod stripe_blocks;
mod told_copies;

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, header};
use types::{Error, ErrorKind, Result};

pub use have::{HAVE_BLOCKS_MAX, HAVE_STRIPES_MAX, HaveAnswer, HaveRequest, OtherVersion};
pub use read::{
    HOPS_MAX, HotStripe, READ_MAX, REFERENCE_MAX, ReadHead, ReadRequest, ReadRole, ReadUrgency, ServedFrom,
};
pub use refusal::{decode_refusal, encode_refusal};
pub use small::{
    BUILD_MAX, CORRUPT_BLOCKS_MAX, ChangeNotice, CorruptReport, FEED_MAX, FeedNotice, FeedReason,
    FilledStripe, Heartbeat, KnownPath, NOTICE_FILES_MAX, NodeFigures, PATH_NAMES_MAX, PathRequest,
};
pub use stripe_blocks::{STRIPE_BLOCKS, StripeBlocks};
pub use told_copies::ToldCopies;

pub use fields::{CALLED_NODE, CLAIMED_CLUSTER, CLAIMED_NODE};

/// The longest head of a call or an answer: a reference in base64, and room for the rest.
pub const HEAD_MAX: usize = 32 << 10;
/// The longest body of a call, and of an answer other than one with bytes of a file.
pub const SMALL_BODY_MAX: usize = 1 << 20;
/// The longest deadline that is asked for, and believed.
pub const DEADLINE_MAX: Duration = Duration::from_secs(600);

/// Which call it is, by its method and path alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Read,
    Have,
    Ping,
    Path,
    Notice,
    Feed,
    Corrupt,
}

impl CallKind {
    pub fn of(parts: &Parts) -> Result<CallKind> {
        let name = parts.uri.path().strip_prefix("/v1/").unwrap_or_default();
        let name = name.split_once('/').map_or(name, |(name, _)| name);
        match (&parts.method, name) {
            (&Method::GET, "bytes") => Ok(CallKind::Read),
            (&Method::GET, "have") => Ok(CallKind::Have),
            (&Method::POST, "ping") => Ok(CallKind::Ping),
            (&Method::POST, "path") => Ok(CallKind::Path),
            (&Method::POST, "notice") => Ok(CallKind::Notice),
            (&Method::POST, "feed") => Ok(CallKind::Feed),
            (&Method::POST, "corrupt") => Ok(CallKind::Corrupt),
            _ => {
                Err(Error::new(ErrorKind::NotSupported, "answer a peer:", "this version knows no such call"))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerCall {
    Read(ReadRequest),
    Have(HaveRequest),
    Ping(Heartbeat),
    Path(PathRequest),
    Notice(ChangeNotice),
    Feed(FeedNotice),
    Corrupt(CorruptReport),
}

impl PeerCall {
    /// `deadline`: how long the caller waits from now on.
    pub fn encode(&self, deadline: Duration) -> Result<Request<Bytes>> {
        let request = Request::builder();
        let post = |path: &str, body: Bytes| {
            let json = "application/json";
            Request::post(path).header(header::CONTENT_TYPE, json).body(body)
        };
        let request = match self {
            PeerCall::Read(read) => read.encode(request)?.body(Bytes::new()),
            PeerCall::Have(have) => have.encode(request)?.body(Bytes::new()),
            PeerCall::Ping(beat) => post("/v1/ping", beat.encode()?),
            PeerCall::Path(path) => post("/v1/path", path.encode()?),
            PeerCall::Notice(notice) => post("/v1/notice", notice.encode()?),
            PeerCall::Feed(feed) => post("/v1/feed", feed.encode()?),
            PeerCall::Corrupt(report) => post("/v1/corrupt", report.encode()?),
        };
        let mut request = request.map_err(|e| fields::wrong(format!("no request can be made of it: {e}")))?;
        set_deadline(&mut request, deadline);
        Ok(request)
    }

    pub fn decode(parts: &Parts, body: &[u8]) -> Result<PeerCall> {
        match CallKind::of(parts)? {
            CallKind::Read => ReadRequest::decode(parts).map(PeerCall::Read),
            CallKind::Have => HaveRequest::decode(parts).map(PeerCall::Have),
            CallKind::Ping => Heartbeat::decode(body).map(PeerCall::Ping),
            CallKind::Path => PathRequest::decode(body).map(PeerCall::Path),
            CallKind::Notice => ChangeNotice::decode(body).map(PeerCall::Notice),
            CallKind::Feed => FeedNotice::decode(body).map(PeerCall::Feed),
            CallKind::Corrupt => CorruptReport::decode(body).map(PeerCall::Corrupt),
        }
    }
}

/// Sets how long the caller waits from now on.
pub fn set_deadline(request: &mut Request<Bytes>, deadline: Duration) {
    let ms = u64::try_from(deadline.min(DEADLINE_MAX).as_millis()).unwrap_or(u64::MAX);
    request.headers_mut().insert(fields::DEADLINE, ms.into());
}

/// How long the caller waits, from the moment at which the head was sent.
pub fn deadline_of(parts: &Parts) -> Result<Duration> {
    let ms = fields::number(&parts.headers, fields::DEADLINE)?;
    Ok(Duration::from_millis(ms).min(DEADLINE_MAX))
}

#[cfg(test)]
mod tests;
