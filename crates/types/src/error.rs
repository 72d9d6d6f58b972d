//! One error for the whole tier: a small kind, what was being done, to what, and why.
//!
//! Front ends map [`ErrorKind`] to their protocol in one file each; the retry wrapper looks at
//! [`Error::is_retryable`] and at nothing else. Expected outcomes (hit, miss) are values, not errors.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The name or object does not exist, and the origin said so.
    NotFound,
    /// The reference or handle names nothing any more.
    Stale,
    NotADirectory,
    IsADirectory,
    /// The caller's identity does not allow it.
    AccessDenied,
    /// Not for this identity, whatever the mode bits say: it is the owner's, or a privileged user's, to do.
    NotPermitted,
    /// The operation changes something and the export is read-only.
    ReadOnly,
    /// The name that was to be made is there already.
    Exists,
    /// The directory that was to be removed or replaced has names in it.
    NotEmpty,
    /// An argument makes no sense: a bad name, an offset beyond 2^63.
    InvalidArgument,
    NameTooLong,
    /// The file changed underneath a read of an older version, or a guarded change of it; look up again and
    /// retry.
    VersionChanged,
    /// The origin cannot be reached now; the same call may succeed later.
    Unavailable,
    /// A change was asked for, and nobody can say whether it was made, or what it made: no answer came, or one
    /// that may speak of the change's own traces. Look before asking again.
    OutcomeUnknown,
    /// Too many requests at once; try again later.
    Busy,
    /// Bytes from a disk or a wire that do not check out.
    Corrupt,
    /// The far side or the disk reported an I/O error.
    Io,
    /// The cache disk, or the origin, is full.
    NoSpace,
    /// The owner's quota at the origin is used up.
    QuotaExceeded,
    /// Larger than a file of the origin can be.
    FileTooLarge,
    /// One more name than an object of the origin can have.
    TooManyLinks,
    /// The two places are on different file systems.
    CrossDevice,
    NotSupported,
    /// A configuration or start-up error, to be read by the operator.
    Config,
}

/// Why an origin cannot be used at the moment. All of them are outages ([`ErrorKind::Unavailable`]): cached data is
/// served on, nothing is taken for absent, and what is dirty waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutageReason {
    /// It does not answer, or answers that it cannot serve anybody now.
    #[default]
    Unreachable,
    /// It refuses this tier's credentials, whatever they ask for: a key that was revoked, a token that expired, a
    /// clock too far off, an export that does not admit this machine any more.
    Credentials,
    /// It answers, but is not the storage that this junction was given: a mount is missing, the export is another
    /// one, the bucket was made anew.
    Replaced,
}

impl OutageReason {
    pub const ALL: [OutageReason; 3] =
        [OutageReason::Unreachable, OutageReason::Credentials, OutageReason::Replaced];

    /// One word for metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            OutageReason::Unreachable => "unreachable",
            OutageReason::Credentials => "credentials",
            OutageReason::Replaced => "replaced",
        }
    }
}

/// On every Linux; std has one kind for it and EACCES.
const EPERM: i32 = 1;

#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    /// Of `Unavailable` alone.
    outage: OutageReason,
    /// A short verb phrase: "read cache file".
    operation: &'static str,
    /// What it was done to: a path, an address, an id.
    context: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    pub fn new(kind: ErrorKind, operation: &'static str, context: impl fmt::Display) -> Error {
        let outage = OutageReason::default();
        Error { kind, outage, operation, context: context.to_string(), source: None }
    }

    /// An outage of the origin that is told apart from silence.
    pub fn outage(reason: OutageReason, operation: &'static str, context: impl fmt::Display) -> Error {
        Error { outage: reason, ..Error::new(ErrorKind::Unavailable, operation, context) }
    }

    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.source = Some(Arc::new(source));
        self
    }

    /// An operating-system error, with the kind that its code deserves.
    pub fn io(operation: &'static str, context: impl fmt::Display, source: std::io::Error) -> Error {
        use std::io::ErrorKind as K;
        let kind = match source.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::PermissionDenied if source.raw_os_error() == Some(EPERM) => ErrorKind::NotPermitted,
            K::PermissionDenied => ErrorKind::AccessDenied,
            K::NotADirectory => ErrorKind::NotADirectory,
            K::IsADirectory => ErrorKind::IsADirectory,
            K::StaleNetworkFileHandle => ErrorKind::Stale,
            K::StorageFull => ErrorKind::NoSpace,
            K::QuotaExceeded => ErrorKind::QuotaExceeded,
            K::FileTooLarge => ErrorKind::FileTooLarge,
            K::TooManyLinks => ErrorKind::TooManyLinks,
            K::CrossesDevices => ErrorKind::CrossDevice,
            K::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            K::AlreadyExists => ErrorKind::Exists,
            K::DirectoryNotEmpty => ErrorKind::NotEmpty,
            K::InvalidFilename => ErrorKind::NameTooLong,
            K::InvalidInput => ErrorKind::InvalidArgument,
            K::Unsupported => ErrorKind::NotSupported,
            K::TimedOut
            | K::ConnectionRefused
            | K::ConnectionReset
            | K::ConnectionAborted
            | K::NotConnected
            | K::BrokenPipe
            | K::UnexpectedEof
            | K::HostUnreachable
            | K::NetworkUnreachable
            | K::NetworkDown
            | K::WouldBlock
            | K::Interrupted => ErrorKind::Unavailable,
            _ => ErrorKind::Io,
        };
        Error::new(kind, operation, context).with_source(source)
    }

    /// `answer` came of a change that may have been made all the same.
    pub fn doubtful(operation: &'static str, context: impl fmt::Display, answer: Error) -> Error {
        let context = format!("{context} (perhaps it was done)");
        Error::new(ErrorKind::OutcomeUnknown, operation, context).with_source(answer)
    }

    /// The failure behind an `OutcomeUnknown`: what the origin said to a call that it may have got more than once,
    /// or why it said nothing. `None` for other errors.
    pub fn doubtful_answer(&self) -> Option<&Error> {
        if self.kind != ErrorKind::OutcomeUnknown {
            return None;
        }
        self.source.as_deref()?.downcast_ref()
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Why the origin cannot be used, if that is what this error says.
    pub fn outage_reason(&self) -> Option<OutageReason> {
        match self.kind {
            ErrorKind::Unavailable | ErrorKind::Busy => Some(self.outage),
            ErrorKind::OutcomeUnknown => self.doubtful_answer().and_then(Error::outage_reason),
            _ => None,
        }
    }

    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Busy)
    }

    /// Of a change: it is no refusal, and an earlier attempt whose answer nobody heard may have made it.
    pub fn may_have_happened(&self) -> bool {
        self.is_retryable() || matches!(self.kind, ErrorKind::OutcomeUnknown | ErrorKind::Io)
    }
}

/// `read cache file /x/y: not found: No such file or directory (os error 2)`
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if !self.context.is_empty() {
            write!(f, " {}", self.context)?;
        }
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None if self.kind == ErrorKind::Config => Ok(()),
            None if self.outage != OutageReason::default() => Ok(()),
            None => write!(f, ": {:?}", self.kind),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn StdError + 'static))
    }
}
