//! Names: linked, removed, renamed.

use types::{Error, ErrorKind, FileId, Name, Result};

use super::{Carry, absent, absent_name, is_same};
use crate::conflict::{
    AlarmKind, ConflictPolicy, Decision, Doing, ForeignState, KnownVersions, is_conflict_name,
};
use crate::flush_target::{FlushAnswer, OwnFlush, TargetObject, TargetPresence};
use crate::operation::{Action, Rename};
use crate::sabotage::Bug;

impl Carry<'_> {
    pub(super) async fn names(&mut self, action: &Action) -> Result<Option<TargetObject>> {
        match action {
            Action::Link { file, dir, name, .. } => self.link(*file, *dir, name).await,
            Action::Remove { dir, name, links, .. } => self.remove(*dir, name, *links).await,
            Action::Rmdir { dir, name, .. } => self.rmdir(*dir, name).await,
            Action::Rename(rename) => self.rename(rename).await,
            // These are no names; the plan makes no such unit.
            Action::Make { .. } | Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. } => {
                Ok(None)
            }
        }
    }

    /// What has the name; in a directory that is gone nothing has.
    pub(super) async fn at(&self, dir: FileId, name: &Name) -> Result<Option<TargetObject>> {
        absent_name(self.shared.target.lookup(dir, name).await).map(Option::flatten)
    }

    /// Our object that should have the name, there or under a conflict name, and its name now; or another object.
    pub(super) async fn own_place(&self, dir: FileId, name: &Name) -> Result<(Option<TargetObject>, Name)> {
        let there = self.at(dir, name).await?;
        if there.as_ref().is_some_and(|there| is_same(there, self.unit.object)) {
            return Ok((there, name.clone()));
        }
        let other = absent(self.shared.target.name_in(dir, self.unit.object).await)?.flatten();
        match other.filter(|other| is_conflict_name(other, name)) {
            Some(other) => Ok((self.at(dir, &other).await?, other)),
            None => Ok((there, name.clone())),
        }
    }

    async fn link(&mut self, file: FileId, dir: FileId, name: &Name) -> Result<Option<TargetObject>> {
        let target = self.shared.target.clone();
        let place = Some((dir, name.clone()));
        let before = match self.shared.look(file).await? {
            TargetPresence::Never => return Ok(None),
            TargetPresence::Gone if self.unit.perhaps_retracted => {
                self.tell_of_nothing(place);
                return Ok(None);
            }
            TargetPresence::Gone => {
                self.note(AlarmKind::Dropped, place, None, "the file was removed at the origin");
                return Ok(None);
            }
            TargetPresence::Found(found) => found,
        };
        let there = self.at(dir, name).await?;
        if let Some(there) = there.as_ref().filter(|there| is_same(there, file)) {
            // There is nothing to do, and yet the version may be another's.
            self.intact = self.is_resumed(there).await?;
            return Ok(Some(there.clone()));
        }
        self.intact = self.is_ours(before.version).await?;
        self.begin().await?;
        let Some(theirs) = there else { return self.link_as(&before, dir, name).await };
        let why = "another object had the name";
        match self.decide_taken(&theirs) {
            Decision::Beside => {
                let beside = self.beside(name);
                self.note(AlarmKind::KeptBoth, place, Some(beside.clone()), why);
                match self.at(dir, &beside).await?.filter(|there| is_same(there, file)) {
                    Some(after) => Ok(Some(self.follow(&before, FlushAnswer { before: None, after }))),
                    None => self.link_as(&before, dir, &beside).await,
                }
            }
            Decision::TakeOurs => {
                self.note(AlarmKind::TookOurs, place, None, why);
                target.remove(dir, name).await?;
                self.link_as(&before, dir, name).await
            }
            _ => {
                self.note(AlarmKind::Dropped, place, None, why);
                Ok(None)
            }
        }
    }

    async fn link_as(
        &mut self,
        was: &TargetObject,
        dir: FileId,
        name: &Name,
    ) -> Result<Option<TargetObject>> {
        let after = self.shared.target.link(self.unit.object, dir, name).await?;
        Ok(Some(self.follow(was, FlushAnswer { before: None, after })))
    }

    async fn remove(&mut self, dir: FileId, name: &Name, links: u32) -> Result<Option<TargetObject>> {
        let target = self.shared.target.clone();
        let (there, name) = self.own_place(dir, name).await?;
        let place = Some((dir, name.clone()));
        let Some(there) = there else { return self.left_before(place).await };
        if !is_same(&there, self.unit.object) {
            return self.tell_of_another(place).await.map(|()| None);
        }
        self.is_ours(there.version).await?;
        let theirs = if is_last(links, &there) {
            ForeignState::LastName
        } else {
            ForeignState::Version(there.version)
        };
        let decision = self.decide(Doing::Removal, theirs);
        if let Some(kind) = AlarmKind::of(decision) {
            self.intact = false;
            let why = match theirs {
                ForeignState::LastName => "its other names were taken away at the origin",
                _ => "it was changed at the origin",
            };
            self.note(kind, place, None, why);
        }
        if decision == Decision::Drop {
            return Ok(None);
        }
        if there.attr.nlink < 2 {
            return absent(target.remove(dir, &name).await).map(|_| None);
        }
        self.begin().await?;
        absent(target.remove(dir, &name).await)?;
        self.left(&there).await
    }

    /// It may have another name, and the removal of this one by us moved its ctime.
    pub(super) async fn left(&mut self, was: &TargetObject) -> Result<Option<TargetObject>> {
        match self.shared.look(self.unit.object).await? {
            TargetPresence::Found(after) => Ok(Some(self.follow(was, FlushAnswer { before: None, after }))),
            TargetPresence::Gone | TargetPresence::Never => Ok(None),
        }
    }

    /// The same, where the name is gone: by an earlier attempt, or by others.
    async fn left_before(&mut self, place: Option<(FileId, Name)>) -> Result<Option<TargetObject>> {
        self.shared.vouch(self.unit.object).await?;
        let left = match self.shared.look(self.unit.object).await? {
            TargetPresence::Found(left) => left,
            TargetPresence::Gone => {
                self.tell_of_nothing(place);
                return Ok(None);
            }
            TargetPresence::Never => return Ok(None),
        };
        self.intact = self.is_resumed(&left).await?;
        Ok(Some(left))
    }

    /// Another object has the name that was to be taken away.
    async fn tell_of_another(&self, place: Option<(FileId, Name)>) -> Result<()> {
        // After an attempt without an answer: we removed it, and another was made since.
        if self.unit.in_doubt {
            return Ok(());
        }
        match self.shared.look(self.unit.object).await? {
            TargetPresence::Never => {}
            TargetPresence::Gone if self.unit.perhaps_retracted => self.tell_of_nothing(place),
            TargetPresence::Gone | TargetPresence::Found(_) => {
                self.note(AlarmKind::Dropped, place, None, "another object has the name");
            }
        }
        Ok(())
    }

    /// Others removed it, or the origin is in an older state, in which it may come back: nobody but us saw it go.
    pub(super) fn tell_of_nothing(&self, place: Option<(FileId, Name)>) {
        match self.unit.in_doubt || self.unit.perhaps_retracted {
            // After a start: perhaps we removed it ourselves before, as a whole if its owner took it away in the end.
            true => self.note(AlarmKind::Resumed, place, None, "it was removed before, by us or by others"),
            false => {
                self.note(AlarmKind::Dropped, place, None, "what was to be removed was not there any more")
            }
        }
    }

    async fn rmdir(&mut self, dir: FileId, name: &Name) -> Result<Option<TargetObject>> {
        let (there, name) = self.own_place(dir, name).await?;
        let place = || Some((dir, name.clone()));
        let Some(there) = there else {
            self.shared.vouch(self.unit.object).await?;
            if self.shared.look(self.unit.object).await? == TargetPresence::Gone {
                self.tell_of_nothing(place());
            }
            return Ok(None);
        };
        if !is_same(&there, self.unit.object) {
            return self.tell_of_another(place()).await.map(|()| None);
        }
        self.rmdir_if_empty(dir, &name).await.map(|()| None)
    }

    /// What somebody else put into it stays, whatever the policy, and so does the directory.
    pub(super) async fn rmdir_if_empty(&self, dir: FileId, name: &Name) -> Result<()> {
        match absent(self.shared.target.rmdir(dir, name).await) {
            Err(error) if matches!(error.kind(), ErrorKind::NotEmpty | ErrorKind::Exists) => {
                let place = Some((dir, name.clone()));
                self.note(AlarmKind::Dropped, place, None, "something is in it at the origin");
                Ok(())
            }
            other => other.map(drop),
        }
    }

    pub(super) async fn rename(&mut self, rename: &Rename) -> Result<Option<TargetObject>> {
        let target = self.shared.target.clone();
        let (to_dir, to) = (rename.to_dir, &rename.to);
        let there = self.at(to_dir, to).await?;
        let (source, from) = self.own_place(rename.from_dir, &rename.from).await?;
        let Some(source) = source.filter(|source| is_same(source, rename.object)) else {
            if there.as_ref().is_some_and(|it| is_same(it, rename.object)) {
                if let Some(replaced) = rename.replaced.filter(|_| !rename.is_dir) {
                    if target.own(replaced.object).await?.begun {
                        self.note_replaced(replaced.object);
                    }
                    self.follow_replaced(replaced.object, None).await?;
                }
                if let Some(there) = there.as_ref().filter(|_| !rename.is_dir) {
                    self.intact = self.is_resumed(there).await?;
                }
                return Ok(there);
            }
            if let Some(moved) = self.moved_on().await? {
                self.end_replaced(rename).await?;
                self.intact = moved.attr.is_dir() || self.is_resumed(&moved).await?;
                return Ok(Some(moved));
            }
            if self.is_half_renamed((to_dir, to), there.as_ref()).await? {
                return self.end_rename(rename).await;
            }
            let place = Some((rename.from_dir, rename.from.clone()));
            return self.source_is_gone(place, (to_dir, to)).await;
        };
        self.intact = rename.is_dir || self.is_ours(source.version).await?;
        self.begin().await?;
        if there.as_ref().is_some_and(|it| is_same(it, rename.object)) && !rename.is_dir {
            // A link that was made again: renamed onto itself, both names would stay.
            absent(target.remove(rename.from_dir, &from).await)?;
            return self.left(&source).await;
        }
        let from = (rename.from_dir, &from);
        let decision = self.replace(rename, there.as_ref()).await?;
        if matches!(decision, Decision::Proceed | Decision::TakeOurs) {
            // Of what has foreign changes in it, no version is our doing.
            let intact = decision == Decision::Proceed;
            let replaced = there.filter(|it| intact && it.attr.nlink > 1 && !it.attr.is_dir());
            self.tell_of_rename(decision, rename, None);
            if let Some(replaced) = &replaced {
                target.begin(replaced.id).await?;
            }
            let renamed = target.rename(from, (to_dir, to), rename.object).await;
            if let Some(replaced) = replaced {
                self.follow_replaced(replaced.id, Some(&replaced)).await?;
            }
            match renamed {
                Ok(told) => return Ok(Some(self.follow(&source, told))),
                // Something was put into the directory that has the name, or it is of another kind now.
                Err(error) if cannot_replace(&error) => {}
                Err(error) => return self.stays(rename, error),
            }
        }
        if self.policy == ConflictPolicy::Theirs {
            self.tell_of_rename(Decision::Drop, rename, None);
            return Ok(None);
        }
        let beside = self.beside(to);
        self.tell_of_rename(Decision::Beside, rename, Some(beside.clone()));
        match target.rename(from, (to_dir, &beside), rename.object).await {
            Err(error) => self.stays(rename, error),
            Ok(told) => Ok(Some(self.follow(&source, told))),
        }
    }

    /// What has the new name is what an attempt without an answer put there, where that is another object than the one that
    /// was renamed.
    pub(super) async fn is_half_renamed(
        &self,
        (dir, name): (FileId, &Name),
        there: Option<&TargetObject>,
    ) -> Result<bool> {
        let may_be = self.may_be_half_renamed(there);
        Ok(may_be && self.shared.target.is_half_renamed(self.unit.object, dir, name).await?)
    }

    fn may_be_half_renamed(&self, there: Option<&TargetObject>) -> bool {
        let attempted = self.own.begun || self.unit.in_doubt;
        let is_another = there.is_some_and(|there| !is_same(there, self.unit.object));
        attempted && is_another && !self.shared.sabotage.is(Bug::ForgetHalfRenames)
    }

    /// The rename that left it there is not asked for again: its object goes elsewhere, or nowhere. What merely has the same
    /// bytes may be another's, and stays.
    pub(super) async fn remove_copy(&self, dir: FileId, name: &Name) -> Result<()> {
        if !self.unit.in_doubt && !self.own.begun {
            return Ok(());
        }
        let there = self.at(dir, name).await?.filter(|there| !there.attr.is_dir());
        // Where all of it was done, this is no copy: it is the object, and is found there now.
        if !self.may_be_half_renamed(there.as_ref())
            || !matches!(self.shared.look(self.unit.object).await?, TargetPresence::Found(_))
        {
            return Ok(());
        }
        let there = self.at(dir, name).await?;
        if self.may_be_half_renamed(there.as_ref())
            && self.shared.target.is_spare_copy(self.unit.object, dir, name).await?
        {
            absent(self.shared.target.remove(dir, name).await)?;
        }
        Ok(())
    }

    /// All of it was done, and only its end is not known.
    async fn end_rename(&mut self, rename: &Rename) -> Result<Option<TargetObject>> {
        let (from, to) = ((rename.from_dir, &rename.from), (rename.to_dir, &rename.to));
        let after = match absent(self.shared.target.rename(from, to, rename.object).await)? {
            Some(told) => {
                self.intact = match told.before {
                    Some(before) => self.is_ours(before).await?,
                    None => self.is_resumed(&told.after).await?,
                };
                return Ok(Some(told.after));
            }
            // The origin remembers nothing of it any more.
            None => self.shared.look(rename.object).await?,
        };
        let TargetPresence::Found(after) = after else {
            let place = Some((rename.from_dir, rename.from.clone()));
            return self.source_is_gone(place, to).await;
        };
        self.intact = self.is_resumed(&after).await?;
        Ok(Some(after))
    }

    /// A move before it was dropped, or others moved directories: where it is to go is inside of it now.
    fn stays(&self, rename: &Rename, error: Error) -> Result<Option<TargetObject>> {
        if !rename.is_dir || error.kind() != ErrorKind::InvalidArgument {
            return Err(error);
        }
        let place = Some((rename.to_dir, rename.to.clone()));
        self.note(AlarmKind::Dropped, place, None, "at the origin this place is inside of it");
        Ok(None)
    }

    fn tell_of_rename(&self, decision: Decision, rename: &Rename, beside: Option<Name>) {
        let place = Some((rename.to_dir, rename.to.clone()));
        if let Some(kind) = AlarmKind::of(decision) {
            self.note(kind, place, beside, "what had the new name was made or changed at the origin");
        }
    }

    /// What lost its name and has others: our rename moved its ctime, and that is no foreign change. Unless more was
    /// changed since it `was` looked at.
    pub(super) async fn follow_replaced(
        &mut self,
        replaced: FileId,
        was: Option<&TargetObject>,
    ) -> Result<()> {
        let target = &self.shared.target;
        let own = target.own(replaced).await?;
        let TargetPresence::Found(found) = self.shared.look(replaced).await? else { return Ok(()) };
        let alone = was.is_none_or(|was| found.has_bytes_of(was));
        if own.begun {
            let version = if alone { Some(found.version) } else { own.version };
            target.remember(replaced, version).await?;
        }
        let is_ours = own.begun && alone || own.version == Some(found.version);
        self.replaced = Some(found).filter(|_| is_ours);
        Ok(())
    }

    /// An earlier attempt gave it the name of a later rename at once.
    async fn moved_on(&self) -> Result<Option<TargetObject>> {
        for (dir, name) in self.unit.later.iter().rev() {
            let there = self.at(*dir, name).await?;
            if let Some(there) = there.filter(|there| is_same(there, self.unit.object)) {
                return Ok(Some(there));
            }
        }
        Ok(None)
    }

    /// An earlier attempt put it beside, or somebody else took it.
    async fn source_is_gone(
        &mut self,
        place: Option<(FileId, Name)>,
        (to_dir, to): (FileId, &Name),
    ) -> Result<Option<TargetObject>> {
        self.shared.vouch(self.unit.object).await?;
        let beside = self.at(to_dir, &self.beside(to)).await?;
        let beside = beside.filter(|there| is_same(there, self.unit.object));
        if beside.is_none() {
            let seen = self.shared.look(self.unit.object).await?;
            // In doubt: perhaps we moved it ourselves before, and others took it from there. Or we took it away as a whole.
            let is_ours = self.unit.in_doubt || self.unit.perhaps_retracted && seen == TargetPresence::Gone;
            let kind = if is_ours { AlarmKind::Resumed } else { AlarmKind::Dropped };
            if seen != TargetPresence::Never {
                self.note(kind, place, None, "it was moved or removed at the origin");
            }
        }
        self.intact = match &beside {
            Some(beside) => beside.attr.is_dir() || self.is_resumed(beside).await?,
            None => false,
        };
        Ok(beside)
    }

    /// May what has the new name be replaced?
    pub(super) async fn replace(&self, rename: &Rename, there: Option<&TargetObject>) -> Result<Decision> {
        let Some(there) = there.filter(|there| !is_same(there, rename.object)) else {
            return Ok(Decision::Proceed);
        };
        if self.is_half_renamed((rename.to_dir, &rename.to), Some(there)).await? {
            return Ok(Decision::Proceed);
        }
        if let Some(replaced) = rename.replaced.filter(|replaced| is_same(there, replaced.object)) {
            let known_by = |own: OwnFlush| KnownVersions {
                base: replaced.base,
                own: own.version,
                begun: own.begun,
                making: false,
            };
            let mut own = self.shared.target.own(replaced.object).await?;
            if !rename.is_dir && !known_by(own).explains(there.version) {
                own = self.shared.target.own_now(replaced.object).await?;
            }
            let known = known_by(own);
            let skip = self.shared.sabotage.is(Bug::SkipConflictCheck);
            let is_last = !rename.is_dir && is_last(replaced.links, there);
            if rename.is_dir || skip || !is_last && known.explains(there.version) {
                return Ok(Decision::Proceed);
            }
            // An interrupted attempt was about to take its name and did not: it is not in doubt by that any more.
            if own.begun {
                self.shared.target.remember(replaced.object, own.version).await?;
            }
        }
        Ok(self.decide(Doing::Name, ForeignState::Other))
    }
}

/// Clients saw it keep other names, and somebody took these away: with this one it would go.
fn is_last(links: u32, found: &TargetObject) -> bool {
    links > 0 && found.attr.nlink < 2
}

fn cannot_replace(error: &Error) -> bool {
    use ErrorKind::{Exists, IsADirectory, NotADirectory, NotEmpty};
    matches!(error.kind(), Exists | IsADirectory | NotADirectory | NotEmpty)
}
