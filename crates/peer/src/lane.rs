//! Lanes: which calls share connections and places, and which never wait for each other.
//!
//! A READ as rank may wait until its node has asked the primary with a READ as primary; that one may wait until its node has
//! asked others with READs as holder, which wait for nobody. So the three never share a connection or a place: otherwise two
//! nodes that pull from each other would stop for ever. Small calls do not wait behind bulk, and heartbeats wait for nothing.

use crate::message::{PeerCall, ReadRole};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallLane {
    Heartbeat,
    Small,
    Rank,
    Primary,
    Holder,
}

impl CallLane {
    pub fn of(call: &PeerCall) -> CallLane {
        match call {
            PeerCall::Ping(_) => CallLane::Heartbeat,
            PeerCall::Read(read) => CallLane::of_role(read.role),
            PeerCall::Have(_)
            | PeerCall::Path(_)
            | PeerCall::Notice(_)
            | PeerCall::Feed(_)
            | PeerCall::Corrupt(_) => CallLane::Small,
        }
    }

    pub fn of_role(role: ReadRole) -> CallLane {
        match role {
            ReadRole::Rank => CallLane::Rank,
            ReadRole::Primary => CallLane::Primary,
            ReadRole::Holder => CallLane::Holder,
        }
    }
}

/// One of something for each lane.
#[derive(Debug)]
pub struct PerLane<T> {
    heartbeat: T,
    small: T,
    rank: T,
    primary: T,
    holder: T,
}

impl<T> PerLane<T> {
    pub fn new(mut make: impl FnMut(CallLane) -> T) -> PerLane<T> {
        PerLane {
            heartbeat: make(CallLane::Heartbeat),
            small: make(CallLane::Small),
            rank: make(CallLane::Rank),
            primary: make(CallLane::Primary),
            holder: make(CallLane::Holder),
        }
    }

    pub fn of(&self, lane: CallLane) -> &T {
        match lane {
            CallLane::Heartbeat => &self.heartbeat,
            CallLane::Small => &self.small,
            CallLane::Rank => &self.rank,
            CallLane::Primary => &self.primary,
            CallLane::Holder => &self.holder,
        }
    }

    pub fn all(&self) -> [&T; 5] {
        [&self.heartbeat, &self.small, &self.rank, &self.primary, &self.holder]
    }
}
