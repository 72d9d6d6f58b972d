//! Where the flush brings things to: `namespace` for names and attributes, the origin for bytes, `cache` for what became
//! clean.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::bytes::Bytes;
use async_trait::async_trait;
use cache::{Cache, CacheKey};
use fetch::{BytesChanged, at_origin, relabel};
use namespace::{Ask, KnownNode, Namespace, New, NoteChange, Old, QueryStamp, Renewed};
use origin::{Object, Origin, Reference, RenameLeftover};
use tokio::sync::watch;
use types::{
    ByteRange, CreateHow, Error, ErrorKind, FileId, JunctionId, Name, Result, SetAttr, Stability, Version,
    WriteVerifier,
};
use writeback::{
    Alarm, Attributes, ContentChange, DroppedOperations, FlushAnswer, FlushTarget, Flushed, Journal,
    NewObject, OwnFlush, TargetObject, TargetPresence, verifier_of,
};

use super::alarms::Alarms;
use super::lay::CacheFiller;
use super::overlay::{CleanBase, DirtyOverlay};
use crate::places::Places;

/// Bytes of a base copied at a time.
const COPY_PIECE: u64 = 1 << 20;
/// Directories between an object and the root, at most.
const DEPTH_MAX: usize = 512;
/// No call to the origin lasts longer than the wrappers around it let it; this is for one that does.
const DEADLINE: Duration = Duration::from_secs(300);

pub struct BackFlushTarget {
    namespace: Arc<Namespace>,
    cache: Arc<Cache>,
    overlay: Arc<DirtyOverlay>,
    places: Places,
    alarms: Arc<Alarms>,
    /// It is known where everything is.
    ready: watch::Receiver<bool>,
    /// The origin's verifier of what was written since the last commit; `None`: it was not always the same.
    unstable: Mutex<HashMap<FileId, Option<WriteVerifier>>>,
    layer: CacheFiller,
}

/// What is kept with an object in the namespace's database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushNote {
    /// That our own flush left.
    pub version: Option<Version>,
    /// Our flush is at it.
    pub begun: bool,
    /// The origin has had it.
    pub made: bool,
}

impl FlushNote {
    pub fn of(namespace: &Namespace, id: FileId) -> Result<FlushNote> {
        Ok(FlushNote::of_bytes(namespace.note(id)?.as_deref()))
    }

    fn of_bytes(bytes: Option<&[u8]>) -> FlushNote {
        bytes.and_then(FlushNote::decode).unwrap_or_default()
    }

    fn altered(by: impl Fn(FlushNote) -> FlushNote + Send + 'static) -> NoteChange {
        NoteChange(Box::new(move |bytes| by(FlushNote::of_bytes(bytes)).encode()))
    }

    fn encode(self) -> Option<Bytes> {
        if self == FlushNote::default() {
            return None;
        }
        let flags = u8::from(self.version.is_some()) | u8::from(self.begun) << 1 | u8::from(self.made) << 2;
        let mut bytes = vec![1, flags];
        bytes.extend(self.version.map_or([0; 16], |version| version.0));
        Some(bytes.into())
    }

    /// One of another layout tells nothing.
    fn decode(bytes: &[u8]) -> Option<FlushNote> {
        let ([1, flags], version) = bytes.split_first_chunk::<2>()? else { return None };
        let version = Version(version.try_into().ok()?);
        let has = |bit: u8| flags & 1 << bit != 0;
        Some(FlushNote { version: has(0).then_some(version), begun: has(1), made: has(2) })
    }
}

impl BackFlushTarget {
    pub fn new(
        namespace: Arc<Namespace>,
        cache: Arc<Cache>,
        overlay: Arc<DirtyOverlay>,
        journal: Arc<Journal>,
        alarms: Arc<Alarms>,
        ready: watch::Receiver<bool>,
    ) -> BackFlushTarget {
        let layer = CacheFiller::new(cache.clone(), overlay.clone(), journal);
        let places = Places { overlay: overlay.clone(), namespace: namespace.clone() };
        BackFlushTarget {
            namespace,
            cache,
            overlay,
            places,
            alarms,
            ready,
            unstable: Mutex::default(),
            layer,
        }
    }

    fn note(&self, id: FileId) -> Result<FlushNote> {
        FlushNote::of(&self.namespace, id)
    }

    async fn keep(&self, id: FileId, by: impl Fn(FlushNote) -> FlushNote + Send + 'static) -> Result<()> {
        self.namespace.alter_note(id, FlushNote::altered(by)).await
    }

    async fn found(&self, found: &namespace::Found) -> Result<TargetObject> {
        match found {
            namespace::Found::Node(node) => Ok(self.found_node(node).await),
            namespace::Found::Virtual { id, .. } => Err(Error::new(ErrorKind::ReadOnly, "flush to", id)),
        }
    }

    async fn found_node(&self, node: &Arc<KnownNode>) -> TargetObject {
        let target = match node.attr().kind {
            types::FileKind::Symlink => self.namespace.link_target(node).await.ok(),
            _ => None,
        };
        TargetObject { id: node.id, version: node.version(), attr: *node.attr(), target }
    }

    /// The file as an answer to our write tells it; asked for where it does not tell.
    async fn took(
        &self,
        id: FileId,
        asked: QueryStamp,
        before: Option<Version>,
        after: Option<Object>,
    ) -> Result<TargetObject> {
        let after = match after {
            Some(after) => after,
            None => {
                at_origin(&self.namespace, id, |origin, at| async move { origin.getattr(&at).await }).await?
            }
        };
        self.namespace.wrote(id, asked, before, &after).await?;
        Ok(TargetObject { id, version: after.version, attr: after.attr, target: None })
    }

    /// With a directory that we renamed. If all that happened to it before was our doing, this was, too: so it is for what
    /// is to be flushed of it, which was made on the version before.
    fn note_renewed(&self, renewed: &Renewed) -> NoteChange {
        let Renewed { before, after, .. } = *renewed;
        let is_base = match self.overlay.below(renewed.id) {
            CleanBase::Version(key) => key.version == before,
            CleanBase::Nothing | CleanBase::Unknown => false,
        };
        FlushNote::altered(move |note| match is_base || note.version == Some(before) {
            true => FlushNote { version: Some(after), ..note },
            false => note,
        })
    }

    fn wrote_under(&self, id: FileId, verifier: WriteVerifier) {
        let mut unstable = self.unstable();
        let known = unstable.entry(id).or_insert(Some(verifier));
        if *known != Some(verifier) {
            *known = None;
        }
    }

    fn unstable(&self) -> std::sync::MutexGuard<'_, HashMap<FileId, Option<WriteVerifier>>> {
        self.unstable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stale is told, too, where the object or directory is there and only moves: by an origin whose references are paths,
    /// when a directory above it is renamed. Then it is for the next attempt, and must not pass for a removal.
    async fn if_gone<T>(&self, id: FileId, result: Result<T>) -> Result<T> {
        match result {
            Err(e) if e.kind() == ErrorKind::Stale => match self.look(id).await? {
                TargetPresence::Found(_) => {
                    Err(Error::new(ErrorKind::Busy, "flush to what moves,", id).with_source(e))
                }
                TargetPresence::Gone | TargetPresence::Never => Err(e),
            },
            other => other,
        }
    }

    /// The object was lost sight of: an origin whose references are paths knows it by its names only, and it may be under
    /// another of them than the one that was thought of.
    async fn look_under_names(&self, id: FileId) -> Result<Option<TargetObject>> {
        for (dir, name) in self.overlay.altered(id).map(|altered| altered.names).unwrap_or_default() {
            match self.namespace.lookup_now(dir, &name).await {
                Ok(Some(node)) if node.id == id => return Ok(Some(self.found_node(&node).await)),
                Err(e) if !is_not_there(&e) && e.kind() != ErrorKind::NotADirectory => return Err(e),
                _ => {}
            }
        }
        Ok(None)
    }

    async fn left_by_rename(&self, object: FileId, dir: FileId, name: &Name) -> Result<RenameLeftover> {
        let left = self.namespace.left_by_rename(object, dir, name).await;
        match self.if_gone(dir, left).await {
            Err(e) if is_not_there(&e) => Ok(RenameLeftover::Foreign),
            told => told,
        }
    }

    /// Bytes of `base` that are here go to `copy`, at the origin.
    async fn copy_bytes(&self, base: &CacheKey, copy: FileId) -> Result<()> {
        let mut at = 0;
        while at < base.size {
            let range = ByteRange::new(at, COPY_PIECE.min(base.size - at));
            at = range.end();
            let Some(pieces) = self.cache.read_present(base, range).await? else { continue };
            let mut data = Vec::with_capacity(range.length as usize);
            for piece in pieces {
                let bytes = piece.to_bytes().map_err(|e| Error::io("read from the cache", base.file, e))?;
                data.extend_from_slice(&bytes);
            }
            self.write(copy, range.offset, data.into()).await?;
        }
        if base.size > 0 {
            self.set(copy, &Attributes::default(), Some(base.size)).await?;
        }
        match self.commit(copy).await? {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Unavailable, "store the copy of", base.file)),
        }
    }

    async fn look_there(&self, object: FileId) -> Result<TargetPresence> {
        match self.namespace.refresh_changed(object).await {
            Ok(found) => Ok(TargetPresence::Found(self.found(&found).await?)),
            Err(e) if is_not_there(&e) && object.is_made_here() && !self.note(object)?.made => {
                Ok(TargetPresence::Never)
            }
            Err(e) if is_not_there(&e) => {
                Ok(self.look_under_names(object).await?.map_or(TargetPresence::Gone, TargetPresence::Found))
            }
            Err(e) => Err(e),
        }
    }

    fn junction_of(&self, object: FileId) -> Result<JunctionId> {
        match self.overlay.altered(object) {
            Some(altered) => Ok(altered.junction),
            None => Ok(self.namespace.getattr_known(object)?.junction()),
        }
    }

    /// What the origin said was said by the storage that it always was.
    async fn vouch_for_answers(&self, object: FileId) -> Result<()> {
        let Ok(junction) = self.junction_of(object) else { return Ok(()) }; // it never was at one
        self.namespace.vouch_for_answers_of(junction).await
    }
}

fn is_not_there(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound)
}

#[async_trait]
impl FlushTarget for BackFlushTarget {
    async fn look(&self, object: FileId) -> Result<TargetPresence> {
        let seen = self.look_there(object).await?;
        self.vouch_for_answers(object).await?;
        Ok(seen)
    }

    async fn vouch(&self, object: FileId) -> Result<()> {
        self.namespace.vouch_for_junction(self.junction_of(object)?).await
    }

    async fn lookup(&self, dir: FileId, name: &Name) -> Result<Option<TargetObject>> {
        let found = self.namespace.lookup_now(dir, name).await;
        let found = self.if_gone(dir, found).await?;
        self.vouch_for_answers(dir).await?;
        match found {
            Some(node) => Ok(Some(self.found_node(&node).await)),
            None => Ok(None),
        }
    }

    async fn make(&self, dir: FileId, name: &Name, id: FileId, what: &NewObject) -> Result<TargetObject> {
        let set = SetAttr::default();
        let new = match what {
            NewObject::File => New::File { how: CreateHow::Exclusive(verifier_of(id)), set },
            NewObject::Directory => New::Directory { set },
            NewObject::Symlink(target) => New::Symlink { target: target.clone(), set },
            NewObject::Special(node) => New::Special { node: *node, set },
        };
        let note = FlushNote::altered(|note| FlushNote { made: true, ..note });
        let made = self.namespace.make_as(dir, name, &new, Some((id, note))).await;
        self.found(&self.if_gone(dir, made).await?.found).await
    }

    async fn adopt(&self, id: FileId, found: &TargetObject) -> Result<()> {
        self.namespace.adopt(id, found.id).await?;
        self.keep(id, |note| FlushNote { made: true, ..note }).await
    }

    async fn set(&self, object: FileId, set: &Attributes, size: Option<u64>) -> Result<FlushAnswer> {
        let altered = self.namespace.set(object, set.to_set(size), None).await;
        let altered = self.if_gone(object, altered).await?;
        let before = altered.before.map(|before| before.version);
        // What others did since is in what is known.
        let (version, attr) = (altered.told.version, altered.told.attr);
        Ok(FlushAnswer { before, after: TargetObject { version, attr, ..self.found(&altered.found).await? } })
    }

    async fn write(&self, object: FileId, offset: u64, data: Bytes) -> Result<FlushAnswer> {
        let write = |origin: Arc<dyn Origin>, at: Reference| {
            let data = data.clone();
            async move { origin.write(&at, offset, data, Stability::Unstable).await }
        };
        let asked = self.namespace.asking();
        let told = at_origin(&self.namespace, object, write).await;
        let told = self.if_gone(object, told).await?;
        self.wrote_under(object, told.verifier);
        let after = self.took(object, asked, told.before, told.after).await?;
        Ok(FlushAnswer { before: told.before, after })
    }

    async fn read(&self, object: FileId, version: Version, range: ByteRange) -> Result<Bytes> {
        let read = |origin: Arc<dyn Origin>, at: Reference| async move {
            origin::read_in_pieces(origin.as_ref(), &at, version, range).await
        };
        at_origin(&self.namespace, object, read).await
    }

    async fn set_at_commit(&self, object: FileId, set: &Attributes) -> Result<bool> {
        let set = set.to_set(None);
        at_origin(&self.namespace, object, |origin, at| async move { origin.set_at_commit(&at, &set).await })
            .await
    }

    async fn travels(&self, object: FileId, content: &ContentChange) {
        self.layer.lay_ahead(object, content).await;
    }

    async fn commit(&self, object: FileId) -> Result<Option<TargetObject>> {
        let (all, asked) = (ByteRange::new(0, 0), self.namespace.asking());
        let told =
            at_origin(&self.namespace, object, |origin, at| async move { origin.commit(&at, all).await })
                .await?;
        let written = self.unstable().remove(&object);
        if written.is_some_and(|verifier| verifier != Some(told.verifier)) {
            return Ok(None);
        }
        self.took(object, asked, told.before, told.after).await.map(Some)
    }

    async fn link(&self, file: FileId, dir: FileId, name: &Name) -> Result<TargetObject> {
        let made = self.namespace.make(dir, name, &New::Link { file }).await;
        self.found(&self.if_gone(dir, made).await?.found).await
    }

    async fn remove(&self, dir: FileId, name: &Name) -> Result<()> {
        let removed = self.namespace.remove(dir, name, Old::File).await;
        self.if_gone(dir, removed).await.map(drop)
    }

    async fn rmdir(&self, dir: FileId, name: &Name) -> Result<()> {
        let removed = self.namespace.remove(dir, name, Old::Directory).await;
        self.if_gone(dir, removed).await.map(drop)
    }

    async fn rename(
        &self,
        from: (FileId, &Name),
        to: (FileId, &Name),
        object: FileId,
    ) -> Result<FlushAnswer> {
        let note = |renewed: &Renewed| self.note_renewed(renewed);
        let renamed = self.namespace.rename_noting(from, to, (Some(object), Some(&note))).await;
        let renamed = self.if_gone(from.0, renamed).await;
        let moved = self.if_gone(to.0, renamed).await?;
        let below = || moved.renewed.iter().filter(|renewed| renewed.id != object);
        below().for_each(|renewed| self.overlay.renewed(renewed));
        for renewed in below() {
            relabel(&self.cache, renewed).await;
        }
        // Asked for where the answer did not tell.
        let after = self.found(&self.namespace.getattr(object, Ask::Use).await?).await?;
        // A copy tells exactly what it is of, and what it is.
        let copied = moved.renewed.iter().find(|it| it.id == object && it.after == after.version);
        Ok(FlushAnswer { before: copied.map(|copied| copied.before), after })
    }

    async fn is_half_renamed(&self, object: FileId, dir: FileId, name: &Name) -> Result<bool> {
        Ok(self.left_by_rename(object, dir, name).await? != RenameLeftover::Foreign)
    }

    async fn is_spare_copy(&self, object: FileId, dir: FileId, name: &Name) -> Result<bool> {
        Ok(self.left_by_rename(object, dir, name).await? == RenameLeftover::SpareCopy)
    }

    async fn copy_base(
        &self,
        object: FileId,
        base: Option<Version>,
        dir: FileId,
        name: &Name,
    ) -> Result<TargetObject> {
        if let Some(found) = self.lookup(dir, name).await? {
            return Ok(found);
        }
        // Complete under a hidden name first.
        let hidden = Name::new(format!(".forebay-{object}"))?;
        if self.lookup(dir, &hidden).await?.is_some() {
            self.remove(dir, &hidden).await?;
        }
        let new = New::File { how: CreateHow::Guarded, set: SetAttr::default() };
        let copy = self.namespace.make(dir, &hidden, &new).await?.found.id();
        // Or that our flush left since.
        let own = self.note(object)?.version;
        if let Some(CleanBase::Version(key)) = self.overlay.altered(object).map(|altered| altered.below)
            && [base, own].contains(&Some(key.version))
        {
            self.copy_bytes(&key, copy).await?;
        }
        Ok(self.rename((dir, &hidden), (dir, name), copy).await?.after)
    }

    async fn place(&self, object: FileId) -> Result<Option<(FileId, Name)>> {
        let Some((mut dir, Some(name))) = self.places.place_of(object) else { return Ok(None) };
        for _ in 0..DEPTH_MAX {
            let above = self.places.place_of(dir);
            if matches!(self.look(dir).await?, TargetPresence::Found(_)) {
                return Ok(Some((dir, name)));
            }
            let Some((parent, _)) = above else { break };
            dir = parent;
        }
        let Some(altered) = self.overlay.altered(object) else { return Ok(None) };
        Ok(Some((self.namespace.root_of(altered.junction)?, name)))
    }

    async fn name_in(&self, dir: FileId, object: FileId) -> Result<Option<Name>> {
        let all = self.namespace.list_now(dir).await?;
        let found = all.into_iter().find(|(_, id)| *id == Some(object));
        found.map(|(name, _)| Name::new(name)).transpose()
    }

    /// What every attempt begins with.
    async fn own(&self, object: FileId) -> Result<OwnFlush> {
        let _ = self.ready.clone().wait_for(|ready| *ready).await; // an error: it is over
        let note = self.note(object)?;
        Ok(OwnFlush { version: note.version, begun: note.begun })
    }

    async fn own_now(&self, object: FileId) -> Result<OwnFlush> {
        self.keep(object, |note| note).await?; // comes behind all that is on its way
        self.own(object).await
    }

    async fn begin(&self, object: FileId) -> Result<()> {
        self.keep(object, |note| FlushNote { begun: true, ..note }).await
    }

    async fn remember(&self, object: FileId, version: Option<Version>) -> Result<()> {
        self.keep(object, move |note| FlushNote { version, begun: false, ..note }).await
    }

    async fn flushed(&self, flushed: &Flushed) {
        let id = flushed.object;
        let now = flushed.found.as_ref().filter(|found| found.id == id);
        // What was cached of it below what was sent may be another's by now.
        let is_known = flushed.is_alone
            || matches!(self.overlay.below(id), CleanBase::Nothing)
                && flushed.content.is_all_of(now.map_or(0, |now| now.attr.size));
        if let CleanBase::Version(old) = self.overlay.below(id)
            && let Some(now) = now.filter(|now| now.attr.is_file())
        {
            let now = CacheKey { file: id, version: now.version, size: now.attr.size };
            let is_same = flushed.content.is_nothing() && flushed.is_alone;
            let changed = if is_same { BytesChanged::No } else { BytesChanged::Yes };
            self.overlay.version_chain.note((id, old.version), now, changed);
        }
        if let Some(now) = now.filter(|now| is_known && now.attr.is_file())
            && let Err(e) = tokio::time::timeout(DEADLINE, self.layer.lay(id, &flushed.content, now))
                .await
                .unwrap_or(Ok(()))
        {
            tracing::debug!("flushed bytes of {id} are not kept in the cache: {e}");
            self.layer.forget_begun(CacheKey { file: id, version: now.version, size: now.attr.size }).await;
        }
        if now.is_none() || !is_known {
            self.layer.forget_ahead(id).await;
        }
        if (now.is_none() || !is_known) && !flushed.content.is_nothing() {
            // Others were there, too, or may have been: what is cached is not known to be what is there.
            let cache = self.cache.clone();
            let _ = tokio::task::spawn_blocking(move || cache.evict_file(id)).await;
        }
        let now = now.map(|now| (now.version, now.attr));
        let replaced = flushed.replaced.as_ref().map(|replaced| (replaced.id, replaced.attr));
        let content = &flushed.content;
        // Else others wrote beside what was flushed, or may have.
        let since = if is_known { BytesChanged::No } else { BytesChanged::Yes };
        let touched =
            self.overlay.flushed(id, &flushed.sequences, now, replaced, content.is_nothing(), since);
        touched.into_iter().for_each(|id| self.namespace.tell_changed(id));
    }

    async fn given_up(&self, given_up: &DroppedOperations) {
        let namespace = &self.namespace;
        let at_origin = |id| match namespace.getattr_known(id).ok()? {
            namespace::Found::Node(node) => Some((node.parent(), Name::new(node.name().clone()).ok()?)),
            namespace::Found::Virtual { .. } => None,
        };
        self.overlay.given_up(given_up, at_origin);
        for pending in &given_up.gone {
            let (id, dirs) = (pending.operation.object(), pending.operation.dirs());
            if pending.operation.is_content() {
                self.layer.forget_ahead(id).await;
                let cache = self.cache.clone();
                let _ = tokio::task::spawn_blocking(move || cache.evict_file(id)).await;
            }
            if pending.in_doubt && !self.overlay.is_altered(id) {
                // What of it arrived is the origin's now, and no half-done work of ours.
                let forgotten = self.keep(id, |note| FlushNote { version: None, begun: false, ..note }).await;
                if let Err(e) = forgotten {
                    tracing::warn!("what is kept of {id}, which was given up: {e}");
                }
                let namespace = self.namespace.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(DEADLINE, namespace.refresh_changed(id)).await;
                });
            }
            dirs.into_iter().flatten().chain([id]).for_each(|it| self.namespace.tell_changed(it));
        }
    }

    fn alarm(&self, alarm: Alarm) {
        let what = match &alarm.place {
            Some((dir, name)) => self.places.path_in(*dir, name),
            None => self.places.path_of(alarm.object),
        };
        let beside = match (&alarm.place, &alarm.beside) {
            (Some((dir, _)), Some(beside)) => format!(", ours is {}", self.places.path_in(*dir, beside)),
            _ => String::new(),
        };
        self.alarms.raise(alarm.kind, format!("{what}{beside}: {}", alarm.why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was_kept() {
        for version in [None, Some(Version([7; 16]))] {
            for (begun, made) in [(false, true), (true, false), (true, true)] {
                let note = FlushNote { version, begun, made };
                assert_eq!(FlushNote::decode(&note.encode().unwrap()), Some(note));
            }
        }
        assert_eq!(FlushNote::default().encode(), None);
        assert_eq!(FlushNote::decode(b"\x02\x00"), None);
    }
}
