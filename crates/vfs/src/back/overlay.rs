//! What clients are shown of what the origins do not have yet: names, attributes and bytes over what `namespace` and
//! `cache` know, and what each altered object was at its origin when it was altered first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::CacheKey;
use fetch::{BytesChanged, VersionChain};
use namespace::Renewed;
use tokio::sync::watch;
use types::{Attr, ByteRange, FileId, JunctionId, Name, Timestamp, Version};
use writeback::{Action, DirtyNames, DirtyPiece, DroppedOperations, JournalOperation, Lookup, Position};

use crate::change_results::AttrsAround;
use crate::node::{Node, outward};
use crate::places::PlaceOverlay;
use crate::writer::EntryOverlay;

/// Names of one object that are remembered.
const NAMES_MAX: usize = 64;

/// An object that something is to be done to at its origin.
#[derive(Clone, Debug)]
pub struct ObjectToFlush {
    pub junction: JunctionId,
    pub below: CleanBase,
    /// Where clients see it.
    pub place: Option<(FileId, Name)>,
    /// Names that it has or had: at its origin it has one of them.
    pub names: Vec<(FileId, Name)>,
    /// The last operation on its bytes.
    pub last_write: u64,
}

/// What of an object is at its origin.
#[derive(Clone, Copy, Debug)]
pub enum CleanBase {
    /// The origin never had it.
    Nothing,
    /// This version.
    Version(CacheKey),
    /// It has something, and is to be asked.
    Unknown,
}

/// Objects of an operation that waits for the journal: what lies below them follows what the flush does meanwhile. Those
/// that nothing else is done to are forgotten with it, unless the operation was applied.
pub struct ExpectedOperation<'a> {
    overlay: &'a DirtyOverlay,
    ids: Vec<FileId>,
    is_applied: bool,
}

impl ExpectedOperation<'_> {
    pub fn applied(mut self) {
        self.is_applied = true;
    }
}

impl Drop for ExpectedOperation<'_> {
    fn drop(&mut self) {
        let mut state = self.overlay.state();
        for id in self.ids.drain(..) {
            let left = state.expected.get(&id).map_or(0, |count| count - 1);
            match left {
                0 => drop(state.expected.remove(&id)),
                left => drop(state.expected.insert(id, left)),
            }
            if !self.is_applied {
                state.forget_unaltered(id);
            }
        }
    }
}

/// Where the bytes of a read are.
pub struct ReadPlan {
    pub pieces: Vec<DirtyPiece>,
    pub below: CleanBase,
}

#[derive(Default)]
struct State {
    names: DirtyNames,
    altered: HashMap<FileId, ObjectToFlush>,
    /// How many operations wait for the journal that are to alter it.
    expected: HashMap<FileId, usize>,
    /// What lost its name to a rename, by the rename's sequence.
    replaced: HashMap<u64, FileId>,
}

pub struct DirtyOverlay {
    state: Mutex<State>,
    /// The origin's version after the last one that was shown, for clients that opened a file before the flush.
    pub version_chain: Arc<VersionChain>,
    /// Something was flushed.
    progress: watch::Sender<()>,
}

impl PlaceOverlay for DirtyOverlay {
    fn place(&self, id: FileId) -> Option<(FileId, Name)> {
        self.state().altered.get(&id)?.place.clone()
    }
}

impl DirtyOverlay {
    pub fn new(version_chain: Arc<VersionChain>) -> DirtyOverlay {
        DirtyOverlay { state: Mutex::default(), version_chain, progress: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    /// An object that its origin does not have yet.
    pub fn local(&self, id: FileId) -> Option<Node> {
        let state = self.state();
        let local = state.names.is_local(id).then(|| state.names.attr(id, None)).flatten()?;
        let junction = state.altered.get(&id)?.junction;
        let attr = outward(id, &local);
        Some(Node { id, junction, attr, version: Version::from_attr(&attr) })
    }

    /// The same, by its inode number.
    pub fn local_number(&self, number: u64) -> Option<FileId> {
        let state = self.state();
        let mut made = state.altered.keys().copied().filter(|id| state.names.is_local(*id));
        made.find(|id| id.fileid64() == number)
    }

    /// Of a symbolic link that its origin does not have yet.
    pub fn local_target(&self, id: FileId) -> Option<bytes::Bytes> {
        self.state().names.local(id)?.target.clone()
    }

    /// With what is done to it here. Its version stays that of its bytes, where these are the origin's.
    pub fn apply_overlay(&self, node: &mut Node) {
        let state = self.state();
        let Some(attr) = state.names.attr(node.id, Some(&node.attr)) else { return };
        node.attr = outward(node.id, &attr);
        if !state.names.is_altered(node.id) {
            return;
        }
        let bytes_are_clean = node.attr.is_file() && state.names.overlay(node.id).is_none();
        if !bytes_are_clean {
            node.version = Version::from_attr(&node.attr);
        }
    }

    pub fn is_altered(&self, id: FileId) -> bool {
        self.state().names.is_altered(id)
    }

    /// Some of its bytes are here only, or all.
    pub fn has_bytes(&self, id: FileId) -> bool {
        let state = self.state();
        state.names.overlay(id).is_some() || state.names.is_local(id)
    }

    /// What has this name; `None` if the origin is to be asked.
    pub fn lookup(&self, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        let state = self.state();
        match state.names.lookup(dir, name) {
            Lookup::Made(id) => Some(Some(id)),
            Lookup::Gone => Some(None),
            Lookup::AsOrigin => state.names.is_local(dir).then_some(None),
        }
    }

    /// `None` if the origin lists the directory as it is.
    pub fn entries(&self, dir: FileId) -> Option<EntryOverlay> {
        let state = self.state();
        let entries: Vec<_> = state.names.entries(dir).map(|(name, id)| (name.clone(), id)).collect();
        let is_local = state.names.is_local(dir);
        (is_local || !entries.is_empty()).then_some(EntryOverlay { entries, is_local })
    }

    pub fn since(&self, id: FileId, now: Timestamp) -> Timestamp {
        self.state().names.since(id, now)
    }

    pub fn altered(&self, id: FileId) -> Option<ObjectToFlush> {
        self.state().altered.get(&id).cloned()
    }

    pub fn all_altered(&self) -> Vec<FileId> {
        self.state().altered.keys().copied().collect()
    }

    /// `known`: what the objects of an operation are, used for those that are not altered.
    pub fn expect(&self, known: Vec<(FileId, ObjectToFlush)>) -> ExpectedOperation<'_> {
        let mut state = self.state();
        let ids = known.iter().map(|(id, _)| *id).collect();
        for (id, was) in known {
            state.altered.entry(id).or_insert(was);
            *state.expected.entry(id).or_default() += 1;
        }
        ExpectedOperation { overlay: self, ids, is_applied: false }
    }

    /// Its objects were expected. `around`: objects of which the caller is told, with what the origin shows of each.
    pub fn apply(
        &self,
        (sequence, operation, position): (u64, &JournalOperation, Position),
        around: &[(FileId, Option<Attr>)],
    ) -> Vec<AttrsAround> {
        let mut state = self.state();
        let see = |state: &State, (id, origin): &(FileId, Option<Attr>)| {
            state.names.attr(*id, origin.as_ref()).map(|attr| outward(*id, &attr))
        };
        let before: Vec<_> = around.iter().map(|one| see(&state, one)).collect();
        state.names.apply(sequence, operation, position);
        state.follow(sequence, operation);
        let after = around.iter().map(|one| see(&state, one));
        let weak = before.into_iter().map(|attr| attr.map(|attr| attr.weak()));
        weak.zip(after).map(|(before, after)| AttrsAround { before, after }).collect()
    }

    /// `None` if the bytes are the origin's.
    pub fn plan(&self, id: FileId, range: ByteRange) -> Option<ReadPlan> {
        let state = self.state();
        match state.names.overlay(id) {
            Some(overlay) => {
                let below = state.below(id);
                Some(ReadPlan { pieces: overlay.plan(range), below })
            }
            None if state.names.is_local(id) => {
                Some(ReadPlan { pieces: Vec::new(), below: CleanBase::Nothing })
            }
            None => None,
        }
    }

    /// What lies below what is shown of an object.
    pub fn below(&self, id: FileId) -> CleanBase {
        self.state().below(id)
    }

    /// The origin was asked.
    pub fn learn(&self, key: CacheKey) {
        if let Some(altered) = self.state().altered.get_mut(&key.file)
            && matches!(altered.below, CleanBase::Unknown)
        {
            altered.below = CleanBase::Version(key);
        }
    }

    /// These are at the origin, or came to nothing there. `now` is what the object is there, if that is known: below
    /// what is still to come. `no_bytes` were among them: what clients wrote, they wrote over what is below. `replaced`:
    /// what lost a name to them and has others. `since`: whether the object may have other bytes there than were shown here. Returns the
    /// objects that may be shown otherwise.
    pub fn flushed(
        &self,
        id: FileId,
        sequences: &[u64],
        now: Option<(Version, Attr)>,
        replaced: Option<(FileId, Attr)>,
        no_bytes: bool,
        since: BytesChanged,
    ) -> Vec<FileId> {
        let touched = {
            let mut state = self.state();
            let state = &mut *state;
            let shown =
                state.names.overlay(id).is_some().then(|| state.names.attr(id, now.as_ref().map(|it| &it.1)));
            let there: Vec<_> = now.iter().map(|(_, attr)| (id, *attr)).chain(replaced).collect();
            let shown_otherwise = state.names.flushed(sequences, &there);
            let local = state.names.is_local(id);
            // Also for who is about to.
            let has_bytes = state.names.overlay(id).is_some() || state.expected.contains_key(&id);
            let stays = no_bytes && has_bytes;
            if let Some(altered) = state.altered.get_mut(&id) {
                altered.below = match &now {
                    Some((version, attr)) => {
                        CleanBase::Version(CacheKey { file: id, version: *version, size: attr.size })
                    }
                    None if local => CleanBase::Nothing,
                    None if stays => altered.below,
                    None => CleanBase::Unknown,
                };
            }
            if let (Some(Some(shown)), Some((version, attr))) = (shown, &now)
                && state.names.overlay(id).is_none()
            {
                let before = Version::from_attr(&outward(id, &shown));
                let now = CacheKey { file: id, version: *version, size: attr.size };
                self.version_chain.note((id, before), now, since);
            }
            let replaced = sequences.iter().filter_map(|sequence| state.replaced.remove(sequence));
            for touched in replaced.chain([id]).collect::<Vec<_>>() {
                state.forget_unaltered(touched);
            }
            shown_otherwise
        };
        self.progress.send_replace(());
        touched
    }

    /// These never were. `place`: where the origin has an object.
    pub fn given_up(&self, given_up: &DroppedOperations, place: impl Fn(FileId) -> Option<(FileId, Name)>) {
        {
            let mut state = self.state();
            let state = &mut *state;
            let gone: Vec<u64> = given_up.gone.iter().map(|it| it.sequence).collect();
            let kept: Vec<_> =
                given_up.kept.iter().map(|it| (it.sequence, &it.operation, it.position)).collect();
            state.names.given_up(&gone, &kept);
            for pending in &given_up.gone {
                let id = pending.operation.object();
                state.replaced.remove(&pending.sequence);
                let Some(altered) = state.altered.get_mut(&id) else { continue };
                // Some of it may be at the origin.
                if pending.in_doubt && matches!(altered.below, CleanBase::Version(_)) {
                    altered.below = CleanBase::Unknown;
                }
                if matches!(pending.operation.action, Action::Rename(_)) {
                    altered.place = place(id);
                }
            }
            for (sequence, operation, _) in kept {
                if state.names.is_altered(operation.object()) {
                    state.follow(sequence, operation);
                }
            }
            for id in given_up.gone.iter().flat_map(|it| it.operation.objects()) {
                state.forget_unaltered(id);
            }
        }
        self.progress.send_replace(());
    }

    /// What is below has another version at the origin by our own doing. What is cached follows later.
    pub fn renewed(&self, renewed: &Renewed) {
        self.version_chain.note_renewed(renewed);
        if let Some(altered) = self.state().altered.get_mut(&renewed.id)
            && let CleanBase::Version(key) = &mut altered.below
            && key.version == renewed.before
        {
            key.version = renewed.after;
        }
    }
}

impl State {
    fn below(&self, id: FileId) -> CleanBase {
        self.altered.get(&id).map_or(CleanBase::Unknown, |altered| altered.below)
    }

    fn forget_unaltered(&mut self, id: FileId) {
        if !self.names.is_altered(id) && !self.expected.contains_key(&id) {
            self.altered.remove(&id);
        }
    }

    /// Keeps what later operations and the flush want to know of the objects.
    fn follow(&mut self, sequence: u64, operation: &JournalOperation) {
        let (place, further) = match &operation.action {
            Action::Make { dir, name, .. } => (Some((*dir, name.clone())), None),
            Action::Rename(rename) => {
                (Some((rename.to_dir, rename.to.clone())), Some((rename.from_dir, rename.from.clone())))
            }
            Action::Link { dir, name, .. } | Action::Remove { dir, name, .. } => {
                (None, Some((*dir, name.clone())))
            }
            _ => (None, None),
        };
        if let Action::Rename(rename) = &operation.action
            && let Some(replaced) = rename.replaced
        {
            self.replaced.insert(sequence, replaced.object);
        }
        let Some(altered) = self.altered.get_mut(&operation.object()) else { return };
        for name in [&place, &further].into_iter().flatten() {
            if altered.names.len() < NAMES_MAX && !altered.names.contains(name) {
                altered.names.push(name.clone());
            }
        }
        if place.is_some() {
            altered.place = place;
        }
        if matches!(operation.action, Action::Write { .. } | Action::Truncate { .. }) {
            altered.last_write = sequence;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId([1; 16]);

    fn key(version: u8) -> CacheKey {
        CacheKey { file: FILE, version: Version([version; 16]), size: 10 }
    }

    fn known() -> Vec<(FileId, ObjectToFlush)> {
        let below = CleanBase::Version(key(1));
        vec![(
            FILE,
            ObjectToFlush { junction: JunctionId(1), below, place: None, names: Vec::new(), last_write: 0 },
        )]
    }

    fn write(overlay: &DirtyOverlay, sequence: u64) {
        let base = Some(Version([1; 16]));
        let action = Action::Truncate { file: FILE, size: 0, size_before: 10, base };
        let now = Timestamp { seconds: 1, nanos: 0 };
        let operation = JournalOperation { junction: JunctionId(1), acknowledged: now, since: now, action };
        overlay.apply((sequence, &operation, Position::default()), &[]);
    }

    fn version(overlay: &DirtyOverlay) -> Option<Version> {
        match overlay.below(FILE) {
            CleanBase::Version(key) => Some(key.version),
            CleanBase::Nothing | CleanBase::Unknown => None,
        }
    }

    /// A write waited for room in the journal while the flush renamed the directory of its file, at a store that copies:
    /// nobody noted that the version which it was made on is another one now, and it became a conflict with nobody.
    #[test]
    fn what_waits_for_the_journal_follows_a_rename() {
        let overlay = DirtyOverlay::new(Arc::default());
        let (before, after) = (Version([1; 16]), Version([2; 16]));
        let waits = overlay.expect(known());
        overlay.renewed(&Renewed { id: FILE, size: 10, before, after });
        write(&overlay, 1);
        waits.applied();
        assert_eq!(version(&overlay), Some(after));
    }

    #[test]
    fn what_waits_for_the_journal_is_known_after_what_was_before_it_is_flushed_and_not_if_it_gives_up() {
        let overlay = DirtyOverlay::new(Arc::default());
        let first = overlay.expect(known());
        write(&overlay, 1);
        first.applied();
        let second = overlay.expect(known());
        overlay.flushed(FILE, &[1], None, None, true, BytesChanged::No);
        assert_eq!(version(&overlay), Some(Version([1; 16])), "what it is to be written over");
        drop(second);
        assert!(overlay.altered(FILE).is_none());
        drop(overlay.expect(known()));
        assert!(overlay.altered(FILE).is_none());
    }
}
