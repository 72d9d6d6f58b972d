//! GetObject and HeadObject.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Response};
use types::{Caller, Error, ErrorKind};
use vfs::{Lend, Node, Piece, Vfs};

use super::{RequestContext, require_null_version, tags, to_i64};
use crate::access_keys::Right;
use crate::checksums;
use crate::errors::{S3Result, s3_error};
use crate::internal_headers;
use crate::metrics::Metrics;
use crate::object::{ConditionOutcome, Conditions, S3Object};
use crate::peer::{S3Peer, with_permit};

/// The bytes that are read at once: what a slow client holds in our memory.
const PART: u64 = 256 << 10;
/// An object that is replaced between its lookup and its first byte this many times is answered with "try again".
const TRIES_MAX: usize = 2;

impl RequestContext {
    pub async fn get_object(&self, input: GetObjectInput) -> S3Result<S3Response<GetObjectOutput>> {
        require_null_version(input.version_id.as_deref())?;
        let bucket = self.bucket(&input.bucket, Right::Read).await?;
        let conditions = Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
            ..Conditions::default()
        };
        let mut tries = 0;
        let (object, range, parts, body) = loop {
            let object = self.object(&bucket, &input.key).await?;
            check_conditions(&object, &conditions)?;
            let (range, parts) = requested_range(&object, input.range.as_ref(), input.part_number)?;
            let asked = range.clone().unwrap_or(0..object_size(&object));
            tries += 1;
            match self.body(object.node.clone(), asked).await {
                Ok(body) => break (object, range, parts, body),
                // The object was replaced after its lookup.
                Err(e) if e.kind() == ErrorKind::VersionChanged && tries < TRIES_MAX => {}
                // Clients try again after a 503, but not after a 409.
                Err(e) if e.kind() == ErrorKind::VersionChanged => return Err(S3ErrorCode::SlowDown.into()),
                Err(e) => return Err(s3_error(e)),
            }
        };
        let size = object_size(&object);
        let overridden = [
            ("content-type", input.response_content_type.is_some()),
            ("cache-control", input.response_cache_control.is_some()),
            ("content-disposition", input.response_content_disposition.is_some()),
            ("content-encoding", input.response_content_encoding.is_some()),
            ("content-language", input.response_content_language.is_some()),
            ("expires", input.response_expires.is_some()),
        ];
        let overridden: Vec<_> = overridden.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        let length = body.left.end - body.left.start;
        let with_checksums = input.checksum_mode.is_some() && range.is_none();
        let headers = headers_of(&object, &overridden, with_checksums);
        self.shared.metrics.read_bytes.inc_by(length);
        let output = GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(to_i64(length)),
            content_range: range.map(|range| content_range(&range, size)),
            e_tag: Some(object.etag()),
            last_modified: Some(object.last_modified()),
            parts_count: parts,
            body: Some(StreamingBlob::from(s3s::Body::http_body_unsync(body))),
            ..GetObjectOutput::default()
        };
        Ok(S3Response::with_headers(output, headers))
    }

    pub async fn head_object(&self, input: HeadObjectInput) -> S3Result<S3Response<HeadObjectOutput>> {
        require_null_version(input.version_id.as_deref())?;
        let bucket = self.bucket(&input.bucket, Right::Read).await?;
        let object = self.object(&bucket, &input.key).await?;
        let conditions = Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
            ..Conditions::default()
        };
        check_conditions(&object, &conditions)?;
        let size = object_size(&object);
        let (range, parts) = requested_range(&object, input.range.as_ref(), input.part_number)?;
        let asked = range.clone().unwrap_or(0..size);
        let mut headers = headers_of(&object, &[], input.checksum_mode.is_some() && range.is_none());
        let wished = [
            (http::header::CONTENT_TYPE, input.response_content_type),
            (http::header::CACHE_CONTROL, input.response_cache_control),
            (http::header::CONTENT_DISPOSITION, input.response_content_disposition),
            (http::header::CONTENT_ENCODING, input.response_content_encoding),
            (http::header::CONTENT_LANGUAGE, input.response_content_language),
        ];
        for (name, value) in wished {
            if let Some(value) = value {
                let value = HeaderValue::try_from(value).map_err(|_| S3ErrorCode::InvalidArgument)?;
                headers.insert(name, value);
            }
        }
        if let Some(expires) = input.response_expires.as_ref().and_then(crate::http_date::http_date) {
            headers.insert(http::header::EXPIRES, expires);
        }
        let output = HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(to_i64(asked.end - asked.start)),
            content_range: range.map(|range| content_range(&range, size)),
            e_tag: Some(object.etag()),
            last_modified: Some(object.last_modified()),
            parts_count: parts,
            ..HeadObjectOutput::default()
        };
        Ok(S3Response::with_headers(output, headers))
    }

    pub fn reader(&self, node: Node) -> ObjectReader {
        ObjectReader { vfs: self.shared.vfs.clone(), caller: self.caller().clone(), node, is_first: true }
    }

    /// Reads the first bytes before the head is sent: an answer that begins well is likely to be whole.
    async fn body(&self, node: Node, asked: Range<u64>) -> types::Result<ObjectBody> {
        let mut reader = self.reader(node);
        let peer = self.requester.peer.clone();
        let first = reader.read_with_permit(&peer, asked.start, chunk_length(&asked)).await?;
        let metrics = self.shared.metrics.clone();
        Ok(ObjectBody {
            first: Some(first),
            reader: Some(reader),
            left: asked,
            pending_read: None,
            peer,
            metrics,
        })
    }
}

/// The size of an object; a directory has no bytes.
pub fn object_size(object: &S3Object) -> u64 {
    if object.node.attr.is_dir() { 0 } else { object.node.attr.size }
}

pub fn check_conditions(object: &S3Object, conditions: &Conditions) -> S3Result<()> {
    let code = match conditions.judge(object) {
        ConditionOutcome::Proceed => return Ok(()),
        ConditionOutcome::NotModified => S3ErrorCode::NotModified,
        ConditionOutcome::Failed => S3ErrorCode::PreconditionFailed,
    };
    let is_not_modified = code == S3ErrorCode::NotModified;
    let mut error = S3Error::new(code);
    if is_not_modified && let Ok(etag) = object.etag().to_http_header() {
        error.set_headers(HeaderMap::from_iter([(http::header::ETAG, etag)]));
    }
    Err(error)
}

/// The byte range that is requested (`None`: the whole object), and the number of parts if one part is requested.
fn requested_range(
    object: &S3Object,
    range: Option<&s3s::dto::Range>,
    part: Option<i32>,
) -> S3Result<(Option<Range<u64>>, Option<i32>)> {
    let size = object_size(object);
    let Some(number) = part else { return Ok((resolve_range(range, size)?, None)) };
    if range.is_some() {
        return Err(S3ErrorCode::InvalidRequest.into());
    }
    match internal_headers::part(&object.headers, size, number) {
        Some((bytes, count)) => {
            Ok((Some(bytes).filter(|bytes| !bytes.is_empty()), i32::try_from(count).ok()))
        }
        None => {
            let mut error = S3Error::new(S3ErrorCode::Custom("InvalidPartNumber".into()));
            error.set_status_code(http::StatusCode::RANGE_NOT_SATISFIABLE);
            Err(error)
        }
    }
}

/// Resolves a range header against the size; `None`: the whole object.
pub fn resolve_range(range: Option<&s3s::dto::Range>, size: u64) -> S3Result<Option<Range<u64>>> {
    let Some(range) = range else { return Ok(None) };
    // A suffix range of an empty object is the whole object.
    if size == 0 && matches!(range, s3s::dto::Range::Suffix { length: 1.. }) {
        return Ok(None);
    }
    let mut unsatisfiable = S3Error::new(S3ErrorCode::InvalidRange);
    let whole = HeaderValue::try_from(format!("bytes */{size}")).map_err(S3Error::internal_error)?;
    unsatisfiable.set_headers(HeaderMap::from_iter([(http::header::CONTENT_RANGE, whole)]));
    range.check(size).map(Some).map_err(|_| unsatisfiable)
}

pub fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1))
}

/// The stored headers of an object, without those that the request overrides.
pub fn headers_of(object: &S3Object, without: &[&str], with_checksums: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !without.contains(&"content-type") {
        let is_dir = object.node.attr.is_dir();
        let kind = if is_dir { "application/x-directory" } else { "binary/octet-stream" };
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    for (name, value) in &object.headers {
        let is_left_out = without.contains(&name.as_str());
        if is_left_out
            || internal_headers::is_internal(name)
            || !with_checksums && name.starts_with("x-amz-checksum-")
        {
            continue;
        }
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.as_str()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.insert(name, value);
        }
    }
    if let Some(tags) = internal_headers::tags(&object.headers) {
        headers.insert("x-amz-tagging-count", HeaderValue::from(tags::count(tags)));
    }
    if with_checksums
        && !headers.contains_key("x-amz-checksum-type")
        && headers.keys().any(|name| checksums::is_checksum(name.as_str()))
    {
        headers.insert("x-amz-checksum-type", HeaderValue::from_static("FULL_OBJECT"));
    }
    headers
}

/// Reads one version of a file.
pub struct ObjectReader {
    vfs: Arc<Vfs>,
    caller: Caller,
    node: Node,
    is_first: bool,
}

impl ObjectReader {
    /// Reads exactly `count` bytes, or fails; `lend` says which pieces may be extents of the cached file instead of
    /// bytes.
    pub async fn read(&mut self, offset: u64, count: u32, lend: Lend) -> types::Result<Vec<Piece>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let data = if std::mem::take(&mut self.is_first) {
            // The first read goes through `Vfs::read`, which checks permission and feeds read-ahead.
            let out = self.vfs.read(&self.caller, self.node.id, offset, count, lend).await?;
            if out.node.version != self.node.version {
                return Err(Error::new(ErrorKind::VersionChanged, "read an object", self.node.id));
            }
            out.data
        } else {
            self.vfs.read_same(&self.node, offset, count, lend).await?
        };
        // A short read: the file was truncated after the head promised its size.
        if data.iter().map(Piece::length).sum::<u64>() != u64::from(count) {
            return Err(Error::new(ErrorKind::VersionChanged, "read an object", self.node.id));
        }
        Ok(data)
    }

    /// Reads bytes into memory, under a permit that is held until they are sent.
    async fn read_with_permit(&mut self, peer: &S3Peer, offset: u64, count: u32) -> types::Result<Bytes> {
        let permit = peer.replies.acquire(count as usize).await;
        Ok(with_permit(self.read_bytes(offset, count).await?, permit))
    }

    /// Reads bytes into memory.
    async fn read_bytes(&mut self, offset: u64, count: u32) -> types::Result<Bytes> {
        let pieces = self.read(offset, count, Lend::Nothing).await?;
        let failed = |e| Error::io("read the cached part of", self.node.id, e);
        let mut bytes =
            pieces.iter().map(Piece::to_bytes).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        if bytes.len() == 1
            && let Some(only) = bytes.pop()
        {
            return Ok(only);
        }
        Ok(bytes.concat().into())
    }
}

type ReadFuture = Pin<Box<dyn Future<Output = (ObjectReader, types::Result<Bytes>)> + Send>>;

/// The body of an answer. An error after the head is sent ends the connection: the client sees a short body.
struct ObjectBody {
    first: Option<Bytes>,
    reader: Option<ObjectReader>,
    left: Range<u64>,
    pending_read: Option<ReadFuture>,
    peer: Arc<S3Peer>,
    metrics: Arc<Metrics>,
}

impl Body for ObjectBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<types::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take().filter(|first| !first.is_empty()) {
            this.left.start += first.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if this.pending_read.is_none() && !this.left.is_empty() {
            let Some(mut reader) = this.reader.take() else { return Poll::Ready(None) };
            let (offset, count) = (this.left.start, chunk_length(&this.left));
            let peer = this.peer.clone();
            peer.slot.touch();
            this.pending_read = Some(Box::pin(async move {
                let read = reader.read_with_permit(&peer, offset, count).await;
                (reader, read)
            }));
        }
        let Some(pending_read) = &mut this.pending_read else { return Poll::Ready(None) };
        let (reader, read) = ready!(pending_read.as_mut().poll(cx));
        this.pending_read = None;
        match read {
            Ok(bytes) => {
                this.reader = Some(reader);
                this.left.start += bytes.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Err(e) => {
                this.metrics.aborted.inc();
                tracing::debug!("an answer is cut short: {e}");
                this.left.end = this.left.start;
                Poll::Ready(Some(Err(e)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.pending_read.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.end - self.left.start)
    }
}

fn chunk_length(left: &Range<u64>) -> u32 {
    u32::try_from((left.end - left.start).min(PART)).unwrap_or(u32::MAX)
}

/// The bytes of a range of one version, in order; the source of copies.
pub struct RangeReader {
    reader: ObjectReader,
    left: Range<u64>,
}

impl RangeReader {
    pub fn new(vfs: &Arc<Vfs>, caller: &Caller, node: Node, range: Range<u64>) -> RangeReader {
        let reader = ObjectReader { vfs: vfs.clone(), caller: caller.clone(), node, is_first: true };
        RangeReader { reader, left: range }
    }

    /// The next bytes; empty at the end.
    pub async fn next(&mut self) -> S3Result<Bytes> {
        if self.left.is_empty() {
            return Ok(Bytes::new());
        }
        let bytes =
            self.reader.read_bytes(self.left.start, chunk_length(&self.left)).await.map_err(s3_error)?;
        self.left.start += bytes.len() as u64;
        Ok(bytes)
    }
}
