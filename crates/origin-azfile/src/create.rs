//! Creates files, directories and links.
//!
//! Create File replaces what has the name. So a file is created under a temporary name at the top and renamed, which
//! fails where something has the name already: what others made is never replaced.

use ::origin::change::check_target;
use ::origin::{Object, Reference};
use bytes::Bytes;
use origin_object::AttributeSource;
use origin_object::attributes::StoredAttributes;
use origin_object::store::Metadata;
use types::{CreateHow, Error, ErrorKind, Name, Result, SetAttr, TimeChange};

use crate::attributes::{FileStat, STORED_AS, now, stored};
use crate::calls::FileProperties;
use crate::names::ShareRef;
use crate::origin::AzFileOrigin;

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

fn described(kind: u32, set: &SetAttr) -> StoredAttributes {
    let first =
        StoredAttributes { mode: set.mode.map(|mode| kind | mode & 0o7777), ..StoredAttributes::default() };
    stored(first, &SetAttr { mode: None, ..*set }, now())
}

impl AzFileOrigin {
    pub(crate) async fn create(
        &self,
        dir: &Reference,
        name: &Name,
        how: CreateHow,
        set: &SetAttr,
    ) -> Result<Object> {
        let dir = ShareRef::of(dir)?;
        let path = dir.child(name)?;
        let exists = || Error::new(ErrorKind::Exists, "create", self.display_path(&path));
        // A repeated call finds what the first one made: no look before, except where something may have to be
        // taken.
        if how == CreateHow::Unchecked
            && let Some(there) = self.find(&dir, &path).await?
        {
            return self.take(&path, there, set).await;
        }
        let mut first = described(REGULAR, set);
        if let CreateHow::Exclusive(verifier) = how {
            // Setting attributes ends the exclusive create.
            first.verifier = (*set == SetAttr::default()).then_some(verifier);
        }
        match self.make_file(&dir, &path, set, first.into_metadata(Metadata::new(), STORED_AS), None).await {
            Err(e) if e.kind() == ErrorKind::Exists => {}
            made => return made,
        }
        let there = self
            .find(&dir, &path)
            .await?
            .ok_or_else(|| Error::new(ErrorKind::Busy, "create", self.display_path(&path)))?;
        match how {
            CreateHow::Unchecked => self.take(&path, there, set).await,
            CreateHow::Exclusive(verifier) if !there.is_dir && there.is_made_by(verifier) => {
                let made = self.object(&path, &there);
                if *set == SetAttr::default() {
                    return Ok(made);
                }
                self.set(&made.reference, &set.with_times(), None).await?.made()
            }
            CreateHow::Exclusive(_) | CreateHow::Guarded => Err(exists()),
        }
    }

    /// Takes the existing file, truncated if requested.
    async fn take(&self, path: &str, there: FileStat, set: &SetAttr) -> Result<Object> {
        if there.is_dir || there.is_symlink(&self.config) {
            return Err(Error::new(ErrorKind::Exists, "create", self.display_path(path)));
        }
        let object = self.object(path, &there);
        if set.size.is_none_or(|size| size == there.size) {
            return Ok(object);
        }
        let size = SetAttr { size: set.size, ..SetAttr::default() };
        self.set(&object.reference, &size, None).await?.made()
    }

    async fn make_file(
        &self,
        dir: &ShareRef,
        path: &str,
        set: &SetAttr,
        metadata: Metadata,
        contents: Option<Bytes>,
    ) -> Result<Object> {
        let draft = self.temporary_name();
        let size = contents.as_ref().map_or(set.size.unwrap_or(0), |bytes| bytes.len() as u64);
        let made = self.finish_file((dir, path), &draft, set, (size, &metadata, contents)).await;
        if made.is_err() {
            // Without an answer it may exist or not; it is empty, and its name says whose it is.
            let _ = self.api.remove(&draft, false).await;
        }
        let stat = made?;
        if let Err(gone) = self.check_parent(dir, &stat) {
            // Into a directory that has replaced this one.
            self.api.remove(path, false).await?;
            return Err(gone);
        }
        Ok(self.object(path, &stat))
    }

    async fn finish_file(
        &self,
        (dir, path): (&ShareRef, &str),
        draft: &str,
        set: &SetAttr,
        (size, metadata, contents): (u64, &Metadata, Option<Bytes>),
    ) -> Result<FileStat> {
        let mut stat = self.api.make_file(draft, size, metadata, now()).await?;
        if let Some(bytes) = contents.filter(|bytes| !bytes.is_empty()) {
            self.api.put_range(draft, 0, bytes).await?;
        }
        let time = match set.mtime {
            TimeChange::Keep => None,
            TimeChange::Now => Some(now()),
            TimeChange::To(time) => Some(time),
        };
        if let Some(time) = time {
            let written = Some(time);
            self.api
                .set_properties(draft, &stat, FileProperties { written, ..FileProperties::default() })
                .await?;
        }
        stat = self.api.rename((draft, &stat), path, false).await.map_err(|e| match e.kind() {
            ErrorKind::NotFound => self.gone("create", &dir.path),
            // A directory has the name.
            ErrorKind::NotADirectory => Error::new(ErrorKind::Exists, "create", self.display_path(path)),
            _ => e,
        })?;
        Ok(stat)
    }

    pub(crate) async fn mkdir(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Object> {
        let dir = ShareRef::of(dir)?;
        let path = dir.child(name)?;
        let metadata = described(DIRECTORY, set).into_metadata(Metadata::new(), STORED_AS);
        let made = self.api.make_directory(&path, &metadata).await.map_err(|e| match e.kind() {
            ErrorKind::NotFound => self.gone("make directory", &dir.path),
            ErrorKind::NotADirectory => {
                Error::new(ErrorKind::Exists, "make directory", self.display_path(&path))
            }
            _ => e,
        })?;
        if let Err(gone) = self.check_parent(&dir, &made) {
            self.api.remove(&path, true).await?;
            return Err(gone);
        }
        if set.mtime != TimeChange::Keep {
            let reference = self.object(&path, &made).reference;
            let time = SetAttr { mtime: set.mtime, ..SetAttr::default() };
            return self.set(&reference, &time, None).await?.made();
        }
        Ok(self.object(&path, &made))
    }

    /// A link is a file that is marked in its metadata, as by s3fs in buckets: SMB's own links cannot be made here.
    pub(crate) async fn symlink(
        &self,
        dir: &Reference,
        name: &Name,
        target: &Bytes,
        set: &SetAttr,
    ) -> Result<Object> {
        check_target(target)?;
        if self.config.attributes == AttributeSource::Listed {
            let why = "symbolic links need ?attributes=stored: a listing does not tell them from files";
            return Err(Error::new(ErrorKind::NotSupported, "make a link", why));
        }
        let dir = ShareRef::of(dir)?;
        let path = dir.child(name)?;
        let linked = stored(StoredAttributes::symlink(), &SetAttr { mode: None, ..*set }, now());
        let metadata = linked.into_metadata(Metadata::new(), STORED_AS);
        self.make_file(&dir, &path, set, metadata, Some(target.clone())).await
    }
}
