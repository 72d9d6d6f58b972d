//! The retraction of an object that ends: none of its operations travels, and what of it is at the origin goes.
//!
//! A rename over another object takes a name from that one, so a retraction that leaves the rename out takes the name away
//! itself, once the earlier operations on the other object are done. Objects that end and took names from each other would
//! wait for each other in this way. They are retracted in one unit, in which each gives up its own names.

use std::collections::BTreeSet;

use types::FileId;

use super::Pending;
use super::depend::{Thing, Touched};
use super::undo::{Net, ends, rename_of, renames_of};
use super::unit::{Around, Retract, Unit, Work, unit};
use crate::operation::{Action, NewObject};
use crate::sabotage::Bug;

/// Objects in one unit. Forming it looks at all of their operations; a longer ring of files is not met with.
const TOGETHER_MAX: usize = 64;

impl Around<'_> {
    /// `None`: the object of `first` does not end, or something else must be done before.
    pub fn retract(&self, first: &Pending) -> Option<Unit> {
        if self.sabotage.is(Bug::CarryWhatEnds) {
            return None;
        }
        let chain: Vec<&Pending> = self.of_chain().collect();
        self.retract_one(first.operation.object(), &chain, &[])
            .or_else(|| self.retract_together(first, chain))
    }

    /// The object of `first`, and those that it took a name from and that end too.
    fn retract_together(&self, first: &Pending, chain: Vec<&Pending>) -> Option<Unit> {
        let object = first.operation.object();
        let mut all = vec![(object, chain)];
        let mut next = 0;
        while let Some((object, chain)) = all.get(next) {
            let mut joining: Vec<FileId> = Vec::new();
            for rename in chain.iter().filter(|it| it.operation.object() == *object) {
                let Some(replaced) = rename_of(rename).and_then(|it| it.replaced) else { continue };
                let is_here = all.iter().any(|it| it.0 == replaced.object);
                if !is_here && !joining.contains(&replaced.object) {
                    joining.push(replaced.object);
                }
            }
            for object in joining {
                // One that does not end, or has nothing to be retracted, loses its name to the rename.
                if let Some(chain) = self.whole_chain(object) {
                    all.push((object, chain));
                }
            }
            next += 1;
            if all.len() == 1 || all.len() > TOGETHER_MAX {
                return None;
            }
        }
        let objects: Vec<FileId> = all.iter().map(|it| it.0).collect();
        let parts: Option<Vec<Unit>> =
            all.iter().map(|(object, chain)| self.retract_one(*object, chain, &objects)).collect();
        let parts = parts?;
        let sequences: BTreeSet<u64> = parts.iter().flat_map(|part| part.sequences.iter().copied()).collect();
        let in_doubt = parts.iter().any(|part| part.in_doubt);
        let sequences = sequences.into_iter().collect();
        Some(Unit { sequences, in_doubt, ..unit(first, Vec::new(), Work::Together(parts)) })
    }

    /// All operations on an object that ends. `None`: it does not, or one of them is under way.
    fn whole_chain(&self, object: FileId) -> Option<Vec<&Pending>> {
        let sequences = self.chains.get(&object)?;
        let chain: Vec<&Pending> = sequences.iter().filter_map(|it| self.pending.get(it)).collect();
        let is_waiting = |it: &&Pending| !it.carried && !(self.is_running)(it.sequence);
        let has_own = chain.iter().any(|it| it.operation.object() == object);
        let ends_here = chain.last().is_some_and(|last| ends(object, &last.operation));
        (ends_here && has_own && chain.iter().all(is_waiting)).then_some(chain)
    }

    /// `together`: what is retracted in the same unit, so that their renames over this one are not carried out.
    fn retract_one(&self, object: FileId, chain: &[&Pending], together: &[FileId]) -> Option<Unit> {
        let last = chain.last().filter(|last| ends(object, &last.operation))?;
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
                    retract.is_make_in_doubt = pending.in_doubt;
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
        let touched = Touched { altered: vec![Thing::Object(object)], beside: Vec::new() };
        let net = Net::new(object, touched, false).over(&over);
        let first = *members.first()?;
        if !self.is_clear(&members, &net, Some(last.sequence)) {
            return None;
        }
        let began = members.iter().any(|member| member.in_doubt || member.recovered)
            && !self.sabotage.is(Bug::VanishInDoubt);
        let vanished = retract.made.is_some() && !began && over.is_empty();
        let work = if vanished { Work::Vanished } else { Work::Retract(retract) };
        Some(Unit { over: renames_of(&over), ..unit(first, members, work) })
    }
}
