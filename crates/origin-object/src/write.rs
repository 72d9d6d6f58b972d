//! Bytes: written into a draft, an object when they are committed.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use ::origin::{Committed, Object, Reference, Written};
use bytes::Bytes;
use types::{Error, ErrorKind, Result, Stability, Version, WriteVerifier};

use crate::attributes;
use crate::draft::{Completed, Draft, Wrote};
use crate::gate::{Fate, Held};
use crate::keys::{What, what};
use crate::origin::ObjectOrigin;
use crate::store::Stat;

/// Bytes that wait in memory, of all drafts; beyond it one that has most is completed.
const HELD_MAX: u64 = 256 << 20;
/// A write that meets a draft that has just been completed begins another; so often, where others keep completing.
const TRIES: u32 = 16;

impl ObjectOrigin {
    /// As it is now, by what was seen last: an outdated draft is found out when it is completed.
    pub(crate) async fn stat(&self, reference: &Reference) -> Result<Arc<Stat>> {
        if let Some(known) = self.known.get(&reference.0) {
            return Ok(known);
        }
        self.look(reference).await?.ok_or_else(|| self.gone("write to", reference))
    }

    /// Nobody moves it, or something else to its path, until this is dropped.
    async fn hold(&self, operation: &'static str, reference: &Reference) -> Result<Held<'_>> {
        let held = self.gate.share(&reference.0, &reference.0).await;
        held.ok_or_else(|| self.moves(operation, reference))
    }

    /// The same where nothing may be done to what came to its path meanwhile.
    pub(crate) async fn hold_object(
        &self,
        operation: &'static str,
        reference: &Reference,
    ) -> Result<Held<'_>> {
        let held = self.hold(operation, reference).await?;
        match held.fate() {
            Fate::Stays => Ok(held),
            Fate::Moved => Err(self.gone(operation, reference)),
            Fate::Replaced => Err(Error::new(ErrorKind::VersionChanged, operation, self.place(reference))),
        }
    }

    pub(crate) fn moves(&self, operation: &'static str, reference: &Reference) -> Error {
        Error::new(ErrorKind::Busy, operation, format!("{}: it moves", self.place(reference)))
    }

    pub(crate) fn draft(&self, reference: &Reference) -> Option<Arc<Draft>> {
        self.drafts().get(&reference.0).cloned()
    }

    pub(crate) async fn draft_of(&self, reference: &Reference) -> Result<Arc<Draft>> {
        if what(reference) == What::Directory {
            return Err(Error::new(ErrorKind::IsADirectory, "write to", self.place(reference)));
        }
        for _ in 0..TRIES {
            if let Some(draft) = self.draft(reference) {
                return Ok(draft);
            }
            let moment = self.known.moment(&reference.0);
            let stat = self.stat(reference).await?;
            let mark = attributes::draft_mark(self.config.dialect)?;
            let times = attributes::time_names(self.config.dialect);
            let fresh = Draft::new(self.base.key(reference)?, stat.as_ref().clone(), mark, times);
            let mut drafts = self.drafts();
            // Another one may have come and gone while it was looked at.
            if drafts.contains_key(&reference.0) || self.known.moment(&reference.0) == moment {
                return Ok(drafts.entry(reference.0.clone()).or_insert(fresh).clone());
            }
        }
        Err(Error::new(ErrorKind::Busy, "write to", self.place(reference)))
    }

    pub(crate) async fn write_draft(
        &self,
        reference: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        ::origin::change::end_of_write(offset, data.len())?;
        let held = self.hold_object("write to", reference).await?;
        let written = self.write_held(reference, offset, data, stability).await?;
        drop(held);
        self.make_room(HELD_MAX, reference).await?;
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
            let draft = self.draft_of(reference).await?;
            let base = self.file(reference, &draft.base);
            let before = *before.get_or_insert(base.version);
            match draft.write(&*self.store, &self.turns, offset, &data).await? {
                Wrote::Taken => {}
                Wrote::Behind => {
                    self.complete(reference, &draft).await?;
                    continue;
                }
                Wrote::Over => {
                    self.forget(reference, &draft);
                    continue;
                }
            }
            if stability == Stability::Unstable {
                // The object is still what it was.
                let (before, after) = (Some(before), Some(base));
                return Ok(Written { stability, verifier, before, after, resent: false });
            }
            let after = self.complete(reference, &draft).await?;
            let (stability, before) = (Stability::FileSync, Some(before));
            return Ok(Written { stability, verifier, before, after: Some(after), resent: false });
        }
        Err(Error::new(ErrorKind::Busy, "write to", self.place(reference)))
    }

    pub(crate) async fn commit_draft(&self, reference: &Reference) -> Result<Committed> {
        let held = self.hold("commit", reference).await?;
        if held.fate() == Fate::Moved {
            return Err(self.gone("commit", reference));
        }
        let Some(draft) = self.draft(reference) else {
            let object = self.look_at_file(reference).await?.ok_or_else(|| self.gone("commit", reference))?;
            return Ok(Committed {
                verifier: self.verifier(reference),
                before: None,
                after: Some(object),
                resent: false,
            });
        };
        let before = version_of(&draft.base);
        let after = self.complete(reference, &draft).await?;
        Ok(Committed {
            verifier: self.verifier(reference),
            before: Some(before),
            after: Some(after),
            resent: false,
        })
    }

    /// The object as the draft makes it. A draft that was made for another object than there is now is over, and what
    /// was written to it is lost: it is to be written again.
    pub(crate) async fn complete(&self, reference: &Reference, draft: &Arc<Draft>) -> Result<Object> {
        let moment = self.known.moment(&reference.0);
        let changed = |stat: Option<&Stat>| self.known.became(&reference.0, moment, stat);
        let completed = draft.complete(&self.store, &self.turns, &changed).await;
        if completed.as_ref().is_ok()
            || completed.as_ref().is_err_and(|e| e.kind() == ErrorKind::VersionChanged)
        {
            self.forget(reference, draft);
        }
        if completed.is_err() && self.draft(reference).is_none() {
            self.lose(reference);
        }
        let made = completed?;
        if let Some(stat) = made.as_ref().and_then(Completed::stat) {
            return Ok(self.file(reference, &stat));
        }
        let now = self.look(reference).await?.ok_or_else(|| self.gone("store", reference))?;
        // Where others were quicker than our look, it is theirs: of it only the time is told, which is not before ours.
        let is_theirs = |made: &Completed| !draft.became(&now) || now.size != made.size;
        let ours = made.filter(is_theirs).map(|made| made.stat_at(now.modified));
        Ok(self.file(reference, ours.as_ref().unwrap_or(&now)))
    }

    fn verifier(&self, reference: &Reference) -> WriteVerifier {
        let losses = self.losses().get(&reference.0).copied().unwrap_or_default();
        self.verifier.wrapping_add(losses).to_be_bytes()
    }

    /// Something that was taken is not there any more: whoever commits is told by another verifier.
    fn lose(&self, reference: &Reference) {
        *self.losses().entry(reference.0.clone()).or_default() += 1;
    }

    /// Whoever wrote to it before it moved and commits it there is told, too.
    pub(crate) fn lost_goes_along(&self, from: &Reference, to: &Reference) {
        let mut losses = self.losses();
        let is_dir = what(from) == What::Directory;
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

    pub(crate) fn forget(&self, reference: &Reference, draft: &Arc<Draft>) {
        let mut drafts = self.drafts();
        if drafts.get(&reference.0).is_some_and(|known| Arc::ptr_eq(known, draft)) {
            drafts.remove(&reference.0);
        }
    }

    /// What was written to another object than `mine` and cannot be stored is not told to who wrote to that: its own
    /// writers are told, by another verifier.
    pub(crate) async fn make_room(&self, held_max: u64, mine: &Reference) -> Result<()> {
        let fullest = {
            let drafts = self.drafts();
            let held: Vec<_> = drafts.iter().map(|(path, draft)| (draft.held(), path, draft)).collect();
            if held.iter().map(|(bytes, ..)| bytes).sum::<u64>() <= held_max {
                return Ok(());
            }
            let fullest = held.into_iter().max_by_key(|(bytes, ..)| *bytes);
            fullest.map(|(_, path, draft)| (Reference(path.clone()), draft.clone()))
        };
        let Some((reference, draft)) = fullest else { return Ok(()) };
        let stored = async {
            let _held = self.hold("store", &reference).await?;
            self.complete(&reference, &draft).await.map(drop)
        };
        let Err(e) = stored.await else { return Ok(()) };
        if reference == *mine || e.is_retryable() || e.kind() == ErrorKind::OutcomeUnknown {
            return Err(e);
        }
        draft.abandon(&*self.store, || self.lose(&reference)).await;
        self.forget(&reference, &draft);
        Ok(())
    }
}

fn version_of(stat: &Stat) -> Version {
    attributes::version(&stat.etag, stat.size)
}
