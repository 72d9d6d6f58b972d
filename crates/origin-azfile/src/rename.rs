//! A rename is one call of the interface, with all below a directory. Only an empty directory that is to be replaced
//! is removed by a call of its own before.

use ::origin::{Changed, Copied, Reference};
use types::{Error, ErrorKind, Name, Result};

use crate::names::{ShareRef, folded};
use crate::origin::AzFileOrigin;

impl AzFileOrigin {
    pub(crate) async fn rename(&self, from: (&Reference, &Name), to: (&Reference, &Name)) -> Result<Changed> {
        let (from_dir, to_dir) = (ShareRef::of(from.0)?, ShareRef::of(to.0)?);
        let (path, to_path) = (from_dir.child(from.1)?, to_dir.child(to.1)?);
        let (old, new) = tokio::join!(self.find(&from_dir, &path), self.find(&to_dir, &to_path));
        let old = old?.ok_or_else(|| Error::new(ErrorKind::NotFound, "rename", self.display_path(&path)))?;
        // The same object, by a name that differs in case.
        let new = new?.filter(|new| new.key != old.key);
        if path == to_path {
            return Ok(Changed { object: Some(self.object(&path, &old)), ..Changed::default() });
        }
        let refuse = |kind| Err(Error::new(kind, "rename", self.display_path(&path)));
        match &new {
            Some(new) if old.is_dir && !new.is_dir => return refuse(ErrorKind::NotADirectory),
            Some(new) if !old.is_dir && new.is_dir => return refuse(ErrorKind::IsADirectory),
            _ => {}
        }
        if old.is_dir && folded(&to_path).starts_with(&format!("{}/", folded(&path))) {
            return refuse(ErrorKind::InvalidArgument);
        }
        if old.is_dir && new.is_some() {
            // Fails if it is not empty.
            self.api.remove(&to_path, true).await?;
        }
        let replaces = !old.is_dir && new.is_some();
        let renamed =
            self.api.rename((&path, &old), &to_path, replaces).await.map_err(|e| match e.kind() {
                // Somebody else was quicker: look again.
                ErrorKind::Exists | ErrorKind::NotADirectory => {
                    Error::new(ErrorKind::Busy, "rename", self.display_path(&path)).with_source(e)
                }
                _ => e,
            })?;
        let object = self.object(&to_path, &renamed);
        // A rename changes the file's ETag, too. A write also changes its mtime.
        let is_same = !old.is_dir && old.key == renamed.key && old.written == renamed.written;
        let (before, after) = (old.version(), renamed.version());
        let copied = Copied { reference: object.reference.clone(), before, after };
        let copied = Some(copied).filter(|_| is_same && before != after).into_iter().collect();
        Ok(Changed { object: Some(object), copied, ..Changed::default() })
    }
}
