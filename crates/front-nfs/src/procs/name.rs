//! Names that changes are about. `.` and `..` are no names of anything that could be made, removed or renamed; what
//! RFC 1813 and Linux's server answer to them differs by procedure.

use bytes::Bytes;
use rpc_nfs3::nfs3::Status;
use types::Name;

use crate::dispatch::Failure;

/// `.` and `..` are always there.
pub fn to_make(name: &Bytes) -> Result<Name, Failure> {
    or_dots(name, Status::EXIST, Status::EXIST)
}

pub fn to_rename(name: &Bytes) -> Result<Name, Failure> {
    or_dots(name, Status::INVAL, Status::INVAL)
}

/// As Linux's server; the RFC says nothing.
pub fn to_remove(name: &Bytes) -> Result<Name, Failure> {
    or_dots(name, Status::ACCES, Status::ACCES)
}

pub fn to_rmdir(name: &Bytes) -> Result<Name, Failure> {
    or_dots(name, Status::INVAL, Status::EXIST)
}

fn or_dots(name: &Bytes, dot: Status, dot_dot: Status) -> Result<Name, Failure> {
    match name.as_ref() {
        b"." => Err(Failure::Status(dot)),
        b".." => Err(Failure::Status(dot_dot)),
        // A copy: a name may be remembered for long, and the call is larger.
        other => Ok(Name::new(Bytes::copy_from_slice(other))?),
    }
}
