//! The other end of a connection, and what it may take of what all share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fair::{Common, Offence, Offenders, Room, Share, Slot};

/// How this front is called in metrics and logs.
pub const FRONT: &str = "s3";

pub struct Peer {
    pub address: IpAddr,
    /// Of the bytes of answers in memory.
    pub replies: Share,
    /// Of the bytes of requests in memory.
    pub requests: Share,
    pub slot: Slot,
    is_cut: AtomicBool,
    offenders: Arc<Offenders>,
}

impl Peer {
    pub fn new(common: &Common, address: IpAddr, slot: Slot) -> Peer {
        let (replies, requests) = (common.replies.share(address), common.requests.share(address));
        let (is_cut, offenders) = (AtomicBool::new(false), common.offenders.clone());
        Peer { address, replies, requests, slot, is_cut, offenders }
    }

    /// It was cut short. One that held what others wait for has less of it for a while.
    pub fn offends(&self, offence: Offence) {
        self.offenders.note(FRONT, self.address, offence);
        self.is_cut.store(true, Ordering::Relaxed);
        match offence {
            Offence::SlowReader => self.replies.put_on_probation(),
            Offence::Unfinished => self.requests.put_on_probation(),
            _ => {}
        }
    }
}

impl Peer {
    /// The connection ends with the answer that is under way.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

struct Held {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// These bytes, which hold their room until the last of them is gone.
pub fn held(bytes: Bytes, mut room: Room) -> Bytes {
    room.keep(bytes.len());
    if bytes.is_empty() { bytes } else { Bytes::from_owner(Held { bytes, _room: room }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_hold_their_room_until_the_last_of_them_is_gone() {
        let common = Common::default();
        let room = common.replies.share(IpAddr::from([10, 0, 0, 1])).take(1 << 20).await;
        let mut bytes = held(Bytes::from(vec![1; 4096]), room);
        assert_eq!(common.replies.used(), 4096);
        let first = bytes.split_to(1);
        drop(bytes);
        assert_eq!(common.replies.used(), 4096);
        drop(first);
        assert_eq!(common.replies.used(), 0);
    }
}
