//! Ids of junctions in a file of their own: operations in the journal name junctions by them, so they must outlive a
//! database that is damaged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// By "path NUL url".
pub type Junctions = BTreeMap<Vec<u8>, u32>;

const NAME: &str = "JUNCTIONS";
const MAGIC: [u8; 8] = *b"FBAYJUNC";

/// `None`: there is no such file, or it is not what was written.
pub fn read(dir: &Path) -> Option<Junctions> {
    decode(&std::fs::read(dir.join(NAME)).ok()?)
}

/// Durably, and whole or not at all.
pub fn write(dir: &Path, junctions: &Junctions) -> io::Result<()> {
    let (path, unfinished) = (dir.join(NAME), dir.join("JUNCTIONS.unfinished"));
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(&encode(junctions))?;
    file.sync_all()?;
    std::fs::rename(&unfinished, &path)?;
    File::open(dir)?.sync_all()
}

fn encode(junctions: &Junctions) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (key, id) in junctions {
        bytes.extend(id.to_le_bytes());
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend(key);
    }
    let sum = pagefile::checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Junctions> {
    let (bytes, sum) = bytes.split_last_chunk::<4>()?;
    if pagefile::checksum(bytes).to_le_bytes() != *sum {
        return None;
    }
    let mut rest = bytes.strip_prefix(&MAGIC)?;
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
    fn ids_are_read_back_and_a_flipped_bit_is_none() {
        let junctions = Junctions::from([(b"/a\0nfs://x".to_vec(), 7), (b"/\0file:///".to_vec(), 1)]);
        let bytes = encode(&junctions);
        assert_eq!(decode(&bytes), Some(junctions));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&other), None, "bit {bit}");
        }
    }
}
