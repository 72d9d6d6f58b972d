//! GET and HEAD of objects on plain HTTP/1.1 without copying the bytes: the head is parsed here, and the kernel
//! sends the bytes from the cached file. A request that asks for anything else, or that must be refused, goes to
//! hyper and the gate with the bytes that were read, and so does the rest of its connection.
//!
//! The signature is verified, the object found and its headers made by the same functions as there.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use fair::{MemoryPermit, Offence, StallPolicy};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HOST, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use send::Corked;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use vfs::{Lend, Piece};

use crate::S3State;
use crate::access_keys::Right;
use crate::checked_body::Trailer;
use crate::http_date::http_date;
use crate::metrics::MethodLabels;
use crate::object::S3Object;
use crate::ops::{
    ObjectReader, RequestContext, Requester, content_range, headers_of, object_size, resolve_range,
};
use crate::peer::S3Peer;
use crate::request_gate;
use crate::sigv4::{PayloadSigning, RequestHead, decode, is_auth_parameter};

/// A larger head is left to hyper.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The buffer for most heads: a read that does not fill it is the last one.
const HEAD_BYTES: usize = 2 << 10;
const HEAD_READ: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// The time limit of the first head.
const FIRST_HEAD: Duration = Duration::from_secs(20);
/// The bytes of one read: those that are copied take memory.
const PART: u64 = 1 << 20;
/// The bytes of one read after one that was all zero-copy: larger, since each read ends in a packet that is not
/// full.
const PART_LENT: u64 = 4 << 20;
/// Zero-copy from this size on; below, a copy costs less than another system call. As in the NFS front.
const LEND: Lend = Lend::From(64 << 10);

/// The request headers that are handled here, or that change nothing. With any other one the request is left to
/// hyper.
const UNDERSTOOD: [&str; 16] = [
    "host",
    "range",
    "authorization",
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-checksum-mode",
    "x-amz-user-agent",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "x-amz-request-payer",
    "date",
    "pragma",
];

/// Serves requests until one must be left to hyper, and returns it with the bytes that were read. `None`: the
/// connection is over.
pub async fn serve(
    shared: &Arc<S3State>,
    peer: &Arc<S3Peer>,
    stream: TcpStream,
    stop: &mut watch::Receiver<bool>,
) -> Option<(BytesMut, TcpStream)> {
    let mut stream = stream;
    let mut buffer = BytesMut::new();
    // A new connection has little time for its first request.
    let mut wait = FIRST_HEAD.min(shared.config.head_timeout);
    loop {
        let length = tokio::select! {
            length = read_head(peer, &mut stream, &mut buffer, wait) => length?,
            _ = stop.wait_for(|stop| *stop) => return None,
        };
        let Some(length) = length else { return Some((buffer, stream)) };
        peer.slot.touch();
        wait = shared.config.head_timeout;
        let begun = Instant::now();
        let Some(asked) = GetRequest::parse(&buffer[..length], shared.config.domain.as_deref()) else {
            return Some((buffer, stream));
        };
        let Some(answer) = prepare(shared, peer, &asked).await else { return Some((buffer, stream)) };
        buffer.advance(length);
        let method = if asked.method == Method::HEAD { "HEAD" } else { "GET" };
        shared.metrics.seconds.get_or_create(&MethodLabels { method }).observe(begun.elapsed().as_secs_f64());
        if send(shared, peer, &stream, answer).await.is_err() {
            return None; // half an answer cannot be taken back
        }
    }
}

/// The length of the head at the start of the buffer; `Some(None)`: it is too long for here.
async fn read_head(
    peer: &S3Peer,
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    wait: Duration,
) -> Option<Option<usize>> {
    let read = async {
        loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                return Some(Some(end + 4));
            }
            if buffer.len() >= HEAD_BYTES_MAX {
                return Some(None);
            }
            if buffer.capacity() - buffer.len() < HEAD_BYTES {
                buffer.reserve(HEAD_READ);
            }
            match stream.read_buf(buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    };
    match timeout(wait, read).await {
        Ok(read) => read,
        Err(_) => {
            if !buffer.is_empty() {
                peer.record_offence(Offence::Unfinished);
            }
            None
        }
    }
}

/// A GET or HEAD of an object.
pub struct GetRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub bucket: String,
    pub key: String,
}

impl GetRequest {
    /// `None`: it is something else, or not understood here.
    pub fn parse(bytes: &[u8], domain: Option<&str>) -> Option<GetRequest> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        // Bare line feeds may end the head earlier: what follows is another request, or a body.
        if request.parse(bytes).ok()? != httparse::Status::Complete(bytes.len()) {
            return None;
        }
        let method = match (request.method?, request.version?) {
            ("GET", 1) => Method::GET,
            ("HEAD", 1) => Method::HEAD,
            _ => return None,
        };
        let (path, query) = request.path?.split_once('?').unwrap_or((request.path?, ""));
        // Only characters that hyper would accept unchanged.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"#\"<>\\^`{|}".contains(&byte);
        if !path.starts_with('/') || !path.bytes().chain(query.bytes()).all(is_plain) {
            return None;
        }
        // Names are compared as they are written; one with an escape is left to hyper.
        let parts = query.split('&').filter(|part| !part.is_empty());
        let mut names = parts.map(|part| part.split_once('=').map_or(part, |(name, _)| name));
        if !names.all(|name| is_auth_parameter(name.as_bytes()) || name == "x-id") {
            return None;
        }
        let mut map = HeaderMap::with_capacity(request.headers.len());
        for header in request.headers.iter() {
            let name = HeaderName::try_from(header.name).ok()?;
            let is_idle = name == http::header::CONNECTION
                && header.value.eq_ignore_ascii_case(b"keep-alive")
                || name == CONTENT_LENGTH && header.value == b"0";
            if !UNDERSTOOD.contains(&name.as_str()) && !is_idle {
                return None;
            }
            map.append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
        if map.get_all(HOST).iter().count() != 1 || map.get_all(RANGE).iter().count() > 1 {
            return None;
        }
        let place = match crate::vhost::bucket_of(map.get(HOST)?.to_str().ok()?, domain) {
            Some(bucket) => Cow::from(crate::vhost::with_bucket(&bucket, path)),
            None => Cow::from(path),
        };
        let decoded = String::from_utf8(decode(&place)).ok()?;
        let (bucket, key) = decoded.strip_prefix('/')?.split_once('/')?;
        let is_object = !key.is_empty() && !key.ends_with('/') && crate::is_bucket_name(bucket);
        is_object.then(|| GetRequest {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers: map,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }
}

struct GetResponse {
    head: Bytes,
    /// The first pieces of the range. They are read before the head is sent, so that the head is true.
    first: Vec<Piece>,
    /// The permit for those pieces that are in memory.
    permit: MemoryPermit,
    reader: ObjectReader,
    range: Range<u64>,
}

/// `None`: the request cannot be answered here.
async fn prepare(shared: &Arc<S3State>, peer: &Arc<S3Peer>, asked: &GetRequest) -> Option<GetResponse> {
    let head = RequestHead {
        method: &asked.method,
        path: &asked.path,
        query: &asked.query,
        headers: &asked.headers,
    };
    let verified = request_gate::verify_head(shared, &head).ok()?;
    let fits = match verified.payload {
        PayloadSigning::Unsigned => true,
        // There is no body.
        PayloadSigning::Sha256(hash) => crate::sigv4::hex(&hash) == crate::sigv4::EMPTY_SHA256,
        _ => false,
    };
    if !fits {
        return None;
    }
    let requester =
        Requester { key: verified.key, trailer: Trailer::default(), peer: peer.clone(), _permit: None };
    let context = RequestContext { shared: shared.clone(), requester };
    let bucket = context.bucket(&asked.bucket, Right::Read).await.ok()?;
    let object = context.object(&bucket, &asked.key).await.ok()?;
    let size = object_size(&object);
    let range = match asked.headers.get(RANGE) {
        Some(range) => Some(crate::range::parse(range.to_str().ok()?)?),
        None => None,
    };
    let range = resolve_range(range.as_ref(), size).ok()?;
    let with_checksums = asked.headers.contains_key("x-amz-checksum-mode") && range.is_none();
    let head = head_of(shared, &object, range.as_ref(), with_checksums)?;
    let range = if asked.method == Method::HEAD { 0..0 } else { range.unwrap_or(0..size) };
    let mut reader = context.reader(object.node);
    let part = next_chunk(&range, PART);
    let mut permit = peer.replies.acquire(part as usize).await;
    let first = reader.read(range.start, part, LEND).await.ok()?;
    permit.shrink_to(in_memory(&first));
    Some(GetResponse { head, first, permit, reader, range })
}

fn head_of(
    shared: &S3State,
    object: &S3Object,
    range: Option<&Range<u64>>,
    with_checksums: bool,
) -> Option<Bytes> {
    let size = object_size(object);
    let mut headers = headers_of(object, &[], with_checksums);
    let value = |text: String| HeaderValue::try_from(text).ok();
    let length = range.map_or(size, |range| range.end - range.start);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(ETAG, object.etag().to_http_header().ok()?);
    headers.insert(LAST_MODIFIED, http_date(&object.last_modified())?);
    headers.insert(DATE, shared.dates.now()?);
    headers.insert("accept-ranges", HeaderValue::from_static("bytes"));
    headers.insert("x-amz-request-id", value(shared.ids.next())?);
    let status = match range {
        Some(range) => {
            headers.insert(CONTENT_RANGE, value(content_range(range, size))?);
            StatusCode::PARTIAL_CONTENT
        }
        None => StatusCode::OK,
    };
    debug_assert!(headers.contains_key(CONTENT_TYPE));
    let mut head = BytesMut::with_capacity(512);
    head.extend_from_slice(
        format!("HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason()?).as_bytes(),
    );
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    Some(head.freeze())
}

async fn send(
    shared: &S3State,
    peer: &S3Peer,
    stream: &TcpStream,
    answer: GetResponse,
) -> std::io::Result<()> {
    let GetResponse { head, first, mut permit, mut reader, range } = answer;
    let stall = shared.config.stall_timeout;
    shared.metrics.read_bytes.inc_by(range.end - range.start);
    let _corked = (range.end - range.start > PART).then(|| Corked::new(stream));
    let mut left = range;
    let mut pieces = vec![Piece::Bytes(head)];
    let mut read = first;
    loop {
        let length: u64 = read.iter().map(Piece::length).sum();
        let lent = read.iter().filter(|piece| matches!(piece, Piece::Extent(_))).map(Piece::length).sum();
        shared.metrics.lent_bytes.inc_by(lent);
        left.start += length;
        pieces.append(&mut read);
        let patience = StallPolicy { stall, share: (lent < length).then_some(&peer.replies) };
        let sent = send::write_all(stream, std::mem::take(&mut pieces), patience).await;
        if let Err(e) = &sent
            && e.kind() == std::io::ErrorKind::TimedOut
        {
            peer.record_offence(Offence::SlowReader);
        }
        sent?;
        peer.slot.touch();
        drop(std::mem::take(&mut permit)); // before room for the next part: nobody waits for it who holds any
        if left.is_empty() {
            return Ok(());
        }
        let part = if lent == length { PART_LENT } else { PART };
        let part = next_chunk(&left, part);
        permit = peer.replies.acquire(part as usize).await;
        read = reader.read(left.start, part, LEND).await.map_err(|e| {
            shared.metrics.aborted.inc();
            tracing::debug!("an answer is cut short: {e}");
            std::io::Error::other("the object could not be read on")
        })?;
        permit.shrink_to(in_memory(&read));
    }
}

/// The bytes that are in memory instead of in the cached file.
fn in_memory(pieces: &[Piece]) -> usize {
    let bytes =
        pieces.iter().filter(|piece| matches!(piece, Piece::Bytes(_))).map(Piece::length).sum::<u64>();
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The length of the next read: at most `part` bytes.
fn next_chunk(left: &Range<u64>, part: u64) -> u32 {
    u32::try_from((left.end - left.start).min(part)).unwrap_or(u32::MAX)
}
