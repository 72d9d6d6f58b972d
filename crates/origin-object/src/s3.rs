//! The calls of S3's REST interface: one function each. <https://docs.aws.amazon.com/AmazonS3/latest/API/>

use std::fmt::Write as _;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use chrono::DateTime;
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use types::{ByteRange, Error, ErrorKind, Result, Timestamp};

use crate::errors::{Refusal, garbled, unanswered};
use crate::http::{Http, body_of};
use crate::sign::{Environment, Place, Signer};
use crate::store::{Condition, Got, Listed, Metadata, Page, Part, Stat};
use crate::url::{Addressing, Config};

/// What stands in a URL's path as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Answers in XML: a page of 1,000 keys of 1,024 bytes, each byte written as three.
const XML_MAX: usize = 8 << 20;
const META: &str = "x-amz-meta-";
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

pub struct S3 {
    http: Http,
    signer: Signer,
    /// The bucket, without a slash at its end.
    root: String,
    /// For messages.
    url: String,
    /// In the path of the bucket's own URL: what a copy's source begins with.
    bucket: String,
}

/// One request, before it is signed.
struct Ask<'a> {
    operation: &'static str,
    method: Method,
    key: &'a str,
    /// Encoded, with its question mark.
    query: String,
    headers: HeaderMap,
    data: Bytes,
}

impl<'a> Ask<'a> {
    fn new(operation: &'static str, method: Method, key: &'a str) -> Ask<'a> {
        Ask { operation, method, key, query: String::new(), headers: HeaderMap::new(), data: Bytes::new() }
    }

    fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        // Writing to a String cannot fail.
        let _ = write!(self.query, "{name}={}", utf8_percent_encode(value, QUERY));
        self
    }

    fn header(mut self, name: HeaderName, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, self.operation, format!("{}: {name} {value:?}", self.key))
        })?;
        self.headers.insert(name, value);
        Ok(self)
    }

    fn metadata(mut self, metadata: &Metadata) -> Result<Self> {
        for (name, value) in metadata {
            let name = HeaderName::try_from(format!("{META}{name}")).map_err(|_| {
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

    fn condition(self, condition: Condition) -> Result<Self> {
        match condition {
            Condition::Always => Ok(self),
            Condition::Absent => self.header(header::IF_NONE_MATCH, "*"),
            Condition::Unchanged(etag) => self.header(header::IF_MATCH, etag),
        }
    }

    fn data(mut self, data: Bytes) -> Self {
        self.data = data;
        self
    }
}

impl S3 {
    pub fn new(config: &Config, http: Http, environment: Option<Environment>) -> Result<S3> {
        let Place { signer, region, endpoint } = Place::of_s3(config, &http, environment)?;
        let bucket = &config.bucket;
        let own = endpoint.is_some();
        let addressing =
            config.addressing.unwrap_or(if own { Addressing::Path } else { Addressing::Virtual });
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/');
        let root = match (addressing, endpoint.split_once("://")) {
            (Addressing::Virtual, Some((scheme, host))) => format!("{scheme}://{bucket}.{host}"),
            _ => format!("{endpoint}/{bucket}"),
        };
        Ok(S3 { http, signer, root, url: config.url(), bucket: bucket.clone() })
    }

    fn place(&self, key: &str) -> String {
        if key.is_empty() { self.url.clone() } else { format!("{key} in {}", self.url) }
    }

    async fn send(&self, ask: Ask<'_>) -> Result<Response<Incoming>> {
        let (operation, place) = (ask.operation, self.place(ask.key));
        let slash = if ask.key.is_empty() && !ask.query.is_empty() { "/" } else { "" };
        let path = if ask.key.is_empty() {
            slash.into()
        } else {
            format!("/{}", utf8_percent_encode(ask.key, PATH))
        };
        let uri = format!("{}{path}{}", self.root, ask.query);
        let mut request = Request::new(ask.data);
        *request.method_mut() = ask.method;
        *request.uri_mut() = uri
            .try_into()
            .map_err(|e| Error::new(ErrorKind::InvalidArgument, operation, &place).with_source(e))?;
        *request.headers_mut() = ask.headers;
        let request = self.signer.sign(request).await?;
        self.http.send(request).await.map_err(|lost| unanswered(operation, place, lost))
    }

    /// The answer if it is a yes.
    async fn ask(&self, ask: Ask<'_>) -> Result<Response<Incoming>> {
        let (operation, key) = (ask.operation, ask.key);
        let answer = self.send(ask).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = body_of(answer, XML_MAX).await.unwrap_or_default();
        Err(Refusal::of(status, &headers, &body).into_error(operation, self.place(key)))
    }

    async fn ask_body(&self, ask: Ask<'_>, most: usize) -> Result<(HeaderMap, Bytes)> {
        let (operation, key) = (ask.operation, ask.key);
        let answer = self.ask(ask).await?;
        let headers = answer.headers().clone();
        let body = body_of(answer, most).await;
        body.map(|body| (headers, body)).map_err(|lost| unanswered(operation, self.place(key), lost))
    }

    /// What is in the answer's XML. Some calls answer 200 and then say in it that they failed.
    async fn ask_xml<T: for<'de> Deserialize<'de>>(&self, ask: Ask<'_>) -> Result<T> {
        let (operation, key) = (ask.operation, ask.key);
        let (headers, body) = self.ask_body(ask, XML_MAX).await?;
        let text = String::from_utf8_lossy(&body);
        if text.contains("<Error>") {
            let refusal = Refusal::of(StatusCode::INTERNAL_SERVER_ERROR, &headers, &body);
            return Err(refusal.into_error(operation, self.place(key)));
        }
        quick_xml::de::from_str(&text).map_err(|e| garbled(operation, self.place(key), e))
    }

    /// `None`: nothing has this key.
    pub async fn head(&self, key: &str) -> Result<Option<Stat>> {
        let answer = match self.ask(Ask::new("look at", Method::HEAD, key)).await {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            answer => answer?,
        };
        self.stat_of(key, answer.headers()).map(Some)
    }

    fn stat_of(&self, key: &str, headers: &HeaderMap) -> Result<Stat> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let size = text(header::CONTENT_LENGTH).and_then(|size| size.parse().ok());
        let modified = text(header::LAST_MODIFIED).and_then(|time| DateTime::parse_from_rfc2822(time).ok());
        let (Some(size), Some(etag), Some(modified)) = (size, text(header::ETAG), modified) else {
            return Err(garbled("look at", self.place(key), "an answer without size, ETag or time"));
        };
        let metadata = headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().strip_prefix(META)?.to_owned(), value.to_str().ok()?.to_owned()))
        });
        Ok(Stat { size, etag: etag.to_owned(), modified: time_of(modified), metadata: metadata.collect() })
    }

    /// Exactly the bytes of `range`, which is not empty, with what the store calls the contents they are of. With `etag`
    /// of these contents only.
    pub async fn get(&self, key: &str, etag: Option<&str>, range: ByteRange) -> Result<Got> {
        let last = range.end() - 1;
        let mut ask = Ask::new("read", Method::GET, key)
            .header(header::RANGE, &format!("bytes={}-{last}", range.offset))?;
        if let Some(etag) = etag {
            ask = ask.condition(Condition::Unchanged(etag))?;
        }
        let answer = self.ask(ask).await?;
        let headers = answer.headers();
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let etag = text(header::ETAG).map(str::to_owned);
        let told = text(header::CONTENT_RANGE).unwrap_or_default();
        let size = match told
            .strip_prefix(&format!("bytes {}-", range.offset))
            .and_then(|rest| rest.split_once('/'))
        {
            Some((end, size)) if end.parse() == Ok(last) => size.parse().ok(),
            // The object is shorter than it was: other contents, whatever they are called.
            Some(_) => return Err(Error::new(ErrorKind::VersionChanged, "read", self.place(key))),
            // A store that does not know ranges, and all was asked for.
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
        let etag = etag.ok_or_else(|| garbled("read", self.place(key), "an answer without ETag"))?;
        Ok(Got { etag, size, data })
    }

    /// A page of the keys that begin with `prefix`; up to the next slash only where `by_directory`.
    pub async fn list(
        &self,
        prefix: &str,
        by_directory: bool,
        after: Option<&str>,
        most: u32,
    ) -> Result<Page> {
        let mut ask = Ask::new("list", Method::GET, "").query("list-type", "2");
        if let Some(token) = after {
            ask = ask.query("continuation-token", token);
        }
        if by_directory {
            ask = ask.query("delimiter", "/");
        }
        // So that keys with bytes that XML cannot hold arrive.
        ask = ask.query("encoding-type", "url").query("max-keys", &most.to_string()).query("prefix", prefix);
        let told: ListAnswer = self.ask_xml(ask).await?;
        let plain = told.encoding_type.is_none();
        let decoded = |text: String| {
            if plain {
                return Ok(text);
            }
            let spaced = text.replace('+', " ");
            let decoded = percent_decode_str(&spaced).decode_utf8();
            decoded.map(|text| text.into_owned()).map_err(|e| garbled("list", self.place(prefix), e))
        };
        let mut page =
            Page { next: told.next_continuation_token.filter(|_| told.is_truncated), ..Page::default() };
        for prefix in told.common_prefixes {
            page.prefixes.push(decoded(prefix.prefix)?);
        }
        for object in told.contents {
            let modified = DateTime::parse_from_rfc3339(&object.last_modified);
            let modified = modified.map_err(|e| garbled("list", self.place(prefix), e))?;
            let (size, etag) = (object.size, object.e_tag);
            page.objects.push(Listed { key: decoded(object.key)?, size, etag, modified: time_of(modified) });
        }
        Ok(page)
    }

    /// The new object's ETag. `VersionChanged` where the condition does not hold.
    pub async fn put(
        &self,
        key: &str,
        data: Bytes,
        metadata: &Metadata,
        condition: Condition<'_>,
    ) -> Result<String> {
        let ask = Ask::new("store", Method::PUT, key).data(data).metadata(metadata)?.condition(condition)?;
        let answer = self.ask(ask).await?;
        self.etag_of("store", key, answer.headers())
    }

    fn etag_of(&self, operation: &'static str, key: &str, headers: &HeaderMap) -> Result<String> {
        let etag = headers.get(header::ETAG).and_then(|value| value.to_str().ok());
        etag.map(str::to_owned).ok_or_else(|| garbled(operation, self.place(key), "an answer without ETag"))
    }

    /// Without an error where nothing has the key.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.ask(Ask::new("remove", Method::DELETE, key)).await {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    }

    /// The copy's ETag. The source must still be what `etag` names; its metadata goes with it, unless other is given.
    pub async fn copy(&self, from: (&str, &str), to: &str, metadata: Option<&Metadata>) -> Result<String> {
        let (from, etag) = from;
        let source = format!("/{}/{}", self.bucket, utf8_percent_encode(from, PATH));
        let mut ask = Ask::new("copy", Method::PUT, to)
            .header(COPY_SOURCE, &source)?
            .header(HeaderName::from_static("x-amz-copy-source-if-match"), etag)?;
        if let Some(metadata) = metadata {
            ask = ask
                .header(HeaderName::from_static("x-amz-metadata-directive"), "REPLACE")?
                .metadata(metadata)?;
        }
        let told: CopyAnswer = self.ask_xml(ask).await?;
        Ok(told.e_tag)
    }

    /// The upload's id.
    pub async fn begin(&self, key: &str, metadata: &Metadata) -> Result<String> {
        let ask = Ask::new("begin to store", Method::POST, key).query("uploads", "").metadata(metadata)?;
        let told: BeginAnswer = self.ask_xml(ask).await?;
        Ok(told.upload_id)
    }

    pub async fn part(&self, key: &str, upload: &str, number: u32, data: Bytes) -> Result<Part> {
        let ask = Ask::new("store a part of", Method::PUT, key)
            .query("partNumber", &number.to_string())
            .query("uploadId", upload)
            .data(data);
        let answer = self.ask(ask).await?;
        Ok(Part { number, etag: self.etag_of("store a part of", key, answer.headers())? })
    }

    /// A part that is `range` of the object `from` as long as that is what its ETag names.
    pub async fn part_of(
        &self,
        key: &str,
        (upload, number): (&str, u32),
        from: (&str, &str),
        range: ByteRange,
    ) -> Result<Part> {
        let (from, etag) = from;
        let source = format!("/{}/{}", self.bucket, utf8_percent_encode(from, PATH));
        let ask = Ask::new("copy a part of", Method::PUT, key)
            .query("partNumber", &number.to_string())
            .query("uploadId", upload)
            .header(COPY_SOURCE, &source)?
            .header(HeaderName::from_static("x-amz-copy-source-if-match"), etag)?
            .header(
                HeaderName::from_static("x-amz-copy-source-range"),
                &format!("bytes={}-{}", range.offset, range.end() - 1),
            )?;
        let told: CopyAnswer = self.ask_xml(ask).await?;
        Ok(Part { number, etag: told.e_tag })
    }

    /// The whole object's ETag. `VersionChanged` where the condition does not hold; the upload is still there then.
    pub async fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[Part],
        condition: Condition<'_>,
    ) -> Result<String> {
        let mut xml = String::from("<CompleteMultipartUpload>");
        for part in parts {
            let etag = quick_xml::escape::escape(part.etag.as_str());
            let _ = write!(xml, "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag>", part.number);
            xml.push_str("</Part>");
        }
        xml.push_str("</CompleteMultipartUpload>");
        let mut ask =
            Ask::new("complete", Method::POST, key).query("uploadId", upload).condition(condition)?;
        ask.data = xml.into();
        let told: CopyAnswer = self.ask_xml(ask).await?;
        Ok(told.e_tag)
    }

    pub async fn abort(&self, key: &str, upload: &str) -> Result<()> {
        let ask = Ask::new("give up storing", Method::DELETE, key).query("uploadId", upload);
        match self.ask(ask).await {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    }
}

fn time_of(time: DateTime<chrono::FixedOffset>) -> Timestamp {
    Timestamp { seconds: time.timestamp(), nanos: time.timestamp_subsec_nanos().min(999_999_999) }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListAnswer {
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    encoding_type: Option<String>,
    #[serde(default)]
    next_continuation_token: Option<String>,
    #[serde(default)]
    contents: Vec<ListedXml>,
    #[serde(default)]
    common_prefixes: Vec<PrefixXml>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedXml {
    key: String,
    size: u64,
    last_modified: String,
    #[serde(rename = "ETag")]
    e_tag: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PrefixXml {
    prefix: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BeginAnswer {
    upload_id: String,
}

/// Of a copy, a copied part, a completed upload.
#[derive(Deserialize)]
struct CopyAnswer {
    #[serde(rename = "ETag")]
    e_tag: String,
}
