//! The gate that every request passes before the protocol crate sees it: operations that are not offered are
//! refused, the signature is verified, the body is bounded and checked, and all that belongs to the signature is
//! removed from the request.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fair::MemoryPermit;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPECT, HOST,
    RANGE, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode};
use tracing::debug;

use crate::access_keys::{AccessKey, Right};
use crate::body_drain;
use crate::body_error::BodyError;
use crate::body_intake::BodyIntake;
use crate::budgeted_body::BudgetedBody;
use crate::checked_body::{CheckedBody, Trailer};
use crate::checksums::{self, BodyChecksums};
use crate::errors::{self, S3Result, not_offered};
use crate::metrics::{HttpStatusLabels, MethodLabels};
use crate::ops::Requester;
use crate::peer::{FRONT, S3Peer};
use crate::response_xml::finish_xml;
use crate::route::{self, MissingSetting, ResourceLevel, RouteVerdict};
use crate::sigv4::{
    ExpectedScope, PayloadSigning, Query, RequestHead, SignatureError, VerifiedRequest, decode,
    is_auth_parameter, verify,
};
use crate::{Config, S3State};
use crate::{range, resolve, vhost};

/// The largest XML body of a request: 10,000 parts with their checksums.
pub const XML_BYTES_MAX: usize = 8 << 20;

/// The memory of a listing of 1,000 keys, as structs and as XML.
const LISTING_BYTES: usize = 512 << 10;
/// The bytes of an object's body that are gathered before they are written.
const GATHERED_BYTES: u64 = 1 << 20;

/// Headers of the signature or the transport, which are removed.
const STRIPPED_HEADERS: [&str; 6] = [
    "authorization",
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-decoded-content-length",
    "x-amz-security-token",
    "transfer-encoding",
];

/// Answers a request: the gate, the protocol crate, and the last touches on the answer.
pub async fn handle<B>(
    shared: &Arc<S3State>,
    peer: &Arc<S3Peer>,
    protocol: &S3Service,
    request: Request<B>,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
{
    peer.slot.touch();
    let begun = Instant::now();
    // An answer that is built in memory takes its permit before.
    let path = path_with_bucket(&shared.config, request.headers(), request.uri());
    let permit = match is_listing(&request, &path) {
        true => peer.replies.acquire(LISTING_BYTES).await,
        false => MemoryPermit::default(),
    };
    let method = method_label(request.method());
    let expects_continue = request.headers().contains_key(EXPECT);
    let has_no_body = request.body().is_end_stream();
    let (parts, body) = request.into_parts();
    let (body, rest) = body_drain::loan(body, expects_continue);
    let admitted = admit(shared, peer, Request::from_parts(parts, body), &path).await;
    let answered = match admitted {
        Ok(request) => protocol.call(request).await.map_err(|e| {
            debug!("an answer could not be written: {e:?}");
            S3Error::from(S3ErrorCode::InternalError)
        }),
        Err(refused) => Err(refused),
    };
    let mut response = answered.unwrap_or_else(|error| error_response(shared, error));
    // The protocol crate answers a HEAD of a range with 200, S3 with 206 as a GET.
    if response.status() == StatusCode::OK && response.headers().contains_key(CONTENT_RANGE) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let id = HeaderValue::try_from(shared.ids.next()).expect("hexadecimal digits");
    response = finish_xml(response, &id, method == "HEAD");
    response.headers_mut().insert("x-amz-request-id", id);
    count(shared, method, &response, begun.elapsed());
    let is_drained = rest.drain().await;
    // Without a body there is nothing to continue, and the answer comes at once. On a connection that has answered
    // so, some versions of botocore take its status for that of the next answer, too, and wait for its end until the
    // connection is closed.
    let is_early = expects_continue && has_no_body;
    if is_early || !is_drained || peer.is_cut() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    match permit.is_empty() {
        true => response,
        false => response.map(|body| Body::http_body_unsync(BudgetedBody::new(body, permit))),
    }
}

/// Whether the request lists buckets, keys, uploads or parts.
fn is_listing<B>(request: &Request<B>, path: &str) -> bool {
    let is_of_parts = || Query::parse(request.uri().query().unwrap_or_default()).has("uploadId");
    *request.method() == Method::GET && (ResourceLevel::of(path) != ResourceLevel::Object || is_of_parts())
}

/// The path with the bucket in it, also where the host names the bucket.
fn path_with_bucket(config: &Config, headers: &HeaderMap, uri: &Uri) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    match vhost::bucket_of(host, config.domain.as_deref()) {
        Some(bucket) => vhost::with_bucket(&bucket, uri.path()),
        None => uri.path().to_owned(),
    }
}

fn error_response(shared: &S3State, error: S3Error) -> Response<Body> {
    let mut response = error.to_http_response().unwrap_or_else(|_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    });
    // Clients learn from this which region they must sign for.
    if let Ok(region) = HeaderValue::try_from(&shared.config.region) {
        response.headers_mut().insert("x-amz-bucket-region", region);
    }
    response
}

fn count(shared: &S3State, method: &'static str, response: &Response<Body>, time: Duration) {
    let metrics = &shared.metrics;
    metrics.seconds.get_or_create(&MethodLabels { method }).observe(time.as_secs_f64());
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        metrics.failures.get_or_create(&HttpStatusLabels { status: status.as_u16() }).inc();
    }
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Verifies the signature. A refused client is counted, and named in the log.
fn verified(shared: &S3State, peer: &S3Peer, head: &RequestHead<'_>) -> S3Result<VerifiedRequest> {
    verify_head(shared, head).map_err(|refused| {
        shared.metrics.refused.inc();
        shared.refusals.record(FRONT, peer.address, refused.offence());
        errors::signature_error(&refused)
    })
}

pub fn verify_head(
    shared: &S3State,
    head: &RequestHead<'_>,
) -> std::result::Result<VerifiedRequest, SignatureError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expected = ExpectedScope { region: shared.config.region.clone() };
    verify(head, &shared.config.keys, &expected, i64::try_from(now).unwrap_or(i64::MAX))
}

/// Lets a request through, rewritten for the protocol crate. `path` is what it addresses; the signature covers the
/// path as it was sent.
async fn admit<B>(
    shared: &Arc<S3State>,
    peer: &Arc<S3Peer>,
    request: Request<B>,
    path: &str,
) -> S3Result<Request<Body>>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
{
    let (mut parts, body) = request.into_parts();
    refuse_forms(&parts.method, &parts.headers)?;
    let query = parts.uri.query().unwrap_or_default();
    let head = RequestHead { method: &parts.method, path: parts.uri.path(), query, headers: &parts.headers };
    let verified = verified(shared, peer, &head)?;
    let query = Query::parse(query);
    promote_query_headers(&query, &mut parts.headers)?;
    refuse_unsupported_headers(&parts.headers)?;
    require_bucket_owner(&parts.headers, &verified.key)?;
    let level = ResourceLevel::of(path);
    match route::judge(&parts.method, level, &query) {
        RouteVerdict::Offered => {}
        RouteVerdict::Unset(unset) => return Err(missing_setting(shared, &verified.key, path, unset).await),
        RouteVerdict::Twice(name) => {
            let message = format!("the parameter {name} is there twice");
            return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, message));
        }
        RouteVerdict::NotOffered(what) => {
            let message = format!("not offered here: {what}");
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
        }
    }
    let length = decoded_length(&parts.headers, &verified.payload)?;
    // No file is so long, and the protocol crate cannot express it.
    if length.is_some_and(|length| i64::try_from(length).is_err()) {
        return Err(S3ErrorCode::EntityTooLarge.into());
    }
    let is_copy = parts.headers.contains_key("x-amz-copy-source");
    let is_object =
        parts.method == Method::PUT && !is_copy && level == ResourceLevel::Object && !query.has("tagging");
    if is_object && length.is_none() {
        return Err(S3ErrorCode::MissingContentLength.into());
    }
    let length = length.unwrap_or(0);
    let trailer = Trailer::default();
    let held_max = if is_object { GATHERED_BYTES } else { XML_BYTES_MAX as u64 };
    let mut intake = BodyIntake::new(peer.clone(), length.min(held_max), shared.config.stall_timeout);
    if is_object && query.has("partNumber") {
        intake = intake.of_part();
    }
    let checked = CheckedBody::new(body, length, verified.payload, trailer.clone(), intake);
    let (body, permit) = if is_object {
        (Body::http_body_unsync(checked), None)
    } else {
        // A completion's checksum headers are those of the object, not of this body.
        let is_end = parts.method == Method::POST && query.has("uploadId");
        let sums = if is_end {
            BodyChecksums::of_md5_alone(&parts.headers)?
        } else {
            BodyChecksums::new(&parts.headers, trailer.clone())?
        };
        let (bytes, permit) = read_whole(checked, length, sums).await?;
        (Body::from(bytes), Some(Arc::new(permit)))
    };
    parts.uri = without_signature(path, &query)?;
    strip_signature_headers(&mut parts.headers, length);
    parts.extensions.insert(Requester { key: verified.key, trailer, peer: peer.clone(), _permit: permit });
    Ok(Request::from_parts(parts, body))
}

/// Refuses uploads by HTML forms, whose signature is in the body.
fn refuse_forms(method: &Method, headers: &HeaderMap) -> S3Result<()> {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let form = b"multipart/form-data";
    let is_form = kind.len() >= form.len() && kind[..form.len()].eq_ignore_ascii_case(form);
    if *method == Method::POST && is_form {
        return Err(not_offered("uploads by POST of a form are not offered"));
    }
    Ok(())
}

/// The length of the decoded body; `None`: the request does not say.
fn decoded_length(headers: &HeaderMap, payload: &PayloadSigning) -> S3Result<Option<u64>> {
    let number = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let value = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = value.and_then(|text| text.parse().ok()).filter(|_| values.next().is_none());
        number.map(Some).ok_or_else(|| errors::invalid("a length in the head is no number"))
    };
    match payload {
        PayloadSigning::Chunks { .. } | PayloadSigning::UnsignedChunks => {
            let length = number("x-amz-decoded-content-length")?;
            length.map(Some).ok_or_else(|| S3ErrorCode::MissingContentLength.into())
        }
        _ if headers.contains_key(TRANSFER_ENCODING) => Ok(None),
        _ => number("content-length"),
    }
}

/// Turns query parameters of presigned URLs that stand for headers into headers, as S3 does. The query is signed as
/// a whole.
fn promote_query_headers(query: &Query, headers: &mut HeaderMap) -> S3Result<()> {
    let unclear = || errors::invalid("a header in the query is none, or is there twice");
    for (name, value) in query.0.iter().filter(|(name, _)| is_header(name)) {
        let name = HeaderName::from_bytes(name).map_err(|_| unclear())?;
        // S3 ignores checksums here: the SDK for JavaScript signs that of an empty body into every URL.
        if checksums::is_checksum(name.as_str()) {
            continue;
        }
        let value = HeaderValue::from_bytes(value).map_err(|_| unclear())?;
        if headers.insert(name, value).is_some() {
            return Err(unclear());
        }
    }
    Ok(())
}

fn is_header(parameter: &[u8]) -> bool {
    let prefix = b"x-amz-";
    let has_prefix = parameter.len() > prefix.len() && parameter[..prefix.len()].eq_ignore_ascii_case(prefix);
    has_prefix && !is_auth_parameter(parameter)
}

/// Refuses headers whose effect a client would count on if they were ignored: encryption, object locks, writes at an
/// offset.
fn refuse_unsupported_headers(headers: &HeaderMap) -> S3Result<()> {
    let is_wish = |name: &&str| {
        *name == "x-amz-write-offset-bytes"
            || name.starts_with("x-amz-object-lock-")
            || name.starts_with("x-amz-server-side-encryption")
            || name.starts_with("x-amz-copy-source-server-side-encryption")
    };
    if let Some(name) = headers.keys().map(HeaderName::as_str).find(is_wish) {
        return Err(errors::header_not_offered(name));
    }
    if headers.get_all("x-amz-storage-class").iter().any(|class| class != "STANDARD") {
        let message = "there is one storage class here: STANDARD";
        return Err(S3Error::with_message(S3ErrorCode::InvalidStorageClass, message));
    }
    Ok(())
}

/// Checks the expected owner of the bucket. The owner of all buckets is the access key's id, as listings say.
fn require_bucket_owner(headers: &HeaderMap, key: &AccessKey) -> S3Result<()> {
    let names = ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];
    let mut expected = names.iter().flat_map(|name| headers.get_all(*name));
    if expected.any(|owner| owner.as_bytes() != key.id.as_bytes()) {
        let message =
            "the owner of the bucket is not the one that was expected; here it is the access key's id";
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
    }
    Ok(())
}

/// The error for a bucket setting that does not exist here, if the bucket exists.
async fn missing_setting(shared: &S3State, key: &AccessKey, path: &str, unset: MissingSetting) -> S3Error {
    let path = String::from_utf8_lossy(&decode(path)).into_owned();
    let name = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let found = resolve::bucket(&shared.vfs, &shared.config.buckets, key, name, Right::Read).await;
    if let Err(error) = found {
        return error;
    }
    let mut error = S3Error::with_message(S3ErrorCode::Custom(unset.code.into()), unset.message);
    error.set_status_code(StatusCode::from_u16(unset.status).unwrap_or(StatusCode::NOT_FOUND));
    error
}

async fn read_whole<B>(
    mut body: CheckedBody<B>,
    length: u64,
    mut sums: BodyChecksums,
) -> S3Result<(Bytes, MemoryPermit)>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > XML_BYTES_MAX {
        return Err(S3ErrorCode::MaxMessageLengthExceeded.into());
    }
    // Memory is taken as bytes arrive, from the allocator and from the budget: an announced length takes none.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|e: BodyError| errors::body_error(e))?.into_data().unwrap_or_default();
        sums.update(&data);
        bytes.extend_from_slice(&data);
    }
    if !bytes.is_empty() {
        sums.check()?;
    }
    Ok((bytes.into(), body.take_permit()))
}

fn without_signature(path: &str, query: &Query) -> S3Result<Uri> {
    let kept = query.without(|name| is_auth_parameter(name) || is_header(name));
    let text = if kept.is_empty() { path.to_owned() } else { format!("{path}?{kept}") };
    Uri::try_from(text).map_err(|_| S3ErrorCode::InvalidURI.into())
}

fn strip_signature_headers(headers: &mut HeaderMap, length: u64) {
    for name in STRIPPED_HEADERS {
        headers.remove(name);
    }
    debug_assert!(!headers.contains_key(AUTHORIZATION));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    // `aws-chunked` is an encoding of the transport, not of the object.
    let encoding = headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok()).map(|value| {
        let of_object =
            value.split(',').map(str::trim).filter(|word| *word != "aws-chunked" && !word.is_empty());
        of_object.collect::<Vec<_>>().join(", ")
    });
    match encoding.as_deref().map(|text| (text.is_empty(), HeaderValue::try_from(text))) {
        Some((false, Ok(value))) => drop(headers.insert(CONTENT_ENCODING, value)),
        Some(_) => drop(headers.remove(CONTENT_ENCODING)),
        None => {}
    }
    if let Some(value) = headers.remove(RANGE)
        && let Some(range) = value.to_str().ok().and_then(range::parse)
        && let Ok(value) = HeaderValue::try_from(range.to_header_string())
    {
        headers.insert(RANGE, value);
    }
    headers.remove(EXPECT);
}
