//! Changes of names and attributes. What an SMB share does not have (hard links, special files) is refused.

use ::origin::{Before, Change, Changed, Reference};
use origin_object::dir_times::now as exact_now;
use types::{Error, ErrorKind, Name, Result, SetAttr, TimeChange, Timestamp};

use crate::attributes::{STORED_AS, now, stored};
use crate::calls::FileProperties;
use crate::names::ShareRef;
use crate::origin::AzFileOrigin;

impl AzFileOrigin {
    pub(crate) async fn make_change(&self, change: &Change) -> Result<Changed> {
        let mut copied = Vec::new();
        let made = match change {
            Change::Create { dir, name, how, set } => self.create(dir, name, *how, set).await.map(Some),
            Change::Mkdir { dir, name, set } => self.mkdir(dir, name, set).await.map(Some),
            Change::Symlink { dir, name, target, set } => {
                self.symlink(dir, name, target, set).await.map(Some)
            }
            Change::Remove { dir, name } => self.remove(dir, name, false).await.map(|()| None),
            Change::Rmdir { dir, name } => self.remove(dir, name, true).await.map(|()| None),
            Change::Rename { from_dir, from, to_dir, to, identity: _ } => {
                self.rename((from_dir, from), (to_dir, to)).await.map(|told| {
                    copied = told.copied;
                    told.object
                })
            }
            Change::Set { object, set, guard } => return self.set(object, set, *guard).await,
            Change::Link { file, .. } => self.getattr_then_refuse(file, change).await,
            Change::SetXattr { object, .. } => self.getattr_then_refuse(object, change).await,
            Change::Mknod { .. } | Change::Publish { .. } => Err(self.refuse(change)),
        };
        let object = made.map_err(|e| match e.kind() {
            ErrorKind::Unavailable if !change.is_repeatable() => {
                Error::doubtful(change.kind(), self.config.url(), e)
            }
            _ => e,
        })?;
        self.times.changed(change.place(), exact_now());
        if let Change::Rename { to_dir, .. } = change {
            self.times.changed(to_dir, exact_now());
        }
        Ok(Changed { object, copied, ..Changed::default() })
    }

    fn refuse(&self, change: &Change) -> Error {
        Error::new(ErrorKind::NotSupported, change.kind(), self.config.url())
    }

    /// A missing object is reported as such, whatever is requested.
    async fn getattr_then_refuse(
        &self,
        object: &Reference,
        change: &Change,
    ) -> Result<Option<::origin::Object>> {
        self.look_at(change.kind(), &ShareRef::of(object)?).await?;
        Err(self.refuse(change))
    }

    async fn remove(&self, dir: &Reference, name: &Name, is_dir: bool) -> Result<()> {
        let dir = ShareRef::of(dir)?;
        let operation = if is_dir { "remove directory" } else { "remove" };
        let path = dir.child(name).map_err(|e| match e.kind() {
            ErrorKind::InvalidArgument => Error::new(ErrorKind::NotFound, operation, name),
            _ => e,
        })?;
        let kind = match self.find(&dir, &path).await? {
            None => ErrorKind::NotFound,
            Some(found) if found.is_dir && !is_dir => ErrorKind::IsADirectory,
            Some(found) if !found.is_dir && is_dir => ErrorKind::NotADirectory,
            Some(_) => return self.api.remove(&path, is_dir).await,
        };
        Err(Error::new(kind, operation, self.display_path(&path)))
    }

    pub(crate) async fn set(
        &self,
        object: &Reference,
        set: &SetAttr,
        guard: Option<Timestamp>,
    ) -> Result<Changed> {
        let place = ShareRef::of(object)?;
        if set.size.is_some() && place.is_dir {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                "set the size of",
                self.display_path(&place.path),
            ));
        }
        for time in [set.atime, set.mtime] {
            if let TimeChange::To(time) = time {
                crate::attributes::format_time(time)?;
            }
        }
        // No write of ours extends it meanwhile.
        let session = self.sessions.join(&place.path, None);
        let mut known = session.state().await;
        let stat = self.look_at("set attributes of", &place).await?;
        let was = self.object(&place.path, &stat);
        if guard.is_some_and(|ctime| ctime != was.attr.ctime) {
            return Err(Error::new(
                ErrorKind::VersionChanged,
                "set attributes of",
                self.display_path(&place.path),
            ));
        }
        if set.size.is_some() && stat.is_symlink(&self.config) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "set the size of",
                self.display_path(&place.path),
            ));
        }
        let size = set.size.filter(|size| *size != stat.size);
        let written = match set.mtime {
            TimeChange::To(time) => Some(time),
            TimeChange::Now => Some(now()),
            // Setting the size is a write.
            TimeChange::Keep => size.map(|_| now()),
        };
        let before = stat.stored();
        let described = stored(before, set, now());
        if described != before {
            let metadata = described.into_metadata(stat.metadata.clone().unwrap_or_default(), STORED_AS);
            self.api
                .set_metadata(&place.path, place.is_dir, &metadata)
                .await
                .map_err(|e| self.removed_by_others(&place, e))?;
        }
        if size.is_some() || written.is_some() {
            let set = FileProperties { size, written };
            self.api
                .set_properties(&place.path, &stat, set)
                .await
                .map_err(|e| self.removed_by_others(&place, e))?;
        }
        *known = None;
        let after = self.look_at("set attributes of", &place).await?;
        let (before, object) = (Some(Before::from(&was)), Some(self.object(&place.path, &after)));
        Ok(Changed { object, before, ..Changed::default() })
    }

    /// The error for an object that existed when its reference was given out.
    pub(crate) fn removed_by_others(&self, place: &ShareRef, e: Error) -> Error {
        match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => self.gone("change", &place.path),
            _ => e,
        }
    }
}
