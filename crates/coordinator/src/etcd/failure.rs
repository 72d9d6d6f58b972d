//! What an error of a call means: for whoever asked, and for whether the call may have been carried out.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use types::ErrorKind;

/// Whether a request was carried out by the server that did not say yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFate {
    /// The servers have looked at it and said no. Another one would say the same.
    Refused,
    /// It was not carried out. Another server may take it.
    NotDone,
    /// Nobody knows: no answer came, or one that does not tell.
    Doubtful,
}

/// The servers cannot say what was true at the revision that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingRevision {
    Compacted,
    /// They have not come so far: if it was seen before, it was in another history.
    OfTheFuture,
}

/// Why one attempt at one server failed.
#[derive(Clone, Debug)]
pub struct EtcdFailure {
    pub kind: ErrorKind,
    pub fate: RequestFate,
    pub missing: Option<MissingRevision>,
    /// The answer, or the request, is larger than either side takes.
    pub too_large: bool,
    /// The message has the server's address at its front.
    pub message: String,
}

impl fmt::Display for EtcdFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for EtcdFailure {}

/// gRPC's numbers.
mod code {
    pub const INVALID_ARGUMENT: i32 = 3;
    pub const NOT_FOUND: i32 = 5;
    pub const PERMISSION_DENIED: i32 = 7;
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    pub const FAILED_PRECONDITION: i32 = 9;
    pub const OUT_OF_RANGE: i32 = 11;
    pub const UNIMPLEMENTED: i32 = 12;
    pub const DATA_LOSS: i32 = 15;
    pub const UNAUTHENTICATED: i32 = 16;
}

impl EtcdFailure {
    pub fn silent(server: &str, deadline: Duration) -> EtcdFailure {
        let message = format!("{server}: no answer within {deadline:?}");
        EtcdFailure {
            kind: ErrorKind::Unavailable,
            fate: RequestFate::Doubtful,
            missing: None,
            too_large: false,
            message,
        }
    }

    /// An answer that lacks what every server sends.
    pub fn malformed(server: &str, what: &str) -> EtcdFailure {
        let message = format!("{server}: {what}");
        EtcdFailure {
            kind: ErrorKind::Corrupt,
            fate: RequestFate::Doubtful,
            missing: None,
            too_large: false,
            message,
        }
    }

    pub fn new(server: &str, error: &etcd_client::Error) -> EtcdFailure {
        let failure = |kind, fate, message: String| EtcdFailure {
            kind,
            fate,
            missing: None,
            too_large: false,
            message: format!("{server}: {message}"),
        };
        let status = match error {
            etcd_client::Error::GRpcStatus(status) => status,
            etcd_client::Error::TransportError(e) => {
                return failure(ErrorKind::Unavailable, fate_of(e), reasons(e));
            }
            etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => {
                return failure(ErrorKind::Config, RequestFate::Refused, error.to_string());
            }
            _ => return failure(ErrorKind::Unavailable, RequestFate::Doubtful, error.to_string()),
        };
        let text = status.message();
        let number = status.code() as i32;
        let too_large =
            matches!(number, code::OUT_OF_RANGE | code::RESOURCE_EXHAUSTED) && text.contains("too large");
        let (kind, fate) = match number {
            code::INVALID_ARGUMENT => (ErrorKind::InvalidArgument, RequestFate::Refused),
            code::NOT_FOUND => (ErrorKind::NotFound, RequestFate::Refused),
            code::PERMISSION_DENIED | code::UNAUTHENTICATED => {
                (ErrorKind::AccessDenied, RequestFate::Refused)
            }
            code::FAILED_PRECONDITION => (ErrorKind::AccessDenied, RequestFate::Refused),
            code::UNIMPLEMENTED => (ErrorKind::NotSupported, RequestFate::Refused),
            code::OUT_OF_RANGE if too_large => (ErrorKind::InvalidArgument, RequestFate::Refused),
            code::OUT_OF_RANGE => (ErrorKind::Stale, RequestFate::Refused),
            code::RESOURCE_EXHAUSTED if text.contains("space") => (ErrorKind::NoSpace, RequestFate::Refused),
            code::RESOURCE_EXHAUSTED if text.contains("too many requests") => {
                (ErrorKind::Unavailable, RequestFate::NotDone)
            }
            // A message that is larger than either side takes.
            code::RESOURCE_EXHAUSTED => (ErrorKind::InvalidArgument, RequestFate::Refused),
            code::DATA_LOSS => (ErrorKind::Corrupt, RequestFate::Doubtful),
            // Looked at before the request is.
            _ if text == "etcdserver: no leader" => (ErrorKind::Unavailable, RequestFate::NotDone),
            _ => (ErrorKind::Unavailable, fate_of(status)),
        };
        let message = if text.is_empty() { reasons(status) } else { with_reasons(text, status) };
        let missing = match text {
            _ if number != code::OUT_OF_RANGE => None,
            text if text.contains("future revision") => Some(MissingRevision::OfTheFuture),
            text if text.contains("compacted") => Some(MissingRevision::Compacted),
            _ => None,
        };
        EtcdFailure { missing, too_large, ..failure(kind, fate, message) }
    }
}

/// A connection that never came about has carried no request.
fn fate_of(error: &(dyn StdError + 'static)) -> RequestFate {
    use std::io::ErrorKind as K;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            let unreached = matches!(
                io.kind(),
                K::ConnectionRefused | K::HostUnreachable | K::NetworkUnreachable | K::AddrNotAvailable
            );
            return if unreached { RequestFate::NotDone } else { RequestFate::Doubtful };
        }
        next = error.source();
    }
    RequestFate::Doubtful
}

/// What gRPC says is often only "transport error"; what it was is below.
fn with_reasons(text: &str, error: &(dyn StdError + 'static)) -> String {
    let below = error.source().map(reasons).unwrap_or_default();
    if below.is_empty() || below == text { text.to_owned() } else { format!("{text}: {below}") }
}

fn reasons(error: &(dyn StdError + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Wrappers say what they wrap.
        if !told.iter().any(|before| before.contains(&text)) {
            told.push(text);
        }
        next = error.source();
    }
    told.join(": ")
}
