//! The mapping of error kinds to errno, in one place.

use fuser::Errno;
use types::ErrorKind;

pub fn errno_of(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        // The bytes of the open version cannot be had any more: never bytes of another one.
        ErrorKind::Stale | ErrorKind::VersionChanged => stale(),
        ErrorKind::NotADirectory => Errno::ENOTDIR,
        ErrorKind::IsADirectory => Errno::EISDIR,
        ErrorKind::AccessDenied => Errno::EACCES,
        ErrorKind::NotPermitted => Errno::EPERM,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::NotEmpty => Errno::ENOTEMPTY,
        ErrorKind::InvalidArgument => Errno::EINVAL,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::QuotaExceeded => Errno::EDQUOT,
        ErrorKind::FileTooLarge => Errno::EFBIG,
        ErrorKind::TooManyLinks => Errno::EMLINK,
        ErrorKind::CrossDevice => Errno::EXDEV,
        ErrorKind::NotSupported => Errno::EOPNOTSUPP,
        // The first two were retried until the deadline; a system call has no "later".
        ErrorKind::Unavailable
        | ErrorKind::Busy
        | ErrorKind::OutcomeUnknown
        | ErrorKind::Corrupt
        | ErrorKind::Io
        | ErrorKind::Config => Errno::EIO,
    }
}

/// ESTALE, which also makes the kernel walk the path again, once, and ask for every name in it.
pub fn stale() -> Errno {
    Errno::from_i32(rustix::io::Errno::STALE.raw_os_error())
}
