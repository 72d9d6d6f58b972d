//! Ids of junctions in a file of their own: operations in the journal name junctions by them, so they must outlive a
//! database that is damaged.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::whole_file::{Read, WholeFile};

/// By "path NUL url".
pub type Junctions = BTreeMap<Vec<u8>, u32>;

const FILE: WholeFile = WholeFile { name: "JUNCTIONS", magic: *b"FBAYJUNC" };

/// `None`: there is no such file, or it is not what was written.
pub fn read(dir: &Path) -> Option<Junctions> {
    match FILE.read(dir) {
        Read::Bytes(bytes) => decode(&bytes),
        Read::Missing | Read::Damaged => None,
    }
}

/// Durably, and whole or not at all.
pub fn write(dir: &Path, junctions: &Junctions) -> io::Result<()> {
    FILE.write(dir, &encode(junctions))
}

fn encode(junctions: &Junctions) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, id) in junctions {
        bytes.extend(id.to_le_bytes());
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend(key);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Junctions> {
    let mut rest = bytes;
    let mut junctions = Junctions::new();
    while !rest.is_empty() {
        let (id, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let (key, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        junctions.insert(key.to_vec(), u32::from_le_bytes(*id));
        rest = after;
    }
    Some(junctions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back_and_what_is_cut_is_none() {
        let junctions = Junctions::from([(b"/a\0nfs://x".to_vec(), 7), (b"/\0file:///".to_vec(), 1)]);
        let bytes = encode(&junctions);
        let last = bytes.len() - b"/a\0nfs://x".len() - 8;
        assert_eq!(decode(&bytes), Some(junctions));
        for end in (last + 1)..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "cut to {end}");
        }
    }
}
