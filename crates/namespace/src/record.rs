//! What is remembered of one object, and its bytes in the database (docs/design/disk-format.md, "namespace").

use bytes::Bytes;
use origin::Reference;
use types::{Attr, FileId, FileKind, JunctionId, Timestamp, Version};

/// First byte of every stored record; a record of another layout is treated as absent and learnt anew.
const LAYOUT: u8 = 1;

/// One object as the origin last described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub junction: JunctionId,
    pub reference: Reference,
    /// The directory it was last seen in: the way back when the reference goes stale.
    pub parent: FileId,
    /// Its name there; empty for the root of a junction.
    pub name: Bytes,
    pub attr: Attr,
    pub version: Version,
    /// When the origin was asked, in milliseconds since 1970; 0 = ask again before trusting it.
    pub checked_ms: u64,
}

impl Record {
    /// True if the difference to `other` has to survive a restart. Times of access and of checking need not:
    /// a record without them is at worst asked for once more.
    pub fn differs_durably(&self, other: &Record) -> bool {
        let timeless = |r: &Record| Record {
            checked_ms: 0,
            attr: Attr { atime: Timestamp::default(), ..r.attr },
            ..r.clone()
        };
        timeless(self) != timeless(other)
    }

    pub fn encode(&self) -> Vec<u8> {
        let a = &self.attr;
        let mut out = Vec::with_capacity(192 + self.reference.0.len() + self.name.len());
        out.push(LAYOUT);
        out.push(kind_code(a.kind));
        out.extend(self.junction.0.to_le_bytes());
        out.extend(self.parent.0);
        out.extend(self.version.0);
        out.extend(self.checked_ms.to_le_bytes());
        for word in [a.mode, a.nlink, a.uid, a.gid, a.rdev.0, a.rdev.1] {
            out.extend(word.to_le_bytes());
        }
        for word in [a.size, a.used, a.fsid, a.fileid] {
            out.extend(word.to_le_bytes());
        }
        for time in [a.atime, a.mtime, a.ctime] {
            out.extend(time.seconds.to_le_bytes());
            out.extend(time.nanos.to_le_bytes());
        }
        for bytes in [&self.reference.0, &self.name] {
            let length = u16::try_from(bytes.len()).expect("references and names are far below 64 KiB");
            out.extend(length.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }

    /// `None` for anything that is not a whole record of this layout.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let mut r = NodeReader(bytes);
        if r.array::<1>()? != [LAYOUT] {
            return None;
        }
        let kind = kind_of(r.array::<1>()?[0])?;
        let junction = JunctionId(r.u32()?);
        let parent = FileId(r.array()?);
        let version = Version(r.array()?);
        let checked_ms = r.u64()?;
        let (mode, nlink, uid, gid) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let rdev = (r.u32()?, r.u32()?);
        let (size, used, fsid, fileid) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let (atime, mtime, ctime) = (r.time()?, r.time()?, r.time()?);
        let reference = Reference(r.bytes()?);
        let name = r.bytes()?;
        let attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
        r.0.is_empty().then_some(Record { junction, reference, parent, name, attr, version, checked_ms })
    }
}

/// No directory has this version.
const NO_VERSION: Version = Version([0; 16]);

/// When and how a directory was last listed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredListing {
    /// When the listing began: every entry in it was true at some moment after this.
    pub listed_ms: u64,
    /// The directory's version when the listing began and ended.
    pub version: Version,
    /// The directory had not changed for a while before it was listed, so that a later change must show in
    /// its version. Otherwise the version proves nothing and only the age counts.
    pub settled: bool,
    /// Names in it.
    pub entries: u64,
}

impl StoredListing {
    /// Of a directory that was made just now.
    pub fn empty(version: Version, now_ms: u64) -> StoredListing {
        StoredListing { listed_ms: now_ms, version, settled: false, entries: 0 }
    }

    /// The same, as proof of the attributes that it brought and not of the names any more.
    pub fn unproven(self) -> StoredListing {
        StoredListing { version: NO_VERSION, settled: false, ..self }
    }

    pub fn is_unproven(&self) -> bool {
        self.version == NO_VERSION
    }

    pub fn encode(&self) -> [u8; 34] {
        let mut out = [0; 34];
        out[0] = LAYOUT;
        out[1] = u8::from(self.settled);
        out[2..10].copy_from_slice(&self.listed_ms.to_le_bytes());
        out[10..26].copy_from_slice(&self.version.0);
        out[26..].copy_from_slice(&self.entries.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<StoredListing> {
        let mut r = NodeReader(bytes);
        let [layout, settled] = r.array::<2>()?;
        let listing = StoredListing {
            listed_ms: r.u64()?,
            version: Version(r.array()?),
            settled: settled == 1,
            entries: r.u64()?,
        };
        (layout == LAYOUT && r.0.is_empty()).then_some(listing)
    }
}

struct NodeReader<'a>(&'a [u8]);

impl NodeReader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp { seconds: i64::from_le_bytes(self.array()?), nanos: self.u32()? })
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let length = u16::from_le_bytes(self.array()?);
        let (head, tail) = self.0.split_at_checked(usize::from(length))?;
        self.0 = tail;
        Some(Bytes::copy_from_slice(head))
    }
}

fn kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::Symlink => 3,
        FileKind::BlockDevice => 4,
        FileKind::CharDevice => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

fn kind_of(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::Symlink,
        4 => FileKind::BlockDevice,
        5 => FileKind::CharDevice,
        6 => FileKind::Socket,
        7 => FileKind::Fifo,
        _ => return None,
    })
}
