//! The file handle that clients hold: 40 bytes that name a file, signed.
//!
//! ```text
//!  0      1              4            8                       24                40
//!  +------+--------------+------------+-----------------------+-----------------+
//!  |  1   | cluster tag  | junction   | file id (16)          | MAC (16)        |
//!  +------+--------------+------------+-----------------------+-----------------+
//! ```
//! The MAC is SipHash-2-4-128 over the first 24 bytes: handles cannot be guessed or moved to another junction.

use std::hash::Hasher as _;

use bytes::Bytes;
use rpc_nfs3::nfs3::{FileHandle, NfsStatus};
use siphasher::sip128::{Hasher128, SipHasher24};
use types::{FileId, JunctionId};

const LAYOUT: u8 = 1;
/// The tag of a tier alone. A cluster will have a tag of its own.
const CLUSTER: [u8; 3] = [0; 3];
const SIGNED: usize = 24;
const LENGTH: usize = 40;

pub struct HandleCodec {
    key: [u8; 16],
}

impl HandleCodec {
    pub fn new(key: [u8; 16]) -> HandleCodec {
        HandleCodec { key }
    }

    pub fn encode(&self, junction: JunctionId, id: FileId) -> FileHandle {
        let mut bytes = [0; LENGTH];
        bytes[0] = LAYOUT;
        bytes[1..4].copy_from_slice(&CLUSTER);
        bytes[4..8].copy_from_slice(&junction.0.to_be_bytes());
        bytes[8..SIGNED].copy_from_slice(&id.0);
        let mac = self.mac(&bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&mac);
        FileHandle(Bytes::copy_from_slice(&bytes))
    }

    /// A handle that is not in our layout is `BADHANDLE`. One in our layout with a wrong MAC is `STALE`: it may be
    /// of another tier that had this address, and that makes clients look up again.
    pub fn decode(&self, handle: &FileHandle) -> Result<(JunctionId, FileId), NfsStatus> {
        let bytes: &[u8; LENGTH] = handle.0.as_ref().try_into().map_err(|_| NfsStatus::BADHANDLE)?;
        let (signed, mac) = bytes.split_at(SIGNED);
        if signed[0] != LAYOUT {
            return Err(NfsStatus::BADHANDLE);
        }
        let expected = self.mac(signed);
        // All bytes are compared, so that the time reveals nothing.
        let difference = mac.iter().zip(expected).fold(0, |all, (a, b)| all | (a ^ b));
        if difference != 0 || signed[1..4] != CLUSTER {
            return Err(NfsStatus::STALE);
        }
        let junction = signed[4..8].try_into().map(u32::from_be_bytes).map_err(|_| NfsStatus::BADHANDLE)?;
        let id = signed[8..].try_into().map_err(|_| NfsStatus::BADHANDLE)?;
        Ok((JunctionId(junction), FileId(id)))
    }

    fn mac(&self, signed: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(signed);
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_back_and_no_altered_one_does() {
        let codec = HandleCodec::new([7; 16]);
        let handle = codec.encode(JunctionId(3), FileId([9; 16]));
        assert_eq!(codec.decode(&handle), Ok((JunctionId(3), FileId([9; 16]))));
        for bit in 0..LENGTH * 8 {
            let mut bytes = handle.0.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(codec.decode(&FileHandle(bytes.into())).is_err(), "bit {bit}");
        }
        for length in 0..64 {
            let bytes = handle.0.iter().copied().cycle().take(length).collect::<Vec<_>>();
            assert_eq!(codec.decode(&FileHandle(bytes.into())).is_ok(), length == LENGTH);
        }
    }

    #[test]
    fn a_handle_of_another_key_is_stale() {
        let handle = HandleCodec::new([1; 16]).encode(JunctionId(3), FileId([9; 16]));
        assert_eq!(HandleCodec::new([2; 16]).decode(&handle), Err(NfsStatus::STALE));
    }
}
