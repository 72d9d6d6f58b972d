//! Changes of names and attributes. A store has no directories, links or renames; this is what stands for them:
//!
//! - a directory that is made has a marker, an empty object whose key ends with a slash; others exist as long as a
//!   key begins with them, and get a marker when the last one is removed
//! - a rename is copies and removals (`change/rename.rs`)
//! - attributes are stored with an object by copying it onto itself

use ::origin::change::check_target;
use ::origin::{Before, Change, Changed, Object, Reference};
use bytes::Bytes;
use types::{CreateHow, Error, ErrorKind, Name, Result, SetAttr, Timestamp};

use crate::attributes::StoredAttributes;
use crate::copy::describe;
use crate::dir_times::now;
use crate::keys::{KeyKind, child, what};
use crate::object_writer::ObjectWriter;
use crate::origin::ObjectOrigin;
use crate::path_locks::{Fate, PathLock};
use crate::store::{CopySource, Metadata, ObjectStat, Precondition, PutResult};
use crate::url::AttributeSource;

mod interrupted;
mod rename;

pub(crate) const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

impl ObjectOrigin {
    pub(crate) async fn make_change(&self, change: &Change) -> Result<Changed> {
        let held = self.lock_for_change(change).await?;
        let mut copied = Vec::new();
        let made = match change {
            Change::Create { dir, name, how, set } => self.create(dir, name, *how, set).await.map(Some),
            Change::Mkdir { dir, name, set } => self.mkdir(dir, name, set).await.map(Some),
            Change::Symlink { dir, name, target, set } => {
                self.symlink(dir, name, target, set).await.map(Some)
            }
            Change::Remove { dir, name } => self.remove(dir, name).await.map(|()| None),
            Change::Rmdir { dir, name } => self.rmdir(dir, name).await.map(|()| None),
            Change::Rename { from_dir, from, to_dir, to, identity: _ } => {
                self.rename((from_dir, from), (to_dir, to), &held, &mut copied).await.map(Some)
            }
            Change::Publish { draft, dir, name, over } => {
                self.publish_draft(draft, (dir, name), *over).await.map(Some)
            }
            Change::Set { object, set, guard } => return self.set(object, set, *guard).await,
            Change::Mknod { .. } | Change::Link { .. } | Change::SetXattr { .. } => {
                Err(Error::new(ErrorKind::NotSupported, change.kind(), self.place(change.place())))
            }
        };
        // The creator cannot be recognized: only what is repeatable may be retried.
        let object = made.map_err(|e| match e.kind() {
            ErrorKind::Unavailable if !change.is_repeatable() => {
                Error::doubtful(change.kind(), self.place(change.place()), e)
            }
            _ => e,
        })?;
        if let Change::Rename { from_dir, to_dir, .. } = change {
            self.dir_times.changed(from_dir, now());
            self.dir_times.changed(to_dir, now());
        } else {
            self.dir_times.changed(change.place(), now());
        }
        Ok(Changed { object, copied, ..Changed::default() })
    }

    /// A directory that was renamed during the wait must be looked up anew: another has its path now.
    async fn lock_for_change(&self, change: &Change) -> Result<PathLock<'_>> {
        let below = |dir: &Reference, name: &Name| [&dir.0, name.as_bytes()].concat();
        let held = match change {
            Change::Set { object, .. } | Change::SetXattr { object, .. } => {
                return self.lock_object(change.kind(), object).await;
            }
            Change::Create { dir, name, .. }
            | Change::Mkdir { dir, name, .. }
            | Change::Symlink { dir, name, .. }
            | Change::Mknod { dir, name, .. }
            | Change::Link { dir, name, .. }
            | Change::Publish { dir, name, .. }
            | Change::Remove { dir, name }
            | Change::Rmdir { dir, name } => self.path_locks.lock_shared(&below(dir, name), &dir.0).await,
            Change::Rename { from_dir, from, to_dir, to, .. } => {
                let about = [&from_dir.0[..], &to_dir.0[..]];
                self.path_locks.lock_for_move(&below(from_dir, from), &below(to_dir, to), about).await
            }
        };
        let held = held.ok_or_else(|| self.being_renamed(change.kind(), change.place()))?;
        match held.fate() {
            Fate::Moved => Err(self.gone(change.kind(), change.place())),
            Fate::Stays | Fate::Replaced => Ok(held),
        }
    }

    pub(crate) fn metadata(&self, kind: u32, set: &SetAttr, verifier: Option<[u8; 8]>) -> Metadata {
        let first = StoredAttributes {
            mode: set.mode.map(|mode| kind | mode & 0o7777),
            verifier,
            ..StoredAttributes::default()
        };
        first.set(&SetAttr { mode: None, ..*set }, now()).into_metadata(Metadata::new(), self.config.dialect)
    }

    async fn create(&self, dir: &Reference, name: &Name, how: CreateHow, set: &SetAttr) -> Result<Object> {
        let file = child(&self.base, dir, name, KeyKind::File)?;
        let exists = || Error::new(ErrorKind::Exists, "create", self.place(&file));
        let directory = child(&self.base, dir, name, KeyKind::Directory)?;
        let (dir_is_there, directory) = tokio::join!(self.is_there(dir), self.stat_directory(&directory));
        dir_is_there?;
        if directory?.is_some() {
            return Err(exists());
        }
        let verifier = match how {
            CreateHow::Exclusive(verifier) => Some(verifier),
            CreateHow::Unchecked | CreateHow::Guarded => None,
        };
        let key = self.base.key(&file)?;
        let zeros = Bytes::from(vec![0; usize::try_from(set.size.unwrap_or(0)).unwrap_or(0).min(1 << 20)]);
        let (metadata, moment) =
            (self.metadata(REGULAR, set, verifier), self.stat_cache.change_count(&file.0));
        let size = zeros.len() as u64;
        let made = match self.store.put(&key, zeros, &metadata, Precondition::Absent).await {
            Ok(PutResult { etag, modified }) => {
                let stat = modified.map(|modified| ObjectStat { size, etag, modified, metadata });
                self.stat_cache.changed_to(&file.0, moment, stat.as_ref());
                stat
            }
            Err(e) if e.kind() == ErrorKind::VersionChanged => {
                let stat = self
                    .stat_object(&file)
                    .await?
                    .ok_or_else(|| Error::new(ErrorKind::Busy, "create", self.place(&file)).with_source(e))?;
                let there = self.file(&file, &stat);
                return match how {
                    CreateHow::Guarded => Err(exists()),
                    CreateHow::Exclusive(verifier) => {
                        let stored = StoredAttributes::of(&stat.metadata, self.config.dialect);
                        if stored.verifier != Some(verifier) {
                            return Err(exists());
                        }
                        if *set == SetAttr::default() {
                            return Ok(there);
                        }
                        self.set(&file, set, None).await?.made()
                    }
                    CreateHow::Unchecked if set.size.is_some_and(|size| size != there.attr.size) => {
                        let size = SetAttr { size: set.size, ..SetAttr::default() };
                        self.set(&file, &size, None).await?.made()
                    }
                    CreateHow::Unchecked => Ok(there),
                };
            }
            Err(e) => return Err(e),
        };
        if set.size.is_some_and(|size| size > 1 << 20) {
            let size = SetAttr { size: set.size, ..SetAttr::default() };
            return self.set(&file, &size, None).await?.made();
        }
        if let Some(stat) = made {
            return Ok(self.file(&file, &stat));
        }
        self.stat_file(&file).await?.ok_or_else(|| self.gone("create", &file))
    }

    /// A directory without a marker exists only as long as something is in it.
    async fn is_there(&self, dir: &Reference) -> Result<()> {
        if dir.0.is_empty() || self.stat_directory(dir).await?.is_some() {
            return Ok(());
        }
        Err(self.gone("change", dir))
    }

    async fn mkdir(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Object> {
        let (file, made) =
            (child(&self.base, dir, name, KeyKind::File)?, child(&self.base, dir, name, KeyKind::Directory)?);
        let (dir_is_there, file, directory) =
            tokio::join!(self.is_there(dir), self.stat_file(&file), self.stat_directory(&made));
        dir_is_there?;
        let exists = || Error::new(ErrorKind::Exists, "make directory", self.place(&made));
        if file?.is_some() || directory?.is_some() {
            return Err(exists());
        }
        let metadata = self.metadata(DIRECTORY, set, None);
        match self.store.put(&self.base.key(&made)?, Bytes::new(), &metadata, Precondition::Absent).await {
            Err(e) if e.kind() == ErrorKind::VersionChanged => Err(exists()),
            other => other.map(drop),
        }?;
        self.stat_directory(&made).await?.ok_or_else(|| self.gone("make directory", &made))
    }

    async fn symlink(&self, dir: &Reference, name: &Name, target: &Bytes, set: &SetAttr) -> Result<Object> {
        check_target(target)?;
        if self.config.attributes == AttributeSource::Listed {
            let why = "symbolic links need ?attributes=stored: a listing does not tell them from files";
            return Err(Error::new(ErrorKind::NotSupported, "make a link", why));
        }
        let link = child(&self.base, dir, name, KeyKind::File)?;
        let directory = child(&self.base, dir, name, KeyKind::Directory)?;
        let (dir_is_there, directory) = tokio::join!(self.is_there(dir), self.stat_directory(&directory));
        dir_is_there?;
        let exists = || Error::new(ErrorKind::Exists, "make a link", self.place(&link));
        if directory?.is_some() {
            return Err(exists());
        }
        let stored = StoredAttributes::symlink().set(&SetAttr { mode: None, ..*set }, now());
        let metadata = stored.into_metadata(Metadata::new(), self.config.dialect);
        match self.store.put(&self.base.key(&link)?, target.clone(), &metadata, Precondition::Absent).await {
            Err(e) if e.kind() == ErrorKind::VersionChanged => Err(exists()),
            other => other.map(drop),
        }?;
        self.stat_file(&link).await?.ok_or_else(|| self.gone("make a link", &link))
    }

    async fn remove(&self, dir: &Reference, name: &Name) -> Result<()> {
        let file = child(&self.base, dir, name, KeyKind::File)?;
        let (found, directory) = (self.stat_file(&file), child(&self.base, dir, name, KeyKind::Directory)?);
        if found.await?.is_none() {
            let kind = match self.stat_directory(&directory).await? {
                Some(_) => ErrorKind::IsADirectory,
                None => ErrorKind::NotFound,
            };
            return Err(Error::new(kind, "remove", self.place(&file)));
        }
        self.store.delete(&self.base.key(&file)?, None).await?;
        self.stat_cache.changed(&file.0);
        self.drop_writer(&file).await;
        self.keep_directory(dir).await
    }

    /// Drops the buffered writes of an object that is removed.
    async fn drop_writer(&self, file: &Reference) {
        if let Some(writer) = self.writer(file) {
            writer.give_up(&*self.store).await;
            self.forget(file, &writer);
        }
    }

    /// Keeps a directory, by a marker, if its last key was removed.
    async fn keep_directory(&self, dir: &Reference) -> Result<()> {
        if dir.0.is_empty() || self.stat_directory(dir).await?.is_some() {
            return Ok(());
        }
        match self.store.put(&self.base.key(dir)?, Bytes::new(), &Metadata::new(), Precondition::Absent).await
        {
            Err(e) if e.kind() == ErrorKind::VersionChanged => Ok(()),
            other => other.map(drop),
        }
    }

    async fn rmdir(&self, dir: &Reference, name: &Name) -> Result<()> {
        let gone = child(&self.base, dir, name, KeyKind::Directory)?;
        let key = self.base.key(&gone)?;
        let page = self.keys(&key, None, 2).await?;
        if page.keys().any(|below| below != key) {
            return Err(Error::new(ErrorKind::NotEmpty, "remove directory", self.place(&gone)));
        }
        if page.is_empty() {
            let kind = match self.stat_file(&child(&self.base, dir, name, KeyKind::File)?).await? {
                Some(_) => ErrorKind::NotADirectory,
                None => ErrorKind::NotFound,
            };
            return Err(Error::new(kind, "remove directory", self.place(&gone)));
        }
        self.store.delete(&key, None).await?;
        self.keep_directory(dir).await
    }

    async fn getattr_of(&self, reference: &Reference) -> Result<Object> {
        let found = match what(reference) {
            KeyKind::File => self.stat_file(reference).await?,
            KeyKind::Directory => self.stat_directory(reference).await?,
        };
        found.ok_or_else(|| self.gone("look at", reference))
    }

    async fn set(&self, object: &Reference, set: &SetAttr, guard: Option<Timestamp>) -> Result<Changed> {
        let was = match guard {
            Some(_) => self.getattr_of(object).await?,
            None => match self.stat_cache.get(&object.0) {
                Some(stat) if what(object) == KeyKind::File => self.file(object, &stat),
                _ => self.getattr_of(object).await?,
            },
        };
        if guard.is_some_and(|ctime| ctime != was.attr.ctime) {
            return Err(Error::new(ErrorKind::VersionChanged, "set attributes of", self.place(object)));
        }
        let before = Some(Before::from(&was));
        let changed = |after: Object| Changed { object: Some(after), before, ..Changed::default() };
        if what(object) == KeyKind::Directory {
            return self.describe_directory(object, set).await.map(changed);
        }
        let describes = SetAttr { size: None, ..*set } != SetAttr::default();
        let resizes = set.size.is_some_and(|size| size != was.attr.size || self.writer(object).is_some());
        if !describes && !resizes {
            return Ok(changed(was));
        }
        if !resizes && self.writer(object).is_none() {
            return self.describe(object, set).await.map(changed);
        }
        // In one PUT: what was written, the new size, the metadata.
        for _ in 0..2 {
            let writer = self.writer_of(object).await?;
            let sized = match set.size {
                Some(size) if resizes => writer.resize(size).await,
                _ => true,
            };
            let described = !describes || writer.describe(self.described(&writer, set)).await;
            let after = self.complete(object, &writer).await?;
            if sized && described {
                return Ok(changed(after));
            }
        }
        Err(Error::new(ErrorKind::Busy, "set attributes of", self.place(object)))
    }

    /// The metadata to store with a writer's object.
    pub(crate) fn described(&self, writer: &ObjectWriter, set: &SetAttr) -> Metadata {
        let (now_is, dialect) = (writer.metadata(), self.config.dialect);
        StoredAttributes::of(&now_is, dialect).set(set, now()).into_metadata(now_is, dialect)
    }

    async fn describe(&self, object: &Reference, set: &SetAttr) -> Result<Object> {
        let stat = self.stat(object).await?;
        let key = self.base.key(object)?;
        let dialect = self.config.dialect;
        let stored = StoredAttributes::of(&stat.metadata, dialect).set(set, now());
        let metadata = stored.into_metadata(stat.metadata.clone(), dialect);
        let source = CopySource { key: &key, etag: &stat.etag, size: stat.size };
        let described = describe(&self.store, source, &metadata).await;
        self.stat_cache.changed(&object.0);
        described?;
        self.getattr_of(object).await
    }

    /// Stores a directory's attributes with its marker, which is made if need be.
    async fn describe_directory(&self, dir: &Reference, set: &SetAttr) -> Result<Object> {
        if dir.0.is_empty() {
            return self.look_at_root();
        }
        let key = self.base.key(dir)?;
        let stored = self.store.head(&key).await?.map(|marker| marker.metadata).unwrap_or_default();
        let mut described = StoredAttributes::of(&stored, self.config.dialect).set(set, now());
        described.mode = described.mode.map(|mode| DIRECTORY | mode & 0o7777);
        let described = described.into_metadata(stored, self.config.dialect);
        self.store.put(&key, Bytes::new(), &described, Precondition::Always).await?;
        self.getattr_of(dir).await
    }

    fn look_at_root(&self) -> Result<Object> {
        let why = "the top of a bucket has no attributes; give ?uid, ?gid and ?dirmode behind its URL";
        Err(Error::new(ErrorKind::NotPermitted, "set attributes of", why))
    }
}

#[cfg(test)]
mod tests;
