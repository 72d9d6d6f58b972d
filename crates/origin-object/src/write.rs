//! Writes: buffered by an `ObjectWriter` per path, an object when they are committed.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use ::origin::{Committed, Object, Reference, Written};
use bytes::Bytes;
use types::{Error, ErrorKind, Result, Stability, Version, WriteVerifier};

use crate::attributes;
use crate::drafts::is_draft;
use crate::keys::{KeyKind, what};
use crate::object_writer::{CompletedObject, ObjectWriter, WriteOutcome};
use crate::origin::ObjectOrigin;
use crate::path_locks::{Fate, PathLock};
use crate::store::ObjectStat;

/// The most buffered bytes of all writers; beyond it the writer with the most is completed.
const HELD_MAX: u64 = 256 << 20;
/// A write that meets a writer which was just completed begins another; the attempts where others keep completing.
const TRIES: u32 = 16;

impl ObjectOrigin {
    /// The object by the cached stat: an outdated one is found out when the writer completes.
    pub(crate) async fn stat(&self, reference: &Reference) -> Result<Arc<ObjectStat>> {
        if let Some(cached) = self.stat_cache.get(&reference.0) {
            return Ok(cached);
        }
        self.stat_object(reference).await?.ok_or_else(|| self.gone("write to", reference))
    }

    /// Locks a path against renames until the lock is dropped.
    async fn lock_path(&self, operation: &'static str, reference: &Reference) -> Result<PathLock<'_>> {
        let held = self.path_locks.lock_shared(&reference.0, &reference.0).await;
        held.ok_or_else(|| self.being_renamed(operation, reference))
    }

    /// The same, but fails if another object came to the path meanwhile.
    pub(crate) async fn lock_object(
        &self,
        operation: &'static str,
        reference: &Reference,
    ) -> Result<PathLock<'_>> {
        let held = self.lock_path(operation, reference).await?;
        match held.fate() {
            Fate::Stays => Ok(held),
            Fate::Moved => Err(self.gone(operation, reference)),
            Fate::Replaced => Err(Error::new(ErrorKind::VersionChanged, operation, self.place(reference))),
        }
    }

    pub(crate) fn being_renamed(&self, operation: &'static str, reference: &Reference) -> Error {
        Error::new(ErrorKind::Busy, operation, format!("{}: it moves", self.place(reference)))
    }

    pub(crate) fn writer(&self, reference: &Reference) -> Option<Arc<ObjectWriter>> {
        self.writers().get(&reference.0).cloned()
    }

    pub(crate) async fn writer_of(&self, reference: &Reference) -> Result<Arc<ObjectWriter>> {
        if what(reference) == KeyKind::Directory {
            return Err(Error::new(ErrorKind::IsADirectory, "write to", self.place(reference)));
        }
        for _ in 0..TRIES {
            if let Some(writer) = self.writer(reference) {
                return Ok(writer);
            }
            let moment = self.stat_cache.change_count(&reference.0);
            let stat = self.stat(reference).await?;
            let mark = attributes::write_mark(self.config.dialect)?;
            let dir_times = attributes::time_names(self.config.dialect);
            let fresh = ObjectWriter::new(self.base.key(reference)?, stat.as_ref().clone(), mark, dir_times);
            let mut writers = self.writers();
            // Another writer may have come and gone during the HEAD.
            if writers.contains_key(&reference.0) || self.stat_cache.change_count(&reference.0) == moment {
                return Ok(writers.entry(reference.0.clone()).or_insert(fresh).clone());
            }
        }
        Err(Error::new(ErrorKind::Busy, "write to", self.place(reference)))
    }

    pub(crate) async fn write_buffered(
        &self,
        reference: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        ::origin::change::end_of_write(offset, data.len())?;
        if is_draft(reference) {
            return self.write_draft(reference, offset, data, stability).await;
        }
        let held = self.lock_object("write to", reference).await?;
        let written = self.write_held(reference, offset, data, stability).await?;
        drop(held);
        self.free_memory(HELD_MAX, reference).await?;
        Ok(written)
    }

    async fn write_held(
        &self,
        reference: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let verifier = self.verifier(reference);
        let mut before = None;
        for _ in 0..TRIES {
            let writer = self.writer_of(reference).await?;
            let base = self.file(reference, &writer.base);
            let before = *before.get_or_insert(base.version);
            match writer.write(&*self.store, &self.pacer, offset, &data).await? {
                WriteOutcome::Taken => {}
                WriteOutcome::Behind => {
                    self.complete(reference, &writer).await?;
                    continue;
                }
                WriteOutcome::Over => {
                    self.forget(reference, &writer);
                    continue;
                }
            }
            if stability == Stability::Unstable {
                // The object is unchanged.
                let (before, after) = (Some(before), Some(base));
                return Ok(Written { stability, verifier, before, after, resent: false });
            }
            let after = self.complete(reference, &writer).await?;
            let (stability, before) = (Stability::FileSync, Some(before));
            return Ok(Written { stability, verifier, before, after: Some(after), resent: false });
        }
        Err(Error::new(ErrorKind::Busy, "write to", self.place(reference)))
    }

    pub(crate) async fn commit_writer(&self, reference: &Reference) -> Result<Committed> {
        let held = self.lock_path("commit", reference).await?;
        if held.fate() == Fate::Moved {
            return Err(self.gone("commit", reference));
        }
        let Some(writer) = self.writer(reference) else {
            let object = self.stat_file(reference).await?.ok_or_else(|| self.gone("commit", reference))?;
            return Ok(Committed {
                verifier: self.verifier(reference),
                before: None,
                after: Some(object),
                resent: false,
            });
        };
        let before = version_of(&writer.base);
        let after = self.complete(reference, &writer).await?;
        Ok(Committed {
            verifier: self.verifier(reference),
            before: Some(before),
            after: Some(after),
            resent: false,
        })
    }

    /// Completes a writer. If the object was replaced since it began, it is over and what was written is lost: the
    /// client must write it again.
    pub(crate) async fn complete(&self, reference: &Reference, writer: &Arc<ObjectWriter>) -> Result<Object> {
        let moment = self.stat_cache.change_count(&reference.0);
        let changed = |stat: Option<&ObjectStat>| self.stat_cache.changed_to(&reference.0, moment, stat);
        let completed = writer.complete(&self.store, &self.pacer, writer.unchanged(), &changed).await;
        if completed.as_ref().is_ok()
            || completed.as_ref().is_err_and(|e| e.kind() == ErrorKind::VersionChanged)
        {
            self.forget(reference, writer);
        }
        if completed.is_err() && self.writer(reference).is_none() {
            self.record_loss(reference);
        }
        self.completed_object(reference, writer, completed?).await
    }

    /// The file that a writer made; `None`: it had nothing to do.
    pub(crate) async fn completed_object(
        &self,
        reference: &Reference,
        writer: &ObjectWriter,
        made: Option<CompletedObject>,
    ) -> Result<Object> {
        if let Some(stat) = made.as_ref().and_then(CompletedObject::stat) {
            return Ok(self.file(reference, &stat));
        }
        let now = self.stat_object(reference).await?.ok_or_else(|| self.gone("store", reference))?;
        // If others replaced the object before our HEAD, it is theirs: only its time is used, which is not before
        // ours.
        let is_theirs = |made: &CompletedObject| !writer.is_result(&now) || now.size != made.size;
        let ours = made.filter(is_theirs).map(|made| made.stat_at(now.modified));
        Ok(self.file(reference, ours.as_ref().unwrap_or(&now)))
    }

    pub(crate) fn verifier(&self, reference: &Reference) -> WriteVerifier {
        let losses = self.losses().get(&reference.0).copied().unwrap_or_default();
        self.verifier.wrapping_add(losses).to_be_bytes()
    }

    /// Records the loss of buffered writes: a commit returns another verifier then.
    fn record_loss(&self, reference: &Reference) {
        *self.losses().entry(reference.0.clone()).or_default() += 1;
    }

    /// Clients that wrote before a rename and commit after it get another verifier, too.
    pub(crate) fn move_losses(&self, from: &Reference, to: &Reference) {
        let mut losses = self.losses();
        let is_dir = what(from) == KeyKind::Directory;
        let moved: Vec<_> = losses
            .iter()
            .filter_map(|(path, lost)| Some((path.strip_prefix(&from.0[..])?, *lost)))
            .filter(|(below, _)| is_dir || below.is_empty())
            .map(|(below, lost)| (Bytes::from([&to.0, below].concat()), lost))
            .collect();
        for (path, lost) in moved {
            let there = losses.entry(path).or_default();
            *there = lost.max(*there);
        }
    }

    fn losses(&self) -> MutexGuard<'_, HashMap<Bytes, u64>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget(&self, reference: &Reference, writer: &Arc<ObjectWriter>) {
        let mut writers = self.writers();
        if writers.get(&reference.0).is_some_and(|current| Arc::ptr_eq(current, writer)) {
            writers.remove(&reference.0);
        }
    }

    /// Completes the largest writers until at most `held_max` bytes are buffered. If that fails for another object
    /// than `mine`, only its own clients hear of it, by another verifier.
    pub(crate) async fn free_memory(&self, held_max: u64, mine: &Reference) -> Result<()> {
        let fullest = {
            let writers = self.writers();
            let held: Vec<_> =
                writers.iter().map(|(path, writer)| (writer.buffered_bytes(), path, writer)).collect();
            if held.iter().map(|(bytes, ..)| bytes).sum::<u64>() <= held_max {
                return Ok(());
            }
            let fullest = held.into_iter().max_by_key(|(bytes, ..)| *bytes);
            fullest.map(|(_, path, writer)| (Reference(path.clone()), writer.clone()))
        };
        let Some((reference, writer)) = fullest else { return Ok(()) };
        let stored = async {
            let _held = self.lock_path("store", &reference).await?;
            self.complete(&reference, &writer).await.map(drop)
        };
        let Err(e) = stored.await else { return Ok(()) };
        if reference == *mine || e.is_retryable() || e.kind() == ErrorKind::OutcomeUnknown {
            return Err(e);
        }
        writer.abandon(&*self.store, || self.record_loss(&reference)).await;
        self.forget(&reference, &writer);
        Ok(())
    }
}

fn version_of(stat: &ObjectStat) -> Version {
    attributes::version(&stat.etag, stat.size)
}
