//! What the operator asks: how much waits, bring it home now, end.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use namespace::Namespace;
use types::{Durability, Error, ErrorKind, FileId, JunctionId, Result};
use writeback::{FlushPolicy, Parked, Scope};

use super::{Back, JournalLoad, Journaling, JunctionLoad, Unflushed};
use crate::places::Places;
use crate::{Vfs, WritePolicy, Writing};

/// Directories above an object that are looked at, at most.
const DEPTH_MAX: usize = 4096;

/// At the end, for what of the flush is under way. An origin that does not answer must not hold up the stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A flush that was asked for. Dropping it changes nothing but who waits.
pub struct FlushRequest(Option<FlushInProgress>);

struct FlushInProgress {
    flushing: writeback::FlushHandle,
    places: Places,
}

impl FlushRequest {
    /// Returns when all that was acknowledged before is at the origin, or is refused there: these, a sentence each.
    /// Waits for as long as an outage lasts.
    pub async fn wait(self) -> Vec<String> {
        let Some(FlushInProgress { flushing, places }) = self.0 else { return Vec::new() };
        flushing.wait().await.iter().map(|parked| places.refusal(parked)).collect()
    }
}

impl Places {
    fn refusal(&self, parked: &Parked) -> String {
        format!("{} (operation {}): {}", self.path_of(parked.object), parked.sequence, parked.error)
    }
}

impl Vfs {
    /// As `new`, with the journal of what is written `back`. Reads it on this thread; needs a runtime. Refuses a journal
    /// that holds operations of a junction that is not there, or is not written `back` any more.
    pub fn with_journal(
        namespace: Arc<Namespace>,
        cache: Arc<Cache>,
        writing: Writing,
        journaling: Journaling,
    ) -> Result<Arc<Vfs>> {
        let vfs = Vfs::build(namespace, cache, writing.clone());
        vfs.take_journal(&writing, journaling)?;
        Ok(vfs)
    }

    /// From now on junctions may be written `back`. Reads what is there of a journal; false: there is one already.
    pub async fn open_journal(self: &Arc<Self>, journaling: Journaling) -> Result<bool> {
        let this = self.clone();
        let opened = tokio::task::spawn_blocking(move || {
            if this.writers.back().is_some() {
                return Ok(false);
            }
            let junctions = this.namespace.junctions().into_iter();
            let policies = junctions.map(|it| (it.path, this.write_policy(it.id)));
            let writing = Writing { junctions: policies.collect(), ..Writing::default() };
            this.take_journal(&writing, journaling).map(|()| true)
        });
        opened.await.map_err(|e| Error::new(ErrorKind::Io, "open the journal", e))?
    }

    fn take_journal(&self, writing: &Writing, journaling: Journaling) -> Result<()> {
        let shared = (&self.version_chain, &self.leaving);
        let back = Back::open(&self.namespace, &self.cache, writing, journaling, shared)?;
        self.writers.add_back(back);
        Ok(())
    }

    /// How a junction is flushed from now on. False: it is not written `back`.
    pub fn set_flush_policy(&self, path: &str, policy: &FlushPolicy) -> bool {
        let junction = self.namespace.junctions().into_iter().find(|junction| junction.path == path);
        let (Some(back), Some(junction)) = (self.writers.back(), junction) else { return false };
        back.flusher.set_policy(junction.id, policy.clone())
    }

    /// What a junction promises from now on. False: it is not written `back`.
    pub fn set_durability(&self, path: &str, durability: Durability) -> bool {
        let junction = self.namespace.junctions().into_iter().find(|junction| junction.path == path);
        let junction = junction.filter(|it| self.write_policy(it.id) == WritePolicy::Back);
        let (Some(back), Some(junction)) = (self.writers.back(), junction) else { return false };
        back.set_durability(junction.id, durability);
        true
    }

    /// What a junction promises at least; `None`: it is not written `back`.
    pub fn durability(&self, junction: JunctionId) -> Option<Durability> {
        let back = self.writers.back().filter(|_| self.write_policy(junction) == WritePolicy::Back)?;
        Some(back.durability(junction))
    }

    /// Have what was acknowledged before at the origin now, whatever delays and windows say: all of it, or what is at
    /// this path and below it.
    pub async fn flush_home(&self, path: Option<&[u8]>) -> Result<FlushRequest> {
        let Some(back) = self.writers.back() else { return Ok(FlushRequest(None)) };
        // What is shown but not synced yet is acknowledged to nobody who asked for more; it comes along.
        back.all_durable().await?;
        let scope = match path {
            Some(path) => self.scope(back, path).await?,
            None => Scope::All,
        };
        let flushing = back.flusher.flush(&scope);
        Ok(FlushRequest(Some(FlushInProgress { flushing, places: self.places() })))
    }

    async fn scope(&self, back: &Back, path: &[u8]) -> Result<Scope> {
        let top = self.resolve(path).await?;
        if top.junction == types::JunctionId::VIRTUAL {
            return Ok(Scope::All);
        }
        if self.namespace.root_of(top.junction)? == top.id {
            return Ok(Scope::Junction(top.junction));
        }
        let mut objects = HashSet::from([top.id]);
        for id in back.overlay.all_altered() {
            if self.is_below(back, id, top.id) {
                objects.insert(id);
            }
        }
        Ok(Scope::Objects(objects))
    }

    fn is_below(&self, back: &Back, id: FileId, top: FileId) -> bool {
        let mut at = id;
        for _ in 0..DEPTH_MAX {
            if at == top {
                return true;
            }
            let here = back.overlay.altered(at).and_then(|altered| altered.place);
            let above = match here {
                Some((dir, _)) => dir,
                None => match self.namespace.getattr_known(at) {
                    Ok(namespace::Found::Node(node)) => node.parent(),
                    _ => return false,
                },
            };
            if above == at {
                return false;
            }
            at = above;
        }
        false
    }

    pub fn unflushed(&self) -> Unflushed {
        let Some(back) = self.writers.back() else { return Unflushed::default() };
        let junctions = self.namespace.junctions().into_iter();
        let ours = junctions.filter(|junction| self.write_policy(junction.id) == WritePolicy::Back);
        let loads = ours.map(|junction| {
            let (dirty_bytes, oldest) = back.flusher.load(junction.id);
            JunctionLoad { path: junction.path, dirty_bytes, oldest }
        });
        let (waiting, places) = (back.flusher.waiting(), self.places());
        let (alarms, conflicts) = back.alarms.all();
        Unflushed {
            junctions: loads.collect(),
            journal: Some(journal_load(back, &back.dir, waiting.operations)),
            refused: waiting.parked.iter().map(|parked| places.refusal(parked)).collect(),
            alarms,
            conflicts,
        }
    }

    /// End cleanly: what is journalled stays, and is flushed after the next start. Nothing is taken afterwards.
    pub async fn close(&self) -> Result<()> {
        match self.writers.back() {
            Some(back) => {
                back.flusher.stop(STOP_PATIENCE).await;
                back.journal.close().await
            }
            None => Ok(()),
        }
    }
}

fn journal_load(back: &Back, dir: &Path, operations: usize) -> JournalLoad {
    let (used_bytes, size_max) = back.journal.fill();
    JournalLoad {
        dir: dir.to_owned(),
        operations: operations as u64,
        used_bytes,
        size_max,
        failed: back.journal.is_latched(),
        damaged: back.journal.damage().iter().map(|damage| damage.to_string()).collect(),
    }
}
