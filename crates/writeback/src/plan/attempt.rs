//! What an attempt before a crash may have done with a unit that draws less together now.
//!
//! What the origin refused is not known after a start, so operations may be flushed one by one of which only the sum was
//! carried out: the object has the name of a later rename, or it is gone because its owner took it away in the end.

use std::collections::HashSet;

use types::{FileId, Name};

use super::depend::{Thing, TouchedThings};
use super::undo::{ends, is_of_directory, rename_of};
use super::unit::{FlushUnit, UnitContext};
use super::{FlushPlan, Pending};
use crate::operation::Action;

impl FlushPlan {
    /// Of which `first` is the first.
    pub(super) fn with_attempt(&self, unit: FlushUnit, first: &Pending) -> FlushUnit {
        if unit.carried || !(unit.in_doubt || first.recovered) {
            return unit;
        }
        let is_running = |sequence| self.is_taken(sequence);
        let later = self.around(first, false, &|_| true, &is_running).later_names(&unit, first);
        let object = first.operation.object();
        let last = self.chains.get(&object).and_then(|chain| self.pending.get(chain.last()?));
        let end = last.map(|last| &last.operation).filter(|end| ends(object, end));
        // What is no file must not be taken for what an attempt made.
        let is_make = matches!(first.operation.action, Action::Make { .. });
        let in_doubt = unit.in_doubt || end.is_some_and(is_of_directory) && !is_make;
        let perhaps_retracted = end.is_some() && (in_doubt || self.perhaps_retracted.contains(&object));
        FlushUnit { later, perhaps_retracted, in_doubt, ..unit }
    }

    /// What a recovered operation ends an attempt before this start may have retracted as a whole.
    pub(super) fn note_retracted(&mut self, sequence: u64) {
        let Some(last) = self.pending.get(&sequence).filter(|last| last.recovered) else { return };
        let ended = last.operation.objects().filter(|object| ends(*object, &last.operation));
        let retracted: Vec<FileId> = ended.filter(|object| self.may_have_been_retracted(*object)).collect();
        self.perhaps_retracted.extend(retracted);
    }

    /// What was in the way of that is in its way still, before anything is flushed. Where all operations are in doubt it
    /// need not be asked.
    fn may_have_been_retracted(&self, object: FileId) -> bool {
        let chain = self.chains.get(&object).into_iter().flatten();
        let own = chain.map(|sequence| &self.pending[sequence]).filter(|it| it.operation.object() == object);
        let own: Vec<&Pending> = own.collect();
        let Some(first) = own.first().filter(|_| own.iter().any(|it| !it.in_doubt)) else { return false };
        self.around(first, true, &|_| true, &|_| false).retract(first).is_some()
    }
}

impl UnitContext<'_> {
    /// An attempt may have made it under the name that this rename gives. Not to replace another one, since then it is made
    /// under a name of its own first, and its id is known before it is moved. And not while others have the name: whoever
    /// looks for it under the name makes it there, if they leave it in the same moment.
    pub(super) fn is_made_at_once(&self, rename: &Pending) -> bool {
        let Some(it) = rename_of(rename) else { return false };
        let name = Thing::Name(it.to_dir, it.to.clone());
        let leaves_it_alone = |other: &Pending| {
            other.operation.object() == it.object
                || !TouchedThings::by(&other.operation, self.sabotage).altered.contains(&name)
        };
        let mut blockers = self.depend.blockers(rename.sequence);
        it.replaced.is_none() && blockers.all(|other| self.pending.get(&other).is_none_or(leaves_it_alone))
    }

    /// Where renames lead that were tried or are of before this start, and are not in the unit. Not names that it had or
    /// has by something else.
    fn later_names(&self, unit: &FlushUnit, first: &Pending) -> Vec<(FileId, Name)> {
        if !matches!(first.operation.action, Action::Make { .. } | Action::Rename(_)) {
            return Vec::new();
        }
        let renames = self.leading_renames(first);
        let others = self.of_chain().filter(|it| {
            let is_of_them = renames.binary_search_by_key(&it.sequence, |rename| rename.sequence).is_ok();
            it.sequence != first.sequence && !is_of_them && !it.operation.is_content()
        });
        let others: HashSet<Thing> =
            others.flat_map(|it| TouchedThings::by(&it.operation, self.sabotage).altered).collect();
        let tried = renames.into_iter().take_while(|it| it.recovered || it.in_doubt);
        let is_make = matches!(first.operation.action, Action::Make { .. });
        let later = tried.filter(|it| !unit.sequences.contains(&it.sequence));
        let later = later.filter(|it| !is_make || self.is_made_at_once(it)).filter_map(rename_of);
        let names = later.map(|rename| (rename.to_dir, rename.to.clone()));
        names.filter(|(dir, name)| !others.contains(&Thing::Name(*dir, name.clone()))).collect()
    }
}
