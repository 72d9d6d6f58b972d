//! What is flushed of an object whose first waiting operation is stuck: the origin refuses it, or it waits for one that the
//! origin refuses.
//!
//! The owner undoes such an operation as any other: by removing, cutting, overwriting or renaming. So what several
//! operations on the object come to is flushed in their place, ahead of what the first of them waits for, if that touches
//! nothing that their net effect touches.

use std::collections::BTreeSet;

use types::{FileId, Name};

use super::Pending;
use super::depend::{Thing, TouchedThings};
use super::unit::{FlushUnit, FlushWork, Retract, UnitContext, object_work, unit};
use crate::operation::{Action, JournalOperation, NewObject, Rename};
use crate::sabotage::{Bug, Sabotage};

/// After it the object is not there any more, and no operation on it follows.
pub fn ends(object: FileId, operation: &JournalOperation) -> bool {
    match &operation.action {
        Action::Remove { object: removed, links, .. } => *removed == object && *links == 0,
        Action::Rmdir { object: removed, .. } => *removed == object,
        Action::Rename(rename) => match rename.replaced {
            Some(replaced) => replaced.object == object && (replaced.links == 0 || rename.is_dir),
            None => false,
        },
        _ => false,
    }
}

/// Of those that end an object.
pub fn is_of_directory(end: &JournalOperation) -> bool {
    match &end.action {
        Action::Rmdir { .. } => true,
        Action::Rename(rename) => rename.is_dir,
        _ => false,
    }
}

/// The operation may go ahead of the other one, which comes before it.
pub fn may_pass(operation: &JournalOperation, other: &JournalOperation, sabotage: Sabotage) -> bool {
    let stays = !matches!(operation.action, Action::Rmdir { .. });
    let net = Net::of(operation, stays, sabotage);
    !net.is_obstructed_by(other, 0, &TouchedThings::by(other, sabotage))
}

/// What operations on one object come to.
pub(super) struct Net {
    object: FileId,
    touched: TouchedThings,
    /// The object is there afterwards, so that what is done inside of it, if it is a directory, may come before or after.
    stays: bool,
    /// Names that it may be looked for under. Where it has others it must not have any of these as one of them.
    names: Vec<(FileId, Name)>,
    /// What lost names to it, and by which operation: what comes before that must be done.
    replaced: Vec<(FileId, u64)>,
    /// Objects of which none of the operations is carried out, since their names are taken away in the same unit.
    together: Vec<FileId>,
}

impl UnitContext<'_> {
    /// All that is known of `first`, which is stuck, and of what follows it. `None`: nothing can go yet.
    pub fn form_stuck(&self, first: &Pending) -> Option<FlushUnit> {
        if first.carried || self.chain.iter().any(|sequence| (self.is_running)(*sequence)) {
            return None;
        }
        let unit = self.retract(first).or_else(|| match &first.operation.action {
            Action::Make { .. } => self.make_at_last(first),
            Action::Write { .. } | Action::Truncate { .. } | Action::Set { .. } => self.fill_at_last(first),
            Action::Link { .. } => self.link_at_last(first).or_else(|| self.ahead(first)),
            Action::Rename(_) => self.move_at_last(first).or_else(|| self.ahead(first)),
            Action::Remove { .. } | Action::Rmdir { .. } => self.ahead(first),
        })?;
        Some(self.with_staged(self.in_doubt_of_start(unit)))
    }

    /// Before this start it may have gone ahead in the same way.
    pub(super) fn in_doubt_of_start(&self, unit: FlushUnit) -> FlushUnit {
        let is_recovered = |sequence: &u64| self.pending.get(sequence).is_some_and(|it| it.recovered);
        unit.each(|part| part.in_doubt |= part.sequences.iter().any(is_recovered))
    }

    /// A name that was given, and then moved or taken away again.
    fn link_at_last(&self, first: &Pending) -> Option<FlushUnit> {
        let Action::Link { file, dir, name, links, base } = &first.operation.action else { return None };
        let (mut members, mut over, mut names) = (vec![first], Vec::new(), vec![(*dir, name.clone())]);
        let mut is_taken_away = false;
        for pending in self.of_chain().skip(1) {
            match &pending.operation.action {
                Action::Rename(rename) if is_last(&names, rename.from_dir, &rename.from) => {
                    names.push((rename.to_dir, rename.to.clone()));
                    over.extend(rename.replaced.is_some().then_some(pending));
                }
                Action::Remove { dir, name, .. } if is_last(&names, *dir, name) => is_taken_away = true,
                // Another object takes the name, and finds it free.
                Action::Rename(rename) if rename.object != *file => {
                    is_taken_away = is_last(&names, rename.to_dir, &rename.to);
                    break;
                }
                // Without this name it might be the last one that is taken away there.
                Action::Remove { .. } => break,
                _ => continue,
            }
            members.push(pending);
            if is_taken_away {
                break;
            }
        }
        let (dir, name) = names.last().cloned()?;
        let action = Action::Link { file: *file, dir, name, links: *links, base: *base };
        let net = self.net(&JournalOperation { action: action.clone(), ..first.operation.clone() }, true);
        let net = Net { names: names.clone(), ..net }.over(&over);
        let work = match is_taken_away {
            true => FlushWork::Retract(Retract { names, ..Retract::default() }),
            false => FlushWork::Names(action),
        };
        self.is_clear(&members, &net)
            .then(|| FlushUnit { over: renames_of(&over), ..unit(first, members, work) })
    }

    /// Made where it ends, with all that its contents are now.
    fn make_at_last(&self, first: &Pending) -> Option<FlushUnit> {
        let mut renames = self.leading_renames(first);
        // What is no file is not known again by anything but the name that an attempt gave it.
        let is_file = matches!(&first.operation.action, Action::Make { what: NewObject::File, .. });
        if !is_file && !self.depend.is_free(first.sequence) {
            renames.clear();
        }
        (0..=renames.len()).rev().find_map(|most| {
            let taken = &renames[..most];
            let is_taken = |pending: &Pending| taken.iter().any(|rename| rename.sequence == pending.sequence);
            let is_content = |pending: &Pending| match &pending.operation.action {
                Action::Make { .. } => true,
                _ => pending.operation.is_content(),
            };
            let members: Vec<_> =
                self.of_chain().filter(|pending| is_taken(pending) || is_content(pending)).collect();
            let last = taken.last().and_then(|it| rename_of(it));
            let operation = match last {
                Some(Rename { replaced: None, to_dir, to, .. }) => {
                    let Action::Make { id, what, set, .. } = &first.operation.action else { return None };
                    let (id, what, set) = (*id, what.clone(), *set);
                    let action = Action::Make { dir: *to_dir, name: to.clone(), id, what, set };
                    JournalOperation { action, ..first.operation.clone() }
                }
                // The names that it had before do not matter.
                Some(rename) => {
                    let (from_dir, from) = (rename.to_dir, rename.to.clone());
                    let action = Action::Rename(Rename { from_dir, from, ..rename.clone() });
                    JournalOperation { action, ..first.operation.clone() }
                }
                None => first.operation.clone(),
            };
            let over = replacing(taken);
            let net = Net { names: names_of(taken), ..self.net(&operation, true) }.over(&over);
            self.is_clear(&members, &net).then(|| {
                let work = match (object_work(&members), last) {
                    (FlushWork::Object { make: Some(making), content, set }, Some(rename))
                        if rename.replaced.is_some() =>
                    {
                        FlushWork::Replace { making, content, set, rename: rename.clone() }
                    }
                    (work, _) => work,
                };
                FlushUnit { over: renames_of(&over), ..unit(first, members, work) }
            })
        })
    }

    /// All bytes and attributes as they are now, whatever is done to its names in between.
    fn fill_at_last(&self, first: &Pending) -> Option<FlushUnit> {
        let members: Vec<_> = self.of_chain().filter(|pending| pending.operation.is_content()).collect();
        let net = self.net(&first.operation, true);
        self.is_clear(&members, &net).then(|| {
            let work = object_work(&members);
            unit(first, members, work)
        })
    }

    /// Renamed once, to where it ends.
    fn move_at_last(&self, first: &Pending) -> Option<FlushUnit> {
        let renames = self.leading_renames(first);
        (2..=renames.len()).rev().find_map(|most| {
            let members = renames[..most].to_vec();
            let moves: Vec<Rename> = members.iter().filter_map(|it| rename_of(it).cloned()).collect();
            let over = replacing(&members);
            let (from, to) = (moves.first()?, moves.last()?);
            let action =
                Action::Rename(Rename { from_dir: from.from_dir, from: from.from.clone(), ..to.clone() });
            let net = self.net(&JournalOperation { action, ..first.operation.clone() }, true);
            let net = Net { names: names_of(&members), ..net }.over(&over);
            let work = FlushWork::Moved(moves);
            self.is_clear(&members, &net)
                .then(|| FlushUnit { over: renames_of(&over), ..unit(first, members, work) })
        })
    }

    /// As it would go if it waited for nothing.
    fn ahead(&self, first: &Pending) -> Option<FlushUnit> {
        let members = vec![first];
        let stays = !matches!(first.operation.action, Action::Rmdir { .. });
        let net = self.net(&first.operation, stays);
        let work = || FlushWork::Names(first.operation.action.clone());
        self.is_clear(&members, &net).then(|| unit(first, members, work()))
    }

    pub(super) fn of_chain(&self) -> impl Iterator<Item = &Pending> {
        self.chain.iter().filter_map(|sequence| self.pending.get(sequence))
    }

    /// Of one of its names, each from where the one before led to, and before which nothing but contents and other names is
    /// changed. Of an object that is made the make comes before them.
    pub(super) fn leading_renames(&self, first: &Pending) -> Vec<&Pending> {
        let object = first.operation.object();
        let (mut renames, mut at) = (Vec::new(), None);
        for pending in self.of_chain() {
            match &pending.operation.action {
                Action::Make { dir, name, .. } => at = Some((*dir, name)),
                Action::Rename(rename)
                    if rename.object == object
                        && at.is_none_or(|at| at == (rename.from_dir, &rename.from)) =>
                {
                    at = Some((rename.to_dir, &rename.to));
                    renames.push(pending);
                }
                Action::Remove { dir, name, .. } | Action::Rmdir { dir, name, .. }
                    if at == Some((*dir, name)) =>
                {
                    break;
                }
                _ => {}
            }
        }
        renames
    }

    fn net(&self, operation: &JournalOperation, stays: bool) -> Net {
        Net::of(operation, stays, self.sabotage)
    }

    /// Nothing that the members wait for, or wait for by way of others, is in their way.
    fn is_clear(&self, members: &[&Pending], net: &Net) -> bool {
        self.obstacle(members, net, None).is_none()
    }

    /// One of those in their way. `also`: what must have nothing in its way although it does not go with them.
    pub(super) fn obstacle(&self, members: &[&Pending], net: &Net, also: Option<u64>) -> Option<u64> {
        if self.sabotage.is(Bug::PassObstacles) {
            return None;
        }
        let is_member =
            |sequence: u64| members.binary_search_by_key(&sequence, |member| member.sequence).is_ok();
        let mut seen = BTreeSet::new();
        let mut ways: Vec<u64> = members.iter().map(|member| member.sequence).chain(also).collect();
        while let Some(sequence) = ways.pop() {
            for blocker in self.depend.blockers(sequence) {
                if !seen.insert(blocker) {
                    continue;
                }
                ways.push(blocker);
                let obstructs = |it: &Pending| {
                    let touched = TouchedThings::by(&it.operation, self.sabotage);
                    net.is_obstructed_by(&it.operation, it.sequence, &touched)
                };
                if !is_member(blocker) && self.pending.get(&blocker).is_none_or(obstructs) {
                    return Some(blocker);
                }
            }
        }
        None
    }
}

fn is_last(names: &[(FileId, Name)], dir: FileId, name: &Name) -> bool {
    names.last().is_some_and(|last| (last.0, &last.1) == (dir, name))
}

/// Those of these renames that replace something, but for the last of all.
fn replacing<'a>(renames: &[&'a Pending]) -> Vec<&'a Pending> {
    let before = renames.split_last().map_or(&[][..], |(_, before)| before);
    let replaces = |it: &&&Pending| rename_of(it).is_some_and(|rename| rename.replaced.is_some());
    before.iter().filter(replaces).copied().collect()
}

pub(super) fn renames_of(renames: &[&Pending]) -> Vec<Rename> {
    renames.iter().filter_map(|it| rename_of(it).cloned()).collect()
}

fn names_of(renames: &[&Pending]) -> Vec<(FileId, Name)> {
    let renames = renames.iter().filter_map(|it| rename_of(it));
    renames.flat_map(|it| [(it.from_dir, it.from.clone()), (it.to_dir, it.to.clone())]).collect()
}

pub(super) fn rename_of(pending: &Pending) -> Option<&Rename> {
    match &pending.operation.action {
        Action::Rename(rename) => Some(rename),
        _ => None,
    }
}

impl Net {
    fn of(operation: &JournalOperation, stays: bool, sabotage: Sabotage) -> Net {
        Net::new(operation.object(), TouchedThings::by(operation, sabotage), stays)
    }

    pub(super) fn new(object: FileId, touched: TouchedThings, stays: bool) -> Net {
        Net { object, touched, stays, names: Vec::new(), replaced: Vec::new(), together: Vec::new() }
    }

    pub(super) fn together_with(self, objects: &[FileId]) -> Net {
        Net { together: objects.to_vec(), ..self }
    }

    /// What these renames replace loses its name, too.
    pub(super) fn over(mut self, renames: &[&Pending]) -> Net {
        let replaced = renames.iter().filter_map(|it| Some((rename_of(it)?.replaced?.object, it.sequence)));
        self.replaced.extend(replaced);
        self
    }

    fn is_obstructed_by(&self, other: &JournalOperation, sequence: u64, touched: &TouchedThings) -> bool {
        if self.together.contains(&other.object()) && other.object() != self.object {
            return false;
        }
        // Who draws operations on one object together leaves out only what may come before or after.
        let is_own = other.object() == self.object;
        let is_looked_for = |thing: &Thing| match thing {
            Thing::Name(dir, name) => self.names.iter().any(|it| (it.0, &it.1) == (*dir, name)),
            _ => false,
        };
        if is_own && touched.altered.iter().any(is_looked_for) {
            return true;
        }
        // Of a directory also what was done to names in it: it can only go when it is empty.
        let is_before = |(object, by): &(FileId, u64)| {
            let touches = touched.altered.iter().chain(&touched.beside);
            sequence < *by && touches.into_iter().any(|thing| *thing == Thing::Object(*object))
        };
        if self.replaced.iter().any(is_before) {
            return true;
        }
        let in_the_way = |thing: &Thing| match thing {
            // Who takes a name of it finds the name free or taken.
            Thing::Object(id) if *id == self.object => {
                !is_own && !self.stays && touched.beside.contains(thing)
            }
            Thing::Object(_) if self.touched.altered.contains(thing) => true,
            // A directory that is renamed or gets other attributes is the same for what is in it.
            Thing::Object(id) => {
                let is_made = matches!(other.action, Action::Make { .. });
                other.object() != *id || is_made
            }
            Thing::Name(..) | Thing::Tree(_) => !is_own,
        };
        self.touched.shared(touched).any(in_the_way)
    }
}
