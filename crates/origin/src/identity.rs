//! Which storage it is that answers at an origin's URL.

use bytes::Bytes;
use types::Result;

use crate::{DirCursor, Origin};

/// What tells the storage behind an origin from every other that could answer at the same place: a file system that is
/// not mounted, another export, a bucket that was made again. It stays the same over restarts of both sides, also of a
/// server that comes back with other handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginIdentity {
    /// To be compared with those that the same kind of origin told before, and for nothing else. Empty: it cannot be asked,
    /// or not by us, and any may be the one.
    pub bytes: Bytes,
    /// The same for people: a phrase such as `ext4 file system 1f2e, root inode 2`.
    pub shown: String,
    /// False: the bytes also change when somebody changes something about the storage that leaves its contents as they
    /// are, such as the access policy of an Azure container. Then other bytes alone do not prove that it is another
    /// storage; the objects that are known have to be looked at.
    pub is_lasting: bool,
}

impl OriginIdentity {
    /// Whether what told this is, as far as it says, the storage that told the other.
    pub fn may_be(&self, other: &OriginIdentity) -> bool {
        self.bytes.is_empty() || other.bytes.is_empty() || self.bytes == other.bytes
    }
}

/// Whether the root has no name in it, by listing it: how most origins answer [`Origin::is_empty`].
pub async fn lists_nothing(origin: &(impl Origin + ?Sized)) -> Result<bool> {
    let root = origin.root().await?.reference;
    let mut cursor = DirCursor::default();
    loop {
        let page = origin.readdir(&root, cursor).await?;
        match page.next {
            _ if !page.entries.is_empty() => return Ok(false),
            Some(next) => cursor = next,
            None => return Ok(true),
        }
    }
}
