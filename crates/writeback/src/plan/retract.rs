//! The retraction of an object that ends: none of its operations travels, and what of it is at the origin goes.
//!
//! A rename over another object takes a name from that one, so a retraction that leaves the rename out takes the name away
//! itself, once the earlier operations on the other object are done. And a directory is removed once all that is done to
//! names in it is done. Objects that end would wait for each other in this way if they took names from each other, or if
//! each was inside of the other at some time. They are retracted in one unit, in which each gives up its own names, at the
//! origin the inner ones first (`flush/carry/together.rs`).

use std::collections::BTreeSet;

use types::FileId;

use super::Pending;
use super::depend::{Thing, TouchedThings};
use super::undo::{Net, ends, rename_of, renames_of};
use super::unit::{FlushUnit, FlushWork, Retract, UnitContext, unit};
use crate::operation::{Action, NewObject};
use crate::sabotage::Bug;

/// Objects in one unit. Forming it looks at all of their operations; a longer ring of objects is not met with.
const TOGETHER_MAX: usize = 64;

/// All operations on an object that ends.
struct EndingObject<'a> {
    object: FileId,
    chain: Vec<&'a Pending>,
}

impl UnitContext<'_> {
    /// `None`: the object of `first` does not end, or something else must be done before.
    pub fn retract(&self, first: &Pending) -> Option<FlushUnit> {
        if self.sabotage.is(Bug::CarryWhatEnds) {
            return None;
        }
        let ending = EndingObject { object: first.operation.object(), chain: self.of_chain().collect() };
        match self.retract_one(&ending, &[]) {
            Ok(unit) => Some(unit),
            Err(None) => None,
            Err(Some(_)) => self.retract_together(first, ending),
        }
    }

    /// The object of `first`, and those that end too and that it took a name from, or waits for while they wait as well.
    fn retract_together(&self, first: &Pending, ending: EndingObject) -> Option<FlushUnit> {
        let (mut objects, mut all) = (vec![ending.object], vec![ending]);
        let (mut looked_at, mut retracted) = (0, 0);
        loop {
            // Those that lost names to them come first, since to find them costs little: what is in the way of one is looked
            // for among all that it waits for, however many these are.
            while let Some(ending) = all.get(looked_at) {
                // One that does not end, or has nothing to be retracted, loses its name to the rename.
                let who_lost: Vec<FileId> = ending.who_lost_names().collect();
                for ending in who_lost.into_iter().filter_map(|object| self.ending(object)) {
                    if !objects.contains(&ending.object) {
                        objects.push(ending.object);
                        all.push(ending);
                    }
                }
                if all.len() > TOGETHER_MAX {
                    return None;
                }
                looked_at += 1;
            }
            let Some(ending) = all.get(retracted) else { break };
            match self.retract_one(ending, &objects) {
                Ok(_) => retracted += 1,
                Err(obstacle) => {
                    let waiting = self.waits_itself(obstacle?, &objects)?;
                    objects.push(waiting.object);
                    all.push(waiting);
                }
            }
        }
        let parts: Option<Vec<FlushUnit>> =
            all.iter().map(|ending| self.retract_one(ending, &objects).ok()).collect();
        let parts = parts?;
        let sequences: BTreeSet<u64> = parts.iter().flat_map(|part| part.sequences.iter().copied()).collect();
        let in_doubt = parts.iter().any(|part| part.in_doubt);
        let sequences = sequences.into_iter().collect();
        Some(FlushUnit { sequences, in_doubt, ..unit(first, Vec::new(), FlushWork::Together(parts)) })
    }

    /// The object of an operation that is in the way, if it ends and cannot be retracted before.
    fn waits_itself(&self, obstacle: u64, together: &[FileId]) -> Option<EndingObject<'_>> {
        let object = self.pending.get(&obstacle)?.operation.object();
        let ending = self.ending(object).filter(|_| !together.contains(&object))?;
        self.retract_one(&ending, &[]).is_err().then_some(ending)
    }

    /// `None`: the object does not end, or one of its operations is under way.
    fn ending(&self, object: FileId) -> Option<EndingObject<'_>> {
        let sequences = self.chains.get(&object)?;
        // Most objects in the way do not end, and may have many operations: these are not looked at then.
        let last = self.pending.get(sequences.last()?)?;
        if !ends(object, &last.operation) {
            return None;
        }
        let chain: Vec<&Pending> = sequences.iter().filter_map(|it| self.pending.get(it)).collect();
        let is_waiting = |it: &&Pending| !it.carried && !(self.is_running)(it.sequence);
        let has_own = chain.iter().any(|it| it.operation.object() == object);
        let is_whole = has_own && chain.iter().all(is_waiting);
        is_whole.then_some(EndingObject { object, chain })
    }

    /// `together`: what is retracted in the same unit, so that their renames over this one are not carried out. Fails
    /// with what must be done before, or with `None` if the object does not end.
    fn retract_one(&self, ending: &EndingObject, together: &[FileId]) -> Result<FlushUnit, Option<u64>> {
        let EndingObject { object, chain } = ending;
        let object = *object;
        let last = chain.last().filter(|last| ends(object, &last.operation)).ok_or(None)?;
        let (mut members, mut over) = (Vec::new(), Vec::new());
        let mut retract = Retract { ends: true, ..Retract::default() };
        for pending in chain.iter().copied() {
            let by = pending.operation.object();
            if by != object {
                // A rename of another object over it, which finds the name free. It may take the last name.
                retract.ends &= together.contains(&by) || pending.sequence != last.sequence;
                if let Some(rename) = rename_of(pending).filter(|_| retract.ends) {
                    retract.names.push((rename.to_dir, rename.to.clone()));
                }
                continue;
            }
            match &pending.operation.action {
                Action::Make { dir, name, what, .. } => {
                    retract.made = Some(what.clone());
                    retract.perhaps_made_at.extend(pending.in_doubt.then(|| (*dir, name.clone())));
                    retract.is_dir |= *what == NewObject::Directory;
                    retract.names.push((*dir, name.clone()));
                }
                Action::Link { dir, name, .. } | Action::Remove { dir, name, .. } => {
                    retract.names.push((*dir, name.clone()));
                }
                Action::Rmdir { dir, name, .. } => {
                    retract.is_dir = true;
                    retract.names.push((*dir, name.clone()));
                }
                Action::Rename(rename) => {
                    retract.is_dir |= rename.is_dir;
                    retract.names.push((rename.from_dir, rename.from.clone()));
                    retract.names.push((rename.to_dir, rename.to.clone()));
                    if !retract.perhaps_made_at.is_empty() && self.is_made_at_once(pending) {
                        retract.perhaps_made_at.push((rename.to_dir, rename.to.clone()));
                    }
                    retract.staged.extend(pending.operation.replaces_in(object));
                    let takes_name = rename.replaced.is_some_and(|it| !together.contains(&it.object));
                    over.extend(takes_name.then_some(pending));
                }
                Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. } => {
                    retract.discards = true
                }
            }
            members.push(pending);
        }
        let touched = TouchedThings { altered: vec![Thing::Object(object)], beside: Vec::new() };
        let net = Net::new(object, touched, false).over(&over).together_with(together);
        let first = *members.first().ok_or(None)?;
        if let Some(obstacle) = self.obstacle(&members, &net, Some(last.sequence)) {
            return Err(Some(obstacle));
        }
        let began = members.iter().any(|member| member.in_doubt || member.recovered)
            && !self.sabotage.is(Bug::VanishInDoubt);
        let vanished = retract.made.is_some() && !began && over.is_empty();
        let work = if vanished { FlushWork::Vanished } else { FlushWork::Retract(retract) };
        Ok(FlushUnit { over: renames_of(&over), ..unit(first, members, work) })
    }
}

impl EndingObject<'_> {
    /// To renames of this one.
    fn who_lost_names(&self) -> impl Iterator<Item = FileId> {
        let own = self.chain.iter().filter(|it| it.operation.object() == self.object);
        own.filter_map(|it| Some(rename_of(it)?.replaced?.object))
    }
}
