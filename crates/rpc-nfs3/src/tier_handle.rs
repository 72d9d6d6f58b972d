//! The layout of a tier's own file handles, and what a client reads from one: which file of which junction it names.
//!
//! ```text
//!  0      1              4            8                       24                40
//!  +------+--------------+------------+-----------------------+-----------------+
//!  |  1   | cluster tag  | junction   | file id (16)          | MAC (16)        |
//!  +------+--------------+------------+-----------------------+-----------------+
//! ```
//! The MAC is the tier's to make and to check. A client needs no key: it reads the names in order to ask the node that keeps the
//! file's bytes, and that node checks the handle as it checks any.

use types::{FileId, JunctionId};

pub const LAYOUT: u8 = 1;
/// The leading bytes that the MAC is over.
pub const SIGNED: usize = 24;
pub const LENGTH: usize = 40;

/// The leading bytes of a handle of this layout.
pub fn signed_part(tag: [u8; 3], junction: JunctionId, id: FileId) -> [u8; SIGNED] {
    let mut bytes = [0; SIGNED];
    bytes[0] = LAYOUT;
    bytes[1..4].copy_from_slice(&tag);
    bytes[4..8].copy_from_slice(&junction.0.to_be_bytes());
    bytes[8..].copy_from_slice(&id.0);
    bytes
}

/// What a handle names, if it is of this layout. Nothing is said of its MAC.
pub fn named_by(handle: &[u8]) -> Option<(JunctionId, FileId)> {
    let bytes: &[u8; LENGTH] = handle.try_into().ok()?;
    let junction = bytes[4..8].try_into().map(u32::from_be_bytes).ok()?;
    let id = bytes[8..SIGNED].try_into().ok()?;
    (bytes[0] == LAYOUT).then_some((JunctionId(junction), FileId(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_its_file_and_bytes_of_another_form_name_none() {
        let (junction, id) = (JunctionId(0x0102_0304), FileId([9; 16]));
        let mut handle = signed_part([0; 3], junction, id).to_vec();
        handle.extend([0xee; LENGTH - SIGNED]);
        assert_eq!(named_by(&handle), Some((junction, id)));
        for length in (0..64).filter(|length| *length != LENGTH) {
            let other: Vec<u8> = handle.iter().copied().cycle().take(length).collect();
            assert_eq!(named_by(&other), None, "{length}");
        }
        handle[0] = 2;
        assert_eq!(named_by(&handle), None, "a layout of a later version");
    }
}
