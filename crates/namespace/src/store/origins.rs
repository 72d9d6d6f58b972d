//! What each junction's origin is, in a file of its own: a database that is begun anew does not know it any more, and what
//! answers then must not be taken for the right one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bytes::Bytes;
use tracing::error;
use types::JunctionId;

use super::checksummed_file::{ChecksummedFile, Read};

const FILE: ChecksummedFile = ChecksummedFile { name: "ORIGINS", magic: *b"FBAYORIG" };

/// By junction; what is kept of one origin is opaque here. Empty: something was kept, and cannot be read any more.
type KnownOrigins = BTreeMap<u32, Bytes>;

pub struct Origins(KnownOrigins);

impl Origins {
    /// `junctions` are those that were ever served: in place of a file that is damaged.
    pub fn open(dir: &Path, junctions: impl Iterator<Item = u32>) -> io::Result<Origins> {
        let known = match FILE.read(dir) {
            Read::Missing => Some(KnownOrigins::new()),
            Read::Damaged => None,
            Read::Bytes(bytes) => decode(&bytes),
        };
        if let Some(known) = known {
            return Ok(Origins(known));
        }
        error!("{}/{} was damaged: which origins are the right ones nobody knows", dir.display(), FILE.name);
        let lost: KnownOrigins = junctions.map(|junction| (junction, Bytes::new())).collect();
        FILE.write(dir, &encode(&lost))?;
        Ok(Origins(lost))
    }

    pub fn of(&self, junction: JunctionId) -> Option<&Bytes> {
        self.0.get(&junction.0)
    }

    /// Durably.
    pub fn keep(&mut self, dir: &Path, junction: JunctionId, bytes: Bytes) -> io::Result<()> {
        let mut known = self.0.clone();
        known.insert(junction.0, bytes);
        FILE.write(dir, &encode(&known))?;
        self.0 = known;
        Ok(())
    }
}

fn encode(known: &KnownOrigins) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (junction, kept) in known {
        bytes.extend(junction.to_le_bytes());
        bytes.extend((kept.len() as u32).to_le_bytes());
        bytes.extend(kept);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<KnownOrigins> {
    let mut rest = bytes;
    let mut known = KnownOrigins::new();
    while !rest.is_empty() {
        let (junction, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let (kept, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        known.insert(u32::from_le_bytes(*junction), Bytes::copy_from_slice(kept));
        rest = after;
    }
    Some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_a_damaged_file_makes_no_origin_the_right_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Origins::open(dir.path(), [1, 2].into_iter()).expect("opened");
        let mut origins = open();
        assert_eq!(origins.of(JunctionId(1)), None);
        for (junction, kept) in [(1, &b"one"[..]), (2, b"two"), (1, b"another")] {
            origins.keep(dir.path(), JunctionId(junction), Bytes::from_static(kept)).expect("kept");
        }
        let origins = open();
        assert_eq!(origins.of(JunctionId(1)), Some(&Bytes::from_static(b"another")));
        assert_eq!(origins.of(JunctionId(2)), Some(&Bytes::from_static(b"two")));
        let path = dir.path().join(FILE.name);
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[9] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        for _ in 0..2 {
            let origins = open();
            assert_eq!(origins.of(JunctionId(1)), Some(&Bytes::new()));
            assert_eq!(origins.of(JunctionId(2)), Some(&Bytes::new()));
            assert_eq!(origins.of(JunctionId(3)), None, "a new one has lost nothing");
        }
    }
}
