//! Words of NFS, MOUNT and RPC into error kinds, all in this file.

use std::fmt;

use rpc_nfs3::WireError;
use rpc_nfs3::mount::MountStatus;
use rpc_nfs3::nfs3::Status;
use rpc_nfs3::record::RecordError;
use rpc_nfs3::rpc::ReplyStatus;
use types::{Error, ErrorKind, OutageReason};

/// A reason in words, where there is no error of somebody else to point at.
#[derive(Debug)]
pub struct Reason(pub String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Reason {}

pub fn failure(
    kind: ErrorKind,
    operation: &'static str,
    context: impl fmt::Display,
    reason: impl Into<String>,
) -> Error {
    Error::new(kind, operation, context).with_source(Reason(reason.into()))
}

/// The server admits us to nothing here.
pub fn shut_out(operation: &'static str, context: impl fmt::Display, reason: impl Into<String>) -> Error {
    Error::outage(OutageReason::Credentials, operation, context).with_source(Reason(reason.into()))
}

pub fn kind_of_status(status: Status) -> ErrorKind {
    match status {
        Status::PERM => ErrorKind::NotPermitted,
        Status::ACCES => ErrorKind::AccessDenied,
        Status::NOENT => ErrorKind::NotFound,
        Status::NOTDIR => ErrorKind::NotADirectory,
        Status::ISDIR => ErrorKind::IsADirectory,
        Status::INVAL => ErrorKind::InvalidArgument,
        Status::NOSPC => ErrorKind::NoSpace,
        Status::DQUOT => ErrorKind::QuotaExceeded,
        Status::ROFS => ErrorKind::ReadOnly,
        Status::EXIST => ErrorKind::Exists,
        Status::NOTEMPTY => ErrorKind::NotEmpty,
        Status::FBIG => ErrorKind::FileTooLarge,
        Status::MLINK => ErrorKind::TooManyLinks,
        Status::XDEV => ErrorKind::CrossDevice,
        Status::NOT_SYNC => ErrorKind::VersionChanged,
        Status::NAMETOOLONG => ErrorKind::NameTooLong,
        Status::STALE | Status::BADHANDLE => ErrorKind::Stale,
        Status::NOTSUPP | Status::BADTYPE => ErrorKind::NotSupported,
        // The directory changed so much that the listing cannot go on: start it again.
        Status::BAD_COOKIE => ErrorKind::Busy,
        Status::JUKEBOX => ErrorKind::Busy,
        // IO, SERVERFAULT, NXIO, and numbers that we do not know.
        _ => ErrorKind::Io,
    }
}

pub fn status_error(operation: &'static str, context: impl fmt::Display, status: Status) -> Error {
    let word = match status {
        Status::PERM => "NFS3ERR_PERM",
        Status::ACCES => "NFS3ERR_ACCES",
        Status::NOENT => "NFS3ERR_NOENT",
        Status::IO => "NFS3ERR_IO",
        Status::EXIST => "NFS3ERR_EXIST",
        Status::XDEV => "NFS3ERR_XDEV: the two places are on different file systems",
        Status::NOTDIR => "NFS3ERR_NOTDIR",
        Status::ISDIR => "NFS3ERR_ISDIR",
        Status::INVAL => "NFS3ERR_INVAL",
        Status::FBIG => "NFS3ERR_FBIG: the server has no files that large",
        Status::NOSPC => "NFS3ERR_NOSPC: the file system at the server is full",
        Status::ROFS => "NFS3ERR_ROFS",
        Status::MLINK => "NFS3ERR_MLINK: the file has as many names as it may have",
        Status::NOTEMPTY => "NFS3ERR_NOTEMPTY",
        Status::DQUOT => "NFS3ERR_DQUOT: the quota at the server is used up",
        Status::NOT_SYNC => "NFS3ERR_NOT_SYNC: it changed since the guard's time",
        Status::STALE => "NFS3ERR_STALE",
        Status::BADHANDLE => "NFS3ERR_BADHANDLE",
        Status::BAD_COOKIE => "NFS3ERR_BAD_COOKIE: the directory changed, list it again from its start",
        Status::NOTSUPP => "NFS3ERR_NOTSUPP",
        Status::BADTYPE => "NFS3ERR_BADTYPE",
        Status::SERVERFAULT => "NFS3ERR_SERVERFAULT",
        Status::JUKEBOX => "NFS3ERR_JUKEBOX",
        Status(other) => {
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
            (0..11_000).filter(|n| kind_of_status(Status(*n)) == ErrorKind::NotFound).collect();
        assert_eq!(not_found, [Status::NOENT.0]);
    }

    #[test]
    fn a_busy_tape_is_retried_and_a_stale_handle_is_not() {
        assert!(status_error("read", "x", Status::JUKEBOX).is_retryable());
        assert!(!status_error("read", "x", Status::STALE).is_retryable());
        assert!(!status_error("read", "x", Status::IO).is_retryable());
    }
}
