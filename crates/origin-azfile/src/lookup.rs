//! Look-ups and listings.

use ::origin::{DirCursor, DirEntry, DirPage, Reference};
use origin_object::AttributeSource;
use origin_object::dir_times::{NameFingerprint, now};
use types::{Error, ErrorKind, Name, Result};

use crate::attributes::FileStat;
use crate::errors::garbled;
use crate::names::{ShareRef, is_temporary, join};
use crate::origin::AzFileOrigin;

impl AzFileOrigin {
    /// Looks for a file and a directory in parallel, since the interface has a call for each. The parent must still
    /// be the same directory.
    pub(crate) async fn find(&self, dir: &ShareRef, path: &str) -> Result<Option<FileStat>> {
        let (file, directory) = tokio::join!(self.api.stat(path, false), self.api.stat(path, true));
        let found = directory?.or(file?);
        match &found {
            Some(stat) => self.check_parent(dir, stat)?,
            None => drop(self.look_at("look into", dir).await?),
        }
        Ok(found)
    }

    /// Checks that the stat's parent is this directory, and not another one of the same path.
    pub(crate) fn check_parent(&self, dir: &ShareRef, stat: &FileStat) -> Result<()> {
        // What is at the top need not name the share's root as its parent.
        let is_top = dir.path.is_empty() && self.config.path.is_empty();
        match stat.parent.is_some_and(|parent| parent != dir.key.id) && !is_top {
            true => Err(self.gone("look into", &dir.path)),
            false => Ok(()),
        }
    }

    pub(crate) async fn list_page(&self, reference: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let dir = ShareRef::of(reference)?;
        if !dir.is_dir {
            return Err(Error::new(ErrorKind::NotADirectory, "list", self.display_path(&dir.path)));
        }
        let (marker, mut names) = match cursor.cookie {
            0 => {
                // A listing does not say which directory it is of.
                self.look_at("list", &dir).await?;
                (None, NameFingerprint::default())
            }
            _ => {
                let kept = self.tokens.find(reference, cursor);
                let (marker, names) = kept.ok_or_else(|| self.gone("go on listing", &dir.path))?;
                (Some(marker), names)
            }
        };
        let page = self.api.list(&dir.path, marker.as_deref()).await;
        let mut page = page.map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => self.gone("list", &dir.path),
            _ => e,
        })?;
        let next = page.next();
        if next.is_some() && next == marker {
            return Err(garbled(
                "list",
                self.display_path(&dir.path),
                "it is to be gone on with where it was",
            ));
        }
        let (shown, nameless) = page.into_entries();
        if nameless > 0 && self.tokens.first_report(reference) {
            tracing::warn!(
                "{nameless} entries have names that make no sense; in {}",
                self.display_path(&dir.path)
            );
        }
        let mut entries = Vec::with_capacity(shown.len());
        for one in shown {
            if dir.path.is_empty() && is_temporary(&one.name) {
                continue;
            }
            let Ok(name) = Name::new(one.name.as_bytes().to_vec()) else {
                if self.tokens.first_report(reference) {
                    let place = self.display_path(&dir.path);
                    tracing::warn!(
                        name = one.name,
                        "not shown: it is longer than 255 bytes, or no name; in {place}"
                    );
                }
                continue;
            };
            let path = join(&dir.path, &one.name);
            let listed = one.stat.filter(|_| self.config.attributes == AttributeSource::Listed);
            names.add(&name);
            entries.push(DirEntry { name, object: listed.map(|stat| self.object(&path, &stat)) });
        }
        if next.is_none() {
            self.times.record_listing(reference, names, now());
        }
        let next = next.map(|marker| self.tokens.store(reference, marker, names));
        Ok(DirPage { entries, next })
    }
}
