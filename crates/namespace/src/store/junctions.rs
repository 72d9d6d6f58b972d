//! Ids of junctions in a file of their own: operations in the journal name junctions by them, so they must outlive a
//! database that is damaged. It also says which database belongs to it: one of another cache knows other junctions under the
//! same ids, and one that is not there any more is told.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::checksummed_file::{ChecksummedFile, Read};

/// By "path NUL url".
pub type Ids = BTreeMap<Vec<u8>, u32>;
/// Of a database's file.
pub type DatabaseId = [u8; 16];

/// No junction has this id: what stands under it is the database's.
const DATABASE: u32 = 0;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Junctions {
    pub ids: Ids,
    /// `None`: an older version, which did not note it.
    pub database: Option<DatabaseId>,
}

const FILE: ChecksummedFile = ChecksummedFile { name: "JUNCTIONS", magic: *b"FBAYJUNC" };

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
    let database = junctions.database.iter().map(|id| (&id[..], &DATABASE));
    for (key, id) in junctions.ids.iter().map(|(key, id)| (&key[..], id)).chain(database) {
        bytes.extend(id.to_le_bytes());
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend(key);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Junctions> {
    let mut rest = bytes;
    let mut junctions = Junctions::default();
    while !rest.is_empty() {
        let (id, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let (key, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        match u32::from_le_bytes(*id) {
            DATABASE => junctions.database = Some(key.try_into().ok()?),
            id => drop(junctions.ids.insert(key.to_vec(), id)),
        }
        rest = after;
    }
    Some(junctions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back_and_what_is_cut_is_none() {
        let ids = Ids::from([(b"/a\0nfs://x".to_vec(), 7), (b"/\0file:///".to_vec(), 1)]);
        let older = Junctions { ids: ids.clone(), database: None };
        assert_eq!(decode(&encode(&older)), Some(older));
        let junctions = Junctions { ids, database: Some([3; 16]) };
        let bytes = encode(&junctions);
        let last = bytes.len() - 16 - 8;
        assert_eq!(decode(&bytes), Some(junctions));
        for end in (last + 1)..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "cut to {end}");
        }
    }
}
