//! Attributes to be set, and how durable a write is, from the tier's words into the wire's and back.

use rpc_nfs3::nfs3::attr::Nfstime3;
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime};
use rpc_nfs3::nfs3::write::StableHow;
use types::{ErrorKind, Result, SetAttr, Stability, TimeChange, Timestamp};

use crate::errors::failure;

pub fn to_sattr3(set: &SetAttr) -> Result<Sattr3> {
    let SetAttr { mode, uid, gid, size, atime, mtime } = *set;
    Ok(Sattr3 { mode, uid, gid, size, atime: set_time(atime)?, mtime: set_time(mtime)? })
}

pub fn to_stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}

pub fn stability_of(told: StableHow) -> Stability {
    match told {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

fn set_time(change: TimeChange) -> Result<SetTime> {
    Ok(match change {
        TimeChange::Keep => SetTime::Keep,
        TimeChange::Now => SetTime::ServerTime,
        TimeChange::To(time) => SetTime::To(to_nfstime3(time)?),
    })
}

/// Fails with `InvalidArgument` for a time that the protocol has no number for.
pub fn to_nfstime3(time: Timestamp) -> Result<Nfstime3> {
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
        let at = |seconds, nanos| to_nfstime3(Timestamp { seconds, nanos });
        assert_eq!(at(1, 999_999_999).ok(), Some(Nfstime3 { seconds: 1, nanos: 999_999_999 }));
        assert!(at(u32::MAX.into(), 0).is_ok());
        for (seconds, nanos) in [(-1, 0), (i64::from(u32::MAX) + 1, 0), (1, 1_000_000_000)] {
            assert_eq!(at(seconds, nanos).expect_err("no such time").kind(), ErrorKind::InvalidArgument);
        }
    }
}
