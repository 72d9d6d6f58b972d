//! Bytes of the file STATE: whether the last end was a clean one, what is known to be whole, and the verifier.

use crate::segment::{JournalId, u32_at, u64_at};

/// The file's name.
pub const STATE_NAME: &str = "STATE";
pub const STATE_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"FBAYJSTA";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub journal: JournalId,
    /// Counts the opens that followed an unclean end.
    pub epoch: u64,
    /// The journal was closed, and nothing was appended since.
    pub clean: bool,
    /// This segment is durable up to `whole_end`; no later one was there when this was written.
    pub whole_segment: u32,
    pub whole_end: u32,
    /// Sequences below this one were given out before this was written.
    pub next_sequence: u64,
}

impl State {
    pub fn encode(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.journal);
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32] = self.clean.into();
        bytes[36..40].copy_from_slice(&self.whole_segment.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.whole_end.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.next_sequence.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: damaged.
    pub fn decode(bytes: &[u8]) -> Option<State> {
        let bytes: &[u8; STATE_BYTES] = bytes.first_chunk()?;
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return None;
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[8..24]);
        Some(State {
            journal,
            epoch: u64_at(bytes, 24),
            clean: bytes[32] == 1,
            whole_segment: u32_at(bytes, 36),
            whole_end: u32_at(bytes, 40),
            next_sequence: u64_at(bytes, 44),
        })
    }

    /// NFS calls it the write verifier: another one for each epoch of each journal. The multiplier is odd, so no two
    /// epochs of one journal meet; the journal's id is random, so no two journals do.
    pub fn verifier(&self) -> [u8; 8] {
        let base = u64_at(&self.journal, 0);
        base.wrapping_add(self.epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_believed_to_the_bit() {
        let state = State {
            journal: *b"0123456789abcdef",
            epoch: 3,
            clean: true,
            whole_segment: 9,
            whole_end: 4096,
            next_sequence: 1 << 33,
        };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes), Some(state));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(State::decode(&other), None, "bit {bit}");
        }
        assert_eq!(State::decode(&bytes[..63]), None);
        let next = State { epoch: 4, ..state };
        assert_ne!(next.verifier(), state.verifier());
        assert_eq!(State { clean: false, ..state }.verifier(), state.verifier());
    }
}
