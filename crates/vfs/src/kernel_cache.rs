//! For a front whose client keeps what it was told (the kernel, through FUSE): for how long it may, when it must
//! let go early, and which files it may read by itself.

use std::time::Duration;

use cache::WholeFile;
use namespace::{Ask, ChangeListener, ListenerMark, Namespace};
use types::{FileId, Name, Result};

use crate::{Node, Vfs};

tokio::task_local! {
    /// Who makes the change that runs, and tells its client of it by the answer.
    static MAKER: ListenerMark;
}

/// Carries out a change of which the listener is not told where it is written `back`: its client, which has one answer at
/// a time for the object, has it from that. Other listeners are told.
pub async fn made_by<T>(maker: ListenerMark, change: impl Future<Output = T>) -> T {
    MAKER.scope(maker, change).await
}

/// Tells of a change of which all is known here.
pub(crate) fn tell_changed(namespace: &Namespace, id: FileId) {
    match MAKER.try_with(ListenerMark::clone) {
        Ok(maker) => namespace.tell_others_changed(id, &maker),
        Err(_) => namespace.tell_changed(id), // nobody's
    }
}

impl Vfs {
    /// For how long this may be told again without asking `vfs`. What is here only changes by what is done here, of which
    /// `changes` tells: it holds as long as what the origin told just now.
    pub fn fresh_for(&self, node: &Node) -> Duration {
        if let Some(local) = self.local(node.id) {
            let fresh = self.namespace.rule_holds_for(node.junction, node.attr.is_dir());
            return if local.version == node.version { fresh } else { Duration::ZERO };
        }
        let known = match self.namespace.getattr_known(node.id) {
            Ok(known) => known,
            // Not of an origin: a directory above the junctions.
            Err(_) if node.junction == types::JunctionId::VIRTUAL => return VIRTUAL_FRESH,
            Err(_) => return Duration::ZERO,
        };
        let writer = self.writer(node.junction);
        if writer.is_changing(node.id) {
            return Duration::ZERO; // it changes with each write, by whichever front
        }
        let fresh = match writer.has_dirty_bytes(node.id) {
            true => self.namespace.rule_holds_for(node.junction, node.attr.is_dir()),
            false => self.namespace.fresh_for(&known),
        };
        // Changed since: what is told now is known to be old.
        if self.node(&known).version == node.version { fresh } else { Duration::ZERO }
    }

    /// For how long it may be told that this name is there, or is absent.
    pub fn name_fresh_for(&self, dir: FileId, name: &Name, absent: bool) -> Duration {
        match self.writers.lookup(dir, name) {
            Some(_) => self
                .object_known(dir)
                .map_or(Duration::ZERO, |dir| self.namespace.rule_holds_for_names(dir.junction, absent)),
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

    /// Hears of objects that are not what they were.
    pub fn changes(&self) -> ChangeListener {
        self.namespace.changes()
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
