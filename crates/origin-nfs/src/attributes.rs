//! Attributes to be set, in the tier's words and in the wire's.

use rpc_nfs3::nfs3::attr::Nfstime3;
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime};
use types::{ErrorKind, Result, Timestamp};

use crate::errors::failure;

/// What a time becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeChange {
    #[default]
    Keep,
    /// The server's clock.
    Now,
    /// 1970 to 2106: NFSv3 has 32 unsigned bits of seconds.
    To(Timestamp),
}

/// Attributes to set; `None` and `Keep` leave one as it is, or to the server where the object is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits and setuid, setgid, sticky: 0 to 0o7777.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes: a file is cut, or made longer with zeros. A file that is there already and is created unchecked
    /// is cut too.
    pub size: Option<u64>,
    pub atime: TimeChange,
    pub mtime: TimeChange,
}

impl SetAttr {
    pub(crate) fn to_wire(self) -> Result<Sattr3> {
        let SetAttr { mode, uid, gid, size, atime, mtime } = self;
        Ok(Sattr3 { mode, uid, gid, size, atime: set_time(atime)?, mtime: set_time(mtime)? })
    }
}

fn set_time(change: TimeChange) -> Result<SetTime> {
    Ok(match change {
        TimeChange::Keep => SetTime::Keep,
        TimeChange::Now => SetTime::ServerTime,
        TimeChange::To(time) => SetTime::To(wire_time(time)?),
    })
}

/// Fails with `InvalidArgument` for a time that the protocol has no number for.
pub(crate) fn wire_time(time: Timestamp) -> Result<Nfstime3> {
    match u32::try_from(time.seconds) {
        Ok(seconds) if time.nanos < 1_000_000_000 => Ok(Nfstime3 { seconds, nanos: time.nanos }),
        _ => {
            let reason = format!("{} s and {} ns is no time between 1970 and 2106", time.seconds, time.nanos);
            Err(failure(ErrorKind::InvalidArgument, "set time", "", reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_the_protocol_cannot_say_are_refused_and_not_bent() {
        let at = |seconds, nanos| wire_time(Timestamp { seconds, nanos });
        assert_eq!(at(1, 999_999_999).ok(), Some(Nfstime3 { seconds: 1, nanos: 999_999_999 }));
        assert!(at(u32::MAX.into(), 0).is_ok());
        for (seconds, nanos) in [(-1, 0), (i64::from(u32::MAX) + 1, 0), (1, 1_000_000_000)] {
            assert_eq!(at(seconds, nanos).expect_err("no such time").kind(), ErrorKind::InvalidArgument);
        }
    }
}
