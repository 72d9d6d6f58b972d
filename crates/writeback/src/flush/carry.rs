//! Carries out one unit at its target: looks for traces of an earlier attempt and for foreign changes, and then does it.
//!
//! How an operation that was carried out already is known again, when the answer or the mark was lost:
//! - the creation of a file: by its verifier; and once its id is known there, by that
//! - a directory, link or special file: it is there and is as good; ours and theirs are one
//! - writes, truncations, attributes: they are carried out again and leave the same. That a version is the work of an
//!   interrupted attempt is known by the intent that was kept before it began
//! - a further name: it leads to the file
//! - a removal: the name is gone, or another object has it
//! - a rename: the new name leads to the object
//! - what its owner took away again: no name that it had leads to it
//!
//! No answer, no mark: whatever fails here leaves the unit as it was in the journal.

mod content;
mod foreign_write;
mod naming;
mod parts;
mod sending;
pub(super) mod together;
mod undo;

use types::{Error, ErrorKind, FileId, Name, Result, Version};

use super::FlushEngine;
use crate::conflict::{Alarm, AlarmKind, Decision, ForeignState, KnownVersions, conflict_name, decide};
use crate::conflict::{ConflictPolicy, Doing};
use crate::flush_target::{FlushAnswer, Flushed, OwnFlush, TargetObject, TargetPresence};
use crate::plan::{ContentChange, FlushUnit, FlushWork};
use crate::sabotage::Bug;

/// One unit on its way.
pub struct Carry<'a> {
    pub shared: &'a FlushEngine,
    pub unit: &'a FlushUnit,
    pub policy: ConflictPolicy,
    own: OwnFlush,
    /// Nobody else changed the object as far as we saw.
    intact: bool,
    /// Nobody else wrote to it while it was sent, as far as the origin's answers tell.
    is_alone: bool,
    /// Others wrote over what was sent of it: what is there has bytes of both.
    is_mixed: bool,
    replaced: Option<TargetObject>,
    /// What was there serves for what was to be made.
    adopted: bool,
}

impl<'a> Carry<'a> {
    pub fn new(shared: &'a FlushEngine, unit: &'a FlushUnit, policy: ConflictPolicy) -> Carry<'a> {
        let (own, replaced, adopted) = (OwnFlush::default(), None, false);
        let (intact, is_alone, is_mixed) = (true, true, false);
        Carry { shared, unit, policy, own, intact, is_alone, is_mixed, replaced, adopted }
    }

    pub async fn out(mut self) -> Result<Flushed> {
        let shared = self.shared;
        let found = match self.work().await {
            Err(error) if self.is_dropped_with_its_directory(&error).await? => {
                let why = "its directory is not at the origin";
                self.note(AlarmKind::Dropped, None, None, why);
                None
            }
            found => found?,
        };
        // Who knows a version bases changes on it: one with foreign changes in it is not known by this.
        let found = found.filter(|_| self.intact);
        if (found.is_some() || self.own.begun) && !shared.sabotage.is(Bug::ForgetOwnVersion) {
            let version = found.as_ref().map(|found| found.version);
            shared.target.remember(self.unit.object, version.or(self.own.version)).await?;
        }
        let (object, sequences) = (self.unit.object, self.unit.sequences.clone());
        let content = match &self.unit.work {
            FlushWork::Object { content, .. } | FlushWork::Replace { content, .. } => content.clone(),
            FlushWork::Names(_)
            | FlushWork::Moved(_)
            | FlushWork::Retract(_)
            | FlushWork::Together(_)
            | FlushWork::Vanished => ContentChange::default(),
        };
        Ok(Flushed { object, sequences, content, found, is_alone: self.is_alone, replaced: self.replaced })
    }

    async fn work(&mut self) -> Result<Option<TargetObject>> {
        let unit = self.unit;
        if matches!(unit.work, FlushWork::Vanished) {
            return Ok(None);
        }
        self.own = self.shared.target.own(unit.object).await?;
        for rename in &unit.over {
            self.end_replaced(rename).await?;
        }
        match &unit.work {
            // Its parts are carried out, each as one unit.
            FlushWork::Together(_) | FlushWork::Vanished => Ok(None),
            FlushWork::Object { make: Some(making), content, set } => {
                let making = self.perhaps_staged(making)?;
                let found = self.make(&making, content, set).await?;
                self.keep_unmixed(found, content, set).await
            }
            FlushWork::Object { make: None, content, set } => {
                let found = self.alter(content, set).await?;
                self.keep_unmixed(found, content, set).await
            }
            FlushWork::Names(action) => self.names(action).await,
            FlushWork::Replace { making, content, set, rename } => {
                self.replace_at_once(making, content, set, rename).await
            }
            FlushWork::Moved(renames) => self.moved(renames).await,
            FlushWork::Retract(retract) => self.retract(retract).await,
        }
    }

    /// Where theirs stays and ours is dropped, what was to be in a directory of ours goes with it.
    async fn is_dropped_with_its_directory(&self, error: &Error) -> Result<bool> {
        let absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale);
        if self.policy != ConflictPolicy::Theirs || !absent {
            return Ok(false);
        }
        for dir in self.unit.dirs() {
            if !matches!(self.shared.look(dir).await?, TargetPresence::Found(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn known(&self) -> KnownVersions {
        let making =
            matches!(self.unit.work, FlushWork::Object { make: Some(_), .. } | FlushWork::Replace { .. });
        KnownVersions { base: self.unit.base, own: self.own.version, begun: self.own.begun, making }
    }

    /// All that happened to it was our doing, as far as we know. What of that was not known yet when the unit began is
    /// asked for.
    async fn is_ours(&mut self, version: Version) -> Result<bool> {
        if !self.known().explains(version) {
            self.own = self.shared.target.own_now(self.unit.object).await?;
        }
        Ok(self.known().explains(version))
    }

    /// The same of what an interrupted attempt left: it moved the version, and perhaps it was not alone in that.
    async fn is_resumed(&mut self, found: &TargetObject) -> Result<bool> {
        if self.is_ours(found.version).await? {
            return Ok(true);
        }
        let in_doubt = self.known().is_in_doubt();
        if in_doubt {
            self.note_seen(Some(found.version), AlarmKind::Resumed, None, None, RESUMED);
        }
        Ok(in_doubt)
    }

    /// After our change of its names. What others wrote since it `was` looked at is in the same version, which is not ours
    /// then. A directory's names are not looked at by its version.
    fn follow(&mut self, was: &TargetObject, told: FlushAnswer) -> TargetObject {
        self.intact &= was.attr.is_dir() || told.follows(was);
        told.after
    }

    /// Others changed it between our look and our change, which goes over theirs.
    async fn overtaken(&mut self, object: FileId, seen: Option<Version>) -> Result<()> {
        self.intact = false;
        let place = self.shared.target.place(object).await?;
        self.note_seen(seen, AlarmKind::Overtaken, place, None, WHILE_WRITTEN);
        Ok(())
    }

    /// From here on the object is changed.
    async fn begin(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.own.begun, true) {
            self.shared.target.begin(self.unit.object).await?;
        }
        Ok(())
    }

    fn decide(&self, doing: Doing, theirs: ForeignState) -> Decision {
        self.decide_knowing(self.known(), doing, theirs)
    }

    fn decide_knowing(&self, known: KnownVersions, doing: Doing, theirs: ForeignState) -> Decision {
        if self.shared.sabotage.is(Bug::SkipConflictCheck) && matches!(theirs, ForeignState::Version(_)) {
            return Decision::Proceed;
        }
        decide(self.policy, doing, known, theirs)
    }

    /// `theirs` has the name that ours is to have. Nothing takes a name from a directory, whatever the policy.
    fn decide_taken(&self, theirs: &TargetObject) -> Decision {
        match self.decide(Doing::Name, ForeignState::Other) {
            Decision::TakeOurs if theirs.attr.is_dir() => Decision::Beside,
            decision => decision,
        }
    }

    /// The conflict name of what would have been `name`.
    fn beside(&self, name: &Name) -> Name {
        conflict_name(name, &self.shared.config.host, self.unit.since, self.unit.object)
    }

    /// Said before it is done, in every case: after a crash in between nobody could tell any more, when what the next
    /// attempt finds is another thing.
    fn note(&self, kind: AlarmKind, place: Option<(FileId, Name)>, beside: Option<Name>, why: &str) {
        self.note_seen(None, kind, place, beside, why);
    }

    /// `seen`: the version that is lost; of another one it is said again.
    fn note_seen(
        &self,
        seen: Option<Version>,
        kind: AlarmKind,
        place: Option<(FileId, Name)>,
        beside: Option<Name>,
        why: &str,
    ) {
        let (junction, object) = (self.unit.junction, self.unit.object);
        let (sequences, why) = (self.unit.sequences.clone(), why.into());
        self.shared.raise(Alarm { kind, junction, object, place, beside, sequences, why }, seen);
    }

    /// What a rename replaced, and an attempt without an answer was at.
    fn note_replaced(&self, object: FileId) {
        let (kind, junction, why) = (AlarmKind::Resumed, self.unit.junction, RESUMED.into());
        let (place, beside, sequences) = (None, None, self.unit.sequences.clone());
        self.shared.raise(Alarm { kind, junction, object, place, beside, sequences, why }, None);
    }
}

const WHILE_WRITTEN: &str = "it was changed at the origin while it was written";
const RESUMED: &str = "what an interrupted flush did to it cannot be told from what others may have done";

/// What a failing look means: the thing is not there.
fn absent<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same of a name. One that the origin cannot have is not there either.
fn absent_name<T>(result: Result<T>) -> Result<Option<T>> {
    match absent(result) {
        Err(error) if matches!(error.kind(), ErrorKind::NameTooLong | ErrorKind::InvalidArgument) => Ok(None),
        other => other,
    }
}

fn is_same(found: &TargetObject, object: FileId) -> bool {
    found.id == object
}
