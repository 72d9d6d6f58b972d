//! For a front whose client keeps what it was told (the kernel, through FUSE): for how long it may, when it must
//! let go early, and which files it may read by itself.

use std::time::Duration;

use cache::WholeFile;
use namespace::Ask;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use types::{FileId, Name, Result};

use crate::{Node, Vfs};

/// Hears of objects that are not what they were.
pub struct ChangeWatch {
    receiver: broadcast::Receiver<Option<FileId>>,
}

impl ChangeWatch {
    /// The next changed object; `Some(None)` means that too many changed or that other rules are in force, take all for
    /// changed. `None` at the end.
    pub async fn next(&mut self) -> Option<Option<FileId>> {
        match self.receiver.recv().await {
            Ok(id) => Some(id),
            Err(RecvError::Lagged(_)) => Some(None),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Vfs {
    /// For how long this may be told again without asking `vfs`.
    pub fn fresh_for(&self, node: &Node) -> Duration {
        let known = match self.namespace.getattr_known(node.id) {
            Ok(known) => known,
            // Not of an origin: a directory above the junctions.
            Err(_) if node.junction == types::JunctionId::VIRTUAL => return VIRTUAL_FRESH,
            Err(_) => return Duration::ZERO,
        };
        if self.writer(node.junction).is_changing(node.id) {
            return Duration::ZERO; // it changes with each write, by whichever front
        }
        let fresh = self.namespace.fresh_for(&known);
        // Changed since: what is told now is known to be old.
        if self.node(&known).version == node.version { fresh } else { Duration::ZERO }
    }

    /// For how long it may be told that this name is there, or is absent.
    pub fn name_fresh_for(&self, dir: FileId, name: &Name, absent: bool) -> Duration {
        match self.writers.lookup(dir, name) {
            Some(_) => Duration::ZERO,
            None => self.namespace.name_fresh_for(dir, name, absent),
        }
    }

    /// What the name stands for, with all that `changes` has told by now; `None` if that would have to be asked for.
    pub async fn stands_for(&self, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        match self.writers.lookup(dir, name) {
            Some(ours) => Some(ours),
            None => self.namespace.stands_for(dir, name).await,
        }
    }

    pub fn changes(&self) -> ChangeWatch {
        ChangeWatch { receiver: self.namespace.changes() }
    }

    /// The object with this inode number, if it was ever told of; also by a kernel that has kept nothing of it but that.
    pub fn file_of_number(&self, number: u64) -> Result<Option<FileId>> {
        match self.writers.local_of_number(number) {
            Some(local) => Ok(Some(local)),
            None => self.namespace.find_number(number),
        }
    }

    /// The object as those see it who have it open: `always` trusts the last open.
    pub async fn getattr_in_use(&self, id: FileId) -> Result<Node> {
        self.object(id, Ask::Use).await
    }

    /// All bytes of this version as one file on local disk, if they are all there and checked.
    pub async fn whole(&self, node: &Node) -> Option<WholeFile> {
        let may_be = || node.attr.is_file() && !self.writer(node.junction).has_dirty_bytes(node.id);
        let key = self.key_of_node(node).0;
        let whole = if may_be() { self.cache.whole(&key).await? } else { return None };
        // It may have been written to while the disk opened it.
        (may_be() && self.key_of_node(node).0 == key).then_some(whole)
    }
}

/// What leads to the junctions changes with these alone, and that is told.
const VIRTUAL_FRESH: Duration = Duration::from_secs(24 * 3600);
