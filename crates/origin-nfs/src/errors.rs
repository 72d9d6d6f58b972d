//! The mapping of the errors of NFS, MOUNT and RPC to error kinds, in one place.

use std::fmt;

use rpc_nfs3::WireError;
use rpc_nfs3::mount::MountStatus;
use rpc_nfs3::nfs3::NfsStatus;
use rpc_nfs3::record::RecordError;
use rpc_nfs3::rpc::ReplyStatus;
use types::{Error, ErrorKind, OutageReason};

/// A reason in words, for an error without a source.
#[derive(Debug)]
pub struct TextReason(pub String);

impl fmt::Display for TextReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TextReason {}

pub fn failure(
    kind: ErrorKind,
    operation: &'static str,
    context: impl fmt::Display,
    reason: impl Into<String>,
) -> Error {
    Error::new(kind, operation, context).with_source(TextReason(reason.into()))
}

/// The outage of an export that does not admit us.
pub fn shut_out(operation: &'static str, context: impl fmt::Display, reason: impl Into<String>) -> Error {
    Error::outage(OutageReason::Credentials, operation, context).with_source(TextReason(reason.into()))
}

pub fn kind_of_status(status: NfsStatus) -> ErrorKind {
    match status {
        NfsStatus::PERM => ErrorKind::NotPermitted,
        NfsStatus::ACCES => ErrorKind::AccessDenied,
        NfsStatus::NOENT => ErrorKind::NotFound,
        NfsStatus::NOTDIR => ErrorKind::NotADirectory,
        NfsStatus::ISDIR => ErrorKind::IsADirectory,
        NfsStatus::INVAL => ErrorKind::InvalidArgument,
        NfsStatus::NOSPC => ErrorKind::NoSpace,
        NfsStatus::DQUOT => ErrorKind::QuotaExceeded,
        NfsStatus::ROFS => ErrorKind::ReadOnly,
        NfsStatus::EXIST => ErrorKind::Exists,
        NfsStatus::NOTEMPTY => ErrorKind::NotEmpty,
        NfsStatus::FBIG => ErrorKind::FileTooLarge,
        NfsStatus::MLINK => ErrorKind::TooManyLinks,
        NfsStatus::XDEV => ErrorKind::CrossDevice,
        NfsStatus::NOT_SYNC => ErrorKind::VersionChanged,
        NfsStatus::NAMETOOLONG => ErrorKind::NameTooLong,
        NfsStatus::STALE | NfsStatus::BADHANDLE => ErrorKind::Stale,
        NfsStatus::NOTSUPP | NfsStatus::BADTYPE => ErrorKind::NotSupported,
        // The directory changed so much that the listing cannot go on: start it again.
        NfsStatus::BAD_COOKIE => ErrorKind::Busy,
        NfsStatus::JUKEBOX => ErrorKind::Busy,
        // IO, SERVERFAULT, NXIO, and numbers that we do not know.
        _ => ErrorKind::Io,
    }
}

pub fn status_error(operation: &'static str, context: impl fmt::Display, status: NfsStatus) -> Error {
    let word = match status {
        NfsStatus::PERM => "NFS3ERR_PERM",
        NfsStatus::ACCES => "NFS3ERR_ACCES",
        NfsStatus::NOENT => "NFS3ERR_NOENT",
        NfsStatus::IO => "NFS3ERR_IO",
        NfsStatus::EXIST => "NFS3ERR_EXIST",
        NfsStatus::XDEV => "NFS3ERR_XDEV: the two places are on different file systems",
        NfsStatus::NOTDIR => "NFS3ERR_NOTDIR",
        NfsStatus::ISDIR => "NFS3ERR_ISDIR",
        NfsStatus::INVAL => "NFS3ERR_INVAL",
        NfsStatus::FBIG => "NFS3ERR_FBIG: the server has no files that large",
        NfsStatus::NOSPC => "NFS3ERR_NOSPC: the file system at the server is full",
        NfsStatus::ROFS => "NFS3ERR_ROFS",
        NfsStatus::MLINK => "NFS3ERR_MLINK: the file has as many names as it may have",
        NfsStatus::NOTEMPTY => "NFS3ERR_NOTEMPTY",
        NfsStatus::DQUOT => "NFS3ERR_DQUOT: the quota at the server is used up",
        NfsStatus::NOT_SYNC => "NFS3ERR_NOT_SYNC: it changed since the guard's time",
        NfsStatus::STALE => "NFS3ERR_STALE",
        NfsStatus::BADHANDLE => "NFS3ERR_BADHANDLE",
        NfsStatus::BAD_COOKIE => "NFS3ERR_BAD_COOKIE: the directory changed, list it again from its start",
        NfsStatus::NOTSUPP => "NFS3ERR_NOTSUPP",
        NfsStatus::BADTYPE => "NFS3ERR_BADTYPE",
        NfsStatus::SERVERFAULT => "NFS3ERR_SERVERFAULT",
        NfsStatus::JUKEBOX => "NFS3ERR_JUKEBOX",
        NfsStatus(other) => {
            return failure(kind_of_status(status), operation, context, format!("nfsstat3 {other}"));
        }
    };
    failure(kind_of_status(status), operation, context, word)
}

/// Results that do not decode.
pub fn wire_error(operation: &'static str, context: impl fmt::Display, error: WireError) -> Error {
    Error::new(ErrorKind::Corrupt, operation, context).with_source(error)
}

/// A stream that lost its frame, ended or broke.
pub fn record_error(operation: &'static str, context: impl fmt::Display, error: RecordError) -> Error {
    match error {
        RecordError::Closed => {
            failure(ErrorKind::Unavailable, operation, context, "the server closed the connection")
        }
        RecordError::TooLong => {
            failure(ErrorKind::Corrupt, operation, context, "the server sent something that is no RPC record")
        }
        RecordError::Io(error) => {
            let kind = match error.kind() {
                std::io::ErrorKind::OutOfMemory => ErrorKind::Busy,
                _ => ErrorKind::Unavailable,
            };
            Error::new(kind, operation, context).with_source(error)
        }
    }
}

/// A reply that carries no results. `None` for success.
pub fn reply_error(operation: &'static str, context: &str, status: ReplyStatus) -> Option<Error> {
    let (kind, reason) = match status {
        ReplyStatus::Success => return None,
        ReplyStatus::ProgramUnavailable => {
            (ErrorKind::NotSupported, "this port does not serve the program (wrong port?)".to_owned())
        }
        ReplyStatus::ProgramMismatch { low, high } => {
            (ErrorKind::NotSupported, format!("version 3 is not served, only {low} to {high}"))
        }
        ReplyStatus::ProcedureUnavailable => {
            (ErrorKind::NotSupported, "the server does not have this procedure".to_owned())
        }
        ReplyStatus::GarbageArguments => {
            (ErrorKind::Io, "the server could not decode our arguments".to_owned())
        }
        ReplyStatus::SystemError => (ErrorKind::Busy, "the server has no room for the call".to_owned()),
        ReplyStatus::RpcMismatch { .. } => {
            (ErrorKind::NotSupported, "the server does not speak RPC version 2".to_owned())
        }
        ReplyStatus::AuthError(number) => {
            let reason = format!(
                "the server refuses our credentials (auth_stat {number}); it may want a privileged port or Kerberos"
            );
            return Some(shut_out(operation, context, reason));
        }
    };
    Some(failure(kind, operation, context, reason))
}

pub fn mount_kind(status: MountStatus) -> ErrorKind {
    match status {
        MountStatus(1) | MountStatus::ACCESS => ErrorKind::AccessDenied,
        MountStatus::NO_ENTRY => ErrorKind::NotFound,
        MountStatus::NOT_DIRECTORY => ErrorKind::NotADirectory,
        MountStatus::INVALID => ErrorKind::InvalidArgument,
        MountStatus::NAME_TOO_LONG => ErrorKind::NameTooLong,
        MountStatus(10_004) => ErrorKind::NotSupported,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_no_from_the_server_is_not_found() {
        let not_found: Vec<u32> =
            (0..11_000).filter(|n| kind_of_status(NfsStatus(*n)) == ErrorKind::NotFound).collect();
        assert_eq!(not_found, [NfsStatus::NOENT.0]);
    }

    #[test]
    fn a_busy_tape_is_retried_and_a_stale_handle_is_not() {
        assert!(status_error("read", "x", NfsStatus::JUKEBOX).is_retryable());
        assert!(!status_error("read", "x", NfsStatus::STALE).is_retryable());
        assert!(!status_error("read", "x", NfsStatus::IO).is_retryable());
    }
}
