//! A signed request to a bucket over HTTP, and what its answer says: what all dialects share.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use ::origin::renewable_signer::{RenewableSigner, ShutOut};
use bytes::Bytes;
use chrono::{DateTime, FixedOffset};
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use serde::{Deserialize, Deserializer};
use types::{ByteRange, Error, ErrorKind, OutageReason, Result, Timestamp};

use crate::errors::{StoreRefusal, garbled, unanswered};
use crate::http::{Http, body_of};
use crate::sign::StoreSigner;
use crate::store::{GetResult, Metadata, ObjectStat, Precondition, PutResult};
use crate::url_encoding::{PATH, QUERY};

/// The largest XML answer: a page of 1,000 keys of 1,024 bytes, each byte written as three.
const XML_MAX: usize = 8 << 20;
/// The largest JSON answer: the same with 8 KiB of metadata each.
const JSON_MAX: usize = 32 << 20;

/// The client of one bucket.
pub struct RestClient {
    pub http: Http,
    pub signer: RenewableSigner<StoreSigner>,
    /// The path and query of a listing of one name below the prefix: credentials that may not see that may do
    /// nothing.
    pub proof: (Option<String>, String),
    pub shut_out: ShutOut,
    /// The bucket's URL, without a slash at its end.
    pub root: String,
    /// For messages.
    pub url: String,
    /// The prefix of metadata headers.
    pub meta: &'static str,
}

/// One request, before it is signed.
pub struct StoreRequest<'a> {
    operation: &'static str,
    method: Method,
    key: &'a str,
    /// Replaces the key: encoded, with a leading slash.
    path: Option<String>,
    /// Replaces the bucket's URL.
    root: Option<&'a str>,
    /// Encoded, with its question mark.
    query: String,
    headers: HeaderMap,
    data: Bytes,
}

impl<'a> StoreRequest<'a> {
    pub fn new(operation: &'static str, method: Method, key: &'a str) -> StoreRequest<'a> {
        let (query, headers, data) = (String::new(), HeaderMap::new(), Bytes::new());
        StoreRequest { operation, method, key, path: None, root: None, query, headers, data }
    }

    pub fn at(mut self, path: String) -> Self {
        self.path = Some(path);
        self
    }

    /// Addresses the service itself instead of the bucket.
    pub fn below(mut self, root: &'a str) -> Self {
        self.root = Some(root);
        self
    }

    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        // Writing to a String cannot fail.
        let _ = write!(self.query, "{name}={}", utf8_percent_encode(value, QUERY));
        self
    }

    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, self.operation, format!("{}: {name} {value:?}", self.key))
        })?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Adds metadata headers, whose names begin with `meta`.
    pub fn metadata(mut self, meta: &str, metadata: &Metadata) -> Result<Self> {
        for (name, value) in metadata {
            let name = HeaderName::try_from(format!("{meta}{name}")).map_err(|_| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    self.operation,
                    format!("{}: metadata {name:?}", self.key),
                )
            })?;
            self = self.header(name, value)?;
        }
        Ok(self)
    }

    pub fn condition(self, condition: Precondition) -> Result<Self> {
        match condition {
            Precondition::Always => Ok(self),
            Precondition::Absent => self.header(header::IF_NONE_MATCH, "*"),
            Precondition::Unchanged(etag) => self.header(header::IF_MATCH, etag),
        }
    }

    pub fn data(mut self, data: Bytes) -> Self {
        self.data = data;
        self
    }

    pub fn into_query(self) -> String {
        self.query
    }
}

impl RestClient {
    pub fn connections(&self) -> u64 {
        self.http.connections()
    }

    pub fn place(&self, key: &str) -> String {
        if key.is_empty() { self.url.clone() } else { format!("{key} in {}", self.url) }
    }

    async fn send(&self, ask: StoreRequest<'_>) -> Result<(Response<Incoming>, Arc<StoreSigner>)> {
        let (operation, place) = (ask.operation, self.place(ask.key));
        let slash = if ask.key.is_empty() && !ask.query.is_empty() { "/" } else { "" };
        let path = match ask.path {
            Some(path) => path,
            None if ask.key.is_empty() => slash.into(),
            None => format!("/{}", utf8_percent_encode(ask.key, PATH)),
        };
        let uri = format!("{}{path}{}", ask.root.unwrap_or(&self.root), ask.query);
        let mut request = Request::new(ask.data);
        *request.method_mut() = ask.method;
        *request.uri_mut() = uri
            .try_into()
            .map_err(|e| Error::new(ErrorKind::InvalidArgument, operation, &place).with_source(e))?;
        *request.headers_mut() = ask.headers;
        let signer = self.signer.get();
        let request = signer.sign(request).await.inspect_err(|e| {
            if e.outage_reason() == Some(OutageReason::Credentials) {
                self.signer.refused(&signer);
            }
        })?;
        let (length, began) = (request.body().len(), Instant::now());
        let answer = self.http.send_to_store(request).await;
        tracing::trace!("{operation} {place}: {length} bytes sent, answered after {:?}", began.elapsed());
        let answer = answer.map_err(|lost| unanswered(operation, place, lost))?;
        Ok((answer, signer))
    }

    /// Whether these credentials may not even list the prefix. Asked now and then, however many calls are refused.
    async fn is_shut_out(&self, began: Instant) -> bool {
        self.shut_out
            .decide(began, async || {
                let (path, query) = self.proof.clone();
                let ask = StoreRequest { path, query, ..StoreRequest::new("look into", Method::GET, "") };
                match self.send(ask).await {
                    Ok((answer, _)) => {
                        let status = answer.status();
                        let _ = body_of(answer, XML_MAX).await; // so that the connection can be used again
                        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                    }
                    // Unknown: that is no proof that only one object is denied.
                    Err(_) => true,
                }
            })
            .await
    }

    /// Sends a request; an answer other than success is an error.
    pub async fn ask(&self, ask: StoreRequest<'_>) -> Result<Response<Incoming>> {
        let (operation, key, began) = (ask.operation, ask.key, Instant::now());
        let (answer, signer) = self.send(ask).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = body_of(answer, XML_MAX).await.unwrap_or_default();
        let refusal = StoreRefusal::of(status, &headers, &body);
        let shut_out = refusal.is_of_credentials()
            || refusal.may_be_of_credentials() && Box::pin(self.is_shut_out(began)).await;
        if shut_out {
            // The next call is signed anew.
            self.signer.refused(&signer);
            return Err(refusal.to_outage(operation, self.place(key)));
        }
        // A missing bucket is never reported as "not found" of an object in it.
        let of_bucket = key.is_empty() && refusal.kind() == ErrorKind::NotFound;
        let kind = if of_bucket { ErrorKind::Unavailable } else { refusal.kind() };
        Err(refusal.to_error(kind, operation, self.place(key)))
    }

    async fn ask_body(&self, ask: StoreRequest<'_>, most: usize) -> Result<(HeaderMap, Bytes)> {
        let (operation, key) = (ask.operation, ask.key);
        let answer = self.ask(ask).await?;
        let headers = answer.headers().clone();
        let body = body_of(answer, most).await;
        body.map(|body| (headers, body)).map_err(|lost| unanswered(operation, self.place(key), lost))
    }

    /// Parses the answer's XML. Some calls answer 200 and report an error in the body.
    pub async fn ask_xml<T: for<'de> Deserialize<'de>>(&self, ask: StoreRequest<'_>) -> Result<T> {
        let (operation, key) = (ask.operation, ask.key);
        let (headers, body) = self.ask_body(ask, XML_MAX).await?;
        let text = String::from_utf8_lossy(&body);
        let text = text.trim_start_matches('\u{feff}');
        if text.contains("<Error>") {
            let refusal = StoreRefusal::of(StatusCode::INTERNAL_SERVER_ERROR, &headers, &body);
            return Err(refusal.to_error(refusal.kind(), operation, self.place(key)));
        }
        quick_xml::de::from_str(text).map_err(|e| garbled(operation, self.place(key), e))
    }

    pub async fn ask_json<T: for<'de> Deserialize<'de>>(&self, ask: StoreRequest<'_>) -> Result<T> {
        let (operation, key) = (ask.operation, ask.key);
        let (_, body) = self.ask_body(ask, JSON_MAX).await?;
        serde_json::from_slice(&body).map_err(|e| garbled(operation, self.place(key), e))
    }

    /// Checks the continuation token of a listing that was continued from `after`.
    pub fn next_token(
        &self,
        prefix: &str,
        after: Option<&str>,
        next: Option<String>,
    ) -> Result<Option<String>> {
        let next = next.filter(|next| !next.is_empty());
        match after {
            Some(after) if next.as_deref() == Some(after) => {
                Err(garbled("list", self.place(prefix), "it is to be gone on with where it was"))
            }
            _ => Ok(next),
        }
    }

    /// `None`: nothing has this key.
    pub async fn head(&self, key: &str) -> Result<Option<ObjectStat>> {
        let answer = match self.ask(StoreRequest::new("look at", Method::HEAD, key)).await {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            answer => answer?,
        };
        self.stat_of(key, answer.headers()).map(Some)
    }

    fn stat_of(&self, key: &str, headers: &HeaderMap) -> Result<ObjectStat> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let size = text(header::CONTENT_LENGTH).and_then(|size| size.parse().ok());
        let modified = time_in(headers, header::LAST_MODIFIED);
        let (Some(size), Some(etag), Some(modified)) = (size, text(header::ETAG), modified) else {
            return Err(garbled("look at", self.place(key), "an answer without size, ETag or time"));
        };
        Ok(ObjectStat { size, etag: quoted(etag), modified, metadata: self.metadata_of(headers) })
    }

    pub fn metadata_of(&self, headers: &HeaderMap) -> Metadata {
        let metadata = headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().strip_prefix(self.meta)?.to_owned(), value.to_str().ok()?.to_owned()))
        });
        metadata.collect()
    }

    /// Exactly the bytes of `range`, which is not empty, with what the store calls the contents they are of. With `etag`
    /// of these contents only.
    pub async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<GetResult> {
        let ask = StoreRequest::new("read", Method::GET, key).condition(Precondition::unchanged(etag))?;
        let (headers, size, data) = self.ask_range(ask, range).await?;
        Ok(GetResult { etag: self.etag_of("read", key, &headers)?, size, data })
    }

    /// Returns the answer's headers, the size of the whole object, and exactly the bytes of `range`.
    pub async fn ask_range(
        &self,
        ask: StoreRequest<'_>,
        range: ByteRange,
    ) -> Result<(HeaderMap, u64, Bytes)> {
        let (key, last) = (ask.key, range.end() - 1);
        let ask = ask.header(header::RANGE, &format!("bytes={}-{last}", range.offset))?;
        let answer = self.ask(ask).await?;
        let headers = answer.headers().clone();
        let told = headers.get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let told = told.unwrap_or_default();
        let size = match told
            .strip_prefix(&format!("bytes {}-", range.offset))
            .and_then(|rest| rest.split_once('/'))
        {
            Some((end, size)) if end.parse() == Ok(last) => size.parse().ok(),
            // The object is shorter than it was: other contents, whatever their ETag.
            Some(_) => return Err(Error::new(ErrorKind::VersionChanged, "read", self.place(key))),
            // A store that ignores ranges, and all was requested.
            None if answer.status() == StatusCode::OK && range.offset == 0 => Some(range.length),
            None => None,
        };
        let Some(size) = size else {
            let why = format!("{} bytes from {} were asked for, {told:?} came", range.length, range.offset);
            return Err(garbled("read", self.place(key), why));
        };
        let most = range.length as usize;
        let data = body_of(answer, most).await.map_err(|lost| unanswered("read", self.place(key), lost))?;
        if data.len() != most {
            let why = format!("{} bytes came of {most}", data.len());
            return Err(Error::new(ErrorKind::Unavailable, "read", self.place(key))
                .with_source(std::io::Error::other(why)));
        }
        Ok((headers, size, data))
    }

    /// Deletes; no error if nothing is there.
    pub async fn delete(&self, ask: StoreRequest<'_>) -> Result<()> {
        match self.ask(ask).await {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    }

    /// The result of a PUT; `time` is the header with its time.
    pub fn stored(
        &self,
        operation: &'static str,
        key: &str,
        headers: &HeaderMap,
        time: HeaderName,
    ) -> Result<PutResult> {
        let etag = self.etag_of(operation, key, headers)?;
        Ok(PutResult { etag, modified: time_in(headers, time) })
    }

    /// The ETag in an answer to a PUT.
    pub fn etag_of(&self, operation: &'static str, key: &str, headers: &HeaderMap) -> Result<String> {
        let etag = headers.get(header::ETAG).and_then(|value| value.to_str().ok());
        etag.map(quoted).ok_or_else(|| garbled(operation, self.place(key), "an answer without ETag"))
    }
}

/// Adds quotation marks to an ETag. Some stores leave them away, mostly in XML: the same contents must have one
/// ETag, and conditions need the marks.
pub fn quoted(etag: &str) -> String {
    if etag.ends_with('"') { etag.to_owned() } else { format!("\"{etag}\"") }
}

/// A file's size has 63 bits.
pub fn size_in(text: Option<&str>) -> Option<u64> {
    text?.trim().parse().ok().filter(|size| i64::try_from(*size).is_ok())
}

/// An ETag in XML.
pub fn etag_in_xml<'de, D: Deserializer<'de>>(xml: D) -> std::result::Result<String, D::Error> {
    String::deserialize(xml).map(|etag| quoted(&etag))
}

fn time_in(headers: &HeaderMap, name: HeaderName) -> Option<Timestamp> {
    let time = headers.get(name)?.to_str().ok()?;
    DateTime::parse_from_rfc2822(time).ok().map(time_of)
}

pub fn time_of(time: DateTime<FixedOffset>) -> Timestamp {
    Timestamp { seconds: time.timestamp(), nanos: time.timestamp_subsec_nanos().min(999_999_999) }
}
