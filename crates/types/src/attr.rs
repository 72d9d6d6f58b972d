//! What is known of a file besides its bytes.

/// Seconds and nanoseconds since 1970-01-01 UTC; seconds may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// The least time that is later.
    pub fn next(self) -> Timestamp {
        match self.nanos {
            999_999_999 => Timestamp { seconds: self.seconds + 1, nanos: 0 },
            nanos => Timestamp { nanos: nanos + 1, ..self },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    BlockDevice,
    CharDevice,
    Socket,
    Fifo,
}

/// The attributes of one object.
///
/// `fsid` and `fileid` are the *origin's* numbers as long as the value comes from an origin; `vfs`
/// replaces them by ours before a front end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: `0o7777` at most.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes that the object occupies at the origin.
    pub used: u64,
    /// Major and minor number of a device, otherwise 0.
    pub rdev: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// What of an object's attributes tells whether it was changed: for telling one's own change from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakAttr {
    /// Bytes.
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl Attr {
    pub fn weak(&self) -> WeakAttr {
        WeakAttr { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }
}

/// Room in a file system: bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    pub bytes_total: u64,
    pub bytes_free: u64,
    /// Free to a caller without privileges.
    pub bytes_available: u64,
    pub files_total: u64,
    pub files_free: u64,
}
