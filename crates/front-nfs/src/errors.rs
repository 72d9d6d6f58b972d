//! The mapping of error kinds to nfsstat3, in one place.

use rpc_nfs3::mount::MountStatus;
use rpc_nfs3::nfs3::Status;
use types::ErrorKind;

pub fn status_of(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::NotFound => Status::NOENT,
        ErrorKind::Stale => Status::STALE,
        ErrorKind::NotADirectory => Status::NOTDIR,
        ErrorKind::IsADirectory => Status::ISDIR,
        ErrorKind::AccessDenied => Status::ACCES,
        ErrorKind::NotPermitted => Status::PERM,
        ErrorKind::ReadOnly => Status::ROFS,
        ErrorKind::Exists => Status::EXIST,
        ErrorKind::NotEmpty => Status::NOTEMPTY,
        ErrorKind::InvalidArgument => Status::INVAL,
        ErrorKind::NameTooLong => Status::NAMETOOLONG,
        // "Try again later": hard mounts do, and applications wait instead of failing.
        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::VersionChanged => Status::JUKEBOX,
        // Not JUKEBOX for an unknown outcome: the client would repeat the call and stumble over its own traces.
        ErrorKind::OutcomeUnknown => Status::IO,
        ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Config => Status::IO,
        ErrorKind::NoSpace => Status::NOSPC,
        ErrorKind::QuotaExceeded => Status::DQUOT,
        ErrorKind::FileTooLarge => Status::FBIG,
        ErrorKind::TooManyLinks => Status::MLINK,
        ErrorKind::CrossDevice => Status::XDEV,
        ErrorKind::NotSupported => Status::NOTSUPP,
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
