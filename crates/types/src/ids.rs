//! Identities: which file (`FileId`), which contents of it (`Version`), under which junction.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::attr::{Attr, Timestamp};

/// A junction: one origin grafted into the served tree. Id 0 is the virtual tree above all junctions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JunctionId(pub u32);

impl JunctionId {
    /// The virtual directories that lead to the junctions belong to no origin.
    pub const VIRTUAL: JunctionId = JunctionId(0);
}

/// One file, directory or link of the served tree, for as long as it exists.
///
/// Computed from the junction and the origin's own stable identity, so that every node and every
/// restart arrives at the same id without asking anybody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub [u8; 16]);

/// In an id's last byte.
const MADE_HERE: u8 = 0x80;

impl FileId {
    /// The id of the object that `identity` (the origin's bytes) names under `junction`.
    ///
    /// SipHash-1-3 with a fixed key: ids need to be equal everywhere and spread well; they are not
    /// secrets (handles carry a MAC of their own).
    pub fn derive(junction: JunctionId, identity: &[u8]) -> FileId {
        let mut hasher = SipHasher13::new_with_keys(0x666f_7265_6261_7921, u64::from(junction.0));
        hasher.write(identity);
        let mut bytes = hasher.finish128().as_bytes();
        bytes[15] &= !MADE_HERE;
        FileId(bytes)
    }

    /// As `derive`, of an object that is made here before its origin has it. No origin's identity leads to such an id.
    pub fn made_here(junction: JunctionId, identity: &[u8]) -> FileId {
        let mut id = FileId::derive(junction, identity);
        id.0[15] |= MADE_HERE;
        id
    }

    /// It was given out by `made_here`, and stays the object's id when the origin has it.
    pub fn is_made_here(&self) -> bool {
        self.0[15] & MADE_HERE != 0
    }

    /// The 64 bits shown to clients as the inode number. Never 0: some clients treat 0 as "deleted".
    pub fn fileid64(&self) -> u64 {
        let (low, _) = self.0.split_at(8);
        u64::from_le_bytes(low.try_into().expect("split_at(8) gives 8 bytes")).max(1)
    }

    /// The first and the last of the ids that are shown with this inode number. (But for 0, of which none is.)
    pub fn of_number(number: u64) -> (FileId, FileId) {
        let (mut lowest, mut highest) = ([0; 16], [u8::MAX; 16]);
        for end in [&mut lowest, &mut highest] {
            end[..8].copy_from_slice(&number.to_le_bytes());
        }
        (FileId(lowest), FileId(highest))
    }
}

/// One node of a cluster: a Forebay process and its directory. Given out at random when the node joins, kept in that
/// directory, and shown as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// One state of a file's contents. Two reads under the same `Version` see the same bytes.
///
/// Opaque to everyone but the origin that made it; file origins digest size, mtime, ctime (and the
/// change attribute where there is one), object origins their ETag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub [u8; 16]);

impl Version {
    /// The version a file origin gives to contents described by these attributes.
    pub fn from_attr(attr: &Attr) -> Version {
        Version::from_times(attr.size, attr.mtime, attr.ctime)
    }

    /// As `from_attr`, of what it looks at.
    pub fn from_times(size: u64, mtime: Timestamp, ctime: Timestamp) -> Version {
        let mut hasher = SipHasher13::new_with_keys(0x7665_7273_696f_6e00, 1);
        hasher.write_u64(size);
        for time in [mtime, ctime] {
            hasher.write_i64(time.seconds);
            hasher.write_u32(time.nanos);
        }
        Version(hasher.finish128().as_bytes())
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({self})")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl std::str::FromStr for NodeId {
    type Err = crate::Error;

    /// Exactly 16 hexadecimal digits.
    fn from_str(text: &str) -> crate::Result<NodeId> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        let wrong = || {
            let what = format!("{text:?}: a node's id is 16 hexadecimal digits");
            crate::Error::new(crate::ErrorKind::InvalidArgument, "read a node's id", what)
        };
        id.map(NodeId).ok_or_else(wrong)
    }
}

impl fmt::Display for JunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JunctionId({})", self.0)
    }
}

/// One version of one file, and how long that version is: what bytes are cached under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    pub file: FileId,
    pub version: Version,
    /// Bytes in this version.
    pub size: u64,
}
