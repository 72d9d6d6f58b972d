//! The file handle that clients hold: 40 bytes that name a file, signed.
//!
//! `rpc_nfs3::tier_handle` has the layout, which clients of a cluster read, too.
//!
//! The MAC is SipHash-2-4-128 over the first 24 bytes: handles cannot be guessed or moved to another junction. All nodes of a cluster
//! have one key, so that a handle of one is good at all; but where an object's identity is its place (a bucket), an id that lived
//! through a rename is another object's at another node. Handles of such junctions are signed with a key of the node, and are stale
//! at the others.

use std::hash::Hasher as _;

use bytes::Bytes;
use rpc_nfs3::nfs3::{FileHandle, NfsStatus};
use rpc_nfs3::tier_handle::{LENGTH, SIGNED, named_by, signed_part};
use siphasher::sip128::{Hasher128, SipHasher24};
use types::{FileId, JunctionId};

/// The tag of all tiers. It leaves room to tell clusters apart.
const CLUSTER: [u8; 3] = [0; 3];

pub struct HandleCodec {
    key: [u8; 16],
    /// Of a node of a cluster: for junctions whose ids mean something here alone.
    own_key: Option<[u8; 16]>,
}

impl HandleCodec {
    pub fn new(key: [u8; 16], own_key: Option<[u8; 16]>) -> HandleCodec {
        HandleCodec { key, own_key }
    }

    /// `is_own`: whether the ids of a junction mean something at this node alone.
    pub fn encode(
        &self,
        junction: JunctionId,
        id: FileId,
        is_own: impl Fn(JunctionId) -> bool,
    ) -> FileHandle {
        let mut bytes = [0; LENGTH];
        bytes[..SIGNED].copy_from_slice(&signed_part(CLUSTER, junction, id));
        let mac = mac(self.key_of(junction, is_own), &bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&mac);
        FileHandle(Bytes::copy_from_slice(&bytes))
    }

    /// A handle that is not in our layout is `BADHANDLE`. One in our layout with a wrong MAC is `STALE`: it may be
    /// of another tier that had this address, and that makes clients look up again.
    pub fn decode(
        &self,
        handle: &FileHandle,
        is_own: impl Fn(JunctionId) -> bool,
    ) -> Result<(JunctionId, FileId), NfsStatus> {
        let (junction, id) = named_by(&handle.0).ok_or(NfsStatus::BADHANDLE)?;
        let (signed, told) = handle.0.split_at(SIGNED);
        let expected = mac(self.key_of(junction, is_own), signed);
        // All bytes are compared, so that the time reveals nothing.
        let difference = told.iter().zip(expected).fold(0, |all, (a, b)| all | (a ^ b));
        if difference != 0 || signed[1..4] != CLUSTER {
            return Err(NfsStatus::STALE);
        }
        Ok((junction, id))
    }

    fn key_of(&self, junction: JunctionId, is_own: impl Fn(JunctionId) -> bool) -> &[u8; 16] {
        match &self.own_key {
            Some(own) if is_own(junction) => own,
            _ => &self.key,
        }
    }
}

fn mac(key: &[u8; 16], signed: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(signed);
    hasher.finish128().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId([9; 16]);

    fn alone(key: u8) -> HandleCodec {
        HandleCodec::new([key; 16], None)
    }

    #[test]
    fn a_handle_leads_back_and_no_altered_one_does() {
        let codec = alone(7);
        let handle = codec.encode(JunctionId(3), ID, |_| true);
        assert_eq!(codec.decode(&handle, |_| false), Ok((JunctionId(3), ID)), "a tier alone has one key");
        for bit in 0..LENGTH * 8 {
            let mut bytes = handle.0.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(codec.decode(&FileHandle(bytes.into()), |_| true).is_err(), "bit {bit}");
        }
        for length in 0..64 {
            let bytes = handle.0.iter().copied().cycle().take(length).collect::<Vec<_>>();
            assert_eq!(codec.decode(&FileHandle(bytes.into()), |_| true).is_ok(), length == LENGTH);
        }
    }

    #[test]
    fn a_handle_of_another_key_is_stale() {
        let handle = alone(1).encode(JunctionId(3), ID, |_| false);
        assert_eq!(alone(2).decode(&handle, |_| false), Err(NfsStatus::STALE));
    }

    #[test]
    fn of_a_junction_whose_ids_are_of_one_node_no_other_node_takes_a_handle() {
        let [one, other] = [8, 9].map(|own| HandleCodec::new([7; 16], Some([own; 16])));
        let is_bucket = |junction| junction == JunctionId(4);
        let (shared, own) = (JunctionId(3), JunctionId(4));
        let handles = [shared, own].map(|junction| one.encode(junction, ID, is_bucket));
        assert_eq!(handles.each_ref().map(|it| one.decode(it, is_bucket).is_ok()), [true, true]);
        assert_eq!(other.decode(&handles[0], is_bucket), Ok((shared, ID)));
        assert_eq!(other.decode(&handles[1], is_bucket), Err(NfsStatus::STALE));
    }
}
