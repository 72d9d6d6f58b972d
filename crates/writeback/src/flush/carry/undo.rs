//! What its owner undid before all of it was at the origin: names that are taken back, and renames of which only the last
//! counts.

use std::collections::HashSet;

use types::{FileId, Name, Result};

use super::content::is_as_good;
use super::{Carry, RESUMED, absent, is_same};
use crate::conflict::{AlarmKind, Decision, Doing, ForeignState};
use crate::flush::passes;
use crate::flush_target::{TargetObject, TargetPresence};
use crate::operation::{Attributes, NewObject, Rename};
use crate::plan::{ContentChange, Making, Retract};

impl Carry<'_> {
    /// What of the object is at the origin goes, with its bytes that never got there; what others made of it stays.
    pub(super) async fn retract(&mut self, retract: &Retract) -> Result<Option<TargetObject>> {
        let mut names: Vec<(FileId, Name)> = names_once(&retract.names);
        if self.unit.in_doubt {
            let staged = staged(self.unit.object)?;
            names.extend(retract.staged.iter().map(|dir| (*dir, staged.clone())));
        }
        let found = self.find_begun(retract, &names).await?;
        if let Some(found) = &found {
            if !self.may_retract(retract, found).await? {
                return Ok(None);
            }
            for (dir, name) in names.iter().filter(|_| names.len() > 1) {
                self.remove_copy(*dir, name).await?;
            }
            let has_others = found.attr.nlink > 1 && !retract.is_dir;
            for (dir, name) in &names {
                let is_taken = self.take_back(*dir, name, retract.is_dir).await?;
                if is_taken && !has_others {
                    break;
                }
            }
        }
        // A name that was not there may be another storage's.
        self.shared.vouch(self.unit.object).await?;
        let Some(found) = found.filter(|_| !retract.ends) else { return Ok(None) };
        let mut left = self.left(&found).await?;
        // Half written, and about to be replaced: who replaces it may need its room.
        let was_begun = retract.discards && retract.makes_room && self.own.begun;
        if let Some(there) = left.as_ref().filter(|it| was_begun && it.attr.is_file() && it.attr.size > 0) {
            let cut = self.shared.target.set(self.unit.object, &Attributes::default(), Some(0)).await?;
            let alone = cut.before.is_none_or(|before| before == there.version);
            self.intact &= alone;
            left = Some(cut.after);
        }
        if !retract.discards {
            return Ok(left);
        }
        // Who comes after it is to know as ours what is there, and nobody for what clients wrote.
        if let Some(left) = left.filter(|_| self.intact) {
            self.own.version = Some(left.version);
        }
        Ok(None)
    }

    async fn find_begun(
        &mut self,
        retract: &Retract,
        names: &[(FileId, Name)],
    ) -> Result<Option<TargetObject>> {
        let object = self.unit.object;
        let seen = self.shared.look(object).await?;
        match (seen, &retract.made) {
            (TargetPresence::Found(found), _) => Ok(Some(found)),
            (TargetPresence::Never, Some(made)) if self.unit.in_doubt => {
                self.find_made_unknown(retract, made, names).await
            }
            (TargetPresence::Gone, None) if retract.ends => {
                self.tell_of_nothing(retract.names.last().cloned());
                Ok(None)
            }
            (TargetPresence::Never | TargetPresence::Gone, _) => Ok(None),
        }
    }

    /// An attempt may have made it whose answer was lost. A file tells by its verifier that it is ours.
    async fn find_made_unknown(
        &self,
        retract: &Retract,
        made: &NewObject,
        names: &[(FileId, Name)],
    ) -> Result<Option<TargetObject>> {
        let (object, target) = (self.unit.object, &self.shared.target);
        let staged = staged(object)?;
        for (dir, name) in names {
            let Some(there) = self.at(*dir, name).await? else { continue };
            let is_made_there = *name == staged || retract.perhaps_made_at.contains(&(*dir, name.clone()));
            if *made == NewObject::File {
                match target.make(*dir, name, object, made).await {
                    Ok(found) => return Ok(Some(found)),
                    Err(error) if passes(&error) => return Err(error),
                    Err(_) => {}
                }
            } else if is_made_there && is_as_good(made, &there) && !there.id.is_made_here() {
                target.adopt(object, &there).await?;
                return Ok(Some(TargetObject { id: object, ..there }));
            }
        }
        Ok(None)
    }

    /// Unless others changed it since clients saw it.
    async fn may_retract(&mut self, retract: &Retract, found: &TargetObject) -> Result<bool> {
        if found.attr.is_dir() || self.is_ours(found.version).await? {
            return Ok(true);
        }
        let mut known = self.known();
        let is_made = retract.made.is_some() && known.own.is_none();
        // Bytes in what an attempt of ours made are ours, unless clients never wrote any; and perhaps not ours alone.
        let has_bytes = found.attr.is_file() && found.attr.size > 0;
        known.making |= is_made && !has_bytes;
        known.begun |= is_made && has_bytes && retract.discards;
        let theirs = ForeignState::Version(found.version);
        let decision = match self.decide_knowing(known, Doing::Removal, theirs) {
            // What an attempt of ours left of it is in no version that is known.
            Decision::Drop if known.begun => Decision::Resume,
            decision => decision,
        };
        let place = retract.names.last().cloned();
        match decision {
            Decision::Drop => {
                self.intact = false;
                self.note(AlarmKind::Dropped, place, None, "it was changed at the origin");
                Ok(false)
            }
            Decision::Resume => {
                self.note_seen(Some(found.version), AlarmKind::Resumed, place, None, RESUMED);
                Ok(true)
            }
            other => {
                if let Some(kind) = AlarmKind::of(other) {
                    self.note(kind, place, None, "it was changed at the origin");
                }
                Ok(true)
            }
        }
    }

    /// Whether the object had the name and has it no longer.
    async fn take_back(&mut self, dir: FileId, name: &Name, is_dir: bool) -> Result<bool> {
        let target = self.shared.target.clone();
        let (there, name) = self.own_place(dir, name).await?;
        if !there.is_some_and(|there| is_same(&there, self.unit.object)) {
            return Ok(false);
        }
        if !is_dir {
            self.begin().await?;
            return absent(target.remove(dir, &name).await).map(|_| true);
        }
        self.rmdir_if_empty(dir, &name).await.map(|()| true)
    }

    /// Another object lost its name to ours, which has it no longer or never got it.
    pub(super) async fn end_replaced(&mut self, rename: &Rename) -> Result<()> {
        let target = self.shared.target.clone();
        let Some(replaced) = rename.replaced else { return Ok(()) };
        let (dir, name) = (rename.to_dir, &rename.to);
        let there = self.at(dir, name).await?.filter(|there| is_same(there, replaced.object));
        let Some(there) = there else {
            self.remove_copy(dir, name).await?;
            self.shared.vouch(self.unit.object).await?;
            // An earlier attempt took the name from it, and it may have others.
            if !rename.is_dir {
                if target.own(replaced.object).await?.begun {
                    self.note_replaced(replaced.object);
                }
                self.follow_replaced(replaced.object, None).await?;
            }
            return Ok(());
        };
        let decision = self.replace(rename, Some(&there)).await?;
        if let Some(kind) = AlarmKind::of(decision) {
            let kind = if decision == Decision::Beside { AlarmKind::Dropped } else { kind };
            self.note(kind, Some((dir, name.clone())), None, "it was changed at the origin");
        }
        if !matches!(decision, Decision::Proceed | Decision::TakeOurs) {
            return Ok(());
        }
        if there.attr.is_dir() {
            return self.rmdir_if_empty(dir, name).await;
        }
        let keeps_others = there.attr.nlink > 1;
        if keeps_others {
            target.begin(there.id).await?;
        }
        absent(target.remove(dir, name).await)?;
        if keeps_others {
            self.follow_replaced(there.id, Some(&there)).await?;
        }
        Ok(())
    }

    /// Made under a name of its own beside what it replaces, since it never got there under the name that it had first.
    pub(super) async fn replace_at_once(
        &mut self,
        making: &Making,
        content: &ContentChange,
        set: &Attributes,
        rename: &Rename,
    ) -> Result<Option<TargetObject>> {
        let staged = staged(self.unit.object)?;
        let mut names = self.perhaps_staged(making)?.names;
        names.pop();
        names.push((rename.to_dir, staged.clone()));
        let making = Making { names, ..making.clone() };
        let made = self.make(&making, content, set).await?;
        let Some(made) = self.keep_unmixed(made, content, set).await? else { return Ok(None) };
        if self.intact {
            self.own.version = Some(made.version);
        }
        self.rename(&Rename { from_dir: rename.to_dir, from: staged, ..rename.clone() }).await
    }

    /// An earlier attempt may have staged it where it was to replace another one.
    pub(super) fn perhaps_staged(&self, making: &Making) -> Result<Making> {
        let staged = staged(self.unit.object)?;
        let mut names: Vec<_> = making.staged.iter().map(|dir| (*dir, staged.clone())).collect();
        names.extend(making.names.iter().cloned());
        Ok(Making { names, ..making.clone() })
    }

    /// From where it is at the origin to where the last of them leads.
    pub(super) async fn moved(&mut self, renames: &[Rename]) -> Result<Option<TargetObject>> {
        let (Some(first), Some(last)) = (renames.first(), renames.last()) else { return Ok(None) };
        let mut from = (first.from_dir, first.from.clone());
        for rename in renames.iter().rev() {
            let there = self.at(rename.to_dir, &rename.to).await?;
            if let Some(there) = there.filter(|there| is_same(there, last.object)) {
                self.take_up_moved(&there).await?;
                from = (rename.to_dir, rename.to.clone());
                break;
            }
            if (rename.to_dir, &rename.to) != (last.to_dir, &last.to) {
                self.remove_copy(rename.to_dir, &rename.to).await?;
            }
        }
        let (from_dir, from) = from;
        if (from_dir, &from) == (last.to_dir, &last.to) {
            return match self.at(from_dir, &from).await?.filter(|there| is_same(there, last.object)) {
                Some(there) => {
                    self.intact = there.attr.is_dir() || self.is_resumed(&there).await?;
                    Ok(Some(there))
                }
                // Others moved or removed it, and there is nothing that we would change.
                None => self.shared.vouch(self.unit.object).await.map(|()| None),
            };
        }
        self.rename(&Rename { from_dir, from, ..last.clone() }).await
    }

    /// An attempt that was cut off carried out some of the renames, and the version that this made is not known as ours
    /// yet. Who goes on from there would take it for another's.
    async fn take_up_moved(&mut self, there: &TargetObject) -> Result<()> {
        if !there.attr.is_dir() && self.is_resumed(there).await? {
            self.own.version = Some(there.version);
        }
        Ok(())
    }
}

/// As what is not complete yet is called at an origin.
pub(super) fn staged(object: FileId) -> Result<Name> {
    Name::new(format!(".forebay-{object}"))
}

fn names_once(names: &[(FileId, Name)]) -> Vec<(FileId, Name)> {
    let mut seen = HashSet::new();
    names.iter().filter(|name| seen.insert(*name)).cloned().collect()
}
