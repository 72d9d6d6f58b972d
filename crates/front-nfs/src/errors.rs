//! The mapping of error kinds to nfsstat3, in one place.

use rpc_nfs3::mount::MountStatus;
use rpc_nfs3::nfs3::NfsStatus;
use types::ErrorKind;

pub fn status_of(kind: ErrorKind) -> NfsStatus {
    match kind {
        ErrorKind::NotFound => NfsStatus::NOENT,
        ErrorKind::Stale => NfsStatus::STALE,
        ErrorKind::NotADirectory => NfsStatus::NOTDIR,
        ErrorKind::IsADirectory => NfsStatus::ISDIR,
        ErrorKind::AccessDenied => NfsStatus::ACCES,
        ErrorKind::NotPermitted => NfsStatus::PERM,
        ErrorKind::ReadOnly => NfsStatus::ROFS,
        ErrorKind::Exists => NfsStatus::EXIST,
        ErrorKind::NotEmpty => NfsStatus::NOTEMPTY,
        ErrorKind::InvalidArgument => NfsStatus::INVAL,
        ErrorKind::NameTooLong => NfsStatus::NAMETOOLONG,
        // "Try again later": hard mounts do, and applications wait instead of failing.
        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::VersionChanged => NfsStatus::JUKEBOX,
        // Not JUKEBOX for an unknown outcome: the client would repeat the call and stumble over its own traces.
        ErrorKind::OutcomeUnknown => NfsStatus::IO,
        ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Config => NfsStatus::IO,
        ErrorKind::NoSpace => NfsStatus::NOSPC,
        ErrorKind::QuotaExceeded => NfsStatus::DQUOT,
        ErrorKind::FileTooLarge => NfsStatus::FBIG,
        ErrorKind::TooManyLinks => NfsStatus::MLINK,
        ErrorKind::CrossDevice => NfsStatus::XDEV,
        ErrorKind::NotSupported => NfsStatus::NOTSUPP,
    }
}

pub fn mount_status_of(kind: ErrorKind) -> MountStatus {
    match kind {
        ErrorKind::NotFound | ErrorKind::Stale => MountStatus::NO_ENTRY,
        ErrorKind::NotADirectory => MountStatus::NOT_DIRECTORY,
        ErrorKind::AccessDenied | ErrorKind::NotPermitted => MountStatus::ACCESS,
        ErrorKind::InvalidArgument | ErrorKind::NotSupported => MountStatus::INVALID,
        ErrorKind::NameTooLong => MountStatus::NAME_TOO_LONG,
        // MOUNT has no "later"; a server fault makes mount.nfs try again until its own time is up.
        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::VersionChanged => MountStatus::SERVER_FAULT,
        ErrorKind::IsADirectory
        | ErrorKind::ReadOnly
        | ErrorKind::Exists
        | ErrorKind::NotEmpty
        | ErrorKind::OutcomeUnknown
        | ErrorKind::Corrupt
        | ErrorKind::Io
        | ErrorKind::NoSpace
        | ErrorKind::QuotaExceeded
        | ErrorKind::FileTooLarge
        | ErrorKind::TooManyLinks
        | ErrorKind::CrossDevice
        | ErrorKind::Config => MountStatus::IO,
    }
}
