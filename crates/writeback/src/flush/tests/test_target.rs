//! A home over an origin in memory, as `vfs` will be one: which object a file id is, and what our own flush left, it
//! keeps like a database; it gives way between any two steps, so that a test can cut there.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::{Change, Changed, DirCursor, Identity, Object, Origin, Reference};
use types::{
    ByteRange, CreateHow, Error, ErrorKind, FileId, FileKind, JunctionId, Name, OutageReason, Result,
    SetAttr, Stability, Version,
};

use super::world::tell;
use crate::conflict::Alarm;
use crate::flush_target::{FlushAnswer, FlushTarget, Flushed, OwnFlush, TargetObject, TargetPresence};
use crate::local_ids::verifier_of;
use crate::names::DirtyNames;
use crate::operation::{Attributes, NewObject};
use crate::random::TestRandom;

pub const JUNCTION: JunctionId = JunctionId(1);

/// What survives a crash of the tier.
#[derive(Default)]
pub struct Database {
    references: HashMap<FileId, Reference>,
    ids: HashMap<Identity, FileId>,
    own: HashMap<FileId, OwnFlush>,
    places: HashMap<FileId, (FileId, Name)>,
    /// As it was known last.
    pub known: HashMap<FileId, Object>,
    /// Clean bytes that were in the cache.
    pub bytes: HashMap<(FileId, Version), Bytes>,
    /// Copies that interrupted renames left, as a store of which they have the ETags tells them.
    halves: HashMap<(FileId, FileId, Name), Version>,
}

impl Database {
    pub fn id(&mut self, object: &Object) -> FileId {
        let id = self.ids.get(&object.identity).copied();
        let id = id.unwrap_or_else(|| FileId::derive(JUNCTION, &object.identity.0));
        self.references.entry(id).or_insert_with(|| object.reference.clone());
        id
    }

    pub fn reference(&self, id: FileId) -> Option<Reference> {
        self.references.get(&id).cloned()
    }
}

pub struct TestTarget {
    pub origin: Arc<MemoryOrigin>,
    pub database: Arc<Mutex<Database>>,
    pub names: Arc<Mutex<DirtyNames>>,
    pub alarms: Arc<Mutex<Vec<Alarm>>>,
    pub random: Mutex<TestRandom>,
    /// Calls that change something are refused with this.
    pub refuses: Mutex<Option<ErrorKind>>,
    pub refusals: Mutex<Refusals>,
    /// How often a directory was listed to find an object in it.
    pub listings: AtomicU64,
    /// Another storage answers, an empty one: what the product's home asks of it is refused, and of what it does not have
    /// it says so.
    pub is_replaced: AtomicBool,
    /// A rename is a copy and a removal, and may be interrupted in between.
    pub halves: AtomicBool,
    pub interrupted: AtomicU64,
    /// Files with parts behind the first on their way, and how many they were at most.
    pub writing: Mutex<(Vec<FileId>, usize)>,
}

/// What the origin cannot have, or has no room or right for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    /// Names that begin so are too long for it, and cannot be looked up either.
    pub names: Option<u8>,
    pub size_max: Option<u64>,
    /// No byte can be written.
    pub is_full: bool,
    pub mode: Option<u32>,
    pub links: bool,
}

impl Refusals {
    fn check_name(&self, name: &Name) -> Result<()> {
        match self.names {
            Some(first) if name.as_bytes()[0] == first => refuse(ErrorKind::NameTooLong),
            _ => Ok(()),
        }
    }

    fn check_end(&self, end: u64) -> Result<()> {
        match self.size_max {
            Some(most) if end > most => refuse(ErrorKind::FileTooLarge),
            _ => Ok(()),
        }
    }

    fn check(&self, change: &Change) -> Result<()> {
        match change {
            Change::Link { .. } if self.links => refuse(ErrorKind::TooManyLinks),
            Change::Create { name, .. }
            | Change::Mkdir { name, .. }
            | Change::Symlink { name, .. }
            | Change::Mknod { name, .. }
            | Change::Link { name, .. }
            | Change::Rename { to: name, .. } => self.check_name(name),
            Change::Set { set, .. } if set.mode.is_some() && set.mode == self.mode => {
                refuse(ErrorKind::NotPermitted)
            }
            Change::Set { set, .. } => self.check_end(set.size.unwrap_or(0)),
            _ => Ok(()),
        }
    }
}

fn refuse<T>(kind: ErrorKind) -> Result<T> {
    Err(Error::new(kind, "change", "an origin that refuses"))
}

/// Pending so many times.
pub struct GiveWay(pub u64);

impl Future for GiveWay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl TestTarget {
    pub fn database(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap()
    }

    fn refusals(&self) -> Refusals {
        *self.refusals.lock().unwrap()
    }

    fn is_replaced(&self) -> bool {
        self.is_replaced.load(SeqCst)
    }

    async fn step(&self) {
        let times = self.random.lock().unwrap().below(3);
        GiveWay(times).await;
    }

    /// One change, with a chance to be cut before it and after it.
    async fn change(&self, change: Change) -> Result<Changed> {
        self.step().await;
        self.vouch(FileId([0; 16])).await?;
        let refused = *self.refuses.lock().unwrap();
        if let Some(kind) = refused {
            return refuse(kind);
        }
        self.refusals().check(&change)?;
        let changed = self.origin.change(&change).await;
        tell(|| {
            format!("  {change:?}: {:?}", changed.as_ref().map(|it| it.object.as_ref().map(|it| it.version)))
        });
        self.step().await;
        changed
    }

    fn begin_part(&self, object: FileId, offset: u64) {
        if offset > 0 {
            let (files, most) = &mut *self.writing.lock().unwrap();
            files.push(object);
            *most = (*most).max(files.iter().collect::<HashSet<_>>().len());
        }
    }

    fn end_part(&self, object: FileId, offset: u64) {
        let (files, _) = &mut *self.writing.lock().unwrap();
        if let Some(at) = files.iter().position(|file| *file == object && offset > 0) {
            files.swap_remove(at);
        }
    }

    /// Only the copy is made, if that is how it is to be.
    async fn interrupt(&self, change: &Change, (object, dir): (FileId, FileId)) -> Result<()> {
        let Change::Rename { from_dir, from, to_dir, to, .. } = change else { return Ok(()) };
        if self.random.lock().unwrap().below(3) > 0 {
            return Ok(());
        }
        let source = self.origin.lookup(from_dir, from).await?;
        let target = self.origin.lookup(to_dir, to).await.ok();
        // Where renames are like that, nothing has several names.
        let is_other = |it: &Object| it.attr.is_file() && it.attr.nlink < 2 && it.identity != source.identity;
        if !source.attr.is_file() || source.attr.nlink > 1 || !target.as_ref().is_none_or(is_other) {
            return Ok(());
        }
        let bytes = ByteRange::new(0, source.attr.size);
        let bytes = self.origin.read(&source.reference, source.version, bytes).await?;
        let (parent, name, set) = (to_dir.clone(), to.clone(), SetAttr::default());
        if target.is_some() {
            self.origin.change(&Change::Remove { dir: parent.clone(), name: name.clone() }).await?;
        }
        let change = Change::Create { dir: parent, name: name.clone(), how: CreateHow::Guarded, set };
        let copy = self.origin.change(&change).await?.made()?.reference;
        self.origin.write(&copy, 0, bytes, Stability::FileSync).await?;
        let copy = self.origin.getattr(&copy).await?;
        tell(|| format!("  only a copy of {object}: {change:?}: {:?}", copy.version));
        self.database().halves.insert((object, dir, name), copy.version);
        self.interrupted.fetch_add(1, SeqCst);
        let silence = Error::new(ErrorKind::Unavailable, "rename", "no answer");
        Err(Error::doubtful("rename", "an origin that copies", silence))
    }

    fn reference(&self, id: FileId) -> Result<Reference> {
        let reference = self.database().reference(id);
        reference.ok_or_else(|| Error::new(ErrorKind::NotFound, "find reference of", id))
    }

    async fn found(&self, object: Object) -> TargetObject {
        let target = match object.attr.kind {
            FileKind::Symlink => self.origin.readlink(&object.reference).await.ok(),
            _ => None,
        };
        let id = self.database().id(&object);
        TargetObject { id, version: object.version, attr: object.attr, target }
    }

    async fn changed(&self, change: Change) -> Result<TargetObject> {
        let object = self.change(change).await?.object.expect("these changes show what they altered");
        Ok(self.found(object).await)
    }

    pub async fn list(&self, dir: &Reference) -> Result<Vec<(Name, FileId)>> {
        let page = self.origin.readdir(dir, DirCursor::default()).await?;
        let mut database = self.database();
        let entries = page.entries.into_iter();
        Ok(entries.map(|entry| (entry.name, database.id(&entry.object.unwrap()))).collect())
    }

    pub fn adopt_root(&self, id: FileId, root: &Object) {
        self.database().references.insert(id, root.reference.clone());
    }

    /// What `vfs` knows after it looked at everything.
    pub async fn learn(&self, id: FileId, object: Object) {
        if object.attr.is_file() {
            let range = ByteRange::new(0, object.attr.size);
            let bytes = self.origin.read(&object.reference, object.version, range).await.expect("reads");
            self.database().bytes.insert((id, object.version), bytes);
        }
        self.database().known.insert(id, object);
    }

    /// Our own flush left it like this; what others did since is not known by that.
    async fn learn_flushed(&self, found: &TargetObject) {
        let Some(reference) = self.database().reference(found.id) else { return };
        if let Ok(object) = self.origin.getattr(&reference).await {
            if object.version == found.version {
                self.learn(found.id, object).await;
            } else {
                let object = Object { attr: found.attr, version: found.version, ..object };
                self.database().known.insert(found.id, object);
            }
        }
    }
}

#[async_trait]
impl FlushTarget for TestTarget {
    async fn look(&self, object: FileId) -> Result<TargetPresence> {
        self.step().await;
        let Ok(reference) = self.reference(object) else { return Ok(TargetPresence::Never) };
        if self.is_replaced() {
            return Ok(TargetPresence::Gone);
        }
        match self.origin.getattr(&reference).await {
            Ok(object) => Ok(TargetPresence::Found(self.found(object).await)),
            Err(error) if error.kind() == ErrorKind::Stale => Ok(TargetPresence::Gone),
            Err(error) => Err(error),
        }
    }

    async fn vouch(&self, _: FileId) -> Result<()> {
        match self.is_replaced() {
            true => Err(Error::outage(OutageReason::Replaced, "use", "an origin in memory")),
            false => Ok(()),
        }
    }

    async fn lookup(&self, dir: FileId, name: &Name) -> Result<Option<TargetObject>> {
        self.step().await;
        if self.is_replaced() {
            return Ok(None);
        }
        self.refusals().check_name(name)?;
        match self.origin.lookup(&self.reference(dir)?, name).await {
            Ok(object) => {
                let found = self.found(object).await;
                self.database().places.insert(found.id, (dir, name.clone()));
                Ok(Some(found))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn make(&self, dir: FileId, name: &Name, id: FileId, what: &NewObject) -> Result<TargetObject> {
        let (parent, given, set) = (self.reference(dir)?, name.clone(), SetAttr::default());
        let change = match what {
            NewObject::File => {
                let how = CreateHow::Exclusive(verifier_of(id));
                Change::Create { dir: parent, name: given, how, set }
            }
            NewObject::Directory => Change::Mkdir { dir: parent, name: given, set },
            NewObject::Symlink(target) => {
                Change::Symlink { dir: parent, name: given, target: target.clone(), set }
            }
            NewObject::Special(node) => Change::Mknod { dir: parent, name: given, node: *node, set },
        };
        let object = self.change(change).await?.made()?;
        {
            let mut database = self.database();
            database.ids.insert(object.identity.clone(), id);
            database.references.insert(id, object.reference.clone());
            database.places.insert(id, (dir, name.clone()));
        }
        self.step().await;
        Ok(self.found(object).await)
    }

    async fn adopt(&self, id: FileId, found: &TargetObject) -> Result<()> {
        self.vouch(id).await?;
        let reference = self.reference(found.id)?;
        let object = self.origin.getattr(&reference).await?;
        let mut database = self.database();
        database.ids.insert(object.identity, id);
        database.references.insert(id, reference);
        Ok(())
    }

    async fn set(&self, object: FileId, set: &Attributes, size: Option<u64>) -> Result<FlushAnswer> {
        let object = self.reference(object)?;
        let changed = self.change(Change::Set { object, set: set.to_set(size), guard: None }).await?;
        let after = self.found(changed.object.expect("told")).await;
        Ok(FlushAnswer { before: changed.before.map(|before| before.version), after })
    }

    async fn write(&self, object: FileId, offset: u64, data: Bytes) -> Result<FlushAnswer> {
        self.step().await;
        self.vouch(object).await?;
        let refused = *self.refuses.lock().unwrap();
        if let Some(kind) = refused {
            return refuse(kind);
        }
        self.refusals().check_end(offset + data.len() as u64)?;
        if self.refusals().is_full {
            return refuse(ErrorKind::NoSpace);
        }
        let reference = self.reference(object)?;
        self.begin_part(object, offset);
        let written = self.origin.write(&reference, offset, data, Stability::Unstable).await?;
        tell(|| format!("  write {object} at {offset}: {written:?}"));
        self.step().await;
        self.end_part(object, offset);
        let after = self.found(written.after.expect("told")).await;
        Ok(FlushAnswer { before: written.before, after })
    }

    async fn read(&self, object: FileId, version: Version, range: ByteRange) -> Result<Bytes> {
        self.step().await;
        self.origin.read(&self.reference(object)?, version, range).await
    }

    async fn commit(&self, object: FileId) -> Result<Option<TargetObject>> {
        self.step().await;
        self.vouch(object).await?;
        let reference = self.reference(object)?;
        let committed = self.origin.commit(&reference, ByteRange::new(0, 0)).await?;
        Ok(Some(self.found(committed.after.expect("told")).await))
    }

    async fn link(&self, file: FileId, dir: FileId, name: &Name) -> Result<TargetObject> {
        let (file, dir) = (self.reference(file)?, self.reference(dir)?);
        self.changed(Change::Link { file, dir, name: name.clone() }).await
    }

    async fn remove(&self, dir: FileId, name: &Name) -> Result<()> {
        let dir = self.reference(dir)?;
        self.change(Change::Remove { dir, name: name.clone() }).await.map(drop)
    }

    async fn rmdir(&self, dir: FileId, name: &Name) -> Result<()> {
        let dir = self.reference(dir)?;
        self.change(Change::Rmdir { dir, name: name.clone() }).await.map(drop)
    }

    async fn rename(
        &self,
        from: (FileId, &Name),
        to: (FileId, &Name),
        object: FileId,
    ) -> Result<FlushAnswer> {
        let (from_dir, to_dir) = (self.reference(from.0)?, self.reference(to.0)?);
        let (from, name) = (from.1.clone(), to.1.clone());
        let change = Change::Rename { from_dir, from, to_dir, to: name.clone(), identity: None };
        if self.halves.load(SeqCst) {
            self.step().await;
            self.vouch(object).await?;
            self.interrupt(&change, (object, to.0)).await?;
        }
        let after = self.changed(change).await?;
        self.database().places.insert(object, (to.0, name));
        Ok(FlushAnswer { before: None, after })
    }

    async fn is_half_renamed(&self, object: FileId, dir: FileId, name: &Name) -> Result<bool> {
        let left = self.database().halves.get(&(object, dir, name.clone())).copied();
        let there = if left.is_some() { self.lookup(dir, name).await? } else { None };
        Ok(there.is_some_and(|there| Some(there.version) == left))
    }

    async fn is_spare_copy(&self, object: FileId, dir: FileId, name: &Name) -> Result<bool> {
        self.is_half_renamed(object, dir, name).await
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
        let bytes = base.and_then(|base| self.database().bytes.get(&(object, base)).cloned());
        let (parent, given) = (self.reference(dir)?, name.clone());
        let (how, set) = (CreateHow::Guarded, SetAttr::default());
        self.vouch(object).await?;
        // In one step: it appears complete or not at all.
        let made = self.origin.change(&Change::Create { dir: parent, name: given, how, set }).await?;
        let object = made.made()?;
        let bytes = bytes.unwrap_or_default();
        self.origin.write(&object.reference, 0, bytes, Stability::FileSync).await?;
        let object = self.origin.getattr(&object.reference).await?;
        self.step().await;
        Ok(self.found(object).await)
    }

    async fn place(&self, object: FileId) -> Result<Option<(FileId, Name)>> {
        let Some((dir, name)) = self.database().places.get(&object).cloned() else { return Ok(None) };
        if matches!(self.look(dir).await?, TargetPresence::Found(_)) {
            return Ok(Some((dir, name)));
        }
        let root = self.origin.root().await?;
        let root = self.database().id(&root);
        Ok(Some((root, name)))
    }

    async fn name_in(&self, dir: FileId, object: FileId) -> Result<Option<Name>> {
        self.step().await;
        if self.is_replaced() {
            return Ok(None);
        }
        self.listings.fetch_add(1, SeqCst);
        let entries = self.list(&self.reference(dir)?).await?;
        Ok(entries.into_iter().find(|(_, id)| *id == object).map(|(name, _)| name))
    }

    async fn own(&self, object: FileId) -> Result<OwnFlush> {
        Ok(self.database().own.get(&object).copied().unwrap_or_default())
    }

    async fn begin(&self, object: FileId) -> Result<()> {
        self.step().await;
        tell(|| format!("  begin {object}"));
        self.database().own.entry(object).or_default().begun = true;
        self.step().await;
        Ok(())
    }

    async fn remember(&self, object: FileId, version: Option<Version>) -> Result<()> {
        self.step().await;
        tell(|| format!("  remember {object}: {version:?}"));
        self.database().own.insert(object, OwnFlush { version, begun: false });
        self.step().await;
        Ok(())
    }

    async fn flushed(&self, flushed: &Flushed) {
        for found in flushed.found.iter().chain(&flushed.replaced) {
            self.learn_flushed(found).await;
        }
        let now: Vec<_> =
            flushed.found.iter().chain(&flushed.replaced).map(|found| (found.id, found.attr)).collect();
        self.names.lock().unwrap().flushed(&flushed.sequences, &now);
        self.step().await;
    }

    fn alarm(&self, alarm: Alarm) {
        tell(|| format!("  {alarm}"));
        self.alarms.lock().unwrap().push(alarm);
    }
}
