//! A [`types::Error`] as an answer: the kind by its name in a header, the reason as text in the body. The status is for
//! people and programs that know HTTP and not Forebay.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use types::{Error, ErrorKind, NodeId, OutageReason};

use super::fields;

/// The longest reason.
const TEXT_MAX: usize = 512;

/// Every kind with its status. A kind that is missing here does not compile.
macro_rules! kinds {
    ($($kind:ident $status:ident),+ $(,)?) => {
        fn name_and_status(kind: ErrorKind) -> (&'static str, StatusCode) {
            match kind { $(ErrorKind::$kind => (stringify!($kind), StatusCode::$status)),+ }
        }

        fn kind_of(name: &str) -> Option<ErrorKind> {
            $(if name == stringify!($kind) { return Some(ErrorKind::$kind); })+
            None
        }

        #[cfg(test)]
        pub(super) const KINDS: &[ErrorKind] = &[$(ErrorKind::$kind),+];
    };
}

kinds! {
    NotFound NOT_FOUND,
    Stale GONE,
    NotADirectory CONFLICT,
    IsADirectory CONFLICT,
    AccessDenied FORBIDDEN,
    NotPermitted FORBIDDEN,
    ReadOnly FORBIDDEN,
    Exists CONFLICT,
    NotEmpty CONFLICT,
    InvalidArgument BAD_REQUEST,
    NameTooLong BAD_REQUEST,
    VersionChanged PRECONDITION_FAILED,
    Unavailable SERVICE_UNAVAILABLE,
    OutcomeUnknown BAD_GATEWAY,
    Busy TOO_MANY_REQUESTS,
    Corrupt INTERNAL_SERVER_ERROR,
    Io INTERNAL_SERVER_ERROR,
    NoSpace INSUFFICIENT_STORAGE,
    QuotaExceeded INSUFFICIENT_STORAGE,
    FileTooLarge BAD_REQUEST,
    TooManyLinks CONFLICT,
    CrossDevice CONFLICT,
    NotSupported NOT_IMPLEMENTED,
    Config INTERNAL_SERVER_ERROR,
}

pub fn encode_refusal(error: &Error) -> Response<Bytes> {
    let (name, status) = name_and_status(error.kind());
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    let mut answer = Response::new(Bytes::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(fields::ERROR, http::HeaderValue::from_static(name));
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some(reason) = error.outage_reason() {
        headers.insert(fields::OUTAGE, http::HeaderValue::from_static(reason.name()));
    }
    answer
}

/// The error that `peer` answered. A kind that only a later version knows, and an answer that is none of Forebay's,
/// count as `Unavailable`: somebody else is asked.
pub fn decode_refusal(peer: NodeId, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    const ASKED: &str = "ask a peer:";
    let kind = headers.get(fields::ERROR).and_then(|name| kind_of(name.to_str().ok()?));
    let text = String::from_utf8_lossy(body.get(..TEXT_MAX).unwrap_or(body));
    let Some(kind) = kind else {
        return Error::new(ErrorKind::Unavailable, ASKED, format!("node {peer} answers {status}"));
    };
    let told = format!("node {peer} says: {text}");
    let outage = headers.get(fields::OUTAGE).and_then(|name| name.to_str().ok());
    match OutageReason::ALL.into_iter().find(|reason| Some(reason.name()) == outage) {
        Some(reason) if kind == ErrorKind::Unavailable => Error::outage(reason, ASKED, told),
        _ => Error::new(kind, ASKED, told),
    }
}
