//! What a change of a file says besides where it is made: attributes to set, how to create, how durable a write is.

use crate::attr::Timestamp;

/// What a time becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeChange {
    #[default]
    Keep,
    /// The origin's clock.
    Now,
    /// An NFSv3 origin has 32 unsigned bits of seconds: 1970 to 2106.
    To(Timestamp),
}

/// Attributes to set; `None` and `Keep` leave one as it is, or to the origin where the object is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SetAttr {
    /// Permission bits and setuid, setgid, sticky: 0 to 0o7777. A symbolic link has none that count; there it is
    /// passed over.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes: a file is cut, or made longer with zeros. A file that is there already and is created unchecked
    /// is cut too. What is made and is no file has none: it is passed over.
    pub size: Option<u64>,
    pub atime: TimeChange,
    pub mtime: TimeChange,
}

impl SetAttr {
    /// What follows an exclusive create: times that hold its verifier are nobody's, they are set with whatever else is.
    pub fn with_times(self) -> SetAttr {
        let real = |change| if change == TimeChange::Keep { TimeChange::Now } else { change };
        SetAttr { atime: real(self.atime), mtime: real(self.mtime), ..self }
    }
}

/// Chosen by the caller, another one for each file: with it the origin knows a repeated exclusive create.
pub type CreateVerifier = [u8; 8];

/// What a create does with a name that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateHow {
    /// Takes the file, and cuts it if a size is given. Of the other attributes none is set then.
    Unchecked,
    /// `Exists`.
    Guarded,
    /// `Exists`, unless it was created with this very verifier and not touched since: so this create may be
    /// repeated without fear. Origins keep the verifier in the file's times until these are set, and a create that
    /// gives attributes sets them.
    Exclusive(CreateVerifier),
}

/// A special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewNode {
    /// Major and minor number.
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Socket,
    Fifo,
}

/// What must be on stable storage before a write is answered, and in the answer, what is. Later ones promise more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// Nothing until a commit.
    Unstable,
    /// The data, and what of the attributes is needed to find it.
    DataSync,
    FileSync,
}

/// When a change of names or attributes is on stable storage, and bytes are whose writer closes the file, where a journal
/// takes them first (policy `back`). A call brings what its protocol demands, and a junction has a setting: the later one
/// here, which promises more, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// When somebody asks for that (fsync and its kind), as on a local file system. Until then a change outlives the
    /// process, and of those that a power cut takes none is older than one that it leaves.
    Fsync,
    /// Before it is answered.
    Always,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Durability::Fsync => "fsync",
            Durability::Always => "always",
        })
    }
}

/// Only ever compared: it is another one when the origin may have lost what it had not yet on stable storage.
pub type WriteVerifier = [u8; 8];
