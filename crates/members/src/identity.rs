//! Ids of clusters and nodes, and incarnations: random numbers of 64 bits, which is enough that no two are the same.

use ring::rand::{SecureRandom, SystemRandom};
use types::{Error, ErrorKind, NodeId, Result};

use crate::records::Incarnation;

pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let failed = |_| Error::new(ErrorKind::Io, "draw a random number from", "the system");
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A new node's id.
pub fn new_node_id() -> Result<NodeId> {
    random().map(NodeId)
}

pub(crate) fn new_incarnation() -> Result<Incarnation> {
    random().map(Incarnation)
}
