//! Requests to the service, and what their answers have in common.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use origin::renewable_signer::{RenewableSigner, ShutOut};
use origin_object::http::{Http, body_of};
use origin_object::store::Metadata;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use types::{Error, ErrorKind, Result};

use crate::errors::{AzFileRefusal, unanswered};
use crate::names::join;
use crate::sign::{self, AzFileSigner, EnvVars};
use crate::url::Config;

/// The version of the interface. 2021-04-10 has renames, 2022-11-02 names that end with a dot.
const VERSION: HeaderValue = HeaderValue::from_static("2023-11-03");
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The largest XML answer: a page of 1,000 names of 255 characters, and errors.
pub const XML_MAX: usize = 8 << 20;
pub const META: &str = "x-ms-meta-";
/// Replaces dashes, which metadata names cannot have here.
const DASH: (&str, &str) = ("-", "_");

pub struct Api {
    http: Http,
    signer: RenewableSigner<AzFileSigner>,
    shut_out: ShutOut,
    /// The share's URL, without a slash at its end.
    root: String,
    /// The served directory in the share.
    base: String,
    /// For messages.
    url: String,
}

/// One request, before it is signed. `path` is below the served directory; `None`: the share itself.
pub struct AzFileRequest<'a> {
    pub operation: &'static str,
    pub path: Option<&'a str>,
    method: Method,
    /// Encoded, with its question mark.
    query: String,
    headers: HeaderMap,
    data: Bytes,
}

impl<'a> AzFileRequest<'a> {
    pub fn new(operation: &'static str, method: Method, path: &'a str) -> AzFileRequest<'a> {
        let (query, data) = (String::new(), Bytes::new());
        let mut headers = HeaderMap::new();
        headers.insert("x-ms-version", VERSION);
        headers.insert("x-ms-allow-trailing-dot", HeaderValue::from_static("true"));
        AzFileRequest { operation, path: Some(path), method, query, headers, data }
    }

    pub fn of_share(operation: &'static str) -> AzFileRequest<'static> {
        AzFileRequest { path: None, ..AzFileRequest::new(operation, Method::GET, "") }
            .query("restype", "share")
    }

    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        // Writing to a String cannot fail.
        let _ = write!(self.query, "{name}={}", utf8_percent_encode(value, QUERY));
        self
    }

    /// Marks a request for a directory.
    pub fn directory(self, is_dir: bool) -> Self {
        if is_dir { self.query("restype", "directory") } else { self }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        self.headers.insert(HeaderName::from_static(name), self.value(name, value)?);
        Ok(self)
    }

    fn value(&self, name: &str, value: &str) -> Result<HeaderValue> {
        HeaderValue::from_str(value).map_err(|_| {
            let context = format!("{}: {name} {value:?}", self.path.unwrap_or_default());
            Error::new(ErrorKind::InvalidArgument, self.operation, context)
        })
    }

    pub fn metadata(mut self, metadata: &Metadata) -> Result<Self> {
        for (name, value) in metadata {
            let text = format!("{META}{}", name.replace(DASH.0, DASH.1));
            let context =
                || Error::new(ErrorKind::InvalidArgument, self.operation, format!("metadata {name:?}"));
            let header = HeaderName::try_from(text).map_err(|_| context())?;
            let value = self.value(name, value)?;
            self.headers.insert(header, value);
        }
        Ok(self)
    }

    pub fn headers(mut self, kept: &HeaderMap) -> Self {
        self.headers.extend(kept.clone());
        self
    }

    pub fn data(mut self, data: Bytes) -> Self {
        self.data = data;
        self
    }
}

/// The metadata in an answer.
pub fn metadata_of(headers: &HeaderMap) -> Metadata {
    let own = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(META)?;
        // Ours; other names with that sign stay as they are.
        let name = if name == "forebay_create" { "forebay-create" } else { name };
        Some((name.to_owned(), value.to_str().ok()?.to_owned()))
    });
    own.collect()
}

impl Api {
    pub fn connections(&self) -> u64 {
        self.http.connections()
    }

    pub fn new(config: &Config, http: Http, environment: Option<EnvVars>) -> Result<Api> {
        let (endpoint, signer) = sign::find(config, environment.as_ref())?;
        let root = format!("{endpoint}/{}", config.share);
        let (base, url, config) = (config.path.clone(), config.url(), config.clone());
        let make = move || sign::find(&config, environment.as_ref()).map(|(_, signer)| signer);
        let signer = RenewableSigner::new(signer, make);
        Ok(Api { http, signer, shut_out: ShutOut::default(), root, base, url })
    }

    /// For messages.
    pub fn place(&self, path: Option<&str>) -> String {
        match path {
            None | Some("") => self.url.clone(),
            Some(path) => format!("{path} in {}", self.url),
        }
    }

    fn full(&self, path: &str) -> String {
        match path {
            "" => self.base.clone(),
            path => join(&self.base, path),
        }
    }

    /// The URL of a file for a header, with its SAS.
    pub fn source(&self, path: &str) -> String {
        format!("{}/{}{}", self.root, utf8_percent_encode(&self.full(path), PATH), self.signer.get().query())
    }

    /// Whether these credentials may not even look at the served directory.
    async fn is_shut_out(&self, began: Instant) -> bool {
        self.shut_out
            .decide(began, async || {
                let ask = AzFileRequest::new("look at", Method::HEAD, "").directory(true);
                match self.send(ask).await {
                    Ok((answer, _)) => {
                        matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                    }
                    // Unknown: that is no proof that only one file is denied.
                    Err(_) => true,
                }
            })
            .await
    }

    async fn send(&self, ask: AzFileRequest<'_>) -> Result<(Response<Incoming>, Arc<AzFileSigner>)> {
        let (operation, place) = (ask.operation, self.place(ask.path));
        let path = ask.path.map(|path| self.full(path)).filter(|path| !path.is_empty());
        let path = path.map(|path| format!("/{}", utf8_percent_encode(&path, PATH))).unwrap_or_default();
        let uri = format!("{}{path}{}", self.root, ask.query);
        let mut request = Request::new(ask.data);
        let puts = ask.method == Method::PUT;
        *request.method_mut() = ask.method;
        *request.uri_mut() = uri
            .try_into()
            .map_err(|e| Error::new(ErrorKind::InvalidArgument, operation, &place).with_source(e))?;
        *request.headers_mut() = ask.headers;
        if puts {
            // It is signed.
            let length = HeaderValue::from(request.body().len());
            request.headers_mut().insert(header::CONTENT_LENGTH, length);
        }
        let signer = self.signer.get();
        let request = signer.sign(request)?;
        let answer = self.http.send_to_store(request).await;
        Ok((answer.map_err(|lost| unanswered(operation, place, lost))?, signer))
    }

    /// Sends a request; an answer other than success is an error.
    pub async fn ask(&self, ask: AzFileRequest<'_>) -> Result<Response<Incoming>> {
        let (operation, path, began) = (ask.operation, ask.path, Instant::now());
        let (answer, signer) = self.send(ask).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = body_of(answer, XML_MAX).await.unwrap_or_default();
        let refusal = AzFileRefusal::of(status, &headers, &body);
        let shut_out = refusal.is_of_credentials()
            || refusal.may_be_of_credentials() && Box::pin(self.is_shut_out(began)).await;
        if shut_out {
            // The next call is signed anew.
            self.signer.refused(&signer);
            return Err(refusal.into_outage(operation, self.place(path)));
        }
        Err(refusal.into_error(operation, self.place(path)))
    }

    /// Returns the headers. The body is read so that the connection can be used again; an answer to HEAD has none,
    /// whatever length it announces.
    pub async fn ask_headers(&self, ask: AzFileRequest<'_>) -> Result<HeaderMap> {
        let answer = self.ask(ask).await?;
        let headers = answer.headers().clone();
        if !answer.body().is_end_stream() {
            let _ = body_of(answer, XML_MAX).await;
        }
        Ok(headers)
    }

    pub async fn ask_xml<T: for<'de> serde::Deserialize<'de>>(&self, ask: AzFileRequest<'_>) -> Result<T> {
        let (operation, path) = (ask.operation, ask.path);
        let answer = self.ask(ask).await?;
        let body = body_of(answer, XML_MAX).await;
        let body = body.map_err(|lost| unanswered(operation, self.place(path), lost))?;
        let text = String::from_utf8_lossy(&body);
        quick_xml::de::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|e| crate::errors::garbled(operation, self.place(path), e))
    }
}
