//! Objects: made, and their bytes and attributes altered.

use types::{Error, ErrorKind, FileId, Name, Result, Version};

use super::{Carry, WHILE_WRITTEN, absent_name, is_same};
use crate::conflict::{AlarmKind, ConflictPolicy, Decision, Doing, ForeignState};
use crate::flush_target::{OwnFlush, TargetObject, TargetPresence};
use crate::operation::{Attributes, NewObject};
use crate::plan::{ContentChange, Making};

const NAME_TAKEN: &str = "another object has the name";

impl Carry<'_> {
    pub(super) async fn make(
        &mut self,
        making: &Making,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<Option<TargetObject>> {
        let Some((dir, name)) = making.names.last() else { return Ok(None) };
        if self.unit.in_doubt {
            match self.find_made(making).await? {
                TargetPresence::Found(found) => {
                    return self.alter_found(Some(found), Some(making), content, set).await;
                }
                TargetPresence::Gone if self.unit.perhaps_retracted => {
                    self.tell_of_nothing(Some((*dir, name.clone())));
                    return Ok(None);
                }
                TargetPresence::Gone if !self.make_again((*dir, name.clone())).await? => return Ok(None),
                TargetPresence::Gone | TargetPresence::Never => {}
            }
        }
        let (id, target) = (self.unit.object, self.shared.target.clone());
        let made = match target.make(*dir, name, id, &making.what).await {
            Err(error) if error.kind() == ErrorKind::Exists => self.make_beside(making, *dir, name).await?,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {
                Some(self.make_elsewhere(making, (*dir, name), error).await?)
            }
            made => Some(made?),
        };
        match made {
            // An earlier attempt made it and did not learn of it, so these bytes are not ours.
            Some(made) if making.what == NewObject::File && made.attr.size > 0 => {
                self.alter_found(Some(made), Some(making), content, set).await
            }
            Some(made) if !self.adopted => self.fill(id, made, content, set).await.map(Some),
            made => Ok(made),
        }
    }

    /// By an earlier attempt, which may have given it an earlier or a later name, and perhaps did not learn its id.
    async fn find_made(&self, making: &Making) -> Result<TargetPresence> {
        let (id, target) = (self.unit.object, self.shared.target.clone());
        let earlier = making.names.split_last().map_or(&[][..], |(_, earlier)| earlier);
        // One whose id is known is not looked for under names that others may be about to leave.
        let is_unknown =
            making.what == NewObject::File && self.shared.look(id).await? == TargetPresence::Never;
        for (dir, name) in earlier.iter().chain(self.unit.later.iter().filter(|_| is_unknown)) {
            if absent_name(target.lookup(*dir, name).await)?
                .flatten()
                .is_some_and(|found| !is_same(&found, id))
            {
                match target.make(*dir, name, id, &making.what).await {
                    Err(error) if error.kind() != ErrorKind::Exists => return Err(error),
                    _ => {}
                }
            }
        }
        self.shared.look(id).await
    }

    /// Others removed what an earlier attempt had made: no bytes of theirs are in the way of ours.
    async fn make_again(&mut self, place: (FileId, Name)) -> Result<bool> {
        let why = "it was removed at the origin before it was complete";
        if self.policy == ConflictPolicy::Theirs {
            self.note(AlarmKind::Dropped, Some(place), None, why);
            return Ok(false);
        }
        self.note(AlarmKind::TookOurs, Some(place), None, why);
        // What is known of our own doing is of the one that is gone.
        self.begin().await?;
        Ok(true)
    }

    /// The directory that it was to be in is not there: it goes into the nearest one above that is.
    async fn make_elsewhere(
        &mut self,
        making: &Making,
        (dir, name): (FileId, &Name),
        error: Error,
    ) -> Result<TargetObject> {
        let id = self.unit.object;
        self.shared.vouch(id).await?;
        let near = self.shared.target.place(id).await?.map(|(near, _)| near);
        let near = near.filter(|near| *near != dir && self.policy != ConflictPolicy::Theirs).ok_or(error)?;
        let (place, beside) = (Some((near, name.clone())), self.beside(name));
        let why = "the directory that it was to be in is not at the origin";
        self.note(AlarmKind::KeptBoth, place, Some(beside.clone()), why);
        self.make_as(making, near, &beside).await
    }

    /// Under a name that is ours alone: if it is there, an earlier attempt made it, and did not learn its id.
    async fn make_as(&self, making: &Making, dir: FileId, beside: &Name) -> Result<TargetObject> {
        let (id, target) = (self.unit.object, &self.shared.target);
        match target.make(dir, beside, id, &making.what).await {
            Err(error) if error.kind() == ErrorKind::Exists => {
                let there = target.lookup(dir, beside).await?;
                let there = there.filter(|there| is_as_good(&making.what, there)).ok_or(error)?;
                target.adopt(id, &there).await?;
                Ok(TargetObject { id, ..there })
            }
            made => made,
        }
    }

    /// The name is taken.
    async fn make_beside(
        &mut self,
        making: &Making,
        dir: FileId,
        name: &Name,
    ) -> Result<Option<TargetObject>> {
        let (id, target) = (self.unit.object, self.shared.target.clone());
        let Some(theirs) = target.lookup(dir, name).await? else {
            // Gone meanwhile.
            return target.make(dir, name, id, &making.what).await.map(Some);
        };
        if is_as_good(&making.what, &theirs) {
            target.adopt(id, &theirs).await?;
            // Its attributes stay theirs, unless an attempt of ours may have made it.
            self.adopted = !self.unit.in_doubt;
            return Ok(Some(TargetObject { id, ..theirs }));
        }
        let place = Some((dir, name.clone()));
        match self.decide_taken(&theirs) {
            Decision::Beside => {
                let beside = self.beside(name);
                self.note(AlarmKind::KeptBoth, place, Some(beside.clone()), NAME_TAKEN);
                self.make_as(making, dir, &beside).await.map(Some)
            }
            Decision::TakeOurs => {
                self.note(AlarmKind::TookOurs, place, None, NAME_TAKEN);
                target.remove(dir, name).await?;
                target.make(dir, name, id, &making.what).await.map(Some)
            }
            _ => {
                self.note(AlarmKind::Dropped, place, None, NAME_TAKEN);
                Ok(None)
            }
        }
    }

    /// It was made by an earlier attempt, perhaps under an earlier name. As it is then: a rename moves its ctime.
    async fn put_in_place(&mut self, making: &Making, mut found: TargetObject) -> Result<TargetObject> {
        let (id, target) = (self.unit.object, self.shared.target.clone());
        let Some(((to_dir, to), earlier)) = making.names.split_last() else { return Ok(found) };
        for (dir, name) in earlier {
            let there = absent_name(target.lookup(*dir, name).await)?
                .flatten()
                .is_some_and(|found| is_same(&found, id));
            if !there && (dir, name) != (to_dir, to) {
                self.remove_copy(*dir, name).await?;
            }
            if !there || (dir, name) == (to_dir, to) {
                continue;
            }
            let to = match target.lookup(*to_dir, to).await? {
                None => to.clone(),
                Some(taker) if is_same(&taker, id) => continue,
                Some(taker) if self.is_half_renamed((*to_dir, to), Some(&taker)).await? => to.clone(),
                Some(taker) => match self.place_of_taken(*to_dir, to, &taker) {
                    Some(to) => to,
                    None => continue,
                },
            };
            let told = target.rename((*dir, name), (*to_dir, &to), id).await?;
            if !told.follows(&found) {
                self.overtaken(id, Some(told.after.version)).await?;
            }
            found = told.after;
        }
        Ok(found)
    }

    /// Others gave the name that it is to have: which one it gets, if it is moved at all.
    fn place_of_taken(&self, dir: FileId, name: &Name, theirs: &TargetObject) -> Option<Name> {
        let place = Some((dir, name.clone()));
        match self.decide_taken(theirs) {
            Decision::Beside => {
                let beside = self.beside(name);
                self.note(AlarmKind::KeptBoth, place, Some(beside.clone()), NAME_TAKEN);
                Some(beside)
            }
            Decision::TakeOurs => {
                self.note(AlarmKind::TookOurs, place, None, NAME_TAKEN);
                Some(name.clone())
            }
            _ => {
                self.note(AlarmKind::Dropped, place, None, NAME_TAKEN);
                None
            }
        }
    }

    /// What is at the origin already is altered.
    pub(super) async fn alter(
        &mut self,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<Option<TargetObject>> {
        match self.shared.look(self.unit.object).await? {
            // Made and removed before it ever travelled, or dropped: there is nothing to alter.
            TargetPresence::Never => Ok(None),
            TargetPresence::Gone if self.unit.perhaps_retracted => {
                self.tell_of_nothing(None);
                Ok(None)
            }
            TargetPresence::Gone => self.alter_found(None, None, content, set).await,
            TargetPresence::Found(found) => self.alter_found(Some(found), None, content, set).await,
        }
    }

    /// `making`: an earlier attempt made it, and nobody knows how far it came.
    async fn alter_found(
        &mut self,
        found: Option<TargetObject>,
        making: Option<&Making>,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<Option<TargetObject>> {
        let (object, target) = (self.unit.object, self.shared.target.clone());
        let theirs = found.as_ref().map_or(ForeignState::Gone, |found| ForeignState::Version(found.version));
        // Who sets attributes of a directory does not speak of its names, and each name moves its version.
        let is_dir = found.as_ref().is_some_and(|found| found.attr.is_dir());
        if let ForeignState::Version(version) = theirs
            && !is_dir
        {
            self.is_ours(version).await?;
        }
        let doing = if content.is_nothing() { Doing::Attributes } else { Doing::Bytes };
        let mut known = self.known();
        // Of what it makes an attempt keeps no intent: the bytes that are there tell that there was one.
        let has_bytes = found.as_ref().is_some_and(|found| found.attr.size > 0);
        known.begun |= making.is_some() && has_bytes && known.own.is_none();
        let decision = if is_dir { Decision::Proceed } else { self.decide_knowing(known, doing, theirs) };
        let place = if decision == Decision::Proceed { None } else { target.place(object).await? };
        let why =
            if found.is_some() { "it was changed at the origin" } else { "it was removed at the origin" };
        match (decision, found) {
            (Decision::Proceed | Decision::Resume | Decision::TakeOurs, Some(found)) => {
                if let Some(kind) = AlarmKind::of(decision) {
                    self.note_seen(Some(found.version), kind, place, None, why);
                }
                self.begin().await?;
                let found = match making {
                    Some(making) => self.put_in_place(making, found).await?,
                    None => found,
                };
                let filled = self.fill(object, found, content, set).await?;
                // Their bytes are still there, and no version with them is our doing.
                self.intact &= decision != Decision::TakeOurs || !content.is_nothing();
                Ok(Some(filled))
            }
            (Decision::Drop, _) => {
                self.intact = false;
                self.note(AlarmKind::Dropped, place, None, why);
                Ok(None)
            }
            (Decision::Proceed | Decision::Resume | Decision::TakeOurs | Decision::Beside, _) => {
                self.intact = false;
                let place = place.ok_or_else(|| {
                    let context = format!("{object}, which has no place at the origin any more");
                    Error::new(ErrorKind::NotFound, "store beside", context)
                })?;
                self.store_beside(place, content, set, why).await?;
                Ok(None)
            }
        }
    }

    /// Under a conflict name: one that is there is from an earlier attempt, or of an earlier unit.
    async fn store_beside(
        &mut self,
        (dir, name): (FileId, Name),
        content: &ContentChange,
        set: &Attributes,
        why: &str,
    ) -> Result<()> {
        let (beside, base) = (self.beside(&name), self.unit.base);
        self.note(AlarmKind::KeptBoth, Some((dir, name)), Some(beside.clone()), why);
        let copy = self.shared.target.copy_base(self.unit.object, base, dir, &beside).await?;
        self.fill(copy.id, copy, content, set).await.map(drop)
    }

    /// Where others wrote over what was sent, ours goes beside as a whole: under its name each byte is of whoever wrote it
    /// last.
    pub(super) async fn keep_unmixed(
        &mut self,
        found: Option<TargetObject>,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<Option<TargetObject>> {
        if !std::mem::take(&mut self.is_mixed) {
            return Ok(found);
        }
        self.intact = false;
        let place = self.shared.target.place(self.unit.object).await?;
        match place.filter(|_| self.policy == ConflictPolicy::KeepBoth) {
            Some(place) => self.store_beside(place, content, set, WHILE_WRITTEN).await?,
            None => self.overtaken(self.unit.object, found.map(|found| found.version)).await?,
        }
        Ok(None)
    }

    /// Bytes of others are in it from here on: no later attempt may take them for half of what an earlier one of ours did, and
    /// go over them. What is known of our own doing is what was there `before`, and nothing of ours is under way.
    async fn leave_mixed(&mut self, object: FileId, before: Version) -> Result<()> {
        if object != self.unit.object {
            return Ok(()); // a copy beside, whose name is ours
        }
        self.own = OwnFlush { version: self.own.version.or(Some(before)), begun: false };
        self.shared.target.remember(object, self.own.version).await
    }

    /// Size or attributes. What others did since it `was` looked at is in the same version, which is not ours then.
    async fn set(
        &mut self,
        object: FileId,
        was: Option<&TargetObject>,
        set: &Attributes,
        size: Option<u64>,
    ) -> Result<TargetObject> {
        let told = self.shared.target.set(object, set, size).await?;
        if let Some(was) = was.filter(|was| !was.attr.is_dir()) {
            let alone = match told.before {
                Some(before) => before == was.version || self.is_ours(before).await?,
                None if set.mtime.is_some() || size.is_some() => {
                    told.after.attr.size == size.unwrap_or(was.attr.size)
                }
                None => told.after.has_bytes_of(was),
            };
            if !alone {
                self.overtaken(object, told.before).await?;
            }
        }
        Ok(told.after)
    }

    /// Cut, write, size, attributes: the same however often it is done.
    async fn fill(
        &mut self,
        object: FileId,
        mut found: TargetObject,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<TargetObject> {
        let nothing = Attributes::default();
        // Nobody else knows what is made just now, and an origin may give what was written its times late.
        let mut is_known = self.intact && !self.known().making;
        if let Some(cut) = content.cut.filter(|cut| *cut != found.attr.size) {
            found = self.set(object, is_known.then_some(&found), &nothing, Some(cut)).await?;
        }
        let mut is_set = set.is_nothing();
        if !content.pieces.is_empty() {
            let before = found.version;
            (found, is_set) = self.write(object, &found, content, set).await?;
            is_known = false;
            if self.is_mixed {
                self.leave_mixed(object, before).await?;
                return Ok(found); // its size and times are not ours to say
            }
        }
        if let Some(size) = content.size.filter(|size| *size != found.attr.size) {
            found = self.set(object, is_known.then_some(&found), &nothing, Some(size)).await?;
            is_set = set.is_nothing();
        }
        if !is_set {
            found = self.set(object, is_known.then_some(&found), set, None).await?;
        }
        Ok(found)
    }
}

/// Theirs serves for ours: nobody's bytes are lost. Directories become one.
pub(super) fn is_as_good(what: &NewObject, theirs: &TargetObject) -> bool {
    match what {
        NewObject::File => false,
        NewObject::Directory => theirs.attr.is_dir(),
        NewObject::Symlink(target) => theirs.target.as_ref() == Some(target),
        NewObject::Special(_) => theirs.attr.kind == what.kind() && theirs.attr.rdev == what.rdev(),
    }
}
