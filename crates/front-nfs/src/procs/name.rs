//! Names in the arguments of changes. `.` and `..` cannot be created, removed or renamed; the status that RFC 1813
//! and Linux's server give for them differs by procedure.

use bytes::Bytes;
use rpc_nfs3::nfs3::NfsStatus;
use types::Name;

use crate::call::CallFailure;

/// `.` and `..` always exist.
pub fn for_create(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, NfsStatus::EXIST, NfsStatus::EXIST)
}

pub fn for_rename(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, NfsStatus::INVAL, NfsStatus::INVAL)
}

/// As Linux's server; the RFC says nothing.
pub fn for_remove(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, NfsStatus::ACCES, NfsStatus::ACCES)
}

pub fn for_rmdir(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, NfsStatus::INVAL, NfsStatus::EXIST)
}

fn or_dots(name: &Bytes, dot: NfsStatus, dot_dot: NfsStatus) -> Result<Name, CallFailure> {
    match name.as_ref() {
        b"." => Err(CallFailure::Status(dot)),
        b".." => Err(CallFailure::Status(dot_dot)),
        // A copy: a name may be kept for long, and the buffer of the call is larger.
        other => Ok(Name::new(Bytes::copy_from_slice(other))?),
    }
}
