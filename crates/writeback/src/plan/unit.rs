//! What is flushed at once: one operation, or several on one object that come to less than their sum.
//!
//! Writes over writes, truncations and attributes of one object come to what they leave. A file that was made here gets
//! its contents and its last name with its creation, and one that was made and removed again never travels. Nothing is
//! drawn together over a dependency: whatever one of them waits for is in the unit too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use types::{FileId, JunctionId, Name, Timestamp, Version};

use super::Pending;
use super::depend::Depend;
use crate::dirty::{DirtyPiece, Overlay};
use crate::operation::{Action, Attributes, NewObject, Rename};
use crate::sabotage::{Bug, Sabotage};

/// What is in one unit at most: what one failure or one crash makes us do again.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub operations: usize,
    /// Also so that one file does not keep the others waiting.
    pub bytes: u64,
}

impl Most {
    /// Where each unit costs as much as the file is long, all of it is better brought at once.
    pub fn of(whole_files: bool) -> Most {
        match whole_files {
            true => Most { operations: 1 << 16, bytes: u64::MAX },
            false => Most { operations: 1024, bytes: 64 << 20 },
        }
    }
}

#[derive(Clone, Debug)]
pub struct FlushUnit {
    /// In order; marked as done in this order.
    pub sequences: Vec<u64>,
    pub junction: JunctionId,
    pub object: FileId,
    pub base: Option<Version>,
    pub since: Timestamp,
    pub work: FlushWork,
    /// Renames in it over others, which have lost these names in any case.
    pub over: Vec<Rename>,
    /// Names of later renames: an earlier attempt may have drawn these together with it, and given one at once.
    pub later: Vec<(FileId, Name)>,
    /// An earlier attempt may have taken the object away, since its owner did in the end.
    pub perhaps_retracted: bool,
    /// It may have been carried out in part: by an attempt without an answer, or before a crash.
    pub in_doubt: bool,
    /// All of it is at the origin: it is to be marked as done, and no more.
    pub carried: bool,
    /// That travel.
    pub bytes: u64,
    /// How often room had been made at the origin when it was taken.
    pub(super) rooms: u64,
}

impl FlushUnit {
    /// In which it gives or takes names.
    pub fn dirs(&self) -> Vec<FileId> {
        match &self.work {
            FlushWork::Object { make: Some(making), .. } | FlushWork::Replace { making, .. } => {
                making.names.iter().map(|(dir, _)| *dir).collect()
            }
            FlushWork::Names(action) => action.dirs().into_iter().flatten().collect(),
            FlushWork::Moved(renames) => {
                renames.iter().flat_map(|rename| [rename.from_dir, rename.to_dir]).collect()
            }
            FlushWork::Retract(retract) => retract.names.iter().map(|(dir, _)| *dir).collect(),
            FlushWork::Together(parts) => parts.iter().flat_map(FlushUnit::dirs).collect(),
            FlushWork::Vanished | FlushWork::Object { make: None, .. } => Vec::new(),
        }
    }

    /// What is carried out one after the other, each on one object.
    pub fn parts(&self) -> &[FlushUnit] {
        match &self.work {
            FlushWork::Together(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// Changes it and its parts.
    pub(super) fn each(mut self, change: impl Fn(&mut FlushUnit)) -> FlushUnit {
        change(&mut self);
        if let FlushWork::Together(parts) = &mut self.work {
            parts.iter_mut().for_each(change);
        }
        self
    }
}

#[derive(Clone, Debug)]
pub enum FlushWork {
    /// Nothing travels: it came to nothing, or is at the origin already.
    Vanished,
    Object {
        make: Option<Making>,
        content: ContentChange,
        set: Attributes,
    },
    /// One of link, remove, rmdir, rename.
    Names(Action),
    /// An object that is made, and takes the name of another one with its first own.
    Replace {
        making: Making,
        content: ContentChange,
        set: Attributes,
        rename: Rename,
    },
    /// Renames of one object, of which only where it ends counts.
    Moved(Vec<Rename>),
    /// Its owner took it away again before all of it was at the origin.
    Retract(Retract),
    /// Retractions of objects that would wait for each other.
    Together(Vec<FlushUnit>),
}

impl FlushUnit {
    /// It may give room back at the origin.
    pub fn frees_room(&self) -> bool {
        if !self.over.is_empty() {
            return true;
        }
        match &self.work {
            FlushWork::Retract(_) => true,
            FlushWork::Together(parts) => parts.iter().any(FlushUnit::frees_room),
            // What is made takes room, although it is cut first.
            FlushWork::Object { make, content, .. } => {
                make.is_none() && (content.cut.is_some() || content.size.is_some())
            }
            FlushWork::Names(Action::Remove { .. }) => true,
            FlushWork::Names(Action::Rename(rename)) => rename.replaced.is_some(),
            FlushWork::Replace { .. } => true,
            FlushWork::Names(_) | FlushWork::Moved(_) | FlushWork::Vanished => false,
        }
    }
}

/// None of these names is the object's in the end, and it may have any of them at the origin.
#[derive(Clone, Debug, Default)]
pub struct Retract {
    pub names: Vec<(FileId, Name)>,
    /// Directories in which it replaced another one, so that it may have been made there under a name of its own.
    pub staged: Vec<FileId>,
    /// It was made with the first of the names.
    pub made: Option<NewObject>,
    /// Names under which an attempt whose answer was lost may have made it. What has another of its names may be what had
    /// that before it, and still has it because a rename is refused.
    pub perhaps_made_at: Vec<(FileId, Name)>,
    /// It has no other names afterwards.
    pub ends: bool,
    /// Contents of it that never travel.
    pub discards: bool,
    /// The origin refuses it: who replaces it may need its room.
    pub makes_room: bool,
    pub is_dir: bool,
}

#[derive(Clone, Debug)]
pub struct Making {
    /// Each name that it had, the one it is to have at the end.
    pub names: Vec<(FileId, Name)>,
    /// Directories in which an earlier attempt may have made it under a name of its own, to replace another one.
    pub staged: Vec<FileId>,
    pub what: NewObject,
}

/// What bytes become: first cut, then written, then of this size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentChange {
    pub cut: Option<u64>,
    /// Dirty ones only, by offset.
    pub pieces: Vec<DirtyPiece>,
    pub size: Option<u64>,
}

impl ContentChange {
    pub fn is_nothing(&self) -> bool {
        *self == ContentChange::default()
    }

    /// Whether nothing of a file of this size, in bytes, is between the pieces or behind them.
    pub fn is_all_of(&self, size: u64) -> bool {
        let next = |end: u64, piece: &DirtyPiece| {
            let range = piece.range();
            (range.offset <= end).then(|| end.max(range.end()))
        };
        self.pieces.iter().try_fold(0, next).is_some_and(|end| end >= size)
    }
}

/// What forming a unit looks at.
pub struct UnitContext<'a> {
    pub pending: &'a BTreeMap<u64, Pending>,
    /// The sequences of the operations on the object, from the first of the unit on.
    pub chain: Vec<u64>,
    /// Those on each object.
    pub chains: &'a HashMap<FileId, BTreeSet<u64>>,
    pub depend: &'a Depend,
    pub due: &'a dyn Fn(&Pending) -> bool,
    pub is_running: &'a dyn Fn(u64) -> bool,
    pub most: Most,
    pub sabotage: Sabotage,
}

impl UnitContext<'_> {
    /// Of which `first`, which waits for nothing, is the first.
    pub fn form(&self, first: &Pending) -> FlushUnit {
        if first.carried {
            return unit(first, vec![first], FlushWork::Vanished);
        }
        let is_make = matches!(first.operation.action, Action::Make { .. });
        if is_make
            && (!(first.in_doubt || first.recovered) || self.sabotage.is(Bug::VanishInDoubt))
            && let Some(all) = self.vanishes()
        {
            return unit(first, all, FlushWork::Vanished);
        }
        if !is_make && !first.operation.is_content() {
            let work = FlushWork::Names(first.operation.action.clone());
            return unit(first, vec![first], work);
        }
        let members = self.absorb(first);
        let work = object_work(&members);
        self.with_staged(unit(first, members, work))
    }

    /// An earlier attempt may have drawn more operations together, and made the object where it was to replace another.
    pub fn with_staged(&self, mut unit: FlushUnit) -> FlushUnit {
        let object = unit.object;
        if unit.in_doubt
            && let FlushWork::Object { make: Some(making), .. } | FlushWork::Replace { making, .. } =
                &mut unit.work
        {
            let chain = self.chain.iter().filter_map(|sequence| self.pending.get(sequence));
            making.staged = chain.filter_map(|pending| pending.operation.replaces_in(object)).collect();
        }
        unit
    }

    /// All operations on the object, if they end with its removal and nothing else knows it.
    fn vanishes(&self) -> Option<Vec<&Pending>> {
        let mut members = Vec::new();
        for sequence in &self.chain {
            let pending = self.pending.get(sequence)?;
            if members.len() == self.most.operations || !self.waits_for_members_only(pending, &members) {
                return None;
            }
            members.push(pending);
            let object = members[0].operation.object();
            match &pending.operation.action {
                Action::Remove { object: removed, .. } | Action::Rmdir { object: removed, .. } => {
                    return (*removed == object).then_some(members);
                }
                Action::Rename(rename) if rename.object != object || rename.replaced.is_some() => {
                    return None;
                }
                Action::Link { .. } => return None,
                _ => {}
            }
        }
        None
    }

    fn absorb<'a>(&'a self, first: &'a Pending) -> Vec<&'a Pending> {
        let mut members = vec![first];
        let mut bytes = u64::from(first.position.data_length);
        let making = match &first.operation.action {
            Action::Make { what, .. } => Some(what),
            _ => None,
        };
        for sequence in self.chain.iter().skip(1) {
            let Some(next) = self.pending.get(sequence) else { break };
            bytes += u64::from(next.position.data_length);
            let room = members.len() < self.most.operations && bytes <= self.most.bytes;
            let fits = match &next.operation.action {
                Action::Write { base, .. } | Action::Truncate { base, .. } | Action::Set { base, .. } => {
                    making.is_some() || first.operation.base() == *base
                }
                // Under its last name at once: only a file can be known again after a crash, by its verifier.
                Action::Rename(rename) => {
                    making == Some(&NewObject::File)
                        && rename.object == first.operation.object()
                        && rename.replaced.is_none()
                }
                _ => false,
            };
            if !room || !fits || !(self.due)(next) || !self.waits_for_members_only(next, &members) {
                break;
            }
            members.push(next);
        }
        members
    }

    fn waits_for_members_only(&self, pending: &Pending, members: &[&Pending]) -> bool {
        if self.sabotage.is(Bug::CoalesceOverDependency) {
            return true;
        }
        let mut blockers = self.depend.blockers(pending.sequence);
        blockers.all(|blocker| members.binary_search_by_key(&blocker, |member| member.sequence).is_ok())
    }
}

pub(super) fn unit(first: &Pending, members: Vec<&Pending>, work: FlushWork) -> FlushUnit {
    let operation = &first.operation;
    let bytes = match &work {
        FlushWork::Object { content, .. } | FlushWork::Replace { content, .. } => {
            content.pieces.iter().map(|piece| piece.range().length).sum()
        }
        _ => 0,
    };
    FlushUnit {
        sequences: members.iter().map(|member| member.sequence).collect(),
        junction: operation.junction,
        object: operation.object(),
        base: operation.base(),
        since: operation.since,
        work,
        over: Vec::new(),
        later: Vec::new(),
        perhaps_retracted: false,
        in_doubt: members.iter().any(|member| member.in_doubt),
        carried: first.carried,
        bytes,
        rooms: 0,
    }
}

/// What all of them leave.
pub(super) fn object_work(members: &[&Pending]) -> FlushWork {
    let mut make = None;
    let mut set = Attributes::default();
    let mut overlay: Option<Overlay> = None;
    let mut sized = false;
    for Pending { sequence, operation, position, .. } in members {
        let written = Attributes { mtime: Some(operation.acknowledged), ..Attributes::default() };
        // Of a file that is at the origin no size is known for certain, nor needed: a cut anywhere counts.
        let clean_size = if make.is_some() { 0 } else { u64::MAX };
        match &operation.action {
            Action::Make { dir, name, what, set: given, .. } => {
                let names = vec![(*dir, name.clone())];
                make = Some(Making { names, staged: Vec::new(), what: what.clone() });
                let times = Attributes { atime: written.mtime, ..written };
                set = times.then(given);
            }
            Action::Rename(rename) => {
                if let Some(make) = &mut make {
                    make.names.push((rename.to_dir, rename.to.clone()));
                }
            }
            Action::Write { offset, .. } => {
                overlay.get_or_insert_with(|| Overlay::new(clean_size)).write(*offset, *position);
                set = set.then(&written);
            }
            Action::Truncate { size, .. } => {
                overlay.get_or_insert_with(|| Overlay::new(clean_size)).truncate(*sequence, *size);
                sized = true;
                set = set.then(&written);
            }
            Action::Set { set: given, .. } => set = set.then(given),
            Action::Link { .. } | Action::Remove { .. } | Action::Rmdir { .. } => {}
        }
    }
    let is_file = make.as_ref().is_some_and(|make| make.what == NewObject::File);
    let mut content = overlay.map_or_else(ContentChange::default, |overlay| content(&overlay, sized));
    if is_file {
        // What an interrupted attempt may have left is cut.
        content.cut = Some(0);
        content.size = Some(content.size.unwrap_or_else(|| end(&content.pieces)));
    }
    FlushWork::Object { make, content, set }
}

fn content(overlay: &Overlay, sized: bool) -> ContentChange {
    let pieces = overlay.dirty_up_to(u64::MAX).collect();
    let cut = Some(overlay.clean_up_to()).filter(|_| sized);
    ContentChange { cut, pieces, size: sized.then_some(overlay.size()) }
}

fn end(pieces: &[DirtyPiece]) -> u64 {
    pieces.last().map_or(0, |piece| piece.range().end())
}
