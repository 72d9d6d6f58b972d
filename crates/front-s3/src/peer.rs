//! One connection's client: its slot and its shares of the memory budgets.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fair::{
    AnswerReader, ClientBudget, ConnectionSlot, MemoryBudget, MemoryPermit, Offence, Offenders, SharedBudgets,
};

/// This front's name in metrics and logs.
pub const FRONT: &str = "s3";

pub struct S3Peer {
    pub address: IpAddr,
    /// The client's share of the memory for answers.
    pub replies: ClientBudget,
    /// The client's share of the memory for requests.
    pub requests: ClientBudget,
    /// The client's share of the memory for parts of uploads that are held until they are whole.
    pub parts: ClientBudget,
    pub slot: ConnectionSlot,
    is_cut: AtomicBool,
    offenders: Arc<Offenders>,
}

impl S3Peer {
    pub fn new(
        shared_budgets: &SharedBudgets,
        parts: &MemoryBudget,
        address: IpAddr,
        slot: ConnectionSlot,
    ) -> S3Peer {
        let (replies, requests) =
            (shared_budgets.replies.share(address), shared_budgets.requests.share(address));
        let parts = parts.share(address);
        let (is_cut, offenders) = (AtomicBool::new(false), shared_budgets.offenders.clone());
        S3Peer { address, replies, requests, parts, slot, is_cut, offenders }
    }

    /// Records that the client was cut short. A client that held memory which others waited for is put on probation.
    pub fn record_offence(&self, offence: Offence) {
        self.offenders.record(FRONT, self.address, offence);
        self.is_cut.store(true, Ordering::Relaxed);
        match offence {
            Offence::SlowReader => self.replies.put_on_probation(),
            Offence::Unfinished => self.requests.put_on_probation(),
            _ => {}
        }
    }
}

impl S3Peer {
    /// Whether the connection must be closed after the answer that is being sent.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

impl AnswerReader for S3Peer {
    fn is_contended(&self) -> bool {
        self.replies.is_contended()
    }

    fn record_slow(&self) {
        self.record_offence(Offence::SlowReader);
    }
}

struct PermitBytes {
    bytes: Bytes,
    _permit: MemoryPermit,
}

impl AsRef<[u8]> for PermitBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Ties `permit` to `bytes`: the memory counts as used until the last slice of `bytes` is dropped.
pub fn with_permit(bytes: Bytes, mut permit: MemoryPermit) -> Bytes {
    permit.shrink_to(bytes.len());
    if bytes.is_empty() { bytes } else { Bytes::from_owner(PermitBytes { bytes, _permit: permit }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_hold_their_room_until_the_last_of_them_is_gone() {
        let shared_budgets = SharedBudgets::default();
        let permit = shared_budgets.replies.share(IpAddr::from([10, 0, 0, 1])).acquire(1 << 20).await;
        let mut bytes = with_permit(Bytes::from(vec![1; 4096]), permit);
        assert_eq!(shared_budgets.replies.used(), 4096);
        let first = bytes.split_to(1);
        drop(bytes);
        assert_eq!(shared_budgets.replies.used(), 4096);
        drop(first);
        assert_eq!(shared_budgets.replies.used(), 0);
    }
}
