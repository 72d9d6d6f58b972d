//! The writers of a file system: which junction has which policy, and the writer that serves each policy.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use fetch::DirtyFiles;
use types::{FileId, JunctionId, Name, Result};

use crate::back::Back;
use crate::places::PlaceOverlay;
use crate::through::Through;
use crate::writer::{EntryOverlay, JunctionWriter, ReadOnly};
use crate::{Node, Vfs, WritePolicy};

/// Each junction's policy, and the writer of each policy.
pub struct Writers {
    /// Looked at by every call, so without a lock.
    policies: ArcSwap<HashMap<JunctionId, WritePolicy>>,
    pub through: Through,
    /// Absent: there is no journal, and nothing is written `back` yet.
    back: OnceLock<Back>,
}

impl Writers {
    pub fn new(policies: HashMap<JunctionId, WritePolicy>, through: Through) -> Writers {
        Writers { policies: ArcSwap::from_pointee(policies), through, back: OnceLock::new() }
    }

    /// The directories above the junctions are nobody's to change.
    pub fn policy(&self, junction: JunctionId) -> WritePolicy {
        self.policies.load().get(&junction).copied().unwrap_or_default()
    }

    /// From now on. It stays when the junction goes: that is what clients are to be told of then.
    pub fn set_policy(&self, junction: JunctionId, policy: WritePolicy) {
        self.policies.rcu(|policies| {
            let mut policies = HashMap::clone(policies);
            policies.insert(junction, policy);
            Arc::new(policies)
        });
    }

    /// May anything be changed, anywhere?
    pub fn take_changes(&self) -> bool {
        self.policies.load().values().any(|policy| *policy != WritePolicy::ReadOnly)
    }

    /// `None`: `back` without a journal.
    pub fn with_policy(&self, policy: WritePolicy) -> Option<&dyn JunctionWriter> {
        match policy {
            WritePolicy::ReadOnly => Some(&ReadOnly),
            WritePolicy::Through => Some(&self.through),
            WritePolicy::Back => self.back().map(|back| back as &dyn JunctionWriter),
        }
    }

    pub fn of(&self, junction: JunctionId) -> &dyn JunctionWriter {
        self.with_policy(self.policy(junction)).unwrap_or(&ReadOnly)
    }

    pub fn back(&self) -> Option<&Back> {
        self.back.get()
    }

    /// From now on junctions may be written `back`.
    pub fn add_back(&self, back: Back) {
        let _ = self.back.set(back); // nobody else opens the same journal: it is locked
    }

    fn all(&self) -> impl Iterator<Item = &dyn JunctionWriter> {
        let back = self.back().map(|back| back as &dyn JunctionWriter);
        std::iter::once(&self.through as &dyn JunctionWriter).chain(back)
    }

    pub async fn ready(&self) {
        for writer in self.all().filter(|writer| !writer.is_ready()) {
            writer.ready().await;
        }
    }

    pub async fn sync_names(&self) -> Result<()> {
        for writer in self.all() {
            writer.sync_names().await?;
        }
        Ok(())
    }

    pub fn local(&self, id: FileId) -> Option<Node> {
        self.all().find_map(|writer| writer.local(id))
    }

    pub fn local_of_number(&self, number: u64) -> Option<FileId> {
        self.all().find_map(|writer| writer.local_of_number(number))
    }

    pub fn lookup(&self, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        self.all().find_map(|writer| writer.lookup(dir, name))
    }

    pub fn entries(&self, dir: FileId) -> Option<EntryOverlay> {
        self.all().find_map(|writer| writer.entries(dir))
    }

    pub fn has_dirty_bytes(&self, id: FileId) -> bool {
        self.all().any(|writer| writer.has_dirty_bytes(id))
    }
}

impl DirtyFiles for Writers {
    fn has_dirty_bytes(&self, junction: JunctionId, file: FileId) -> bool {
        self.of(junction).has_dirty_bytes(file)
    }
}

impl PlaceOverlay for Writers {
    fn place(&self, id: FileId) -> Option<(FileId, Name)> {
        self.all().find_map(|writer| writer.place(id))
    }
}

impl Vfs {
    /// Of all changes in the junction, and of what lies over its origin's state.
    pub(crate) fn writer(&self, junction: JunctionId) -> &dyn JunctionWriter {
        self.writers.of(junction)
    }

    /// The same for a change of `object`: refused where nothing may be changed. Waits while the junction is about to go.
    pub(crate) async fn writer_to_change(&self, object: &Node) -> Result<&dyn JunctionWriter> {
        self.leaving.stays(object.junction).await?;
        match self.writer(object.junction) {
            writer if writer.takes_changes() => Ok(writer),
            _ => ReadOnly::refused(object.id),
        }
    }

    pub fn write_policy(&self, junction: JunctionId) -> WritePolicy {
        self.writers.policy(junction)
    }

    /// May anything be changed, anywhere?
    pub fn is_writable(&self) -> bool {
        self.writers.take_changes()
    }
}
