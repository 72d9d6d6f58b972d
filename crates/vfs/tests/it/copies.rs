//! An origin as an object store is one: references are paths, and what is renamed is copied to other versions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::{
    Change, Changed, Committed, Copied, DirCursor, DirPage, Identity, Object, Origin, OriginIdentity,
    OriginTraits, Reference, RenameLeftover, Written,
};
use types::{
    ByteRange, CreateHow, Error, ErrorKind, FileId, FsStat, JunctionId, Name, Result, SetAttr, Stability,
    Version,
};

pub struct Copies {
    pub memory: Arc<MemoryOrigin>,
    /// From the last copy to the answer.
    answers_after: Duration,
    /// The next rename comes so far, and then there is an outage.
    interrupted: Mutex<Option<Interrupted>>,
    down: AtomicBool,
    /// What a rename from there put here, as long as nobody changes it.
    moved: Mutex<HashMap<(Reference, Reference), (Version, Version)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// Its copy is made, and the old name is still there.
    InTheMiddle,
    /// All is done, and nobody hears of it.
    AtTheEnd,
}

fn child(dir: &Reference, name: &Name) -> Reference {
    let slash = if dir.0.is_empty() { &b""[..] } else { b"/" };
    Reference([&dir.0, slash, name.as_bytes()].concat().into())
}

/// Another one at each place; done twice it is undone.
fn at_place(version: Version, place: &Reference) -> Version {
    let mut all = version;
    let more = FileId::derive(JunctionId(1), &place.0);
    all.0.iter_mut().zip(more.0).for_each(|(byte, more)| *byte ^= more);
    all
}

fn outward(object: Object, place: Reference) -> Object {
    let version = if object.attr.is_dir() { object.version } else { at_place(object.version, &place) };
    Object { identity: Identity(place.0.clone()), version, reference: place, ..object }
}

impl Copies {
    pub fn new(memory: Arc<MemoryOrigin>, answers_after: Duration) -> Arc<Copies> {
        let (interrupted, down, moved) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        Arc::new(Copies { memory, answers_after, interrupted, down, moved })
    }

    pub fn interrupt_the_next_rename(&self, how: Interrupted) {
        *self.interrupted.lock().unwrap() = Some(how);
    }

    /// As after a start: a copy is known by its bytes and no more.
    pub fn forget_renames(&self) {
        self.moved.lock().unwrap().clear();
    }

    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    pub fn end_outage(&self) {
        self.down.store(false, Ordering::SeqCst);
    }

    fn up(&self) -> Result<()> {
        match self.is_down() {
            true => Err(Error::new(ErrorKind::Unavailable, "ask", "an origin that is down")),
            false => Ok(()),
        }
    }

    async fn bytes(&self, file: &Reference) -> Result<Bytes> {
        let file = self.memory.getattr(&self.inward(file).await?).await?;
        self.memory.read(&file.reference, file.version, ByteRange::new(0, file.attr.size)).await
    }

    /// A copy of the file, in place of what is there.
    async fn copy(&self, from: &Reference, (dir, name): (&Reference, &Name)) -> Result<()> {
        let (bytes, dir) = (self.bytes(from).await?, self.inward(dir).await?);
        let _ = self.memory.change(&Change::Remove { dir: dir.clone(), name: name.clone() }).await; // nothing may be there
        let (how, name, set) = (CreateHow::Guarded, name.clone(), SetAttr::default());
        let copy = self.memory.change(&Change::Create { dir, name, how, set }).await?.made()?;
        self.memory.write(&copy.reference, 0, bytes, Stability::FileSync).await.map(drop)
    }

    async fn interrupt(&self, how: Interrupted, change: &Change, inward: &Change) -> Result<Changed> {
        let Change::Rename { from_dir, from, to_dir, to, .. } = change else { unreachable!("a rename") };
        let (old, new) = (child(from_dir, from), child(to_dir, to));
        let before = self.getattr(&old).await?.version;
        match how {
            Interrupted::InTheMiddle => self.copy(&old, (to_dir, to)).await?,
            Interrupted::AtTheEnd => self.memory.change(inward).await.map(drop)?,
        }
        let after = self.getattr(&new).await?.version;
        self.moved.lock().unwrap().insert((old, new), (before, after));
        self.down.store(true, Ordering::SeqCst);
        let silence = Error::new(ErrorKind::Unavailable, "rename", "no answer");
        Err(Error::doubtful("rename", "copies:", silence))
    }

    /// By a rename that nobody heard of.
    async fn was_moved(&self, from: &Reference, to: &Reference) -> Option<Changed> {
        let (before, after) = *self.moved.lock().unwrap().get(&(from.clone(), to.clone()))?;
        let there = self.getattr(to).await.ok().filter(|there| there.version == after)?;
        let copied = vec![Copied { reference: to.clone(), before, after }];
        Some(Changed { object: Some(there), copied, ..Changed::default() })
    }

    async fn inward(&self, place: &Reference) -> Result<Reference> {
        self.up()?;
        let mut at = self.memory.root().await?.reference;
        for part in place.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let name = Name::new(Bytes::copy_from_slice(part))?;
            let found = self.memory.lookup(&at, &name).await;
            at = found.map_err(|_| Error::new(ErrorKind::Stale, "find", name))?.reference;
        }
        Ok(at)
    }

    /// Files at the place and below it, with their versions.
    async fn files(&self, top: &Reference) -> Result<Vec<(Reference, Version)>> {
        let (mut files, mut places) = (Vec::new(), vec![top.clone()]);
        while let Some(place) = places.pop() {
            let object = self.getattr(&place).await?;
            if !object.attr.is_dir() {
                files.push((place, object.version));
                continue;
            }
            let page = self.memory.readdir(&self.inward(&place).await?, DirCursor::default()).await?;
            assert!(page.next.is_none(), "one page is enough for a test");
            places.extend(page.entries.iter().map(|entry| child(&place, &entry.name)));
        }
        Ok(files)
    }

    async fn inward_change(&self, change: &Change) -> Result<(Change, Option<Reference>)> {
        let mut change = change.clone();
        let place = match &mut change {
            Change::Create { dir, name, .. }
            | Change::Mkdir { dir, name, .. }
            | Change::Symlink { dir, name, .. }
            | Change::Mknod { dir, name, .. } => {
                let place = child(dir, name);
                *dir = self.inward(dir).await?;
                Some(place)
            }
            Change::Remove { dir, .. } | Change::Rmdir { dir, .. } => {
                *dir = self.inward(dir).await?;
                None
            }
            Change::Rename { from_dir, to_dir, to, .. } => {
                let place = child(to_dir, to);
                (*from_dir, *to_dir) = (self.inward(from_dir).await?, self.inward(to_dir).await?);
                Some(place)
            }
            Change::Set { object, .. } | Change::SetXattr { object, .. } => {
                let place = object.clone();
                *object = self.inward(object).await?;
                Some(place)
            }
            Change::Link { .. } | Change::Publish { .. } => {
                return Err(Error::new(ErrorKind::NotSupported, "link or publish", ""));
            }
        };
        Ok((change, place))
    }
}

#[async_trait]
impl Origin for Copies {
    fn url(&self) -> String {
        "copies:".into()
    }

    fn traits(&self) -> OriginTraits {
        OriginTraits { identity_is_place: true, has_xattrs: false, ..self.memory.traits() }
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.up()?;
        self.memory.identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.memory.is_empty().await
    }

    async fn root(&self) -> Result<Object> {
        self.up()?;
        Ok(outward(self.memory.root().await?, Reference(Bytes::new())))
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let found = self.memory.lookup(&self.inward(dir).await?, name).await?;
        Ok(outward(found, child(dir, name)))
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        let found = self.memory.getattr(&self.inward(object).await?).await?;
        Ok(outward(found, object.clone()))
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.memory.readlink(&self.inward(link).await?).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let mut page = self.memory.readdir(&self.inward(dir).await?, cursor).await?;
        for entry in &mut page.entries {
            let place = child(dir, &entry.name);
            entry.object = entry.object.take().map(|object| outward(object, place));
        }
        Ok(page)
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.memory.read(&self.inward(object).await?, at_place(version, object), range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.memory.statfs(&self.inward(object).await?).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        let (inward, place) = self.inward_change(change).await?;
        let was = match (change, &place) {
            (Change::Rename { from_dir, from, .. }, Some(to)) => {
                let from = child(from_dir, from);
                if self.getattr(&from).await.is_err()
                    && let Some(moved) = self.was_moved(&from, to).await
                {
                    return Ok(moved);
                }
                self.files(&from).await?
            }
            _ => Vec::new(),
        };
        let interrupted = self.interrupted.lock().unwrap().take_if(|_| !was.is_empty());
        if let Some(how) = interrupted {
            return self.interrupt(how, change, &inward).await;
        }
        let changed = self.memory.change(&inward).await?;
        let mut copied = Vec::new();
        if let (Change::Rename { from_dir, from, .. }, Some(to)) = (change, &place) {
            let from = child(from_dir, from);
            for (old, before) in was {
                let reference = Reference([&to.0, &old.0[from.0.len()..]].concat().into());
                let after = self.getattr(&reference).await?.version;
                copied.push(Copied { reference, before, after });
            }
            tokio::time::sleep(self.answers_after).await;
        }
        // Of what is altered in place it says what it was.
        let before = changed.before.zip(place.as_ref()).map(|(mut before, place)| {
            before.version = at_place(before.version, place);
            before
        });
        let object = changed.object.zip(place).map(|(object, place)| outward(object, place));
        Ok(Changed { object, before, copied, ..Changed::default() })
    }

    async fn left_by_rename(
        &self,
        from: &Reference,
        _was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        self.up()?;
        let Some(moved) = self.was_moved(from, there).await else {
            let is_alike = match self.bytes(from).await {
                Ok(bytes) => self.bytes(there).await? == bytes,
                Err(_) => false,
            };
            return Ok(if is_alike { RenameLeftover::Ours } else { RenameLeftover::Foreign });
        };
        Ok(match self.getattr(from).await {
            // What is there now came after the rename.
            Ok(old) if moved.copied.iter().all(|copied| copied.before != old.version) => {
                RenameLeftover::Foreign
            }
            Ok(_) => RenameLeftover::SpareCopy,
            Err(_) => RenameLeftover::Ours,
        })
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let told = self.memory.write(&self.inward(object).await?, offset, data, stability).await?;
        let before = told.before.map(|before| at_place(before, object));
        Ok(Written { before, after: told.after.map(|after| outward(after, object.clone())), ..told })
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        let told = self.memory.commit(&self.inward(object).await?, range).await?;
        let before = told.before.map(|before| at_place(before, object));
        Ok(Committed { before, after: told.after.map(|after| outward(after, object.clone())), ..told })
    }
}
