//! Names in the arguments of changes. `.` and `..` cannot be created, removed or renamed; the status that RFC 1813
//! and Linux's server give for them differs by procedure.

use bytes::Bytes;
use rpc_nfs3::nfs3::Status;
use types::Name;

use crate::dispatch::CallFailure;

/// `.` and `..` always exist.
pub fn for_create(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, Status::EXIST, Status::EXIST)
}

pub fn for_rename(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, Status::INVAL, Status::INVAL)
}

/// As Linux's server; the RFC says nothing.
pub fn for_remove(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, Status::ACCES, Status::ACCES)
}

pub fn for_rmdir(name: &Bytes) -> Result<Name, CallFailure> {
    or_dots(name, Status::INVAL, Status::EXIST)
}

fn or_dots(name: &Bytes, dot: Status, dot_dot: Status) -> Result<Name, CallFailure> {
    match name.as_ref() {
        b"." => Err(CallFailure::Status(dot)),
        b".." => Err(CallFailure::Status(dot_dot)),
        // A copy: a name may be kept for long, and the buffer of the call is larger.
        other => Ok(Name::new(Bytes::copy_from_slice(other))?),
    }
}
