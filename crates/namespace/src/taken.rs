//! Taking in the answer to a change of our own: names in the store and in memory, the object, and its directories.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::{Around, Changed, Copied, Identity, Object, Reference};
use types::{Error, FileId, Name, Result, Version};

use crate::changed::{New, Renewed};
use crate::freshness::DOUBTED_MS;
use crate::lookup::Single;
use crate::node::{KnownNode, Remembered};
use crate::observe::{DETACHED, QueryStamp, SeenAt};
use crate::order::InOrder;
use crate::record::{Record, StoredListing};
use crate::store::{LOOK, NoteChange, StoreChange};
use crate::{Grafted, Namespace};

/// How long a change that was made at the origin waits for a disk that takes nothing: its client could only be told that
/// the outcome is unknown. No other change is begun meanwhile.
const WAITS_FOR_THE_DISK: Duration = Duration::from_secs(300);

/// The origin's answer to a change of ours, and the moment at which the change was sent.
pub struct ChangeAnswer {
    pub asked: QueryStamp,
    pub told: Changed,
}

/// A rename that was made.
pub struct Renamed<'a> {
    pub from_dir: FileId,
    pub from: &'a Name,
    pub to_dir: FileId,
    pub to: &'a Name,
    /// The renamed object, if it was known.
    pub moved: Option<FileId>,
    /// The changes of the notes of files that get another version by the rename.
    pub note: Option<&'a NoteRenewed<'a>>,
}

pub type NoteRenewed<'a> = dyn Fn(&Renewed) -> NoteChange + Sync + 'a;

/// A commit of changes in these directories that is under way: until this is dropped, readers of the store do not see
/// them.
struct Unseen<'a> {
    namespace: &'a Namespace,
    dirs: &'a [FileId],
    number: u64,
    _ends: tokio::sync::watch::Sender<()>,
}

impl<'a> Unseen<'a> {
    fn begin(namespace: &'a Namespace, dirs: &'a [FileId]) -> Unseen<'a> {
        let (ends, end) = tokio::sync::watch::channel(());
        let number = namespace.ours().hide(dirs, &end);
        Unseen { namespace, dirs, number, _ends: ends }
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        self.namespace.ours().show(self.dirs, self.number);
    }
}

/// The objects that the origin copied for a rename, by their new references.
struct Copies<'a>(HashMap<&'a Reference, &'a Copied>);

impl<'a> Copies<'a> {
    fn of(told: &'a Changed) -> Copies<'a> {
        Copies(told.copied.iter().map(|copied| (&copied.reference, copied)).collect())
    }

    /// The new version of a file, if the copy was made of the version that is known.
    fn renewed(&self, old: &KnownNode, now: &Reference) -> Option<Renewed> {
        let copied = self.0.get(now).filter(|copied| copied.before == old.version())?;
        let (before, after) = (copied.before, copied.after);
        old.attr().is_file().then(|| Renewed { id: old.id, size: old.attr().size, before, after })
    }
}

/// What a name stands for after a change.
pub(crate) enum NameState {
    Child(FileId),
    Absent,
    /// It has to be asked for.
    Unknown,
}

impl Namespace {
    pub(crate) async fn take_in_new(
        &self,
        junction: &Grafted,
        dir: FileId,
        name: &Name,
        (new, known_as): (&New, Option<(FileId, NoteChange)>),
        object: &Object,
        ChangeAnswer { asked, told }: &ChangeAnswer,
    ) -> Result<Arc<KnownNode>> {
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        let order = self.in_order(junction.id).await;
        let mut changes = Vec::new();
        if let Some((id, note)) = known_as {
            changes.extend(self.name_anew(junction.id, &object.identity, id));
            changes.push(StoreChange::AlterNote(id, note));
        }
        let id = self.id_of(junction.id, &object.identity);
        let had = self.place_of(id);
        let place = SeenAt { parent: dir, name: &bytes };
        let (node, change) = self.observe_own(&order, junction, id, Some(place), *asked, (None, object))?;
        changes.extend(change);
        match new {
            New::Directory { .. } if !told.resent => {
                let empty = StoredListing::empty(node.version(), self.clock.now_ms());
                let listing = if self.is_overtaken(id, *asked) { empty.unproven() } else { empty };
                self.keep_listing(id, Some(listing));
                changes.push(StoreChange::PutListing(id, listing));
            }
            New::Symlink { target, .. } => self.links.insert(id, (node.version(), target.clone())),
            _ => {}
        }
        changes.extend(self.take_in_dir(&order, junction, dir, (*asked, &told.dir), 1)?);
        changes.extend(self.take_in_name(dir, name, &NameState::Child(id), *asked)?);
        changes.extend(self.named(id, (dir, &bytes), had));
        self.finish(order, &[dir], changes).await?;
        Ok(node)
    }

    pub(crate) async fn take_in_removed(
        &self,
        junction: &Grafted,
        dir: FileId,
        name: &Name,
        ChangeAnswer { asked, told }: &ChangeAnswer,
    ) -> Result<()> {
        let order = self.in_order(junction.id).await;
        let mut changes = Vec::new();
        if let Some(child) = self.child_of(dir, name)? {
            changes.extend(self.nameless(dir, name, child)?);
        }
        changes.extend(self.take_in_dir(&order, junction, dir, (*asked, &told.dir), -1)?);
        changes.extend(self.take_in_name(dir, name, &NameState::Absent, *asked)?);
        self.finish(order, &[dir], changes).await
    }

    pub(crate) async fn take_in_renamed(
        &self,
        junction: &Grafted,
        renamed: &Renamed<'_>,
        answer: &ChangeAnswer,
    ) -> Result<Vec<Renewed>> {
        let ChangeAnswer { asked, told } = answer;
        let Renamed { from_dir, from, to_dir, to, moved, note } = *renamed;
        let order = self.in_order(junction.id).await;
        let replaced = self.child_of(to_dir, to)?;
        let (mut changes, mut renewed) = (Vec::new(), Vec::new());
        let moved = match &told.object {
            Some(object) => {
                if let Some(Ok(old)) = moved.map(|moved| self.load(moved)) {
                    let copies = Copies::of(told);
                    renewed.extend(copies.renewed(&old, &object.reference));
                    changes.extend(self.moved(junction, &old, &object.identity));
                    changes.extend(self.moved_below(
                        junction,
                        &old,
                        &object.reference,
                        (&copies, &mut renewed),
                    )?);
                }
                Some(self.id_of(junction.id, &object.identity))
            }
            None => moved,
        };
        if replaced.is_some() && replaced == moved {
            // Two names of one file stay both. If the directory changed all the same, they were not that any more.
            let before = told.dir.before.map(|before| before.version);
            if before.is_none() || before != told.dir.after.as_ref().map(|after| after.version) {
                changes.extend(self.take_in_name(from_dir, from, &NameState::Unknown, *asked)?);
                changes.extend(self.take_in_name(to_dir, to, &NameState::Unknown, *asked)?);
            }
        } else {
            if let Some(replaced) = replaced {
                changes.extend(self.nameless(to_dir, to, replaced)?);
            }
            if let Some(moved) = moved {
                changes.extend(self.move_to(
                    &order,
                    junction,
                    moved,
                    (from_dir, from),
                    (to_dir, to),
                    answer,
                )?);
            }
            // Both names stay, too, if it was not known which object has the new one.
            let sure = moved.is_some_and(|id| {
                self.load(id).is_ok_and(|node| node.attr().is_dir() || node.attr().nlink < 2)
            });
            let gone = if sure || replaced.is_some() { NameState::Absent } else { NameState::Unknown };
            changes.extend(self.take_in_dir(&order, junction, from_dir, (*asked, &told.dir), -1)?);
            changes.extend(self.take_in_dir(
                &order,
                junction,
                to_dir,
                (*asked, &told.to_dir),
                i64::from(replaced.is_none()),
            )?);
            changes.extend(self.take_in_name(from_dir, from, &gone, *asked)?);
            changes.extend(self.take_in_name(
                to_dir,
                to,
                &moved.map_or(NameState::Unknown, NameState::Child),
                *asked,
            )?);
            let new_name = Bytes::copy_from_slice(to.as_bytes());
            changes.extend(moved.into_iter().flat_map(|id| self.named(id, (to_dir, &new_name), None)));
        }
        let note = note.into_iter().flat_map(|note| renewed.iter().map(move |it| (it.id, note(it))));
        changes.extend(note.map(|(id, note)| StoreChange::AlterNote(id, note)));
        self.finish(order, &[from_dir, to_dir], changes).await?;
        Ok(renewed)
    }

    /// Where an object's identity is its place, everything below a directory moves with it and gets new references.
    fn moved_below(
        &self,
        junction: &Grafted,
        old: &KnownNode,
        now: &Reference,
        (copies, renewed): (&Copies<'_>, &mut Vec<Renewed>),
    ) -> Result<Vec<StoreChange>> {
        let before = &old.record.reference.0;
        let mut changes = Vec::new();
        let mut dirs =
            if junction.rules.origin.traits().identity_is_place && old.attr().is_dir() && *before != now.0 {
                vec![old.id]
            } else {
                Vec::new()
            };
        while let Some(dir) = dirs.pop() {
            let mut after = 0;
            loop {
                let piece = self.store.entries_after(dir, after, 4096)?;
                let Some(last) = piece.last() else { break };
                after = last.cookie;
                for node in piece.iter().filter_map(|entry| self.load(entry.child?).ok()) {
                    let Some(below) = node.record.reference.0.strip_prefix(&before[..]) else { continue };
                    let reference = Reference(Bytes::from([&now.0, below].concat()));
                    changes.extend(self.moved(junction, &node, &Identity(reference.0.clone())));
                    let copy = copies.renewed(&node, &reference);
                    let version = copy.map_or(node.version(), |copy| copy.after);
                    renewed.extend(copy);
                    let record = Record { reference, version, ..node.record.clone() };
                    changes.push(self.replace(node.id, record));
                    if node.attr().is_dir() {
                        dirs.push(node.id);
                    }
                }
            }
        }
        Ok(changes)
    }

    /// Takes in the object at its new place. An origin that did not describe it is asked at its next use.
    fn move_to(
        &self,
        order: &InOrder,
        junction: &Grafted,
        id: FileId,
        from: (FileId, &Name),
        to: (FileId, &Name),
        ChangeAnswer { asked, told }: &ChangeAnswer,
    ) -> Result<Vec<StoreChange>> {
        let name = Bytes::copy_from_slice(to.1.as_bytes());
        let mut changes = Vec::new();
        if let Ok(old) = self.load(id)
            && (old.record.parent == from.0 && old.record.name == from.1.as_bytes()
                || old.record.parent == DETACHED)
        {
            let mut record = old.record.clone();
            (record.parent, record.name) = (to.0, name.clone());
            record.checked_ms = record.checked_ms.min(DOUBTED_MS);
            changes.push(self.replace(id, record));
        }
        if let Some(object) = &told.object {
            let place = SeenAt { parent: to.0, name: &name };
            let (node, change) =
                self.observe_own(order, junction, id, Some(place), *asked, (None, object))?;
            // The record that was put above has other attributes; of two, the last one counts.
            changes.push(change.unwrap_or_else(|| StoreChange::PutNode(id, node.record.clone())));
        }
        self.changed.tell(Some(id));
        Ok(changes)
    }

    /// Takes in that `child` lost this name. A directory is gone by that; a file may have other names.
    fn nameless(&self, dir: FileId, name: &Name, child: FileId) -> Result<Vec<StoreChange>> {
        let Ok(node) = self.load(child) else { return Ok(Vec::new()) };
        self.changed.tell(Some(child));
        if node.attr().is_dir() {
            self.nodes.insert(child, Remembered::Gone { own: self.changing().own() });
            return Ok(vec![StoreChange::RemoveNode(child), self.drop_listing(child)]);
        }
        let mut record = node.record.clone();
        record.checked_ms = 0;
        // A client that has the file open with bytes in flight gets these attributes; the origin is not asked for it.
        record.attr.nlink = record.attr.nlink.saturating_sub(1);
        if record.parent == dir && record.name == name.as_bytes() {
            let other = self.another_name(dir, name, &node)?;
            (record.parent, record.name) = other.unwrap_or((DETACHED, Bytes::new()));
        }
        Ok(vec![self.replace(child, record)])
    }

    /// Another name of a file with several: by it the file is re-resolved if its reference was a path.
    fn another_name(&self, dir: FileId, name: &Name, node: &KnownNode) -> Result<Option<(FileId, Bytes)>> {
        if node.attr().nlink < 2 {
            return Ok(None);
        }
        let mut others = self.other_names(node, (dir, name.as_bytes()))?.into_iter();
        Ok(others.next())
    }

    /// The known names of a file, except this one; some may be gone. The file's link count does not bound them: the name
    /// that is known may be one of those that are gone.
    pub(crate) fn other_names(&self, node: &KnownNode, but: (FileId, &[u8])) -> Result<Vec<(FileId, Bytes)>> {
        if node.attr().is_dir() {
            return Ok(Vec::new());
        }
        let mut names = self.store.names_of(node.id)?;
        names.retain(|(dir, name)| (*dir, name.as_ref()) != but);
        let mut still = Vec::with_capacity(names.len());
        for (dir, name) in names {
            if self.store.find_entry(dir, &name)?.is_some_and(|it| it.child == Some(node.id)) {
                still.push((dir, name));
            }
        }
        Ok(still)
    }

    /// The changes that record a file with several names under the name that it was seen with and the one that it `had`, so
    /// that it is found by either when it loses the other.
    pub(crate) fn named(
        &self,
        id: FileId,
        now: (FileId, &Bytes),
        had: Option<(FileId, Bytes)>,
    ) -> Vec<StoreChange> {
        if !self.load(id).is_ok_and(|node| !node.attr().is_dir() && node.attr().nlink > 1) {
            return Vec::new();
        }
        let now = (now.0, now.1.clone());
        let had = had.filter(|had| *had != now && had.0 != DETACHED);
        had.into_iter().chain([now]).map(|(dir, name)| StoreChange::PutName { file: id, dir, name }).collect()
    }

    /// The directory and name under which an object was seen last.
    pub(crate) fn place_of(&self, id: FileId) -> Option<(FileId, Bytes)> {
        self.load(id).ok().map(|node| (node.record.parent, node.record.name.clone()))
    }

    /// Puts a record as a change of our own does: answers to earlier questions do not count after it.
    pub(crate) fn replace(&self, id: FileId, record: crate::record::Record) -> StoreChange {
        let own = self.changing().own();
        self.keep(&Arc::new(KnownNode::as_changed(id, record.clone(), own)));
        StoreChange::PutNode(id, record)
    }

    /// Takes in the directory after the change. Its listing, which has the change in it, stays valid if no foreign change lies
    /// between; from then on only its age counts, since a foreign change could hide within one tick of the origin's clock.
    fn take_in_dir(
        &self,
        order: &InOrder,
        junction: &Grafted,
        dir: FileId,
        (asked, around): (QueryStamp, &Around),
        names: i64,
    ) -> Result<Vec<StoreChange>> {
        let old = self.load(dir)?;
        let Some(after) = around.after.as_ref().filter(|o| self.id_of_dir(junction, o) == dir) else {
            old.doubt();
            return Ok(Vec::new());
        };
        let before = around.before.map(|before| before.version);
        let listing = self.listing_of(dir)?;
        let (node, change) = self.observe_own(order, junction, dir, None, asked, (before, after))?;
        let mut changes: Vec<_> = change.into_iter().collect();
        let mut ours = self.ours();
        if let Some(before) = before {
            ours.link(dir, listing.map(|listing| listing.version), before, after.version);
        }
        if let Some(mut listing) = listing
            && ours.leads(dir, listing.version, node.version())
        {
            listing.settled = false;
            listing.version = node.version();
            listing.entries = listing.entries.saturating_add_signed(names);
            self.keep_listing(dir, Some(listing));
            changes.push(StoreChange::PutListing(dir, listing));
        }
        Ok(changes)
    }

    /// Waits until readers of the store see what was changed in `dir` before this call. A retryable error if the disk takes
    /// nothing.
    pub(crate) async fn seen(&self, dir: FileId) -> Result<()> {
        let unseen = self.ours().unseen(dir);
        if let Some(mut end) = unseen {
            // The wait ends with an error, because the sender is dropped.
            while tokio::time::timeout(LOOK, end.changed()).await.is_err() {
                self.store.usable()?;
            }
        }
        Ok(())
    }

    /// The root of a junction has an id of its own, which no identity leads to.
    fn id_of_dir(&self, junction: &Grafted, object: &Object) -> FileId {
        let is_root = self.load(junction.root).is_ok_and(|root| root.record.reference == object.reference);
        if is_root { junction.root } else { self.id_of(junction.id, &object.identity) }
    }

    pub(crate) fn take_in_name(
        &self,
        dir: FileId,
        name: &Name,
        now: &NameState,
        asked: QueryStamp,
    ) -> Result<Option<StoreChange>> {
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        self.ours().touch(dir, &bytes);
        let node = self.load(dir)?;
        let single = |child| Single::new(node.version(), self.clock.now_ms(), asked, child);
        let key = (dir, name.clone());
        Ok(match now {
            NameState::Child(id) => {
                self.singles.insert(key, single(Some(*id)));
                Some(StoreChange::PutEntry { dir, name: bytes, child: Some(*id) })
            }
            NameState::Absent => {
                self.singles.insert(key, single(None));
                Some(StoreChange::RemoveName { dir, name: bytes })
            }
            NameState::Unknown => {
                node.doubt();
                self.singles.remove(&key);
                Some(self.drop_listing(dir))
            }
        })
    }

    /// Commits the changes in the order of the lock; they are durable when this returns. An error here is no refusal: the
    /// change was made at the origin all the same.
    pub(crate) async fn finish(
        &self,
        order: InOrder,
        dirs: &[FileId],
        changes: Vec<StoreChange>,
    ) -> Result<()> {
        let _unseen = Unseen::begin(self, dirs);
        let committed = self.store.begin_commit(changes).await;
        drop(order);
        let durable = match committed {
            Ok(committed) => committed.wait_through(WAITS_FOR_THE_DISK).await,
            Err(e) => Err(e),
        };
        durable.map_err(|e| Error::doubtful("remember", "what was changed", e))
    }

    /// As `observe`, for the answer to a change of our own. Answers to changes that were in flight together come in any
    /// order, and an older state is not put over a newer one. Only among those do times tell which is older: an origin's
    /// clock may be set back.
    pub(crate) fn observe_own(
        &self,
        order: &InOrder,
        junction: &Grafted,
        id: FileId,
        place: Option<SeenAt<'_>>,
        asked: QueryStamp,
        (before, after): (Option<Version>, &Object),
    ) -> Result<(Arc<KnownNode>, Option<StoreChange>)> {
        if let Ok(old) = self.load(id)
            && place.is_none()
            && before != Some(old.version())
            && (old.own > asked.own() || old.learnt() > asked.learnt)
            && after.attr.ctime < old.attr().ctime
        {
            return Ok((old, None));
        }
        self.observe(order, junction, id, place, after, self.changing().as_answer_to(asked))
    }
}
