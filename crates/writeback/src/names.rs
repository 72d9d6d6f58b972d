//! Names and attributes as clients see them, where the origin does not show them yet: a layer over what it shows.
//!
//! Built by applying operations in the order of their sequences, at their acknowledgement and again after a restart;
//! what an operation left here is taken away when it is flushed. Operations that have nothing to do with each other may
//! be flushed in any order. Pure. When something is taken away, what is known of the origin must show it already: who
//! flushes tells `namespace` first.

mod alteration;
mod ctimes;
mod object_alterations;

use std::collections::{BTreeMap, HashMap, HashSet};

use types::{Attr, FileId, Name, Timestamp};

pub use alteration::Local;
use alteration::{Alteration, made};
use ctimes::Ctimes;
use object_alterations::ObjectAlterations;

use crate::dirty::Overlay;
use crate::index::Position;
use crate::operation::{Action, Attributes, JournalOperation, Rename};

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This object: made, linked or renamed here.
    Made(FileId),
    /// It was taken away, whatever the origin says.
    Gone,
    /// Nothing here speaks of it.
    AsOrigin,
}

/// What an operation left in a directory or on an object.
enum Trace {
    Name(FileId, Name),
    Object(FileId),
}

impl Trace {
    fn object(&self) -> Option<FileId> {
        match self {
            Trace::Object(id) => Some(*id),
            Trace::Name(..) => None,
        }
    }
}

#[derive(Default)]
struct OverlayObject {
    made: Option<(u64, Local)>,
    changes: ObjectAlterations,
    /// Of a file with operations on its bytes.
    overlay: Option<Overlay>,
    /// Operations that concern it as their object, with the times of their acknowledgement.
    own: BTreeMap<u64, Timestamp>,
    /// Of its last operation, also if that was flushed and an earlier one is not: it never goes back.
    ctime: Option<Timestamp>,
    /// As the flush left it last at the origin.
    there: Option<Box<Attr>>,
}

#[derive(Default)]
pub struct DirtyNames {
    /// What each name became, by sequence: the last one counts.
    dirs: HashMap<FileId, BTreeMap<Name, BTreeMap<u64, Option<FileId>>>>,
    objects: HashMap<FileId, OverlayObject>,
    traces: HashMap<u64, Vec<Trace>>,
    ctimes: Ctimes,
}

impl DirtyNames {
    /// `position` is that of the entry's data; it counts for writes only.
    pub fn apply(&mut self, sequence: u64, operation: &JournalOperation, position: Position) {
        let now = operation.acknowledged;
        self.object(sequence, operation.object()).own.insert(sequence, now);
        match &operation.action {
            Action::Make { dir, name, id, what, set } => {
                let local = made(what, set, now);
                let subdirs = i32::from(local.attr.is_dir());
                self.object(sequence, *id).made = Some((sequence, local));
                self.bind(sequence, *dir, name, Some(*id), now, subdirs);
            }
            Action::Write { file, .. } => {
                self.object(sequence, *file).lay(sequence, operation, position);
                self.alter(sequence, *file, Alteration::written(now));
            }
            Action::Truncate { file, .. } => {
                self.object(sequence, *file).lay(sequence, operation, position);
                self.alter(sequence, *file, Alteration::written(now));
            }
            Action::Set { object, set, .. } => self.alter(sequence, *object, Alteration::set(*set, now)),
            Action::Link { file, dir, name, links, .. } => {
                self.bind(sequence, *dir, name, Some(*file), now, 0);
                self.alter(sequence, *file, Alteration::links(*links, 1, now));
            }
            Action::Remove { dir, name, object, links, .. } => {
                self.bind(sequence, *dir, name, None, now, 0);
                self.alter(sequence, *object, Alteration::links(*links, -1, now));
            }
            Action::Rmdir { dir, name, object } => {
                self.bind(sequence, *dir, name, None, now, -1);
                self.alter(sequence, *object, Alteration::links(0, -1, now));
            }
            Action::Rename(rename) => self.rename(sequence, rename, now),
        }
    }

    fn rename(&mut self, sequence: u64, rename: &Rename, now: Timestamp) {
        let Rename { from_dir, from, to_dir, to, object, is_dir, replaced, .. } = rename;
        let subdir = i32::from(*is_dir);
        self.bind(sequence, *from_dir, from, None, now, -subdir);
        let replaced_dir = i32::from(*is_dir && replaced.is_some());
        self.bind(sequence, *to_dir, to, Some(*object), now, subdir - replaced_dir);
        self.alter(sequence, *object, Alteration::set(Attributes::default(), now));
        if let Some(replaced) = replaced {
            self.alter(sequence, replaced.object, Alteration::links(replaced.links, -1, now));
        }
    }

    fn object(&mut self, sequence: u64, id: FileId) -> &mut OverlayObject {
        self.traces.entry(sequence).or_default().push(Trace::Object(id));
        self.objects.entry(id).or_default()
    }

    fn alter(&mut self, sequence: u64, id: FileId, alteration: Alteration) {
        let object = self.object(sequence, id);
        object.ctime = alteration.ctime.or(object.ctime);
        object.changes.add(sequence, &alteration);
    }

    fn bind(
        &mut self,
        sequence: u64,
        dir: FileId,
        name: &Name,
        to: Option<FileId>,
        now: Timestamp,
        subdirs: i32,
    ) {
        let names = self.dirs.entry(dir).or_default();
        names.entry(name.clone()).or_default().insert(sequence, to);
        self.traces.entry(sequence).or_default().push(Trace::Name(dir, name.clone()));
        self.alter(sequence, dir, Alteration { subdirs, ..Alteration::written(now) });
    }

    pub fn lookup(&self, dir: FileId, name: &Name) -> Lookup {
        let last = self.dirs.get(&dir).and_then(|names| names.get(name)).and_then(BTreeMap::last_key_value);
        match last {
            Some((_, Some(id))) => Lookup::Made(*id),
            Some((_, None)) => Lookup::Gone,
            None => Lookup::AsOrigin,
        }
    }

    /// The names of `dir` of which something is known here, in the order of their bytes; `None`: taken away. All others
    /// are as the origin lists them.
    pub fn entries(&self, dir: FileId) -> impl Iterator<Item = (&Name, Option<FileId>)> {
        let names = self.dirs.get(&dir).into_iter().flatten();
        names.filter_map(|(name, history)| Some((name, *history.last_key_value()?.1)))
    }

    /// The origin's names with ours laid over; `known` makes of a file id what the origin's entries hold.
    pub fn lay_over<T>(
        &self,
        dir: FileId,
        origin: impl IntoIterator<Item = (Name, T)>,
        known: impl Fn(FileId) -> T,
    ) -> Vec<(Name, T)> {
        let shown = origin.into_iter().filter(|(name, _)| self.lookup(dir, name) == Lookup::AsOrigin);
        let ours = self.entries(dir).filter_map(|(name, id)| Some((name.clone(), known(id?))));
        shown.chain(ours).collect()
    }

    /// The origin does not have it yet: there is nothing to ask for. A directory has the names of `entries` only.
    pub fn is_local(&self, id: FileId) -> bool {
        self.local(id).is_some()
    }

    /// What it was made as, while the origin does not have it.
    pub fn local(&self, id: FileId) -> Option<&Local> {
        self.objects.get(&id)?.made.as_ref().map(|(_, local)| local)
    }

    /// Attributes as clients see them, laid over those that the origin shows; without these, only objects that were made
    /// here have any.
    pub fn attr(&self, id: FileId, origin: Option<&Attr>) -> Option<Attr> {
        let origin = origin.map(|origin| self.ctimes.over(id, origin));
        let Some(object) = self.objects.get(&id) else { return origin };
        let mut attr = object.made.as_ref().map(|(_, local)| local.attr).or(origin)?;
        object.changes.all().apply(&mut attr);
        attr.ctime = object.ctime.unwrap_or(attr.ctime);
        if let Some(overlay) = &object.overlay {
            attr.size = overlay.size();
            attr.used = attr.used.max(overlay.dirty_bytes());
        }
        Some(attr)
    }

    /// Where its bytes are, if some are dirty.
    pub fn overlay(&self, id: FileId) -> Option<&Overlay> {
        self.objects.get(&id)?.overlay.as_ref()
    }

    /// When its oldest operation that is not flushed was acknowledged: `now` if there is none.
    pub fn since(&self, id: FileId, now: Timestamp) -> Timestamp {
        let oldest = self.objects.get(&id).and_then(|object| object.own.first_key_value());
        oldest.map_or(now, |(_, time)| *time)
    }

    /// All objects of which something is not flushed.
    pub fn altered(&self) -> impl Iterator<Item = FileId> {
        self.objects.keys().copied()
    }

    /// Something of it is not flushed.
    pub fn is_altered(&self, id: FileId) -> bool {
        self.objects.contains_key(&id)
    }

    /// These are at the origin, or came to nothing; `now`: objects as they are there by our doing alone. Returns the objects,
    /// directories among them, that may be shown otherwise by that.
    pub fn flushed(&mut self, sequences: &[u64], now: &[(FileId, Attr)]) -> Vec<FileId> {
        for (id, attr) in now {
            if let Some(object) = self.objects.get_mut(id) {
                object.there = Some(Box::new(*attr));
            }
        }
        let shown = self.shown_over_what_is_there(sequences);
        let touched = self.take_away(sequences, now);
        for (id, there, shown) in shown {
            if !self.is_altered(id) {
                self.ctimes.settle(id, &there, &shown);
            }
        }
        touched
    }

    /// Of the objects of these: what is at the origin, and what clients see.
    fn shown_over_what_is_there(&self, sequences: &[u64]) -> Vec<(FileId, Attr, Attr)> {
        let traces = sequences.iter().filter_map(|sequence| self.traces.get(sequence)).flatten();
        let ids: HashSet<FileId> = traces.filter_map(Trace::object).collect();
        let both = ids.into_iter().filter_map(|id| {
            let there = *self.objects.get(&id)?.there.as_deref()?;
            Some((id, there, self.attr(id, Some(&there))?))
        });
        both.collect()
    }

    fn take_away(&mut self, sequences: &[u64], now: &[(FileId, Attr)]) -> Vec<FileId> {
        // Each with the last of these that was about its bytes.
        let mut touched: HashMap<FileId, Option<u64>> = HashMap::new();
        for sequence in sequences {
            for trace in self.traces.remove(sequence).unwrap_or_default() {
                match trace {
                    Trace::Name(dir, name) => self.unbind(*sequence, dir, &name),
                    Trace::Object(id) => {
                        let bytes = self.forget(*sequence, id).then_some(*sequence);
                        let last = touched.entry(id).or_default();
                        *last = bytes.max(*last);
                    }
                }
            }
        }
        let ids = touched.keys().copied().collect();
        for (id, bytes) in touched {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            object.changes.settle();
            if let (Some(last), Some(overlay)) = (bytes, &mut object.overlay) {
                let now = now.iter().find(|(there, attr)| *there == id && attr.is_file());
                overlay.flushed(last, now.map_or(overlay.size(), |(_, attr)| attr.size));
            }
            if !object.changes.all().bytes {
                object.overlay = None;
            }
            if object.is_empty() {
                self.objects.remove(&id);
            }
        }
        ids
    }

    /// These never were; of what is `kept` the bytes are laid again, without those of them.
    pub fn given_up(&mut self, gone: &[u64], kept: &[(u64, &JournalOperation, Position)]) {
        let mut touched: HashMap<FileId, bool> = HashMap::new();
        for sequence in gone {
            for trace in self.traces.remove(sequence).unwrap_or_default() {
                match trace {
                    Trace::Name(dir, name) => self.unbind(*sequence, dir, &name),
                    Trace::Object(id) => *touched.entry(id).or_default() |= self.forget(*sequence, id),
                }
            }
        }
        for (id, bytes) in touched {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            object.changes.settle();
            object.ctime = object.changes.all().ctime;
            if bytes {
                object.overlay = None;
                // What is at the origin already is not shown from here.
                let of_it = kept.iter().filter(|(sequence, operation, _)| {
                    operation.object() == id && self.traces.contains_key(sequence)
                });
                for (sequence, operation, position) in of_it {
                    object.lay(*sequence, operation, *position);
                }
            }
            if object.is_empty() {
                self.objects.remove(&id);
            }
        }
    }

    fn unbind(&mut self, sequence: u64, dir: FileId, name: &Name) {
        let Some(names) = self.dirs.get_mut(&dir) else { return };
        if let Some(history) = names.get_mut(name) {
            history.remove(&sequence);
            if history.is_empty() {
                names.remove(name);
            }
        }
        if names.is_empty() {
            self.dirs.remove(&dir);
        }
    }

    /// Returns whether it was about the object's bytes.
    fn forget(&mut self, sequence: u64, id: FileId) -> bool {
        let Some(object) = self.objects.get_mut(&id) else { return false };
        object.own.remove(&sequence);
        object.made = object.made.take().filter(|(made, _)| *made != sequence);
        object.changes.remove(sequence).is_some_and(|alteration| alteration.bytes)
    }
}

impl OverlayObject {
    /// What the operation does to the bytes, over all that came before.
    fn lay(&mut self, sequence: u64, operation: &JournalOperation, position: Position) {
        match &operation.action {
            Action::Write { offset, size_before, .. } => {
                self.laid_over(*size_before).write(*offset, position);
            }
            Action::Truncate { size, size_before, .. } => {
                self.laid_over(*size_before).truncate(sequence, *size);
            }
            _ => {}
        }
    }

    fn laid_over(&mut self, clean_size: u64) -> &mut Overlay {
        self.overlay.get_or_insert_with(|| Overlay::new(clean_size))
    }

    fn is_empty(&self) -> bool {
        self.made.is_none() && self.changes.is_empty() && self.own.is_empty()
    }
}

#[cfg(test)]
mod tests;
